//! Where callers wait: one FIFO per limiter, charged when it grants.
//!
//! A caller is charged when it is granted, not when it arrives. So leaving the line costs nothing
//! and everybody behind moves up, a change of rate or a pause re-times everybody, and a big request
//! is not starved by small ones.
//!
//! Nobody depends on anybody else's being polled: whoever touches the line grants all that is due
//! ([`Inner::pump`]), and the clock's alarm touches it when the next grant is due. Wakers are called
//! after the lock is released.

mod charge;
mod inner;
#[cfg(all(test, tollgate_loom))]
mod loom;
mod queue;
mod tail;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod word;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::{Alarm, Errand, Steady};
use crate::error::Error;
use crate::policy::{Cost, Policy};
use crate::stats::{Counters, Stats};
use crate::sync::{Mutex, MutexGuard};
use crate::units::Nanos;
pub(crate) use charge::{Change, Charge};
use inner::NEVER;
pub(crate) use inner::{Bounds, Entered, Inner, Standing};
pub(crate) use queue::Key;
#[cfg(feature = "redis")]
pub(crate) use queue::Queue;
use word::{Attempt, Word};

/// One limiter's state: a word for calls that need not wait, a mutex for the rest.
#[derive(Debug)]
pub(crate) struct Line<P: Policy> {
    word: Word,
    counters: Option<Box<Counters>>,
    inner: Mutex<Inner<P>>,
}

impl<P: Policy> Line<P> {
    /// `counters` are for calls that need no lock; without them there are none.
    pub(crate) fn new(
        policy: P,
        state: P::State,
        time: Steady,
        alarm: Alarm,
        counters: Option<Box<Counters>>,
    ) -> Self {
        let mut inner = Inner::new(policy, state, time, alarm);
        let word = Word::locked();
        if counters.is_some() {
            inner.publish(&word, inner.time.latest());
        }
        Self { word, counters, inner: Mutex::new(inner) }
    }

    /// Takes `cost` if it is ready and nobody waits, else waits up to `max_wait` in line; fails at
    /// once if that cannot be enough.
    // As `Word::attempt`.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    pub(crate) fn enter(
        &self,
        now: impl Fn() -> Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Entered<P>, Error> {
        if cost.is_zero() {
            return Ok(Entered::Granted(Charge { waited: 0, receipt: None, held_by: None }));
        }
        if let Some(one_word) = P::ONE_WORD
            && let Some(counters) = &self.counters
        {
            let at = now();
            match self.word.attempt(at, cost.permits()) {
                Attempt::Granted(booking) => {
                    counters.count(true);
                    let receipt = Some((one_word.receipt)(booking));
                    return Ok(Entered::Granted(Charge { waited: 0, receipt, held_by: None }));
                }
                Attempt::NotBefore(due)
                    if max_wait.is_some_and(|wait| due > at.saturating_add(wait)) =>
                {
                    counters.count(false);
                    return Err(Error::Denied { retry_after: Some(due.since(at)), part: None });
                }
                Attempt::NotBefore(_) | Attempt::Locked => {}
            }
        }
        self.enter_by_mutex(now, cost, max_wait)
    }

    /// Out of line, to keep the way above short.
    #[inline(never)]
    fn enter_by_mutex(
        &self,
        now: impl Fn() -> Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Entered<P>, Error> {
        self.touch(now, |inner, now| inner.enter(now, cost, max_wait))
    }

    /// Locks, grants what is due, does `act`, grants what is due after it, sets the alarm, unlocks
    /// and wakes: every way into the mutex is this one.
    pub(crate) fn touch<R>(
        &self,
        now: impl Fn() -> Nanos,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> R {
        let mut inner = self.inner.lock();
        let (result, errand) = self.act(&mut inner, now, act);
        Self::unlock(inner, errand);
        result
    }

    /// As [`touch`](Self::touch), for those who hold a lock of their own: what there is to do after
    /// unlocking is left to them.
    pub(crate) fn touch_quietly<R>(
        &self,
        now: impl Fn() -> Nanos,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> (R, Aftermath) {
        let mut inner = self.inner.lock();
        let (result, errand) = self.act(&mut inner, now, act);
        let (wake, discard) = (std::mem::take(&mut inner.wake), std::mem::take(&mut inner.discard));
        (result, Aftermath { errand, wake, discard })
    }

    #[inline]
    fn act<R>(
        &self,
        inner: &mut Inner<P>,
        now: impl Fn() -> Nanos,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> (R, Errand) {
        if let (Some(one_word), Some(position)) =
            (P::ONE_WORD, self.word.lock(&mut inner.published))
        {
            (one_word.ticket)(&mut inner.state).position = position;
        }
        // Read under the lock, so that the order of times is the order of events.
        let now = inner.time.read(now());
        inner.pump(now);
        let result = act(inner, now);
        inner.pump(now);
        let errand = inner.arm();
        if self.counters.is_some() {
            inner.publish(&self.word, now);
        }
        (result, errand)
    }

    #[inline]
    fn unlock(mut inner: MutexGuard<'_, Inner<P>>, errand: Errand) {
        if inner.wake.is_empty() && inner.discard.is_empty() {
            drop(inner);
            return errand.run();
        }
        let wake = std::mem::take(&mut inner.wake);
        let discard = std::mem::take(&mut inner.discard);
        drop(inner);
        Aftermath { errand, wake, discard }.run();
    }

    /// The alarm went off: nothing is armed any more.
    pub(crate) fn turn(&self, now: impl Fn() -> Nanos) {
        self.touch(now, |inner, _| inner.armed = NEVER);
    }

    /// The caller is gone in a panic, perhaps one of the policy: its place is given up without
    /// asking the policy anything.
    pub(crate) fn abandon(&self, key: Key) {
        let mut inner = self.inner.lock();
        if inner.queue[key].outcome.is_none() {
            inner.unlink(key);
        }
        inner.stats.given_up += 1;
        let waiter = inner.queue.remove(key);
        drop(inner);
        drop(waiter);
    }

    /// Wakes all who wait, so that they look after themselves.
    pub(crate) fn wake_all(&self) {
        let mut inner = self.inner.lock();
        inner.armed = NEVER;
        // Those granted before somebody panicked, too.
        let mut wakers = std::mem::take(&mut inner.wake);
        wakers.extend(inner.queue.iter().filter_map(|(_, waiter)| waiter.waker.clone()));
        drop(inner);
        wake_each(wakers);
    }

    pub(crate) fn stats(&self, now: impl Fn() -> Nanos) -> Stats {
        let mut stats = self.touch(now, |inner, _| inner.stats);
        if let Some(counters) = &self.counters {
            let (granted, refused) = counters.sum();
            stats.granted += granted;
            stats.refused += refused;
        }
        stats
    }

    /// What is left of a line, and what it has done, if nobody waits and nothing is paused. Only for
    /// one without counters, whose word is not in use.
    pub(crate) fn quiet_state(&self, now: Nanos) -> Option<(P::State, Stats)> {
        let inner = self.inner.lock();
        let quiet = inner.queue.len() == 0 && inner.since <= now;
        quiet.then(|| (inner.state.clone(), inner.stats))
    }
}

/// What there is to do after unlocking.
#[must_use]
pub(crate) struct Aftermath {
    errand: Errand,
    wake: SmallVec<[Waker; 4]>,
    /// Dropped last, and without a lock.
    discard: SmallVec<[Waker; 4]>,
}

impl Aftermath {
    pub(crate) fn run(self) {
        self.errand.run();
        wake_each(self.wake);
        drop(self.discard);
    }
}

/// A waker that panics keeps none of the others from being woken.
pub(crate) fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    let mut panicked = None;
    for waker in wakers {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            panicked.get_or_insert(panic);
        }
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}
