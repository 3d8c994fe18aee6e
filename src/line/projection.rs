//! When a caller among the waiters would be granted.

use std::time::Duration;

use super::inner::Inner;
use crate::error::ExceedsCapacity;
use crate::part::Part;
use crate::policy::{Cost, Policy, PolicyExt, Ready};
use crate::units::Nanos;
use crate::wait_queue::{Place, WaiterId};

impl<P: Policy> Inner<P> {
    /// When a caller would be granted at a place, or behind all waiters, and which of several rules it then waits for. Counts
    /// the first `most` waiters ahead of it.
    pub(super) fn projected(
        &self,
        place: Option<&Place>,
        now: Nanos,
        cost: P::Cost,
        most: usize,
    ) -> (Ready, Option<Part>) {
        let waiting = self.waiting.as_deref().filter(|waiting| waiting.queue.len() > 0);
        let place = place.filter(|place| waiting.is_some_and(|it| !it.queue.is_last(place)));
        let ahead = waiting.filter(|it| place.is_none_or(|place| !it.queue.is_first(place)));
        // Not before the line moves, in case the clock has gone back.
        let moves = Ready::At(ahead.and_then(|ahead| ahead.due).unwrap_or(now));
        let from = now.max(self.charges_from);
        // A rule of one rate knows it by the number of permits.
        if P::ONE_RATE.is_some() {
            let permits = match place {
                None => self.queued_permits(),
                Some(_) => self.costs_ahead(place).take(most).map(Cost::permits).sum(),
            };
            if let Some(due) = self.policy.ready_behind(&self.state, from, permits, cost) {
                return (Ready::At(due).and(moves), None);
            }
        }
        // Others are asked in the state behind those waiters.
        let (state, ready) = self.state_behind(place, now, most);
        let ready = ready.and(moves);
        let at = ready.earliest();
        let Ok(own) = self.policy.ready_at(&state, at, cost) else { return (ready, None) };
        // Or the rule that the waiters ahead wait for.
        let held_by = || ahead.filter(|_| self.charges_from <= now)?.limited_by;
        (own.and(ready), self.part_that_holds(&state, now, at, cost).or_else(held_by))
    }

    /// The state when the waiters ahead of a place, or all of them, have been charged, each as soon as it is ready, and when
    /// that is. Behind one that waits for a release nothing is predictable: it is the last one that counts.
    fn state_behind(&self, place: Option<&Place>, now: Nanos, most: usize) -> (P::State, Ready) {
        let (mut state, mut ready) = (self.state.clone(), Ready::At(now.max(self.charges_from)));
        for cost in self.costs_ahead(place).take(most) {
            // A request that exceeds the capacity is refused in its turn.
            let Ok(own) = self.policy.ready_at(&state, ready.earliest(), cost) else { continue };
            ready = ready.and(own);
            self.policy.charge(&mut state, ready.earliest(), cost);
            if matches!(ready, Ready::NotBefore(_)) {
                break;
            }
        }
        (state, ready)
    }

    /// What the waiters ahead of a place ask for, or all of them, in order.
    fn costs_ahead(&self, place: Option<&Place>) -> impl Iterator<Item = P::Cost> {
        self.waiting
            .iter()
            .flat_map(move |waiting| waiting.queue.ahead_of(place).map(|id| waiting.queue[id].cost))
    }

    /// How long a new caller would wait behind all waiters. `None` if that is unpredictable.
    pub(crate) fn would_wait(
        &self,
        now: Nanos,
        cost: P::Cost,
    ) -> Result<Option<Duration>, ExceedsCapacity> {
        if cost.is_zero() {
            return Ok(Some(Duration::ZERO));
        }
        self.policy.ready_at(&self.state, now, cost)?;
        Ok(self.projected(None, now, cost, usize::MAX).0.wait(now))
    }

    /// How long a caller that waits or is granted still has to wait as things stand: a lower bound if that is
    /// unpredictable.
    pub(crate) fn delay(&self, key: WaiterId, now: Nanos) -> Duration {
        let waiting = self.waiting.as_ref().filter(|it| !it.is_over(key));
        let Some(waiting) = waiting else { return Duration::ZERO };
        let cost = waiting.queue[key].cost;
        let place = waiting.queue.place_of(key);
        let (state, ready) = self.state_behind(Some(&place), now, usize::MAX);
        let from = ready.earliest();
        let ready = self.policy.ready_at(&state, from, cost);
        ready.map_or(from, Ready::earliest).max(from).since(now)
    }
}
