//! Tenants take turns among the waiters of a key that have no booking: start-time fair queueing, as in process.
//!
//! There only the tenant has a tag, and its callers move up when one of them leaves. Here requests and replies count on an
//! order that stays as it is, so each waiter keeps the start with which it entered: the end of its tenant's call before
//! it. A waiter that leaves frees its turn for all behind it, and its end for the next caller of its tenant if it
//! was the last.
//!
//! A caller that goes ahead takes the turn of the first one that it overtakes. Where others wait it does not take a turn that
//! another has had already: a stream of such callers would hold back all tenants.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;

use crate::wait_queue::{Arrival, Claim, Tenant, WaiterId};

/// A place in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tag {
    start: u128,
    /// For equal starts: the number of the caller, or of the one whose turn a caller ahead of it has taken.
    turn: u64,
    /// In one turn callers ahead of others are in the order of arrivals.
    arrival: Arrival,
    number: u64,
}

/// The place of a caller that joins.
pub(super) struct TaggedPlace {
    tag: Tag,
    tenant: Option<u64>,
    price: u128,
    /// The waiter behind it.
    pub(super) next: Option<WaiterId>,
}

#[derive(Debug, Default)]
pub(super) struct StartTags {
    order: BTreeMap<Tag, WaiterId>,
    waiters: HashMap<WaiterId, (Option<u64>, Tag)>,
    /// By tenant; `None` for callers without one.
    lanes: HashMap<Option<u64>, Lane>,
    /// The ends of calls that were served and are later than the start.
    served: BTreeSet<(u128, Option<u64>)>,
    /// Of the last waiter that was served, and its price.
    start: u128,
    step: u128,
    joined: u64,
}

/// A tenant that waits, or is ahead of its share.
#[derive(Debug, Default)]
struct Lane {
    /// The end of each waiter.
    ends: BTreeMap<Tag, u128>,
    /// The end of the last call that was served.
    served: u128,
}

impl StartTags {
    /// The place of one more caller. Beside tenants one that goes ahead of others visits all without a tenant.
    pub(super) fn place(&self, claim: Claim, permits: u64, arrival: Arrival) -> TaggedPlace {
        let price = Tenant::price(claim.tenant(), permits);
        let tenant = Tenant::id(claim.tenant());
        let lane = self.lanes.get(&tenant);
        let overtaken = lane.filter(|_| !claim.ahead().is_zero()).and_then(|lane| {
            let is_alone = lane.ends.len() == self.waiters.len();
            let may_take = |tag: &Tag| is_alone || tag.start >= lane.served;
            lane.ends.keys().find(|tag| tag.arrival > arrival && may_take(tag))
        });
        let number = self.joined;
        let tag = match overtaken {
            Some(&tag) => Tag { arrival, number, ..tag },
            None => Tag { start: self.start_of(lane, price), turn: number, arrival, number },
        };
        let next = self.order.range(tag..).next().map(|(_, &id)| id);
        TaggedPlace { tag, tenant, price, next }
    }

    fn start_of(&self, lane: Option<&Lane>, price: u128) -> u128 {
        if let Some((_, &end)) = lane.and_then(|lane| lane.ends.last_key_value()) {
            return end;
        }
        // Behind all tenants of this round: see `wait_queue::turns`.
        let begin = self.start.saturating_add(self.step.min(price));
        lane.map_or(begin, |lane| lane.served.max(begin))
    }

    pub(super) fn join(&mut self, id: WaiterId, place: TaggedPlace) {
        let TaggedPlace { tag, tenant, price, .. } = place;
        self.joined += 1;
        self.order.insert(tag, id);
        self.waiters.insert(id, (tenant, tag));
        let lane = self.lanes.entry(tenant).or_default();
        lane.ends.insert(tag, tag.start.saturating_add(price));
    }

    fn remove(&mut self, id: WaiterId) -> Option<(Option<u64>, Tag, u128)> {
        let (tenant, tag) = self.waiters.remove(&id)?;
        self.order.remove(&tag);
        let end = self.lanes.get_mut(&tenant)?.ends.remove(&tag)?;
        Some((tenant, tag, end))
    }

    /// A waiter gets a booking.
    pub(super) fn serve(&mut self, id: WaiterId) {
        let Some((tenant, tag, end)) = self.remove(id) else { return };
        let price = end - tag.start;
        if tag.start >= self.start {
            (self.start, self.step) = (tag.start, price);
        }
        let lane = self.lanes.entry(tenant).or_default();
        lane.served = lane.served.max(end);
        // One that took the turn of another is paid for by those that come after them.
        if tag.turn != tag.number
            && let Some(mut last) = lane.ends.last_entry()
        {
            let last = last.get_mut();
            *last = last.saturating_add(price);
        }
        self.served.insert((lane.served, tenant));
        while let Some(&(end, tenant)) = self.served.first()
            && end <= self.start
        {
            self.served.pop_first();
            self.forget(tenant);
        }
    }

    /// A waiter leaves without a booking.
    pub(super) fn leave(&mut self, id: WaiterId) {
        if let Some((tenant, ..)) = self.remove(id) {
            self.forget(tenant);
        }
    }

    /// Unless the tenant waits, or is ahead of its share.
    fn forget(&mut self, tenant: Option<u64>) {
        let start = self.start;
        let is_over = |lane: &Lane| lane.ends.is_empty() && lane.served <= start;
        if self.lanes.get(&tenant).is_some_and(is_over) {
            self.lanes.remove(&tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::units::Nanos;
    use crate::wait_queue::WaitQueue;

    /// A permit of a tenant of weight one.
    const ONE: u128 = 1 << 32;

    struct Waiter;

    impl crate::wait_queue::Arrived for Waiter {
        fn arrival(&self) -> Arrival {
            at(0)
        }
    }

    fn at(time: u64) -> Arrival {
        Arrival::new(Nanos::new(time), Duration::ZERO)
    }

    fn tenant(id: u64) -> Claim {
        Claim::TurnOf(Tenant::new(&id))
    }

    /// Waiters of a queue, whose order the tags know.
    struct Waiters {
        queue: WaitQueue<Waiter>,
        tags: StartTags,
    }

    impl Waiters {
        fn new() -> Self {
            Self { queue: WaitQueue::new(), tags: StartTags::default() }
        }

        /// A caller joins, and the waiter that it goes ahead of.
        fn join(&mut self, claim: Claim, permits: u64, time: u64) -> (WaiterId, Option<WaiterId>) {
            let id = self.queue.push(Waiter, None, None);
            let arrival = Arrival::new(Nanos::new(time), claim.ahead());
            let place = self.tags.place(claim, permits, arrival);
            let next = place.next;
            self.tags.join(id, place);
            (id, next)
        }
    }

    #[test]
    fn a_call_that_was_served_moves_the_start_by_its_price() {
        let mut waiters = Waiters::new();
        let (first, _) = waiters.join(tenant(1), 3, 0);
        waiters.tags.serve(first);
        assert_eq!((waiters.tags.start, waiters.tags.step), (0, 3 * ONE));
        // A tenant that comes now is behind this round, by one permit: the lower price of the two.
        let (second, _) = waiters.join(tenant(2), 1, 1);
        let (third, next) = waiters.join(tenant(1), 1, 2);
        assert_eq!(next, None, "it has had three permits");
        waiters.tags.serve(second);
        assert_eq!((waiters.tags.start, waiters.tags.step), (ONE, ONE));
        waiters.tags.serve(third);
        assert_eq!(waiters.tags.start, 3 * ONE);
    }

    #[test]
    fn a_tenant_is_forgotten_when_it_is_no_more_ahead_of_its_share() {
        let mut waiters = Waiters::new();
        let (first, _) = waiters.join(tenant(1), 3, 0);
        waiters.tags.serve(first);
        assert_eq!((waiters.tags.lanes.len(), waiters.tags.served.len()), (1, 1));
        for round in 1..=3 {
            let (other, _) = waiters.join(tenant(2), 1, round);
            waiters.tags.serve(other);
        }
        // The second is ahead of its share still: its last permit has only begun.
        assert_eq!(waiters.tags.start, 3 * ONE);
        let left = Tenant::id(tenant(2).tenant());
        assert_eq!(waiters.tags.lanes.keys().collect::<Vec<_>>(), [&left]);
        // One that leaves without a permit has taken no share.
        let (leaver, _) = waiters.join(tenant(3), 1, 9);
        assert_eq!(waiters.tags.lanes.len(), 2);
        waiters.tags.leave(leaver);
        assert_eq!(waiters.tags.lanes.len(), 1);
    }

    #[test]
    fn a_caller_ahead_of_others_takes_the_turn_of_one_that_came_later_only() {
        let mut waiters = Waiters::new();
        let (_, next) = waiters.join(Claim::InOrder, 1, 10);
        assert_eq!(next, None);
        let (other, next) = waiters.join(tenant(1), 1, 15);
        assert_eq!(next, None);
        let (_, next) = waiters.join(Claim::Ahead(Duration::from_nanos(10)), 1, 20);
        assert_eq!(next, None, "it is as if it came with the first, and behind it");
        let (_, next) = waiters.join(Claim::Ahead(Duration::from_nanos(31)), 1, 40);
        assert_ne!(next, Some(other));
        assert!(next.is_some(), "ahead of the first");
    }

    #[test]
    fn callers_ahead_of_one_that_came_together_stay_in_the_order_in_which_they_came() {
        let mut waiters = Waiters::new();
        let (first, _) = waiters.join(Claim::InOrder, 1, 30);
        let ahead = || Claim::Ahead(Duration::from_nanos(20));
        let [second, third] = [(); 2].map(|()| waiters.join(ahead(), 1, 40));
        assert_eq!((second.1, third.1), (Some(first), Some(first)));
        let order: Vec<_> = waiters.tags.order.values().copied().collect();
        assert_eq!(order, [second.0, third.0, first]);
    }
}
