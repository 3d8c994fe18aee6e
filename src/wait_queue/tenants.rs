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
//! A tenant without waiters is forgotten when the last grant's start has reached its own, and all of them when the
//! queue is empty. Callers without a tenant count as one tenant.

#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap};
use std::iter;

use hashbrown::HashMap;

use super::ask::{Tenant, WaiterId};
use crate::clock::{TimeOrder, Timed};

/// The fraction of a permit in which prices are counted.
const PRICE_BITS: u32 = 32;

/// Whose waiters these are: a tenant's hash, or `None` of callers without a tenant.
type LaneId = Option<u64>;

/// A place in the order of tenants: the start, and for equal ones when the tenant began to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    start: u128,
    since: u64,
}

impl Turn {
    fn after(self, price: u128) -> Self {
        Self { start: self.start.saturating_add(price), ..self }
    }
}

/// The waiters of one tenant.
#[derive(Debug, Default)]
struct Lane {
    turn: Turn,
    order: TimeOrder,
}

/// Where a new caller would stand: in its lane, its tenant, and its permits.
pub(super) type PlaceInLane = (Timed, Option<Tenant>, u64);

#[derive(Debug, Default)]
pub(super) struct Tenants {
    lanes: HashMap<LaneId, Lane>,
    /// The lanes with waiters.
    waiting: BTreeSet<(Turn, LaneId)>,
    /// The lanes without, by their starts.
    idle: BTreeSet<(Turn, LaneId)>,
    /// The tenants of waiters by their places, until their entries are removed.
    of: Vec<Option<Tenant>>,
    /// Of the last grant.
    start: u128,
    step: u128,
    /// How many times a tenant has begun to wait.
    began: u64,
}

/// What permits cost a tenant, rounded up, so never nothing.
fn price(tenant: Option<Tenant>, permits: u64) -> u128 {
    let weight = tenant.map_or(1, |tenant| tenant.weight.get());
    (u128::from(permits.max(1)) << PRICE_BITS).div_ceil(u128::from(weight))
}

fn lane_of(tenant: Option<Tenant>) -> LaneId {
    tenant.map(|tenant| tenant.id)
}

impl Tenants {
    /// The waiters in `order` are those of callers without a tenant.
    pub(super) fn new(order: TimeOrder) -> Self {
        let mut tenants = Self::default();
        if !order.is_empty() {
            let lane = Lane { turn: Turn::default(), order };
            tenants.waiting.insert((lane.turn, None));
            tenants.lanes.insert(None, lane);
            tenants.began = 1;
        }
        tenants
    }

    /// The waiter that is next.
    pub(super) fn first(&self) -> Option<Timed> {
        let (_, lane) = self.waiting.first()?;
        self.lanes[lane].order.first()
    }

    pub(super) fn tenant(&self, waiter: WaiterId) -> Option<Tenant> {
        self.of.get(waiter.place()).copied().flatten()
    }

    /// How many callers of a tenant wait.
    pub(super) fn len_of(&self, tenant: Tenant) -> usize {
        self.lanes.get(&Some(tenant.id)).map_or(0, |lane| lane.order.len())
    }

    /// The turn of a lane that begins to wait.
    fn begin(&self, id: LaneId, price: u128) -> Turn {
        let begin = self.start.saturating_add(self.step.min(price));
        let start = self.lanes.get(&id).map_or(begin, |lane| lane.turn.start.max(begin));
        Turn { start, since: self.began }
    }

    /// Whether a place is ahead of all waiters.
    pub(super) fn is_first(&self, (at, tenant, permits): PlaceInLane) -> bool {
        let Some(&(first, lane)) = self.waiting.first() else { return true };
        let id = lane_of(tenant);
        match self.lanes.get(&id).and_then(|lane| lane.order.first()) {
            Some(next) => lane == id && at < next,
            None => self.begin(id, price(tenant, permits)) < first,
        }
    }

    /// The lane of a caller. One that has not waited gets the turn of one that begins to.
    fn lane(&mut self, id: LaneId, price: u128) -> &mut Lane {
        let turn = self.begin(id, price);
        let lane = self.lanes.entry(id).or_default();
        if lane.order.is_empty() {
            self.idle.remove(&(lane.turn, id));
            lane.turn = turn;
        }
        lane
    }

    pub(super) fn join(&mut self, (at, tenant, permits): PlaceInLane) {
        let id = lane_of(tenant);
        let lane = self.lane(id, price(tenant, permits));
        lane.order.insert(at);
        if lane.order.len() == 1 {
            let turn = lane.turn;
            self.waiting.insert((turn, id));
            self.began += 1;
        }
        if tenant.is_some() {
            let place = WaiterId::of(at).place();
            self.of.resize(self.of.len().max(place + 1), None);
            self.of[place] = tenant;
        }
    }

    /// A caller is granted before it waits, ahead of all that do.
    pub(super) fn grant_at_once(&mut self, tenant: Option<Tenant>, permits: u64) {
        let price = price(tenant, permits);
        self.lane(lane_of(tenant), price);
        self.charge(lane_of(tenant), price);
    }

    /// The waiter that is next is granted; then it leaves.
    pub(super) fn grant(&mut self, waiter: WaiterId, permits: u64) {
        let tenant = self.tenant(waiter);
        self.charge(lane_of(tenant), price(tenant, permits));
    }

    /// Moves a tenant to its next turn.
    fn charge(&mut self, id: LaneId, price: u128) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let turn = lane.turn;
        lane.turn = turn.after(price);
        let others = if lane.order.is_empty() { &mut self.idle } else { &mut self.waiting };
        others.remove(&(turn, id));
        others.insert((lane.turn, id));
        (self.start, self.step) = (turn.start, price);
        while let Some(&(turn, id)) = self.idle.first()
            && turn.start <= self.start
        {
            self.idle.pop_first();
            self.lanes.remove(&id);
        }
    }

    /// A waiter leaves the order.
    pub(super) fn leave(&mut self, at: Timed) {
        let id = lane_of(self.tenant(WaiterId::of(at)));
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.order.remove(at);
        if lane.order.is_empty() {
            let turn = lane.turn;
            self.waiting.remove(&(turn, id));
            if turn.start > self.start {
                self.idle.insert((turn, id));
            } else {
                self.lanes.remove(&id);
            }
        }
    }

    /// The entry of a waiter is removed.
    pub(super) fn forget(&mut self, waiter: WaiterId) {
        if let Some(tenant) = self.of.get_mut(waiter.place()) {
            *tenant = None;
        }
    }

    /// The waiters in the order in which they will be granted: those ahead of a place, or all of them.
    pub(super) fn ahead_of(
        &self,
        place: Option<PlaceInLane>,
        permits: impl Fn(WaiterId) -> u64,
    ) -> impl Iterator<Item = WaiterId> {
        let price = move |at: Timed| {
            let id = WaiterId::of(at);
            price(self.tenant(id), permits(id))
        };
        let until = place.map(|place| self.turn(place, &price));
        let is_ahead = move |turn: Turn| until.is_none_or(|until| turn < until);
        let lanes = self.waiting.iter().take_while(|&&(turn, _)| is_ahead(turn));
        let head = |&(turn, id)| Some(Reverse((turn, id, self.lanes[&id].order.first()?)));
        // The next waiter of each lane, and its turn.
        let mut heads: BinaryHeap<_> = lanes.filter_map(head).collect();
        iter::from_fn(move || {
            let mut head = heads.peek_mut()?;
            let Reverse((turn, id, at)) = *head;
            if !is_ahead(turn) {
                return None;
            }
            match self.lanes[&id].order.after(at) {
                Some(next) => *head = Reverse((turn.after(price(at)), id, next)),
                None => _ = PeekMut::pop(head),
            }
            Some(WaiterId::of(at))
        })
    }

    /// The turn of a place: behind the waiters of its lane that are ahead of it.
    fn turn(&self, (at, tenant, permits): PlaceInLane, price_of: impl Fn(Timed) -> u128) -> Turn {
        let id = lane_of(tenant);
        match self.lanes.get(&id).filter(|lane| !lane.order.is_empty()) {
            Some(lane) => {
                let ahead = lane.order.iter().take_while(|&other| other < at);
                ahead.fold(lane.turn, |turn, other| turn.after(price_of(other)))
            }
            None => self.begin(id, price(tenant, permits)),
        }
    }
}
