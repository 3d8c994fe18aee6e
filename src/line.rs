//! A limiter's decisions and its queue of waiting callers.
//!
//! A caller is charged when it is granted, not when it arrives. So leaving the queue is free and moves all
//! later callers up, a change of rate or a pause re-times the whole queue, and small requests do not starve a
//! big one.
//!
//! No caller depends on another one being polled: each use of the line grants all that is due
//! ([`Inner::pump`]), and the clock's alarm uses it when the next grant is due. Wakers are called after the
//! lock is released.

mod atomic_state;
mod charge;
mod close;
mod grants;
mod inner;
#[cfg(all(test, tollgate_loom))]
mod loom;
mod outcomes;
mod pause;
mod projection;
mod recorded;
mod settle;
mod tail;
#[cfg(test)]
mod testing;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod timer;
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use crate::clock::Monotone;
use crate::error::Error;
use crate::policy::lock_free::LockFree;
use crate::policy::packed::Attempt;
use crate::policy::schedule::RateReceipt;
use crate::policy::{Cost, Policy};
use crate::stats::{Counters, Stats};
use crate::sync::{ShortMutex, ShortMutexGuard};
use crate::units::Nanos;
use crate::wait_queue::{AfterUnlock, Claim, WaiterId};
use atomic_state::AtomicState;
pub(crate) use charge::{Change, Charge, Taking};
pub(crate) use inner::{Admission, Inner, WaitStatus};
pub(crate) use timer::Timer;

/// One limiter's state: a word for calls that need not wait, if it fits one, and a mutex for the rest.
#[derive(Debug)]
pub(crate) struct Line<P: Policy> {
    /// `None` if the mutex decides all calls.
    word: Option<Box<AtomicState>>,
    /// Counts what the word decided. Not in the cache line of the word, which other processors read.
    counters: Counters,
    inner: ShortMutex<Inner<P>>,
}

impl<P: Policy> Line<P> {
    /// A line that decides without its mutex if the policy allows it.
    pub(crate) fn new(policy: P, state: P::State, time: Monotone) -> Self {
        let mut inner = Inner::new(policy, state, time);
        let word = P::HOOKS.lock_free.is_some().then(|| {
            let word = Box::new(AtomicState::locked());
            inner.publish(&word, inner.time.latest());
            word
        });
        Self { word, counters: Counters::new(), inner: ShortMutex::new(inner) }
    }

    /// How many bytes a line has on the heap while one thread uses it and no caller waits.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn bytes_elsewhere() -> usize {
        if P::HOOKS.lock_free.is_some() { size_of::<AtomicState>() } else { 0 }
    }

    /// A line in which callers will wait: its mutex decides all calls.
    pub(crate) fn with_mutex_only(policy: P, state: P::State, time: Monotone) -> Self {
        Self {
            word: None,
            counters: Counters::new(),
            inner: ShortMutex::new(Inner::new(policy, state, time)),
        }
    }

    /// Decides a call at once if possible: by the word, else under the mutex held for a short time.
    /// `None`: [`enter`](Self::enter) has to decide, because this caller or others have to wait.
    // Inlined, so that the answer stays in registers: a grant that is dropped at once is then never built.
    #[inline(always)]
    pub(crate) fn decide(
        &self,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        if cost.is_zero() {
            return None;
        }
        match (P::HOOKS.lock_free, &self.word) {
            (Some(lock_free), Some(word)) => {
                self.decide_by_word(&lock_free, word, timer, cost, max_wait)
            }
            (Some(_), None) => None,
            (None, _) => self.decide_by_mutex(timer, cost, max_wait),
        }
    }

    #[inline(always)]
    fn decide_by_word(
        &self,
        lock_free: &LockFree<P, P::State, P::Receipt>,
        word: &AtomicState,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let now = timer.coarse_now();
        match word.attempt(now, cost.permits()) {
            Attempt::Granted(receipt) => Some(Ok(self.granted_by_word(lock_free, receipt))),
            // It may be ready by the exact time, which `enter` reads.
            Attempt::NotBefore(_) if timer.is_coarse() => None,
            Attempt::NotBefore(due) => self.refused_by_word(now, due, max_wait),
            Attempt::Undecided => None,
        }
    }

    /// The same for a call that the word left to the mutex because it has to be recorded, or because it was not
    /// ready by the coarse time.
    #[inline]
    fn decide_beside_word(
        &self,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let (Some(lock_free), Some(word)) = (P::HOOKS.lock_free, &self.word) else { return None };
        let now = timer.now();
        let mut attempt = Attempt::Undecided;
        if timer.is_coarse() {
            attempt = word.attempt(now, cost.permits());
        }
        if attempt == Attempt::Undecided && !word.is_locked() {
            let mut inner = self.inner.try_lock()?;
            attempt = inner.attempt_recorded(word, now, cost.permits(), || timer.now());
        }
        match attempt {
            Attempt::Granted(receipt) => Some(Ok(self.granted_by_word(&lock_free, receipt))),
            Attempt::NotBefore(due) => self.refused_by_word(now, due, max_wait),
            Attempt::Undecided => None,
        }
    }

    /// Takes as much of `most` as is there now, and at least `least`, or is refused as that would be. `None`:
    /// [`take_up_to_with_lock`](Self::take_up_to_with_lock) has to decide.
    #[inline]
    pub(crate) fn take_up_to(
        &self,
        timer: &impl Timer,
        least: P::Cost,
        most: P::Cost,
    ) -> Option<Result<Taking<P>, Error>> {
        if most.is_zero() {
            return Some(self.charge_nothing().map(|charge| (most, charge)));
        }
        let (Some(lock_free), Some(word)) = (P::HOOKS.lock_free, &self.word) else { return None };
        // The exact time: a coarse one would find fewer permits.
        let now = timer.now();
        match word.attempt_up_to(now, least.permits(), most.permits()) {
            Attempt::Granted(receipt) => {
                let cost = most.at_most(receipt.permits());
                Some(Ok((cost, self.granted_by_word(&lock_free, receipt))))
            }
            Attempt::NotBefore(due) => Some(Err(self.denied_by_word(now, due))),
            Attempt::Undecided => None,
        }
    }

    /// `taken` gets the outcome, as `entered` does in [`enter`](Self::enter).
    pub(crate) fn take_up_to_with_lock(
        &self,
        timer: &impl Timer,
        least: P::Cost,
        most: P::Cost,
        taken: impl FnOnce(P::Cost, Charge<P::Receipt>),
    ) -> Result<(), Error> {
        self.with_lock(timer, |inner, now| {
            inner.take_up_to(now, least, most).map(|(cost, charge)| taken(cost, charge))
        })
    }

    #[inline(always)]
    fn granted_by_word(
        &self,
        lock_free: &LockFree<P, P::State, P::Receipt>,
        receipt: RateReceipt,
    ) -> Charge<P::Receipt> {
        self.counters.count(true);
        Charge { waited: 0, receipt: Some((lock_free.receipt)(receipt)), limited_by: None }
    }

    /// `None` if the caller accepts the wait.
    #[inline(always)]
    fn refused_by_word(
        &self,
        now: Nanos,
        due: Nanos,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let is_too_late = |wait: Duration| wait.is_zero() || due > now.saturating_add(wait);
        max_wait.is_some_and(is_too_late).then(|| Err(self.denied_by_word(now, due)))
    }

    #[inline(always)]
    fn denied_by_word(&self, now: Nanos, due: Nanos) -> Error {
        self.counters.count(false);
        Error::Denied { retry_after: Some(due.since(now)), part: None }
    }

    /// While no caller waits and nothing is paused, [`act`](Self::act) would have nothing to do besides the
    /// decision.
    #[inline(always)]
    fn decide_by_mutex(
        &self,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        // Before the lock: to read the clock under it would keep other callers waiting.
        let read = (!P::HOOKS.timeless).then(|| timer.now());
        let mut inner = self.inner.try_lock()?;
        let now = read.map_or(inner.time.latest(), |read| inner.time.read(read));
        if !inner.is_quiet(now) || inner.owes() {
            return None;
        }
        if inner.is_ready(now, cost) {
            return Some(Ok(inner.charge_at_once(now, cost)));
        }
        max_wait.is_some_and(|wait| wait.is_zero()).then(|| Err(inner.refuse(now, cost)))
    }

    /// Decides a call that [`decide`](Self::decide) could not, if that takes no more than the word: nothing of it can
    /// panic.
    #[inline]
    pub(crate) fn decide_again(
        &self,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        if cost.is_zero() {
            return Some(self.charge_nothing());
        }
        self.decide_beside_word(timer, cost, max_wait)
    }

    /// A call for nothing need not wait.
    fn charge_nothing(&self) -> Result<Charge<P::Receipt>, Error> {
        let is_closed = self.briefly(|inner| inner.is_closed());
        let charge = Charge { waited: 0, receipt: None, limited_by: None };
        if is_closed { Err(Error::Closed) } else { Ok(charge) }
    }

    /// Takes `cost` if it is ready and no caller waits, else joins the queue for up to `max_wait`, at the place
    /// that it claims; fails at once if that cannot be enough. `entered` gets the outcome, also if the policy
    /// panics over other callers afterwards.
    #[inline]
    pub(crate) fn enter(
        &self,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
        claim: Claim,
        waker: Option<&Waker>,
        entered: impl FnOnce(Admission<P>),
    ) -> Result<(), Error> {
        match self.decide_again(timer, cost, max_wait) {
            Some(charge) => charge.map(Admission::Granted).map(entered),
            None => self.enter_with_lock(timer, cost, max_wait, claim, waker, entered),
        }
    }

    // Not inlined, to keep the path without a wait short.
    #[inline(never)]
    pub(crate) fn enter_with_lock(
        &self,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
        claim: Claim,
        waker: Option<&Waker>,
        entered: impl FnOnce(Admission<P>),
    ) -> Result<(), Error> {
        self.with_lock(timer, |inner, now| {
            inner.enter(now, cost, max_wait, claim, waker).map(entered)
        })
    }

    /// Gives back what a grant held, if no caller waits for it and the time does not matter. Returns whether
    /// it did.
    #[inline(always)]
    pub(crate) fn release_at_once(&self, cost: P::Cost) -> bool {
        P::HOOKS.lock_free.is_none()
            && P::HOOKS.timeless_release
            && self.inner.try_lock().is_some_and(|mut inner| inner.release_at_once(cost))
    }

    /// Locks, grants what is due, runs `act`, grants what is due after it, sets the alarm, unlocks and wakes:
    /// the one way to change something that takes longer.
    ///
    /// All of this is done even if a policy or a waker panics. The panic goes on afterwards, and the result of
    /// `act` is lost then.
    pub(crate) fn with_lock<R>(
        &self,
        timer: &impl Timer,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> R {
        let mut inner = self.inner.lock();
        let acted = self.act(&mut inner, timer, act);
        Self::unlock(inner, acted)
    }

    /// As [`with_lock`](Self::with_lock), for callers that hold a lock of their own: they run what is left to
    /// do after both locks are released.
    pub(crate) fn with_lock_deferred<R>(
        &self,
        timer: &impl Timer,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> (R, AfterUnlock) {
        let mut inner = self.inner.lock();
        let (result, after_unlock) = self.act(&mut inner, timer, act);
        drop(inner);
        match result {
            Ok(result) => (result, after_unlock),
            Err(panic) => {
                after_unlock.run();
                resume_unwind(panic)
            }
        }
    }

    /// Reads under the mutex. Changes nothing, except that waiting callers get what is due. While no caller
    /// waits, the word goes on deciding calls.
    pub(crate) fn look<R>(
        &self,
        timer: &impl Timer,
        look: impl FnOnce(&Inner<P>, Nanos) -> R,
    ) -> R {
        let mut inner = self.inner.lock();
        if inner.queue_len() > 0 || inner.owes() {
            drop(inner);
            return self.with_lock(timer, |inner, now| look(inner, now));
        }
        if let (Some(lock_free), Some(word)) = (P::HOOKS.lock_free, &self.word)
            && let Some(position) = word.position()
        {
            (lock_free.state)(&mut inner.state).position = position;
        }
        let now = inner.time.read(timer.now());
        look(&inner, now)
    }

    pub(crate) fn policy(&self) -> P {
        self.inner.lock().policy.clone()
    }

    fn act<R>(
        &self,
        inner: &mut Inner<P>,
        timer: &impl Timer,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> (thread::Result<R>, AfterUnlock) {
        // While callers wait, it stays locked.
        let word = self.word.as_ref().filter(|_| inner.queue_len() == 0);
        let word = word.and_then(|word| word.lock(&mut inner.published));
        // Read under the lock, so that the order of times is the order of events.
        let now = inner.time.read(timer.now());
        if let Some(positions) = word {
            inner.take_over(positions, now);
        }
        if inner.owes() {
            _ = inner.pay(now);
        }
        let before = catch_unwind(AssertUnwindSafe(|| inner.pump(now)));
        let result = catch_unwind(AssertUnwindSafe(|| act(inner, now)));
        let after = catch_unwind(AssertUnwindSafe(|| inner.pump(now)));
        let result = before.and(after).and(result);
        if result.is_err() || inner.owes() {
            inner.try_again_later(now);
        }
        inner.wake_if_drained();
        let after_unlock = inner.arm(timer, now);
        if let Some(word) = &self.word {
            inner.publish(word, now);
        }
        (result, after_unlock)
    }

    #[inline]
    fn unlock<R>(
        inner: ShortMutexGuard<'_, Inner<P>>,
        (result, after_unlock): (thread::Result<R>, AfterUnlock),
    ) -> R {
        drop(inner);
        after_unlock.run();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The alarm went off.
    pub(crate) fn on_alarm(&self, timer: &impl Timer) {
        let mut inner = self.inner.lock();
        inner.disarm();
        let acted = self.act(&mut inner, timer, |_, _| ());
        Self::unlock(inner, acted);
    }

    /// The alarm went off with others; see [`OnAlarm::on_round`](crate::clock::OnAlarm::on_round).
    pub(crate) fn on_round(&self, timer: &impl Timer, wake: &mut Vec<Waker>) -> usize {
        let mut inner = self.inner.lock();
        inner.disarm();
        let (result, after_unlock) = self.act(&mut inner, timer, |inner, _| inner.queue_len());
        drop(inner);
        after_unlock.run_without_waking(wake);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The outcome of a waiter, if it is decided. Grants nothing.
    pub(crate) fn take_outcome(&self, id: WaiterId) -> Option<Result<Charge<P::Receipt>, Error>> {
        self.briefly(|inner| inner.take_outcome(id))
    }

    /// A waiting caller leaves.
    pub(crate) fn leave(&self, timer: &impl Timer, id: WaiterId) {
        if self.briefly(|inner| inner.leave_quietly(id, || timer.now())).is_none() {
            self.with_lock(timer, |inner, now| inner.leave(id, now));
        }
    }

    /// Changes nothing for which others would have to be granted or the alarm set.
    fn briefly<R>(&self, act: impl FnOnce(&mut Inner<P>) -> R) -> R {
        match self.inner.try_lock() {
            Some(mut inner) => act(&mut inner),
            None => act(&mut self.inner.lock()),
        }
    }

    /// Wakes all waiting callers, which then check for themselves.
    pub(crate) fn wake_all(&self) {
        let after_unlock = self.inner.lock().wake_all();
        after_unlock.run();
    }

    pub(crate) fn stats(&self, timer: &impl Timer) -> Stats {
        let mut stats = self.look(timer, |inner, _| inner.stats);
        let (granted, refused) = self.counters.sum();
        stats.granted += granted;
        stats.refused += refused;
        stats
    }

    /// The state and the counts of a line, if no caller waits and nothing is paused. Only for one
    /// [with a mutex only](Self::with_mutex_only).
    pub(crate) fn quiet_state(&self, now: Nanos) -> Option<(P::State, Stats)> {
        let inner = self.inner.lock();
        (inner.is_quiet(now) && !inner.owes()).then(|| (inner.state.clone(), inner.stats))
    }
}
