//! How a call is decided: by the word, or under the mutex while no caller waits, and if that does not do, with the queue.

use std::task::Waker;
use std::time::Duration;

use super::Line;
use super::charge::Charge;
use super::inner::{Admission, Decided, decide};
use crate::error::Error;
use crate::policy::schedule::{Attempt, RateReceipt};
use crate::policy::{Cost, Policy};
use crate::units::Nanos;
use crate::wait_queue::{Ask, WaiterId};

impl<P: Policy> Line<P> {
    /// Decides a call at once if possible: by the word, or else under the mutex.
    /// `None`: not decided here; [`enter`](Self::enter) does, for example because this caller or others have to wait.
    // Inlined, so that the answer stays in registers: a grant that is dropped at once is then never built.
    #[inline(always)]
    pub(crate) fn decide(&self, cost: P::Cost, max_wait: Option<Duration>) -> Decided<P> {
        if cost.is_zero() {
            return None;
        }
        if P::ONE_RATE.is_none() {
            return self.decide_by_mutex(cost, max_wait);
        }
        let word = self.word.as_ref()?;
        let now = self.clock.now();
        self.by_word(now, word.attempt(now, cost.permits()), max_wait)
    }

    /// What the word says. `None` if the caller accepts the wait, or the word does not decide.
    #[inline(always)]
    fn by_word(
        &self,
        now: Nanos,
        attempt: Attempt<RateReceipt>,
        max_wait: Option<Duration>,
    ) -> Decided<P> {
        match attempt {
            Attempt::Granted(receipt) => {
                self.counters.count(true);
                Some(Ok(Charge::at_once(Some((P::ONE_RATE?.receipt)(receipt)))))
            }
            Attempt::ReadyAt(due) => {
                let is_too_late = |wait: Duration| wait.is_zero() || due > now.saturating_add(wait);
                max_wait.is_some_and(is_too_late).then(|| {
                    self.counters.count(false);
                    Err(Error::Denied { retry_after: Some(due.since(now)), part: None })
                })
            }
            Attempt::Undecided => None,
        }
    }

    /// While no caller waits and nothing is paused, [`with_lock`](Self::with_lock) would have nothing to do besides the
    /// decision.
    #[inline(always)]
    fn decide_by_mutex(&self, cost: P::Cost, max_wait: Option<Duration>) -> Decided<P> {
        // Before the lock: to read the clock under it would keep other callers waiting.
        let read = P::TIMED.then(|| self.clock.now());
        let mut inner = self.inner.lock();
        let now = read.map_or(inner.time.latest(), |read| inner.time.read(read));
        if !inner.is_quiet(now) {
            return None;
        }
        let inner = &mut *inner;
        let decided = decide(&inner.policy, &mut inner.state, now, cost, max_wait)?;
        if decided.is_ok() {
            inner.charges_from = now;
            inner.stats.granted += 1;
        } else {
            inner.stats.refused += 1;
        }
        Some(decided)
    }

    /// Asks the word again, under the mutex, where a call can be recorded. Calls that will wait come here too.
    fn decide_recorded(&self, cost: P::Cost, max_wait: Option<Duration>) -> Decided<P> {
        let word = self.word.as_ref().filter(|word| !word.is_locked())?;
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        let attempt = inner.attempt_recorded(word, now, cost.permits(), || self.clock.now());
        drop(inner);
        self.by_word(now, attempt, max_wait)
    }
}

/// With the queue.
impl<P: Policy> Line<P> {
    /// For a call that [`decide`](Self::decide) has left open: grants it if it is ready and no caller waits, refuses it if its
    /// timeout cannot be enough, or joins the queue at the position that the caller claims.
    pub(crate) fn enter(
        &self,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        if ask.cost.is_zero() {
            // A call for nothing need not wait.
            let is_closed = self.inner.lock().is_closed();
            return if is_closed {
                Err(Error::Closed)
            } else {
                Ok(Admission::Granted(Charge::at_once(None)))
            };
        }
        match self.decide_recorded(ask.cost, ask.max_wait) {
            Some(charge) => charge.map(Admission::Granted),
            None => self.with_lock(|inner, now| inner.enter(now, ask, waker)),
        }
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
        self.inner.lock().take_outcome(id)
    }

    /// A waiting caller leaves. Also wakes the callers that were granted with this one.
    pub(crate) fn leave(&self, id: WaiterId) {
        self.clock.wake_others();
        self.with_lock(|inner, now| inner.leave(id, now));
    }
}
