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
mod projection;
mod queue;
mod tail;
#[cfg(test)]
mod testing;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod timer;
mod waiting;
mod word;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::{Steady, TimerTask};
use crate::error::Error;
use crate::policy::lock_free::LockFree;
use crate::policy::schedule::RateReceipt;
use crate::policy::{Cost, Policy};
use crate::stats::{Counters, Stats};
use crate::sync::{ShortMutex, ShortMutexGuard};
use crate::units::Nanos;
pub(crate) use charge::{Change, Charge};
pub(crate) use inner::{Admission, Inner, WaitStatus};
#[cfg(feature = "redis")]
pub(crate) use queue::Queue;
pub(crate) use queue::WaiterId;
pub(crate) use timer::Timer;
pub(crate) use waiting::Bounds;
use word::{Attempt, Word};

/// One limiter's state: a word for calls that need not wait, if it fits one, and a mutex for the rest.
#[derive(Debug)]
pub(crate) struct Line<P: Policy> {
    /// `None` where all goes by the mutex.
    word: Option<Box<Word>>,
    /// What the word has decided. Not beside it: a processor must read a line again after another has written it.
    counters: Counters,
    inner: ShortMutex<Inner<P>>,
}

impl<P: Policy> Line<P> {
    /// A line that decides without its mutex where the policy allows it.
    pub(crate) fn new(policy: P, state: P::State, time: Steady) -> Self {
        let mut inner = Inner::new(policy, state, time);
        let word = P::LOCK_FREE.is_some().then(|| {
            let word = Box::new(Word::locked());
            inner.publish(&word, inner.time.latest());
            word
        });
        Self { word, counters: Counters::new(), inner: ShortMutex::new(inner) }
    }

    /// What a line keeps elsewhere as long as one thread uses it and no caller waits.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn bytes_elsewhere() -> usize {
        if P::LOCK_FREE.is_some() { size_of::<Word>() } else { 0 }
    }

    /// A line in which callers will wait: all goes by the mutex.
    pub(crate) fn with_mutex_only(policy: P, state: P::State, time: Steady) -> Self {
        Self {
            word: None,
            counters: Counters::new(),
            inner: ShortMutex::new(Inner::new(policy, state, time)),
        }
    }

    /// Decides a call at once, if it can: by the word, or else under the mutex for a short time.
    /// `None`: [`enter`](Self::enter) has to decide, because the caller has to wait, or others do.
    // In line, so that what it says need not be written to memory and read again: a grant that is dropped at
    // once is then never made.
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
        match (P::LOCK_FREE, &self.word) {
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
        word: &Word,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let now = timer.coarse_now_before(word::END)?;
        match word.attempt(now, cost.permits()) {
            Attempt::Granted(receipt) => Some(Ok(self.granted_by_word(lock_free, receipt))),
            // It may be ready by the exact time, which is asked in `enter`.
            Attempt::NotBefore(_) if timer.is_coarse() => None,
            Attempt::NotBefore(due) => self.refused_by_word(now, due, max_wait),
            Attempt::Undecided => None,
        }
    }

    /// The same after the coarse time was not enough.
    fn decide_by_exact_time(
        &self,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let (Some(lock_free), Some(word)) = (P::LOCK_FREE, &self.word) else { return None };
        let now = timer.now();
        match word.attempt(now, cost.permits()) {
            Attempt::Granted(receipt) => Some(Ok(self.granted_by_word(&lock_free, receipt))),
            Attempt::NotBefore(due) => self.refused_by_word(now, due, max_wait),
            Attempt::Undecided => None,
        }
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

    /// `None` if the caller can wait until it is due.
    #[inline(always)]
    fn refused_by_word(
        &self,
        now: Nanos,
        due: Nanos,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let is_too_late = |wait: Duration| wait.is_zero() || due > now.saturating_add(wait);
        max_wait.is_some_and(is_too_late).then(|| {
            self.counters.count(false);
            Err(Error::Denied { retry_after: Some(due.since(now)), part: None })
        })
    }

    /// If no caller waits and nothing is paused, all that [`act`](Self::act) does but the decision itself
    /// has nothing to do.
    #[inline(always)]
    fn decide_by_mutex(
        &self,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        // Before the lock: a clock reading under it would keep other callers waiting.
        let read = if P::TIMELESS && !timer.was_set_back() { None } else { Some(timer.now()) };
        let mut inner = self.inner.try_lock()?;
        let now = match read {
            Some(read) => inner.time.read_before(read)?,
            None => inner.time.latest(),
        };
        if !inner.is_quiet(now) {
            return None;
        }
        if inner.is_ready(now, cost) {
            return Some(Ok(inner.charge_at_once(now, cost)));
        }
        max_wait.is_some_and(|wait| wait.is_zero()).then(|| Err(inner.refuse(now, cost)))
    }

    /// Takes `cost` if it is ready and no caller waits, else waits up to `max_wait` in line; fails at
    /// once if that cannot be enough. `entered` keeps what became of the caller, also if the policy
    /// panics over others afterwards.
    // Out of line, to keep the way at once short.
    #[inline(never)]
    pub(crate) fn enter(
        &self,
        timer: &impl Timer,
        cost: P::Cost,
        max_wait: Option<Duration>,
        entered: impl FnOnce(Admission<P>),
    ) -> Result<(), Error> {
        let granted = if cost.is_zero() {
            Some(Ok(Charge { waited: 0, receipt: None, limited_by: None }))
        } else if timer.is_coarse() {
            self.decide_by_exact_time(timer, cost, max_wait)
        } else {
            None
        };
        match granted {
            Some(charge) => charge.map(Admission::Granted).map(entered),
            None => {
                self.with_lock(timer, |inner, now| inner.enter(now, cost, max_wait).map(entered))
            }
        }
    }

    /// Gives back what a grant held, if no caller waits for it and the time does not matter. Whether that
    /// was so.
    #[inline(always)]
    pub(crate) fn release_at_once(&self, timer: &impl Timer, cost: P::Cost) -> bool {
        P::LOCK_FREE.is_none()
            && P::TIMELESS_RELEASE
            && !timer.was_set_back()
            && self.inner.try_lock().is_some_and(|mut inner| inner.release_at_once(cost))
    }

    /// Locks, grants what is due, does `act`, grants what is due after it, sets the alarm, unlocks
    /// and wakes: every way to change something that takes longer is this one.
    ///
    /// A policy or a waker that panics keeps none of this from being done; the caller meets the panic
    /// afterwards, and what `act` returned is lost then.
    pub(crate) fn with_lock<R>(
        &self,
        timer: &impl Timer,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> R {
        let mut inner = self.inner.lock();
        let acted = self.act(&mut inner, timer, act);
        Self::unlock(inner, acted)
    }

    /// As [`with_lock`](Self::with_lock), for those who hold a lock of their own: what there is to do after
    /// unlocking is left to them.
    pub(crate) fn with_lock_deferred<R>(
        &self,
        timer: &impl Timer,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> (R, AfterUnlock) {
        let mut inner = self.inner.lock();
        let (result, timer_task) = self.act(&mut inner, timer, act);
        let [wake, discard] = inner.take_wakers();
        drop(inner);
        let after_unlock = AfterUnlock { timer_task, wake, discard };
        match result {
            Ok(result) => (result, after_unlock),
            Err(panic) => {
                after_unlock.run();
                resume_unwind(panic)
            }
        }
    }

    /// Looks at what is under the mutex and changes nothing, but that waiting callers get what is due.
    /// Where no caller waits, calls are decided by the word meanwhile.
    pub(crate) fn look<R>(
        &self,
        timer: &impl Timer,
        look: impl FnOnce(&Inner<P>, Nanos) -> R,
    ) -> R {
        let mut inner = self.inner.lock();
        if inner.queue_len() > 0 {
            drop(inner);
            return self.with_lock(timer, |inner, now| look(inner, now));
        }
        if let (Some(lock_free), Some(word)) = (P::LOCK_FREE, &self.word)
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
    ) -> (thread::Result<R>, Option<TimerTask>) {
        if let (Some(lock_free), Some(word)) = (P::LOCK_FREE, &self.word)
            && let Some(position) = word.lock(&mut inner.published)
        {
            (lock_free.state)(&mut inner.state).position = position;
        }
        // Read under the lock, so that the order of times is the order of events.
        let now = inner.time.read(timer.now());
        let before = catch_unwind(AssertUnwindSafe(|| inner.pump(now)));
        let result = catch_unwind(AssertUnwindSafe(|| act(inner, now)));
        let after = catch_unwind(AssertUnwindSafe(|| inner.pump(now)));
        let result = before.and(after).and(result);
        if result.is_err() {
            inner.try_again_later(now);
        }
        let timer_task = inner.arm(timer);
        if let Some(word) = &self.word {
            inner.publish(word, now);
        }
        (result, timer_task)
    }

    #[inline]
    fn unlock<R>(
        mut inner: ShortMutexGuard<'_, Inner<P>>,
        (result, timer_task): (thread::Result<R>, Option<TimerTask>),
    ) -> R {
        let [wake, discard] = inner.take_wakers();
        drop(inner);
        AfterUnlock { timer_task, wake, discard }.run();
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// The alarm went off.
    pub(crate) fn on_alarm(&self, timer: &impl Timer) {
        let mut inner = self.inner.lock();
        inner.disarm();
        let acted = self.act(&mut inner, timer, |_, _| ());
        Self::unlock(inner, acted);
    }

    /// Wakes all who wait, so that they look after themselves.
    pub(crate) fn wake_all(&self) {
        let wakers = {
            let mut inner = self.inner.lock();
            inner.disarm();
            inner.all_wakers()
        };
        wake_each(wakers);
    }

    pub(crate) fn stats(&self, timer: &impl Timer) -> Stats {
        let mut stats = self.look(timer, |inner, _| inner.stats);
        let (granted, refused) = self.counters.sum();
        stats.granted += granted;
        stats.refused += refused;
        stats
    }

    /// What is left of a line, and what it has done, if nobody waits and nothing is paused. Only for
    /// one [with a mutex only](Self::with_mutex_only).
    pub(crate) fn quiet_state(&self, now: Nanos) -> Option<(P::State, Stats)> {
        let inner = self.inner.lock();
        inner.is_quiet(now).then(|| (inner.state.clone(), inner.stats))
    }
}

/// What there is to do after unlocking.
#[must_use]
pub(crate) struct AfterUnlock {
    timer_task: Option<TimerTask>,
    wake: SmallVec<[Waker; 4]>,
    /// Dropped last, and without a lock.
    discard: SmallVec<[Waker; 4]>,
}

impl AfterUnlock {
    pub(crate) fn run(self) {
        if let Some(task) = self.timer_task {
            task.start();
        }
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
