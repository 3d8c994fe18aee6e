//! A penalty: a refusal by the rule starts a lock. A refusal during the lock does not extend it. Waiters are not refused,
//! so they start no lock; but they also wait for its end.
//!
//! Let `l` be the end of the lock. A cost is ready when the rule is ready, but not before `l`. A refusal by the rule at
//! `t >= l` sets `l = t + duration`. Units: nanoseconds, exact.

use super::prelude::*;
use super::rule::{Asked, Limit, PolicyExt};

/// Wraps another rule; a refusal is followed by a cooldown in which nothing is granted.
///
/// For logins and similar calls, where calling too often should have a price. A refusal is an
/// [`Error::Denied`](crate::Error) for a call that does not wait long enough for the rule. A refusal because
/// of waiters ahead starts no cooldown, and neither does a call that exceeds the capacity.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{FixedWindow, LockOut, ManualClock, RateLimiter};
///
/// let five_a_minute = FixedWindow::new(5, Duration::from_secs(60));
/// let policy = LockOut::new(five_a_minute, Duration::from_secs(900));
/// let clock = ManualClock::new();
/// let limiter = RateLimiter::with_clock(policy, clock.clone());
/// for _ in 0..5 {
///     limiter.try_acquire(1)?;
/// }
/// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_secs(), 900);
/// clock.advance(Duration::from_secs(600));
/// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_secs(), 300);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockOut<P> {
    pub(crate) policy: P,
    pub(crate) duration: Duration,
}

impl<P: Policy> LockOut<P> {
    /// `policy`, with a lock of `duration` after each refusal. A duration of more than the
    /// [horizon](Nanos::HORIZON) counts as the horizon; a duration of zero means no lock.
    #[must_use]
    pub fn new(policy: P, duration: Duration) -> Self {
        Self { policy, duration: duration.min(Nanos::HORIZON) }
    }
}

/// The state of a [`LockOut`]: the rule's state, and the end of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOutState<S> {
    pub(super) state: S,
    pub(super) locked_until: Nanos,
}

impl<P: Policy> Policy for LockOut<P> {
    type Cost = P::Cost;
    type State = LockOutState<P::State>;
    type Receipt = P::Receipt;

    const HELD: bool = P::HELD;
    const RELEASE_TIMED: bool = P::RELEASE_TIMED;
    fn start(&self, now: Nanos) -> Self::State {
        LockOutState { state: self.policy.start(now), locked_until: Nanos::ZERO }
    }

    fn idle_at(&self, lock: &Self::State) -> Option<Nanos> {
        Some(self.policy.idle_at(&lock.state)?.max(lock.locked_until))
    }

    fn ready_at(
        &self,
        lock: &Self::State,
        now: Nanos,
        cost: P::Cost,
    ) -> Result<Ready, ExceedsCapacity> {
        let ready = self.policy.ready_at(&lock.state, now, cost)?;
        Ok(ready.and(Ready::At(lock.locked_until)))
    }

    fn charge(&self, lock: &mut Self::State, at: Nanos, cost: P::Cost) -> P::Receipt {
        self.policy.charge(&mut lock.state, at, cost)
    }

    fn refund(
        &self,
        lock: &mut Self::State,
        now: Nanos,
        part: P::Cost,
        receipt: P::Receipt,
    ) -> P::Receipt {
        self.policy.refund(&mut lock.state, now, part, receipt)
    }

    /// A lock that has begun keeps its end.
    fn migrate(&self, old: &Self, lock: &mut Self::State, now: Nanos) {
        self.policy.migrate(&old.policy, &mut lock.state, now);
    }

    fn available(&self, lock: &Self::State, now: Nanos) -> P::Cost {
        if lock.locked_until > now {
            return P::Cost::default();
        }
        self.policy.available(&lock.state, now)
    }

    fn event(&self, lock: &mut Self::State, now: Nanos, event: RuleEvent<P::Cost>) -> Nanos {
        let at = self.policy.tell(&mut lock.state, now, event);
        let is_refused = |cost| {
            let ready = self.policy.ready_at(&lock.state, now, cost);
            lock.locked_until <= now && ready.is_ok_and(|ready| !ready.has_come(now))
        };
        match event {
            RuleEvent::Refused(cost) if is_refused(cost) => {
                lock.locked_until = now.saturating_add(self.duration);
                lock.locked_until
            }
            RuleEvent::Reset => {
                lock.locked_until = Nanos::ZERO;
                at
            }
            _ => at,
        }
    }

    fn facts(&self, number: usize) -> Facts {
        let facts = self.policy.facts(number);
        Facts { kind: Some(Kind::LockOut), catch_up: Duration::ZERO, ..facts }
    }

    fn limits(
        &self,
        lock: &Self::State,
        asked: Asked<P::Cost>,
        visit: &mut dyn FnMut(Limit<P::Cost>),
    ) {
        let opens = asked.opens.and(Ready::At(lock.locked_until));
        // While it is locked, no part of the rule holds callers back.
        if asked.brief && lock.locked_until > asked.now {
            return visit(Limit { ready: Some(opens), ..Limit::default() });
        }
        self.policy.limits(&lock.state, Asked { opens, ..asked }, visit);
    }
}
