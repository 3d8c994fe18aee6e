//! How a call is decided: by the word, or under the mutex held for a short time, and if that does not do, with the queue.

use std::task::Waker;
use std::time::Duration;

use super::Line;
use super::atomic_state::AtomicState;
use super::charge::Charge;
use super::inner::Admission;
use crate::error::Error;
use crate::policy::lock_free::LockFree;
use crate::policy::packed::Attempt;
use crate::policy::schedule::RateReceipt;
use crate::policy::{Cost, Policy, Timed};
use crate::units::Nanos;
use crate::wait_queue::{Ask, WaiterId};

impl<P: Policy> Line<P> {
    /// Decides a call at once if possible: by the word, else under the mutex held for a short time.
    /// `None`: [`enter`](Self::enter) has to decide, because this caller or others have to wait.
    // Inlined, so that the answer stays in registers: a grant that is dropped at once is then never built.
    #[inline(always)]
    pub(crate) fn decide(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        if cost.is_zero() {
            return None;
        }
        match (P::HOOKS.lock_free, &self.word) {
            (Some(lock_free), Some(word)) => self.decide_by_word(&lock_free, word, cost, max_wait),
            (Some(_), None) => None,
            (None, _) => self.decide_by_mutex(cost, max_wait),
        }
    }

    #[inline(always)]
    fn decide_by_word(
        &self,
        lock_free: &LockFree<P, P::State, P::Receipt, P::Cost>,
        word: &AtomicState,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let now = self.clock.now();
        match word.attempt(now, cost.permits()) {
            Attempt::Granted(receipt) => Some(Ok(self.granted_by_word(lock_free, receipt))),
            Attempt::NotBefore(due) => self.refused_by_word(now, due, max_wait),
            Attempt::Undecided => None,
        }
    }

    /// The same for a call that the word left to the mutex because it has to be recorded.
    #[inline]
    fn decide_beside_word(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        let (Some(lock_free), Some(word)) = (P::HOOKS.lock_free, &self.word) else { return None };
        let now = self.clock.now();
        if word.is_locked() {
            return None;
        }
        let attempt =
            self.inner.try_lock()?.attempt_recorded(word, now, cost.permits(), || self.clock.now());
        match attempt {
            Attempt::Granted(receipt) => Some(Ok(self.granted_by_word(&lock_free, receipt))),
            Attempt::NotBefore(due) => self.refused_by_word(now, due, max_wait),
            Attempt::Undecided => None,
        }
    }

    #[inline(always)]
    fn granted_by_word(
        &self,
        lock_free: &LockFree<P, P::State, P::Receipt, P::Cost>,
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

    /// While no caller waits and nothing is paused, [`with_lock`](Self::with_lock) would have nothing to do besides the
    /// decision.
    #[inline(always)]
    fn decide_by_mutex(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        // Before the lock: to read the clock under it would keep other callers waiting.
        let read = (P::TIMED != Timed::Never).then(|| self.clock.now());
        let mut inner = self.inner.try_lock()?;
        let now = read.map_or(inner.time.latest(), |read| inner.time.read(read));
        if !inner.is_quiet(now) {
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
    fn decide_again(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        if cost.is_zero() {
            return Some(self.charge_nothing());
        }
        self.decide_beside_word(cost, max_wait)
    }

    /// A call for nothing need not wait.
    fn charge_nothing(&self) -> Result<Charge<P::Receipt>, Error> {
        let is_closed = self.briefly(|inner| inner.is_closed());
        let charge = Charge { waited: 0, receipt: None, limited_by: None };
        if is_closed { Err(Error::Closed) } else { Ok(charge) }
    }
}

/// With the queue.
impl<P: Policy> Line<P> {
    /// For a call that [`decide`](Self::decide) has left open. Takes the cost if it is ready and no caller waits, else joins the queue at the place that the caller claims; fails
    /// at once if its time to wait cannot be enough.
    #[inline]
    pub(crate) fn enter(
        &self,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        match self.decide_again(ask.cost, ask.max_wait) {
            Some(charge) => charge.map(Admission::Granted),
            None => self.enter_with_lock(ask, waker),
        }
    }

    // Not inlined, to keep the path without a wait short.
    #[inline(never)]
    fn enter_with_lock(
        &self,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        self.with_lock(|inner, now| inner.enter(now, ask, waker))
    }

    /// Enters with no time to wait: the caller is granted or refused at once.
    // Not a grant, for the reason given at `LinePlace::poll_in_line`.
    #[inline(never)]
    pub(crate) fn enter_now(&self, cost: P::Cost) -> Result<Charge<P::Receipt>, Error> {
        match self.enter(&Ask::new(cost, Some(Duration::ZERO)), None)? {
            Admission::Granted(charge) => Ok(charge),
            Admission::Waiting(_) => unreachable!("a caller with no time does not wait"),
        }
    }

    /// The outcome of a waiter, if it is decided. Grants nothing, but wakes the callers that were granted with this one.
    pub(crate) fn take_outcome(&self, id: WaiterId) -> Option<Result<Charge<P::Receipt>, Error>> {
        self.clock.wake_others();
        self.briefly(|inner| inner.take_outcome(id))
    }

    /// A waiting caller leaves. Also wakes the callers that were granted with this one.
    pub(crate) fn leave(&self, id: WaiterId) {
        self.clock.wake_others();
        if self.briefly(|inner| inner.leave_quietly(id, || self.clock.now())).is_none() {
            self.with_lock(|inner, now| inner.leave(id, now));
        }
    }
}
