//! Tenants take turns in one queue.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996). Each tenant that waits has a *start*, in permits divided
//! by weight, and the tenant with the earliest start is next. A grant moves the start of its tenant by its price, so
//! tenants that wait all the time get permits in proportion to their weights, to one price of each. A key for each waiter,
//! fixed when it joins, would not do: a caller that leaves would cost its tenant a turn. So a tenant has one
//! start, its waiters are in an order of their own, and a grant takes O(log tenants).
//!
//! A tenant that begins to wait starts one step after the start of the last grant, behind all tenants of this round. In
//! the original it starts at the same time; then a stream of tenants that come once each would hold a tenant
//! that comes twice back for ever. The step is the price of the last grant, or its own if that is less.
//!
//! A start has 64 bits. Before it would overflow, all starts are counted anew from the last grant's start.
//!
//! A tenant without waiters is forgotten when the last grant's start has reached its own, and all of them when the
//! queue is empty. Callers without a tenant count as one tenant.

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU32;
use std::sync::OnceLock;

use hashbrown::HashMap;
use slab::Slab;

use crate::clock::{TimeOrder, Timed};

/// The fraction of a permit in which prices are counted.
const PRICE_BITS: u32 = 24;

/// The most permits that one price counts: more than any cost of 32 bits.
const MOST_PERMITS: u64 = 1 << 36;

/// From this start on, all starts are counted anew. With one price more they still fit.
const LAST_START: u64 = 1 << 62;

/// The tenant for which a caller comes, and the weight of its permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tenant {
    pub(super) id: u64,
    pub(crate) weight: NonZeroU32,
    /// Makes the turns of a queue. Named here alone, so that a program without tenants has none of their code.
    pub(super) take_turns: fn(TimeOrder) -> Box<dyn Turns>,
}

impl PartialEq for Tenant {
    fn eq(&self, other: &Self) -> bool {
        (self.id, self.weight) == (other.id, other.weight)
    }
}

/// The order of waiters whose tenants take turns.
pub(super) trait Turns: Send {
    /// The waiter that is next.
    fn first(&self) -> Option<Timed>;

    /// Whether a place is ahead of all waiters.
    fn is_first(&self, place: PlaceInLane) -> bool;

    /// How many callers of a tenant wait.
    fn len_of(&self, tenant: Tenant) -> usize;

    fn join(&mut self, place: PlaceInLane);

    /// The waiter that is next is granted, before it leaves; or a caller that has not waited, ahead of all that do.
    fn grant(&mut self, tenant: Option<Tenant>, permits: u64);

    /// A waiter leaves the order.
    fn leave(&mut self, at: Timed, tenant: Option<Tenant>);

    /// Shows the waiters in the order in which they will be granted, each at its price, those ahead of a place or all, as
    /// long as `visit` says to go on.
    fn visit_ahead(
        &self,
        place: Option<PlaceInLane>,
        price: &dyn Fn(Timed) -> u64,
        visit: &mut dyn FnMut(Timed) -> bool,
    );
}

impl Tenant {
    /// By a hash of 64 bits and not by the key itself, so that no queue has a type parameter for keys and no call
    /// clones one. Two tenants of one hash would share their turns. With a random key of the process no tenant can
    /// choose such a pair, and by chance a million tenants that wait together have one in 37 million runs.
    pub(crate) fn new<T: Hash + ?Sized>(tenant: &T) -> Self {
        static HASHER: OnceLock<RandomState> = OnceLock::new();
        let id = HASHER.get_or_init(RandomState::new).hash_one(tenant);
        Self { id, weight: NonZeroU32::MIN, take_turns: Tenants::boxed }
    }
}

/// Whose waiters these are: a tenant's hash, or `None` of callers without a tenant.
type LaneId = Option<u64>;

/// The place of a tenant in the order of tenants: its start, when it began to wait, and the number of its lane.
type Turn = Timed;

/// The waiters of one tenant.
#[derive(Default)]
struct Lane {
    id: LaneId,
    start: u64,
    since: u32,
    order: TimeOrder,
    /// It has been charged, so its start counts although it has no waiters.
    is_charged: bool,
}

impl Lane {
    fn turn(&self, number: usize) -> Turn {
        Turn::new(self.start, self.since, u32::try_from(number).unwrap_or(u32::MAX))
    }
}

/// Where a new caller would stand: in its lane, its tenant, and its permits.
pub(super) type PlaceInLane = (Timed, Option<Tenant>, u64);

#[derive(Default)]
struct Tenants {
    lanes: Slab<Lane>,
    numbers: HashMap<LaneId, usize>,
    /// The lanes with waiters.
    waiting: TimeOrder,
    /// The lanes without, by their starts.
    idle: TimeOrder,
    /// Of the last grant.
    start: u64,
    step: u64,
    /// How many times a tenant has begun to wait.
    began: u32,
}

/// What permits cost a tenant, rounded up, so never nothing.
pub(super) fn price(tenant: Option<Tenant>, permits: u64) -> u64 {
    let weight = tenant.map_or(1, |tenant| tenant.weight.get());
    (permits.clamp(1, MOST_PERMITS) << PRICE_BITS).div_ceil(weight.into())
}

fn lane_of(tenant: Option<Tenant>) -> LaneId {
    tenant.map(|tenant| tenant.id)
}

impl Tenants {
    /// `order` has the waiters without a tenant.
    fn boxed(order: TimeOrder) -> Box<dyn Turns> {
        let mut tenants = Self::default();
        if !order.is_empty() {
            let number = tenants.lane(None, 0);
            tenants.lanes[number].order = order;
            tenants.wait(number);
        }
        Box::new(tenants)
    }

    /// The lane of a tenant.
    fn known(&self, id: LaneId) -> Option<&Lane> {
        Some(&self.lanes[*self.numbers.get(&id)?])
    }

    fn lane_at(&self, turn: Turn) -> &Lane {
        &self.lanes[turn.id() as usize]
    }

    fn turn_of(&self, number: usize) -> Turn {
        self.lanes[number].turn(number)
    }

    /// The turn of a lane that begins to wait.
    fn begin(&self, id: LaneId, price: u64) -> Turn {
        let begin = self.start.saturating_add(self.step.min(price));
        let start = self.known(id).map_or(begin, |lane| lane.start.max(begin));
        Turn::new(start, self.began, 0)
    }

    /// The number of a caller's lane. One that has not waited gets the turn of one that begins to.
    fn lane(&mut self, id: LaneId, price: u64) -> usize {
        let turn = self.begin(id, price);
        let add = || self.lanes.insert(Lane { id, ..Lane::default() });
        let number = *self.numbers.entry(id).or_insert_with(add);
        if self.lanes[number].order.is_empty() {
            self.idle.remove(self.turn_of(number));
            let lane = &mut self.lanes[number];
            (lane.start, lane.since) = (turn.time(), self.began);
        }
        number
    }

    /// A lane begins to wait.
    fn wait(&mut self, number: usize) {
        self.waiting.insert(self.turn_of(number));
        self.began = self.began.wrapping_add(1);
    }

    /// Moves a tenant to its next turn.
    fn charge(&mut self, number: usize, price: u64) {
        let turn = self.turn_of(number);
        self.lanes[number].start = turn.time().saturating_add(price);
        self.lanes[number].is_charged = true;
        let next = self.turn_of(number);
        let is_idle = self.lanes[number].order.is_empty();
        let others = if is_idle { &mut self.idle } else { &mut self.waiting };
        others.remove(turn);
        others.insert(next);
        (self.start, self.step) = (turn.time(), price);
        while let Some(first) = self.idle.first()
            && first.time() <= self.start
        {
            self.idle.remove(first);
            self.forget_lane(first);
        }
        if self.start >= LAST_START {
            self.count_anew();
        }
    }

    fn forget_lane(&mut self, turn: Turn) {
        let lane = self.lanes.remove(turn.id() as usize);
        self.numbers.remove(&lane.id);
    }

    /// Counts all starts from the last grant's start: none is earlier.
    fn count_anew(&mut self) {
        let origin = std::mem::take(&mut self.start);
        (self.waiting, self.idle) = (TimeOrder::default(), TimeOrder::default());
        self.lanes.iter_mut().for_each(|(_, lane)| lane.start = lane.start.saturating_sub(origin));
        for (number, lane) in &self.lanes {
            let others = if lane.order.is_empty() { &mut self.idle } else { &mut self.waiting };
            others.insert(lane.turn(number));
        }
    }

    /// The turn of a place: behind the waiters of its lane that are ahead of it.
    fn turn(&self, (at, tenant, permits): PlaceInLane, price_of: &dyn Fn(Timed) -> u64) -> Turn {
        let id = lane_of(tenant);
        match self.numbers.get(&id).filter(|&&number| !self.lanes[number].order.is_empty()) {
            Some(&number) => {
                let mut turn = self.turn_of(number);
                self.lanes[number].order.visit(Some(at), &mut |other| {
                    turn = turn.later(price_of(other));
                    true
                });
                turn
            }
            None => self.begin(id, price(tenant, permits)),
        }
    }
}

impl Turns for Tenants {
    fn first(&self) -> Option<Timed> {
        self.lane_at(self.waiting.first()?).order.first()
    }

    fn is_first(&self, (at, tenant, permits): PlaceInLane) -> bool {
        let Some(first) = self.waiting.first() else { return true };
        let id = lane_of(tenant);
        match self.known(id).and_then(|lane| lane.order.first()) {
            Some(next) => self.lane_at(first).id == id && at < next,
            None => self.begin(id, price(tenant, permits)) < first,
        }
    }

    fn len_of(&self, tenant: Tenant) -> usize {
        self.known(Some(tenant.id)).map_or(0, |lane| lane.order.len())
    }

    fn join(&mut self, (at, tenant, permits): PlaceInLane) {
        let number = self.lane(lane_of(tenant), price(tenant, permits));
        let order = &mut self.lanes[number].order;
        order.insert(at);
        if order.len() == 1 {
            self.wait(number);
        }
    }

    fn grant(&mut self, tenant: Option<Tenant>, permits: u64) {
        let price = price(tenant, permits);
        let number = self.lane(lane_of(tenant), price);
        self.charge(number, price);
    }

    fn leave(&mut self, at: Timed, tenant: Option<Tenant>) {
        let Some(&number) = self.numbers.get(&lane_of(tenant)) else { return };
        let order = &mut self.lanes[number].order;
        order.remove(at);
        if order.is_empty() {
            let turn = self.turn_of(number);
            self.waiting.remove(turn);
            if self.lanes[number].is_charged && turn.time() > self.start {
                self.idle.insert(turn);
            } else {
                self.forget_lane(turn);
            }
        }
    }

    fn visit_ahead(
        &self,
        place: Option<PlaceInLane>,
        price: &dyn Fn(Timed) -> u64,
        visit: &mut dyn FnMut(Timed) -> bool,
    ) {
        let until = place.map(|place| self.turn(place, price));
        // The next waiter of each lane, and its turn.
        let mut heads = BinaryHeap::new();
        self.waiting.visit(until, &mut |turn| {
            let next = self.lane_at(turn).order.first();
            heads.extend(next.map(|next| Reverse((turn, next))));
            true
        });
        while let Some(mut head) = heads.peek_mut() {
            let Reverse((turn, at)) = *head;
            if until.is_some_and(|until| until <= turn) || !visit(at) {
                return;
            }
            match self.lane_at(turn).order.after(at) {
                Some(next) => *head = Reverse((turn.later(price(at)), next)),
                None => _ = PeekMut::pop(head),
            }
        }
    }
}
