//! The state that all clones of a limiter share.

use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use crate::clock::{Alarm, Clock, Monotone, OnAlarm};
use crate::error::Error;
use crate::limiter::in_drop;
use crate::line::{Admission, Change, Charge, Inner, Line, Taking, Timer};
use crate::observe::{LazyObserver, Observer};
use crate::policy::{Limit, Policy, Quota, Rated, Snapshot};
use crate::stats::{Stats, Waits};
use crate::units::{Nanos, Rate};
use crate::wait_queue::{AfterUnlock, Bounds, Claim, End, WaiterId};

/// The state that all clones of a limiter share.
pub(crate) struct Shared<P: Policy> {
    pub(super) clock: Clock,
    line: Line<P>,
    pub(super) observer: LazyObserver,
    this: Weak<Self>,
}

impl<P: Policy> Shared<P> {
    pub(super) fn new(
        policy: P,
        clock: Clock,
        observer: LazyObserver,
        bounds: Bounds,
    ) -> Arc<Self> {
        let time = Monotone::new(clock.now());
        let state = policy.start(time.latest());
        let shared = Self::around(Line::new(policy, state, time), clock, observer);
        if bounds != Bounds::NONE {
            shared.with_lock(|inner, _| inner.set_bounds(bounds));
        }
        shared
    }

    /// The line of a key.
    pub(crate) fn of_key(
        policy: P,
        state: P::State,
        (clock, observer): (&Clock, &Arc<Observer>),
        bounds: Bounds,
    ) -> Arc<Self> {
        let time = Monotone::new(clock.now());
        let line = Line::with_mutex_only(policy, state, time);
        let shared = Self::around(line, clock.clone(), LazyObserver::of(Arc::clone(observer)));
        shared.with_lock(|inner, _| inner.set_bounds(bounds));
        shared
    }

    /// The memory that a limiter takes as long as one thread uses it and no caller waits.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(super) fn bytes() -> usize {
        let counts = 2 * size_of::<usize>();
        counts.max(align_of::<Self>()) + size_of::<Self>() + Line::<P>::bytes_elsewhere()
    }

    fn around(line: Line<P>, clock: Clock, observer: LazyObserver) -> Arc<Self> {
        Arc::new_cyclic(|this| Self { clock, line, observer, this: this.clone() })
    }

    /// As `Line::decide`.
    #[inline(always)]
    pub(super) fn decide(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        self.line.decide(self, cost, max_wait)
    }

    /// As `Line::take_up_to`.
    #[inline]
    pub(crate) fn take_up_to(&self, least: P::Cost, most: P::Cost) -> Result<Taking<P>, Error> {
        let decided = self.line.take_up_to(self, least, most);
        decided.unwrap_or_else(|| self.take_up_to_with_lock(least, most))
    }

    #[inline(never)]
    fn take_up_to_with_lock(&self, least: P::Cost, most: P::Cost) -> Result<Taking<P>, Error> {
        let mut taken = Taken::new(self);
        let hand_over = |cost, charge| taken.charge = Some((cost, charge));
        self.line.take_up_to_with_lock(self, least, most, hand_over)?;
        Ok(taken.handed_over())
    }

    /// Takes permits by `take`, which grants them whether they are ready or not.
    pub(crate) fn take(&self, take: impl FnOnce(&mut Inner<P>, Nanos) -> Taking<P>) -> Taking<P> {
        let Ok(taking) = self.try_take(|inner, now| Ok::<_, Infallible>(take(inner, now)));
        taking
    }

    /// The same, unless `take` fails.
    pub(crate) fn try_take<E>(
        &self,
        take: impl FnOnce(&mut Inner<P>, Nanos) -> Result<Taking<P>, E>,
    ) -> Result<Taking<P>, E> {
        let mut taken = Taken::new(self);
        self.with_lock(|inner, now| take(inner, now).map(|taking| taken.charge = Some(taking)))?;
        Ok(taken.handed_over())
    }

    /// Enters with no time to wait: the caller is granted or refused at once.
    // Not a grant, for the reason given at `Acquire::poll_in_line`.
    #[inline(never)]
    pub(super) fn enter_now(&self, cost: P::Cost) -> Result<Charge<P::Receipt>, Error> {
        let decided = self.line.decide_again(self, cost, Some(Duration::ZERO));
        decided.unwrap_or_else(|| self.enter_now_with_lock(cost))
    }

    #[inline(never)]
    fn enter_now_with_lock(&self, cost: P::Cost) -> Result<Charge<P::Receipt>, Error> {
        let mut taken = Taken::new(self);
        let hand_over = |entered| match entered {
            Admission::Granted(charge) => taken.charge = Some((cost, charge)),
            // A caller with no time to wait is granted or refused; see `Inner::try_enter`.
            Admission::Waiting(_) => unreachable!("waiting without time to wait"),
        };
        let (line, at_once) = (&self.line, Some(Duration::ZERO));
        line.enter_with_lock(self, cost, at_once, Claim::InOrder, None, hand_over)?;
        Ok(taken.handed_over().1)
    }

    /// As `Line::enter`.
    pub(super) fn enter(
        &self,
        cost: P::Cost,
        max_wait: Option<Duration>,
        claim: Claim,
        waker: Option<&Waker>,
        entered: impl FnOnce(Admission<P>),
    ) -> Result<(), Error> {
        self.line.enter(self, cost, max_wait, claim, waker, entered)
    }

    /// Called when a grant is dropped.
    #[inline(always)]
    pub(super) fn release(&self, cost: P::Cost) {
        if !self.line.release_at_once(cost) {
            self.release_in_line(cost);
        }
    }

    #[inline(never)]
    fn release_in_line(&self, cost: P::Cost) {
        in_drop(|| self.with_lock(|inner, now| inner.give_back(now, Change::release(cost))));
    }

    pub(crate) fn with_lock<R>(&self, act: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> R {
        self.line.with_lock(self, act)
    }

    /// As `Line::take_outcome`; also wakes the callers that were granted with this one.
    pub(super) fn take_outcome(&self, id: WaiterId) -> Option<Result<Charge<P::Receipt>, Error>> {
        self.clock.wake_others();
        self.line.take_outcome(id)
    }

    /// As `Line::leave`; also wakes the callers that were granted with this one.
    pub(super) fn leave(&self, id: WaiterId) {
        self.clock.wake_others();
        self.line.leave(self, id);
    }

    /// As `Line::look`.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Inner<P>, Nanos) -> R) -> R {
        self.line.look(self, look)
    }

    /// As `Inner::change`.
    pub(crate) fn change(
        &self,
        change: Change<P>,
        changed: impl FnOnce(Option<P::Receipt>),
    ) -> Result<(), Error> {
        self.with_lock(|inner, now| inner.change(now, change, changed))
    }

    /// As `Inner::give_back`.
    pub(crate) fn give_back(&self, change: Change<P>) {
        self.with_lock(|inner, now| inner.give_back(now, change));
    }

    /// As `Inner::end`.
    pub(crate) fn end(&self, end: End<'_>) -> bool {
        self.clock.ask(|| self.with_lock(|inner, now| inner.end(now, end)))
    }

    pub(crate) fn quota(&self) -> Quota<P::Cost> {
        self.look(Inner::quota)
    }

    pub(crate) fn snapshot(&self) -> Snapshot<P::Cost> {
        self.look(Inner::snapshot)
    }

    pub(crate) fn limits(&self, cost: P::Cost) -> Vec<Limit<P::Cost>> {
        self.look(|inner, now| inner.limits(now, cost))
    }

    pub(crate) fn stats(&self) -> Stats {
        self.line.stats(self)
    }

    #[cfg(feature = "metrics")]
    pub(super) fn observer(&self) -> &Observer {
        self.observer.get()
    }

    pub(crate) fn waits(&self) -> Waits {
        self.observer.waits()
    }

    pub(super) fn policy(&self) -> P {
        self.line.policy()
    }

    /// As `RateLimiter::set_policy`, for a caller that holds a lock. Also sets other bounds of the queue.
    pub(crate) fn set_policy_quietly(&self, policy: P, bounds: Option<Bounds>) -> AfterUnlock {
        let set = |inner: &mut Inner<P>, now| {
            if let Some(bounds) = bounds {
                inner.set_bounds(bounds);
            }
            inner.set_policy(now, policy);
        };
        self.line.with_lock_deferred(self, set).1
    }

    /// As [`set_policy_quietly`](Self::set_policy_quietly), with the policy in force at another rate.
    pub(super) fn set_rate_quietly(&self, rate: Rate) -> AfterUnlock
    where
        P: Rated,
    {
        let set = |inner: &mut Inner<P>, now| {
            let policy = inner.policy().clone().with_rate(rate);
            inner.set_policy(now, policy);
        };
        self.line.with_lock_deferred(self, set).1
    }

    pub(crate) fn quiet_state(&self, now: Nanos) -> Option<(P::State, Stats)> {
        self.line.quiet_state(now)
    }
}

impl<P: Policy> Timer for Shared<P> {
    #[inline(always)]
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    #[inline(always)]
    fn coarse_now(&self) -> Nanos {
        self.clock.coarse_now()
    }

    #[inline]
    fn is_coarse(&self) -> bool {
        self.clock.is_coarse()
    }

    fn alarm(&self) -> Alarm {
        self.clock.alarm(self.this.clone())
    }
}

impl<P: Policy> OnAlarm for Shared<P> {
    fn on_alarm(&self) {
        self.line.on_alarm(self);
    }

    fn on_round(&self, wake: &mut Vec<Waker>) -> usize {
        self.line.on_round(self, wake)
    }

    fn wake_all(&self) {
        self.line.wake_all();
    }
}

/// Permits that were charged, on the way to their caller: given back if a panic over others comes between.
struct Taken<'a, P: Policy> {
    shared: &'a Shared<P>,
    charge: Option<Taking<P>>,
}

impl<'a, P: Policy> Taken<'a, P> {
    fn new(shared: &'a Shared<P>) -> Self {
        Self { shared, charge: None }
    }

    fn handed_over(mut self) -> Taking<P> {
        self.charge.take().unwrap_or_else(|| unreachable!("taken, or an error"))
    }
}

impl<P: Policy> Drop for Taken<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some((cost, charge)) = self.charge.take() {
            let shared = self.shared;
            in_drop(|| shared.with_lock(|inner, now| inner.give_up(now, cost, charge)));
        }
    }
}
