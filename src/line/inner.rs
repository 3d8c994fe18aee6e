//! The decision about a call by the state alone; the state under the mutex of a line, and what all that changes it needs.

use std::task::Waker;
use std::time::Duration;

use super::atomic_state::Published;
use super::charge::Charge;
use super::waiting::Waiting;
use crate::clock::{Alarm, Monotone};
use crate::error::Error;
use crate::part::Part;
use crate::policy::{Asked, Limit, Policy, PolicyExt, Quota, Ready};
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::{AfterUnlock, Bounds, Tenant, WaiterId};

/// A grant or a refusal. `None` if the caller has to wait.
pub(crate) type Decided<P> = Option<Result<Charge<<P as Policy>::Receipt>, Error>>;

/// Decides a call by the state alone: no caller waits, nothing is paused, and the cost is not zero.
#[inline(always)]
pub(crate) fn decide<P: Policy>(
    policy: &P,
    state: &mut P::State,
    now: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Decided<P> {
    if policy.is_ready(state, now, cost) {
        return Some(Ok(Charge::at_once(Some(policy.charge(state, now, cost)))));
    }
    refuse(policy, state, now, cost, max_wait).map(Err)
}

/// The error of a caller that is not ready, unless it waits for long enough.
// Not inlined, to keep call sites small.
#[inline(never)]
fn refuse<P: Policy>(
    policy: &P,
    state: &mut P::State,
    now: Nanos,
    cost: P::Cost,
    max_wait: Option<Duration>,
) -> Option<Error> {
    let mut ready = match policy.ready_at(state, now, cost) {
        Ok(ready) => ready,
        Err(error) => return Some(error.into()),
    };
    let wait = max_wait?;
    if !wait.is_zero() && now.saturating_add(wait) >= ready.earliest() {
        return None;
    }
    if policy.refused(state, now, cost) {
        ready = policy.ready_at(state, now, cost).unwrap_or(ready);
    }
    let part = policy.limited_by(state, now, cost);
    Some(Error::Denied { retry_after: ready.wait(now), part })
}

/// The decision about a new caller.
pub(crate) enum Admission<P: Policy> {
    Granted(Charge<P::Receipt>),
    Waiting(WaiterId),
}

/// The decision about a waiting caller.
pub(crate) enum WaitStatus<P: Policy> {
    Over(Result<Charge<P::Receipt>, Error>),
    /// The next event is at this time, if that is known.
    Waiting(Option<Nanos>),
}

/// The state under the mutex.
#[derive(Debug)]
pub(crate) struct Inner<P: Policy> {
    pub(super) time: Monotone,
    pub(super) policy: P,
    pub(super) state: P::State,
    pub(super) published: Published,
    /// Nothing is charged before this time: the last grant, change, end of a pause, or departure of the head of
    /// the queue.
    pub(super) charges_from: Nanos,
    pub(super) stats: Stats,
    /// `None` until a caller waits.
    pub(super) waiting: Option<Box<Waiting<P>>>,
}

impl<P: Policy> Inner<P> {
    pub(crate) fn new(policy: P, state: P::State, time: Monotone) -> Self {
        let charges_from = time.latest();
        let (published, stats) = (Published::default(), Stats::default());
        Self { time, policy, state, published, charges_from, stats, waiting: None }
    }

    pub(super) fn waiting(&mut self) -> &mut Waiting<P> {
        self.waiting.get_or_insert_default()
    }

    /// Whether no caller waits and nothing is paused or closed.
    #[inline]
    pub(super) fn is_quiet(&self, now: Nanos) -> bool {
        self.waiting.as_deref().is_none_or(Waiting::is_idle) && self.charges_from <= now
    }

    pub(super) fn is_closed(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.queue.is_closed)
    }

    /// Which of several rules is not ready at `at`: none of them in a pause.
    pub(super) fn part_that_holds(
        &self,
        state: &P::State,
        now: Nanos,
        at: Nanos,
        cost: P::Cost,
    ) -> Option<Part> {
        let is_paused = self.charges_from > now;
        if is_paused { None } else { self.policy.limited_by(state, at, cost) }
    }

    /// The outcome of a waiter. While there is none, keeps `waker` to be called.
    pub(crate) fn poll(&mut self, key: WaiterId, waker: &Waker) -> WaitStatus<P> {
        if let Some(outcome) = self.take_outcome(key) {
            return WaitStatus::Over(outcome);
        }
        let waiting = self.waiting();
        waiting.queue.keep_waker(key, waker);
        WaitStatus::Waiting(waiting.next_event())
    }

    /// Takes the outcome of a waiter, if there is one.
    pub(super) fn take_outcome(
        &mut self,
        key: WaiterId,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        self.waiting().take_outcome(key)
    }

    /// Changes the state, and in a pause also the one that counts if the pause ends now. `change` also gets the time from
    /// which permits that come back count. Returns what it returned of the first.
    pub(super) fn change_state<R>(
        &mut self,
        now: Nanos,
        mut change: impl FnMut(&P, &mut P::State, Nanos) -> R,
    ) -> R {
        let Self { policy, state, waiting, .. } = self;
        let from = self.charges_from.max(now);
        let resumed = waiting.as_mut().and_then(|waiting| waiting.resumed.as_mut());
        let result = change(policy, state, from);
        if let Some(resumed) = resumed {
            resumed.change(policy, now, |state| _ = change(policy, state, now));
        }
        result
    }

    /// Something happened that moves all waiters.
    pub(crate) fn moved(&mut self, charges_from: Nanos) {
        self.charges_from = self.charges_from.max(charges_from);
        self.forget_tail();
    }

    pub(super) fn forget_tail(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.tail = None;
        }
    }

    pub(crate) fn policy(&self) -> &P {
        &self.policy
    }

    /// Waiters beyond the new bounds stay.
    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        if bounds != self.bounds() {
            self.waiting().bounds = bounds;
        }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.waiting.as_ref().map_or(Bounds::NONE, |waiting| waiting.bounds)
    }

    #[inline]
    pub(crate) fn queue_len(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.queue.len())
    }

    pub(crate) fn queued_permits(&self) -> u64 {
        self.waiting.as_ref().map_or(0, |waiting| waiting.permits)
    }

    /// How many callers of a tenant wait.
    pub(crate) fn queue_len_of(&self, tenant: Tenant) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.queue.len_of(tenant))
    }

    /// What is done may change when the next waiter is granted.
    pub(super) fn due_may_change(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.due_is_current = false;
        }
    }

    /// When the next waiter is granted, if that is known.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.waiting.as_ref()?.due
    }

    pub(crate) fn available(&self, now: Nanos) -> P::Cost {
        if self.is_quiet(now) {
            self.policy.available(&self.state, now)
        } else {
            P::Cost::default()
        }
    }

    /// How much is left.
    pub(crate) fn quota(&self, now: Nanos) -> Quota<P::Cost> {
        let of_state = Quota::of(&self.policy, &self.state, now);
        let paused = self.charges_from.since(now);
        let reset_after = of_state.reset_after.map(|reset| reset.max(paused));
        Quota { remaining: self.available(now), reset_after, ..of_state }
    }

    /// How much is left of each limit, for a request of `cost`.
    pub(crate) fn limits(&self, now: Nanos, cost: P::Cost) -> Vec<Limit<P::Cost>> {
        let mut opens = Ready::At(self.charges_from);
        if let Some(waiting) = &self.waiting
            && waiting.queue.len() > 0
        {
            opens = opens.and(waiting.due.map_or(Ready::NotBefore(now), Ready::At));
        }
        Limit::all(&self.policy, &self.state, Asked { opens, ..Asked::now(now, cost) })
    }

    /// Sets the alarm for the next grant or deadline. What is left to do after the lock is released.
    pub(super) fn arm(&mut self, now: Nanos, alarm: impl FnOnce() -> Alarm) -> AfterUnlock {
        let Some(waiting) = &mut self.waiting else { return AfterUnlock::default() };
        let timer_task = waiting.queue.arm(waiting.next_event(), now, alarm);
        waiting.queue.after_unlock(timer_task)
    }

    /// The alarm went off: it has to be set again.
    pub(super) fn disarm(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.queue.disarm();
        }
    }

    /// Wakes all waiting callers, which then check for themselves: the alarm cannot be relied on.
    pub(super) fn wake_all(&mut self) -> AfterUnlock {
        let Some(waiting) = &mut self.waiting else { return AfterUnlock::default() };
        waiting.queue.forget_alarm();
        waiting.queue.after_unlock(None)
    }
}
