//! The callers that wait in a line, and what is known of them.

use std::collections::BTreeSet;
use std::task::Waker;

use smallvec::SmallVec;

use super::charge::Charge;
use super::queue::{Queue, WaiterId};
use super::tail::Tail;
use crate::clock::Alarm;
use crate::error::Error;
use crate::policy::{Cost, Policy};
use crate::units::Nanos;

/// What a line needs when a caller waits; made then, because in most limiters no caller ever does.
#[derive(Debug)]
pub(super) struct Waiting<P: Policy> {
    pub(super) queue: Queue<Waiter<P>>,
    /// The callers with a deadline, the first to give up first.
    pub(super) deadlines: BTreeSet<(Nanos, WaiterId)>,
    /// The state behind all waiting callers, where the policy needs that to tell when a newcomer is ready.
    pub(super) tail: Option<Tail<P::State>>,
    /// Permits asked for by those in line.
    pub(super) permits: u64,
    /// The same, part by part.
    pub(super) queued: <P::Cost as Cost>::Sum,
    pub(super) bounds: Bounds,
    pub(super) alarm: Option<Alarm>,
    /// When the alarm goes off; it may be early, never late.
    pub(super) armed: Nanos,
    /// When the line moves next, if that is known.
    pub(super) due: Option<Nanos>,
    /// Which of several rules it waits for.
    pub(super) limited_by: Option<usize>,
    pub(super) wake: SmallVec<[Waker; 4]>,
    /// Dropping a waker can run anything, another call at this line included: not under the lock.
    pub(super) discard: SmallVec<[Waker; 4]>,
}

#[derive(Debug)]
pub(super) struct Waiter<P: Policy> {
    pub(super) cost: P::Cost,
    pub(super) joined: Nanos,
    pub(super) deadline: Option<Nanos>,
    pub(super) waker: Option<Waker>,
    pub(super) outcome: Option<Result<Charge<P::Receipt>, Error>>,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) waiters: usize,
    pub(crate) permits: u64,
}

/// Far enough to mean "never".
pub(super) const NEVER: Nanos = Nanos::new(u64::MAX);

impl<P: Policy> Waiting<P> {
    pub(super) fn new() -> Self {
        Self {
            queue: Queue::new(),
            deadlines: BTreeSet::new(),
            tail: None,
            permits: 0,
            queued: Default::default(),
            bounds: Bounds { waiters: usize::MAX, permits: u64::MAX },
            alarm: None,
            armed: NEVER,
            due: None,
            limited_by: None,
            wake: SmallVec::new(),
            discard: SmallVec::new(),
        }
    }

    /// Whether `cost` more would be too much to wait for.
    pub(super) fn is_full_for(&self, cost: P::Cost) -> bool {
        let permits = self.permits.saturating_add(cost.permits());
        self.queue.len() >= self.bounds.waiters || permits > self.bounds.permits
    }

    /// A caller joins, behind all others.
    pub(super) fn join(
        &mut self,
        cost: P::Cost,
        joined: Nanos,
        deadline: Option<Nanos>,
    ) -> WaiterId {
        self.permits = self.permits.saturating_add(cost.permits());
        self.queued = cost.add_to(self.queued);
        let waiter = Waiter { cost, joined, deadline, waker: None, outcome: None };
        let key = self.queue.push_back(waiter);
        self.deadlines.extend(deadline.map(|deadline| (deadline, key)));
        key
    }

    /// Takes a caller out of the order; it may still have to be told what became of it.
    pub(super) fn unlink(&mut self, key: WaiterId) {
        self.queue.unlink(key);
        let waiter = &self.queue[key];
        self.permits = self.permits.saturating_sub(waiter.cost.permits());
        self.queued = waiter.cost.take_from(self.queued);
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, key));
        }
    }

    /// Tells a caller that is out of the order what became of it.
    pub(super) fn tell(&mut self, key: WaiterId, outcome: Result<Charge<P::Receipt>, Error>) {
        let waiter = &mut self.queue[key];
        waiter.outcome = Some(outcome);
        self.wake.extend(waiter.waker.take());
    }

    /// When something happens next by itself.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        self.due.into_iter().chain(deadline).min()
    }
}
