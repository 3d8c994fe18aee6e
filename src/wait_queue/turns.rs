//! Tenants take turns in one queue.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, 1996). Each tenant that waits has a *start*, in permits divided
//! by weight, and the tenant with the earliest start is next. A grant moves the start of its tenant by its price, so
//! tenants that wait all the time get permits in proportion to their weights, to one price of each. A tenant has one
//! start and not one for each of its callers, so a caller that leaves costs its tenant nothing, and a grant takes
//! O(log tenants).
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
use std::hash::{BuildHasher, Hash, RandomState};
use std::iter;
use std::num::NonZeroU32;
use std::sync::OnceLock;

use hashbrown::HashMap;
use slab::Slab;

use super::WaiterId;
use super::take_turns::{NEW, TakeTurns, Turn};
use super::tenant::Tenant;

type LaneId = usize;

/// The permits of up to this number of tenants are always counted.
const EXACT: usize = 128;

/// How many counts are kept.
const COUNTS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Turns {
    lanes: Slab<Lane>,
    /// The lane of each tenant; `None` for callers without one.
    by_tenant: HashMap<Option<u64>, LaneId>,
    /// The lanes with waiters.
    waiting: BTreeSet<(Turn, LaneId)>,
    /// The lanes without, by their starts.
    idle: BTreeSet<(Turn, LaneId)>,
    /// By waiter; it stays until the waiter is removed.
    places: Vec<Option<Place>>,
    /// Of the last grant.
    start: u128,
    step: u128,
    /// How many times a tenant has begun to wait.
    began: u64,
    /// The permits of all that were granted or have left.
    gone: u128,
    /// Of many tenants: `gone` and the permits before a turn, as they were when they were counted. In the order of the
    /// turns, from each to the next it is more. What is more than `gone` now is still before that turn, since no waiter
    /// moves to a later one.
    counted: Vec<(Turn, u128)>,
}

/// The waiters of one tenant.
#[derive(Debug)]
struct Lane {
    tenant: Option<u64>,
    turn: Turn,
    front: Option<WaiterId>,
    back: Option<WaiterId>,
    len: usize,
    /// Of all of them.
    price: u128,
    each: Each,
}

/// What each waiter of a lane asks for.
#[derive(Clone, Copy, Debug)]
enum Each {
    Same { permits: u64, price: u128 },
    Mixed,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    tenant: Option<Tenant>,
    lane: LaneId,
    permits: u64,
    price: u128,
    previous: Option<WaiterId>,
    next: Option<WaiterId>,
}

// Here, because a program has the code of turns if it makes a tenant, and only then.
impl Tenant {
    /// By a hash of 64 bits and not by the key itself, so that no queue has a type parameter for keys and no call
    /// clones one. Two tenants of one hash would share their turns. With a random key of the process no tenant can
    /// choose such a pair, and by chance a million tenants that wait together have one in 37 million runs.
    pub(crate) fn new<T: Hash + ?Sized>(tenant: &T) -> Self {
        static HASHER: OnceLock<RandomState> = OnceLock::new();
        NEW.get_or_init(|| || Box::<Turns>::default());
        let id = HASHER.get_or_init(RandomState::new).hash_one(tenant);
        Self { id, weight: NonZeroU32::MIN }
    }
}

impl TakeTurns for Turns {
    fn front(&self) -> Option<WaiterId> {
        let &(_, lane) = self.waiting.first()?;
        self.lanes[lane].front
    }

    fn first(&self) -> Option<Turn> {
        self.waiting.first().map(|&(turn, _)| turn)
    }

    fn len_of(&self, tenant: Option<Tenant>) -> usize {
        self.by_tenant.get(&Tenant::id(tenant)).map_or(0, |&lane| self.lanes[lane].len)
    }

    fn tenant(&self, waiter: WaiterId) -> Option<Tenant> {
        self.places.get(waiter.place())?.as_ref()?.tenant
    }

    fn turn(&self, tenant: Option<Tenant>, permits: u64) -> Turn {
        let lane = self.by_tenant.get(&Tenant::id(tenant)).map(|&lane| &self.lanes[lane]);
        if let Some(lane) = lane.filter(|lane| lane.len > 0) {
            return lane.turn.after(lane.price);
        }
        let begin = self.start.saturating_add(self.step.min(Tenant::price(tenant, permits)));
        let start = lane.map_or(begin, |lane| lane.turn.start.max(begin));
        Turn { start, since: self.began }
    }

    fn join(
        &mut self,
        waiter: WaiterId,
        tenant: Option<Tenant>,
        permits: u64,
        next: Option<WaiterId>,
    ) {
        let id = self.lane_that_waits(tenant, permits);
        let lane = &mut self.lanes[id];
        let price = Tenant::price(tenant, permits);
        lane.price = lane.price.saturating_add(price);
        let is_first = lane.len == 0;
        match lane.each {
            _ if is_first => lane.each = Each::Same { permits, price },
            Each::Same { permits: other, price: others } if (other, others) == (permits, price) => {
            }
            _ => lane.each = Each::Mixed,
        }
        lane.len += 1;
        let previous = match next {
            Some(next) => {
                // It moves those behind it to later turns.
                self.counted.clear();
                self.at_mut(next).previous.replace(waiter)
            }
            None => self.lanes[id].back.replace(waiter),
        };
        match previous {
            Some(previous) => self.at_mut(previous).next = Some(waiter),
            None => self.lanes[id].front = Some(waiter),
        }
        if self.places.len() <= waiter.place() {
            self.places.resize(waiter.place() + 1, None);
        }
        let place = Place { tenant, lane: id, permits, price, previous, next };
        self.places[waiter.place()] = Some(place);
    }

    fn grant(&mut self, waiter: WaiterId) {
        let &Place { lane, price, .. } = self.at(waiter);
        self.charge(lane, price);
    }

    fn grant_at_once(&mut self, tenant: Option<Tenant>, permits: u64) {
        let known = self.by_tenant.get(&Tenant::id(tenant)).copied();
        let turn = self.turn(tenant, permits);
        let lane = known.unwrap_or_else(|| self.new_lane(tenant, turn));
        if self.lanes[lane].len == 0 {
            self.idle.remove(&(self.lanes[lane].turn, lane));
            self.lanes[lane].turn = turn;
        } else {
            self.counted.clear();
        }
        self.charge(lane, Tenant::price(tenant, permits));
    }

    fn unlink(&mut self, waiter: WaiterId) {
        let &Place { lane: id, permits, price, previous, next, .. } = self.at(waiter);
        self.gone += u128::from(permits);
        match previous {
            Some(previous) => self.at_mut(previous).next = next,
            None => self.lanes[id].front = next,
        }
        match next {
            Some(next) => self.at_mut(next).previous = previous,
            None => self.lanes[id].back = previous,
        }
        let lane = &mut self.lanes[id];
        lane.len -= 1;
        lane.price = lane.price.saturating_sub(price);
        if lane.len == 0 {
            let turn = lane.turn;
            self.waiting.remove(&(turn, id));
            if turn.start > self.start {
                self.idle.insert((turn, id));
            } else {
                self.forget(id);
            }
        }
    }

    fn remove(&mut self, waiter: WaiterId) {
        if let Some(place) = self.places.get_mut(waiter.place()) {
            *place = None;
        }
    }

    fn permits_before(&mut self, turn: Turn, is_enough: &dyn Fn(u64) -> bool) -> u64 {
        let is_crowd = self.waiting.len() > EXACT;
        if is_crowd && let Some((_, counted)) = self.counted.iter().rfind(|(at, _)| *at <= turn) {
            let left = counted.saturating_sub(self.gone);
            let left = u64::try_from(left).unwrap_or(u64::MAX);
            if is_enough(left) {
                return left;
            }
        }
        let mut permits = 0u64;
        let lanes = self.waiting.iter().take_while(|&&(first, _)| first < turn);
        for (visited, &(_, lane)) in lanes.enumerate() {
            // Twice what is enough now is enough for a while.
            if visited > 0 && visited.is_multiple_of(EXACT) && is_enough(permits / 2) {
                break;
            }
            permits = permits.saturating_add(self.permits_of(&self.lanes[lane], turn));
        }
        if is_crowd {
            self.note_count(turn, permits);
        }
        permits
    }

    fn order(&self, turn: Option<Turn>) -> Box<dyn Iterator<Item = WaiterId> + '_> {
        let lanes =
            self.waiting.iter().take_while(move |(first, _)| turn.is_none_or(|turn| *first < turn));
        let heads =
            lanes.filter_map(|&(first, lane)| Some(Reverse((first, self.lanes[lane].front?))));
        let mut heads: BinaryHeap<_> = heads.collect();
        Box::new(iter::from_fn(move || {
            let mut head = heads.peek_mut()?;
            let Reverse((at, waiter)) = *head;
            if turn.is_some_and(|turn| at >= turn) {
                return None;
            }
            let place = self.at(waiter);
            match place.next {
                Some(next) => *head = Reverse((at.after(place.price), next)),
                None => _ = PeekMut::pop(head),
            }
            Some(waiter)
        }))
    }

    fn without_tenant(&self) -> Box<dyn Iterator<Item = WaiterId> + '_> {
        let lane = self.by_tenant.get(&None).map(|&lane| &self.lanes[lane]);
        let front = lane.and_then(|lane| lane.front);
        Box::new(iter::successors(front, |&waiter| self.at(waiter).next))
    }
}

impl Turns {
    fn at(&self, waiter: WaiterId) -> &Place {
        self.places[waiter.place()].as_ref().unwrap_or_else(|| unreachable!("a waiter has a place"))
    }

    fn at_mut(&mut self, waiter: WaiterId) -> &mut Place {
        self.places[waiter.place()].as_mut().unwrap_or_else(|| unreachable!("a waiter has a place"))
    }

    /// The lane of a tenant, which begins to wait if it did not.
    fn lane_that_waits(&mut self, tenant: Option<Tenant>, permits: u64) -> LaneId {
        let turn = self.turn(tenant, permits);
        let known = self.by_tenant.get(&Tenant::id(tenant)).copied();
        if let Some(lane) = known.filter(|&lane| self.lanes[lane].len > 0) {
            return lane;
        }
        let lane = known.unwrap_or_else(|| self.new_lane(tenant, turn));
        self.idle.remove(&(self.lanes[lane].turn, lane));
        self.lanes[lane].turn = turn;
        self.waiting.insert((turn, lane));
        self.began += 1;
        lane
    }

    fn new_lane(&mut self, tenant: Option<Tenant>, turn: Turn) -> LaneId {
        let (tenant, each) = (Tenant::id(tenant), Each::Mixed);
        let lane = Lane { tenant, turn, front: None, back: None, len: 0, price: 0, each };
        let lane = self.lanes.insert(lane);
        self.by_tenant.insert(tenant, lane);
        lane
    }

    /// Moves a tenant to its next turn.
    fn charge(&mut self, lane: LaneId, price: u128) {
        let Lane { turn, len, .. } = self.lanes[lane];
        let next = turn.after(price);
        self.lanes[lane].turn = next;
        if len == 0 {
            self.idle.insert((next, lane));
        } else {
            self.waiting.remove(&(turn, lane));
            self.waiting.insert((next, lane));
        }
        self.granted(turn.start, price);
    }

    fn granted(&mut self, start: u128, price: u128) {
        (self.start, self.step) = (start, price);
        while let Some(&(turn, lane)) = self.idle.first()
            && turn.start <= self.start
        {
            self.idle.pop_first();
            self.forget(lane);
        }
    }

    fn forget(&mut self, lane: LaneId) {
        let lane = self.lanes.remove(lane);
        self.by_tenant.remove(&lane.tenant);
    }

    fn note_count(&mut self, turn: Turn, permits: u64) {
        let (gone, counted) = (self.gone, self.gone + u128::from(permits));
        // A later turn with no more has nothing to say.
        self.counted.retain(|&(other, count)| {
            count > gone && (other < turn || other > turn && count > counted)
        });
        if self.counted.len() >= COUNTS {
            self.counted.remove(0);
        }
        let place = self.counted.partition_point(|&(other, _)| other < turn);
        self.counted.insert(place, (turn, counted));
    }

    fn permits_of(&self, lane: &Lane, turn: Turn) -> u64 {
        match lane.each {
            Each::Same { permits, price } => {
                let distance = turn.start.saturating_sub(lane.turn.start);
                let is_tie = distance.is_multiple_of(price) && lane.turn.since < turn.since;
                let count = distance.div_ceil(price) + u128::from(is_tie);
                let len = u64::try_from(lane.len).unwrap_or(u64::MAX);
                u64::try_from(count).unwrap_or(u64::MAX).min(len).saturating_mul(permits)
            }
            Each::Mixed => {
                let mut each = lane.turn;
                let places = iter::successors(lane.front, |&waiter| self.at(waiter).next);
                let places = places.map(|waiter| self.at(waiter)).take_while(|place| {
                    let is_before = each < turn;
                    each = each.after(place.price);
                    is_before
                });
                places.fold(0, |all, place| place.permits.saturating_add(all))
            }
        }
    }
}
