//! When a new or a waiting caller would be granted, without a walk through the queue for each.

use std::time::Duration;

use super::inner::Inner;

use super::tail::Tail;
use crate::policy::{Policy, Ready};
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

impl<P: Policy> Inner<P> {
    /// When a new caller would be granted behind all waiters, and which of several rules it then waits for. Up
    /// to `left` waiters that have left may still count, to save a walk.
    pub(super) fn projected(
        &mut self,
        now: Nanos,
        cost: P::Cost,
        left: usize,
    ) -> (Ready, Option<usize>) {
        // Not before the line moves, in case the clock has gone back.
        let moves = Ready::At(self.due().unwrap_or(now));
        let from = now.max(self.not_before);
        let ahead = self.waiting.as_ref().map_or(0, |waiting| waiting.permits);
        if let Some(due) = self.policy.ready_behind(&self.state, from, ahead, cost) {
            return (Ready::At(due).and(moves), None);
        }
        self.behind(now, left, |inner, state, ready| {
            let ready = ready.and(moves);
            let from = ready.earliest();
            let Ok(own) = inner.policy.ready_at(state, from, cost) else { return (ready, None) };
            let part = inner.part_that_holds(state, now, from, cost);
            // Or the rule that the waiters ahead wait for.
            let in_line = inner.waiting.as_ref().filter(|waiting| waiting.queue.len() > 0);
            let limited_by =
                in_line.filter(|_| inner.not_before <= now).and_then(|line| line.limited_by);
            let part = part.or(limited_by);
            (own.and(ready), part)
        })
    }

    /// Reads the state behind all waiters, and when the last of them is charged. Walks through the queue if
    /// more than `left` waiters have left since the last walk, or most were granted late.
    pub(super) fn behind<R>(
        &mut self,
        now: Nanos,
        left: usize,
        look: impl FnOnce(&Self, &P::State, Ready) -> R,
    ) -> R {
        let start = Ready::At(now.max(self.not_before));
        let in_line = self.queue_len();
        if in_line == 0 {
            return look(self, &self.state, start);
        }
        let usable = |tail: &Tail<_>| tail.left <= left && tail.late <= in_line;
        let tail = self.waiting.as_mut().and_then(|waiting| waiting.tail.take()).filter(usable);
        let tail = tail.unwrap_or_else(|| self.project(now, None));
        let result = look(self, &tail.state, tail.ready.and(start));
        if let Some(waiting) = &mut self.waiting {
            waiting.tail = Some(tail);
        }
        result
    }

    /// Walks through the queue, up to one waiter or to the end.
    fn project(&self, now: Nanos, until: Option<WaiterId>) -> Tail<P::State> {
        let from = now.max(self.not_before);
        let mut tail = Tail { state: self.state.clone(), ready: Ready::At(from), left: 0, late: 0 };
        let waiters = self.waiting.iter().flat_map(|waiting| waiting.queue.iter());
        for (_, waiter) in waiters.take_while(|&(key, _)| Some(key) != until) {
            tail.join(&self.policy, from, waiter.cost);
        }
        tail
    }

    /// How long a caller that waits or is granted still has to wait as things stand: a lower bound if that is
    /// unpredictable.
    pub(crate) fn delay(&self, key: WaiterId, now: Nanos) -> Duration {
        let waiter = self.waiting.as_ref().map(|waiting| &waiting.queue[key]);
        let Some(waiter) = waiter.filter(|waiter| waiter.outcome.is_none()) else {
            return Duration::ZERO;
        };
        let tail = self.project(now, Some(key));
        let from = tail.ready.earliest();
        let ready = self.policy.ready_at(&tail.state, from, waiter.cost);
        ready.map_or(from, Ready::earliest).max(from).since(now)
    }
}
