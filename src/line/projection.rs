//! When a new or a waiting caller would be granted, without a walk through the queue for each.

use std::time::Duration;

use super::inner::Inner;
use super::waiting::Tail;
use crate::error::ExceedsCapacity;
use crate::part::Part;
use crate::policy::{Cost, Policy, PolicyExt, Ready};
use crate::units::Nanos;
use crate::wait_queue::{Place, WaiterId};

/// Of up to this many waiters all are counted for a caller with a timeout.
const EXACT: usize = 1 << 14;

/// The same for one whose time is over: there may be many of these.
const EXACT_LATE: usize = 1 << 8;

impl<P: Policy> Inner<P> {
    /// When a new caller would be granted behind all waiters, and which of several rules it then waits for. Up
    /// to `left` waiters that have left may still count, to save a walk.
    pub(super) fn projected(
        &mut self,
        now: Nanos,
        cost: P::Cost,
        left: usize,
    ) -> (Ready, Option<Part>) {
        // Not before the line moves, in case the clock has gone back.
        let moves = Ready::At(self.due().unwrap_or(now));
        let from = now.max(self.charges_from);
        let ahead = self.waiting.as_ref().map_or(0, |waiting| waiting.permits);
        if let Some(due) = self.due_behind(ahead, from, cost) {
            return (Ready::At(due).and(moves), None);
        }
        self.behind(now, left, |inner, state, ready| {
            inner.ready_in(state, now, cost, (ready, moves), true)
        })
    }

    /// How long a new caller would wait behind all waiters. `None` if that is unpredictable.
    pub(crate) fn would_wait(
        &mut self,
        now: Nanos,
        cost: P::Cost,
    ) -> Result<Option<Duration>, ExceedsCapacity> {
        if cost.is_zero() {
            return Ok(Some(Duration::ZERO));
        }
        self.policy.ready_at(&self.state, now, cost)?;
        Ok(self.projected(now, cost, 0).0.wait(now))
    }

    /// The same for a caller that stands among the waiters. It visits those ahead of it, one by one: of many as few as show
    /// that it is later than `by`, and so later than what is returned.
    pub(super) fn projected_at(
        &mut self,
        among: Option<&Place>,
        now: Nanos,
        cost: P::Cost,
        by: Nanos,
    ) -> (Ready, Option<Part>) {
        let Some(place) = among else { return self.projected(now, cost, 0) };
        let is_behind = !self.is_first(place);
        let moves = Ready::At(self.due().filter(|_| is_behind).unwrap_or(now));
        let from = now.max(self.charges_from);
        // The first question is cheap; most rules that answer it do so for any number.
        if self.due_behind(0, from, cost).is_some() {
            let ahead = self.permits_ahead(place, from, cost, by);
            if let Some(due) = self.due_behind(ahead, from, cost) {
                return (Ready::At(due).and(moves), None);
            }
        }
        let tail = self.project(now, among);
        self.ready_in(&tail.state, now, cost, (tail.ready, moves), is_behind)
    }

    /// When a caller is granted in a state that holds at `ready`, but not before the line moves, and which of
    /// several rules it then waits for. `is_behind`: whether it is behind waiters, if there are any.
    fn ready_in(
        &self,
        state: &P::State,
        now: Nanos,
        cost: P::Cost,
        (ready, moves): (Ready, Ready),
        is_behind: bool,
    ) -> (Ready, Option<Part>) {
        let ready = ready.and(moves);
        let from = ready.earliest();
        let Ok(own) = self.policy.ready_at(state, from, cost) else { return (ready, None) };
        let part = self.part_that_holds(state, now, from, cost);
        // Or the rule that the waiters ahead wait for.
        let in_line = self.waiting.as_ref().filter(|line| is_behind && line.queue.len() > 0);
        let limited_by =
            in_line.filter(|_| self.charges_from <= now).and_then(|line| line.limited_by);
        (own.and(ready), part.or(limited_by))
    }

    /// Charges a new caller in the state behind all waiters. `ahead`: whether it goes ahead of some of them.
    pub(super) fn charge_in_tail(&mut self, now: Nanos, cost: P::Cost, ahead: bool) {
        if let Some(waiting) = &mut self.waiting
            && let Some(tail) = &mut waiting.tail
        {
            if !ahead || tail.is_all(cost) {
                let _ = tail.join(&self.policy, now.max(self.charges_from), cost);
            } else {
                waiting.tail = None;
            }
        }
    }

    /// Whether a caller with this place is ahead of all waiters.
    pub(super) fn is_first(&self, place: &Place) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.queue.is_first(place))
    }

    /// Whether a new caller is granted by `deadline` even behind all waiters; `false` if that takes a walk.
    pub(super) fn is_in_time_behind_all(&self, deadline: Nanos, now: Nanos, cost: P::Cost) -> bool {
        let from = now.max(self.charges_from).max(self.due().unwrap_or(now));
        let ahead = self.waiting.as_ref().map_or(0, |waiting| waiting.permits);
        self.due_behind(ahead, from, cost).is_some_and(|due| due <= deadline)
    }

    /// When a caller is granted behind `ahead` permits, if the policy knows without each of their costs.
    fn due_behind(&self, ahead: u64, from: Nanos, cost: P::Cost) -> Option<Nanos> {
        self.policy.ready_behind(&self.state, from, ahead, cost)
    }

    /// How many permits the waiters ahead of a place ask for; if these are many, fewer, if a caller behind these is later
    /// than `by`.
    fn permits_ahead(&self, place: &Place, from: Nanos, cost: P::Cost, by: Nanos) -> u64 {
        let now = self.time.latest();
        let (mut permits, exact) = (0, if by > now { EXACT } else { EXACT_LATE });
        for (count, ahead) in self.costs_ahead(Some(place)).enumerate() {
            permits += ahead.permits();
            let is_late = || self.due_behind(permits, from, cost).is_some_and(|due| due > by);
            if count > exact && is_late() {
                break;
            }
        }
        permits
    }

    /// What the waiters ahead of a place ask for, or all of them, in order.
    fn costs_ahead(&self, place: Option<&Place>) -> impl Iterator<Item = P::Cost> {
        self.waiting
            .iter()
            .flat_map(move |waiting| waiting.queue.ahead_of(place).map(|id| waiting.queue[id].cost))
    }

    /// Reads the state behind all waiters, and when the last of them is charged. Walks through
    /// the queue if more than `left` waiters have left since the last walk, most were granted late, or twice as many
    /// have joined.
    pub(super) fn behind<R>(
        &mut self,
        now: Nanos,
        left: usize,
        look: impl FnOnce(&Self, &P::State, Ready) -> R,
    ) -> R {
        let start = Ready::At(now.max(self.charges_from));
        let in_line = self.queue_len();
        if in_line == 0 {
            return look(self, &self.state, start);
        }
        let usable = |tail: &Tail<_, _>| {
            tail.left <= left && tail.late <= in_line && !tail.is_stale(start.earliest())
        };
        let tail = self.waiting.as_mut().and_then(|waiting| waiting.tail.take()).filter(usable);
        let tail = tail.unwrap_or_else(|| self.project(now, None));
        let result = look(self, &tail.state, tail.ready.and(start));
        if let Some(waiting) = &mut self.waiting {
            waiting.tail = Some(tail);
        }
        result
    }

    /// Walks through the queue, up to a place.
    fn project(&self, now: Nanos, place: Option<&Place>) -> Tail<P::State, P::Cost> {
        let from = now.max(self.charges_from);
        let mut costs = self.costs_ahead(place);
        let head = costs.next();
        // Behind one that waits for a release nothing is predictable.
        let is_held =
            |cost| matches!(self.policy.ready_at(&self.state, from, cost), Ok(Ready::NotBefore(_)));
        let rest = if head.is_some_and(is_held) { 0 } else { self.queue_len() };
        let ahead: Vec<_> = head.into_iter().chain(costs.take(rest)).collect();
        let mut tail = Tail::new(self.state.clone(), from);
        // Up to the first behind which waiters are unpredictable.
        let _ = ahead.into_iter().all(|cost| tail.join(&self.policy, from, cost));
        tail
    }

    /// How long a caller that waits or is granted still has to wait as things stand: a lower bound if that is
    /// unpredictable.
    pub(crate) fn delay(&self, key: WaiterId, now: Nanos) -> Duration {
        let Some(waiting) = self.waiting.as_ref().filter(|waiting| !waiting.is_over(key)) else {
            return Duration::ZERO;
        };
        let cost = waiting.queue[key].cost;
        let tail = self.project(now, Some(&waiting.queue.place_of(key)));
        let from = tail.ready.earliest();
        let ready = self.policy.ready_at(&tail.state, from, cost);
        ready.map_or(from, Ready::earliest).max(from).since(now)
    }
}
