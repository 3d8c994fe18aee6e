//! The queue of callers that wait: one ordered set, and beside it each waiter's entry, deadline and waker.
//!
//! The key of a waiter in the order is its [`Arrival`]: when it joined, less the time by which it goes ahead of
//! others. Waiters of one arrival are in FIFO order. From the first caller for a tenant on, each tenant has such an order of
//! its own, and [tenants take turns](tenants).
//!
//! Decisions are made elsewhere. A waiter leaves the order when it is granted or refused; its entry stays until the caller
//! takes the outcome. Wakers are called, and dropped, after the owner's lock is released: both can run anything.

mod tenants;

use std::mem;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};
use std::task::Waker;
use std::time::Duration;

use slab::Slab;
pub(crate) use tenants::Tenant;
use tenants::{PlaceInLane, Turns, price};

use crate::clock::{AfterUnlock, Alarm, KEEP, TimeOrder, Timed, no_waker};
use crate::units::{Nanos, saturating_nanos};
use crate::unwinding::WakerList;

/// Far enough to mean "never".
pub(crate) const NEVER: Nanos = Nanos::new(u64::MAX);

/// Names a waiter until its entry is removed: its place in the slab, plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(NonZeroU32);

impl WaiterId {
    pub(crate) fn new(place: usize) -> Self {
        let id = u32::try_from(place + 1).ok().and_then(NonZeroU32::new);
        Self(id.expect("fewer than 2^32 waiters"))
    }

    pub(crate) fn place(self) -> usize {
        self.0.get() as usize - 1
    }

    fn at(self, time: u64, rank: u32) -> Timed {
        Timed::new(time, rank, self.0.get())
    }

    fn of(timed: Timed) -> Self {
        Self(NonZeroU32::new(timed.id()).unwrap_or_else(|| unreachable!("an entry has a number")))
    }
}

/// When a caller joined, less the time by which it goes ahead of others: the key of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival(u64);

impl Arrival {
    /// The key of a caller that joins at the origin of the clock. A caller goes ahead by half of it at most.
    const ORIGIN: u64 = 1 << 63;

    pub(crate) fn new(joined: Nanos, ahead: Duration) -> Self {
        let joined = joined.min(Nanos::END).get();
        Self(Self::ORIGIN + joined - saturating_nanos(ahead.min(Nanos::HORIZON)))
    }

    fn get(self) -> u64 {
        self.0
    }
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<C> {
    pub(crate) cost: C,
    pub(crate) max_wait: Option<Duration>,
    /// It enters as if it had come this much earlier.
    pub(crate) ahead: Duration,
    /// Or in the turn of a tenant.
    pub(crate) tenant: Option<Tenant>,
}

impl<C> Ask<C> {
    #[inline]
    pub(crate) fn new(cost: C, max_wait: Option<Duration>) -> Self {
        Self { cost, max_wait, ahead: Duration::ZERO, tenant: None }
    }
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) waiters: usize,
    pub(crate) permits: u64,
    /// For each tenant.
    pub(crate) waiters_per_tenant: usize,
}

impl Bounds {
    pub(crate) const NONE: Self =
        Self { waiters: usize::MAX, permits: u64::MAX, waiters_per_tenant: usize::MAX };

    /// The name of the bound that one more waiter would exceed, with which all together ask for `permits`. `of_tenant`:
    /// the waiters of the same tenant.
    pub(crate) fn exceeded(
        self,
        waiters: usize,
        permits: u64,
        of_tenant: Option<usize>,
    ) -> Option<&'static str> {
        if of_tenant.is_some_and(|waiters| waiters >= self.waiters_per_tenant) {
            Some("max_waiters_per_tenant")
        } else if waiters >= self.waiters {
            Some("max_waiters")
        } else {
            (permits > self.permits).then_some("max_queued_permits")
        }
    }
}

/// A step of the end of a limiter; `true` where it asks for nothing.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// Lets no caller in any more, and refuses those that wait.
    Close,
    /// Lets no caller in any more, and serves those that wait.
    Serve,
    /// Whether new callers are refused.
    IsClosed,
    /// Whether no caller waits and no place in flight is held. If not, calls the waker when that is so.
    IsDrained(&'a Waker),
}

/// A full slab grows by this part of its size: doubled, it would be half empty after it has grown.
const GROWTH: usize = 16;

/// What the queue must know of its waiters.
pub(crate) trait Waits {
    /// How many permits a waiter asks for.
    fn permits(&self) -> u64;
}

pub(crate) struct WaitQueue<T> {
    entries: Slab<Entry<T>>,
    /// The waiters in the order of grants, unless tenants take turns.
    order: TimeOrder,
    /// The order, from the first caller for a tenant that has to wait until the queue is empty.
    tenants: Option<Box<dyn Turns>>,
    len: usize,
    /// How many have joined since the queue was empty: the FIFO order of waiters of one arrival.
    joined: u32,
    /// The waiters with a deadline, the first deadline first.
    deadlines: TimeOrder,
    /// New callers are refused, by the owner.
    pub(crate) is_closed: bool,
    wakers: Wakers,
}

struct Entry<T> {
    value: T,
    /// [`no_waker`], if there is none.
    waker: Waker,
    /// [`NEVER`], if there is none.
    deadline: Nanos,
    arrival: Arrival,
    rank: u32,
    /// In a box, as few callers come for one.
    tenant: Option<Box<Tenant>>,
}

/// A place in the order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    arrival: Arrival,
    rank: u32,
    tenant: Option<Tenant>,
    permits: u64,
}

impl Place {
    /// The place of a caller that has not joined: behind all waiters of its arrival.
    pub(crate) fn new(arrival: Arrival, tenant: Option<Tenant>, permits: u64) -> Self {
        Self { arrival, rank: u32::MAX, tenant, permits }
    }

    /// The place of the same caller if it came later.
    pub(crate) fn later(self, by: Duration) -> Self {
        let arrival = Arrival(self.arrival.0.saturating_add(saturating_nanos(by)));
        Self { arrival, rank: u32::MAX, ..self }
    }

    fn at(self) -> Timed {
        Timed::new(self.arrival.get(), self.rank, 0)
    }

    fn in_lane(self) -> PlaceInLane {
        (self.at(), self.tenant, self.permits)
    }
}

impl<T: Waits> WaitQueue<T> {
    pub(crate) fn new() -> Self {
        let entries = Slab::new();
        let (order, tenants, len, joined, deadlines, is_closed, wakers) = Default::default();
        Self { entries, order, tenants, len, joined, deadlines, is_closed, wakers }
    }

    /// How many callers wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Tenants take turns if this caller comes for one and others wait, who count as callers without a tenant: so it is judged
    /// among them. A caller that is refused while no other waits begins no turns.
    pub(crate) fn take_turns_for(&mut self, place: &Place) {
        if self.len > 0 {
            self.begin_turns_for(place);
        }
    }

    fn begin_turns_for(&mut self, place: &Place) {
        if let (Some(tenant), None) = (place.tenant, &self.tenants) {
            self.tenants = Some((tenant.take_turns)(mem::take(&mut self.order)));
        }
    }

    /// Whether a place is ahead of all waiters.
    pub(crate) fn is_first(&self, place: &Place) -> bool {
        match &self.tenants {
            None => self.order.first().is_none_or(|first| place.at() < first),
            Some(tenants) => tenants.is_first(place.in_lane()),
        }
    }

    /// Whether a place is behind all waiters. Among tenants that is known only of an empty queue.
    pub(crate) fn is_last(&self, place: &Place) -> bool {
        match &self.tenants {
            None => self.order.last().is_none_or(|last| last < place.at()),
            Some(_) => self.len == 0,
        }
    }

    /// Whether tenants take turns.
    pub(crate) fn is_fair(&self) -> bool {
        self.tenants.is_some()
    }

    /// A caller joins at its place.
    pub(crate) fn join(
        &mut self,
        place: &Place,
        value: T,
        deadline: Option<Nanos>,
        waker: Option<Waker>,
    ) -> WaiterId {
        self.begin_turns_for(place);
        let waker = waker.unwrap_or_else(|| no_waker().clone());
        let &Place { arrival, tenant, permits, .. } = place;
        let rank = self.joined;
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(4.max(self.entries.len() / GROWTH));
        }
        let kept = tenant.map(Box::new);
        let entry = Entry { value, waker, deadline: NEVER, arrival, rank, tenant: kept };
        let id = WaiterId::new(self.entries.insert(entry));
        let at = id.at(arrival.get(), rank);
        self.joined = self.joined.wrapping_add(1);
        self.len += 1;
        match &mut self.tenants {
            None => self.order.insert(at),
            Some(tenants) => tenants.join((at, tenant, permits)),
        }
        self.set_deadline(id, deadline);
        self.wakers.polled_since_armed = true;
        id
    }

    /// A caller is granted ahead of all waiters: that is its turn.
    pub(crate) fn grant_at_once(&mut self, place: &Place) {
        if let Some(tenants) = &mut self.tenants {
            tenants.grant(place.tenant, place.permits);
        }
    }

    /// The front of the queue is granted, and leaves the order.
    pub(crate) fn grant(&mut self, id: WaiterId) {
        let (tenant, permits) = (self.tenant(id), self[id].permits());
        if let Some(tenants) = &mut self.tenants {
            tenants.grant(tenant, permits);
        }
        self.unlink(id);
    }

    /// Takes a waiter out of the order, once only; its entry stays.
    pub(crate) fn unlink(&mut self, id: WaiterId) {
        let (at, tenant) = (self.key(id), self.tenant(id));
        self.len -= 1;
        match &mut self.tenants {
            None => _ = self.order.remove(at),
            Some(tenants) => tenants.leave(at, tenant),
        }
        if self.len == 0 {
            (self.tenants, self.joined) = (None, 0);
        }
        self.set_deadline(id, None);
    }

    fn key(&self, id: WaiterId) -> Timed {
        let entry = self.entry(id);
        id.at(entry.arrival.get(), entry.rank)
    }

    /// A waiter that was unlinked is in the order again, at its old place.
    #[cfg(feature = "redis")]
    pub(crate) fn relink(&mut self, id: WaiterId, deadline: Option<Nanos>) {
        self.len += 1;
        self.order.insert(self.key(id));
        self.set_deadline(id, deadline);
    }

    /// Removes the entry of a waiter that is out of the order.
    pub(crate) fn remove(&mut self, id: WaiterId) -> T {
        let Entry { value, waker, .. } = self.entries.remove(id.place());
        if self.entries.is_empty() && self.entries.capacity() > KEEP {
            self.entries = Slab::new();
        }
        self.wakers.wakes.discard(waker);
        value
    }

    /// The waiter that is next.
    pub(crate) fn front(&self) -> Option<WaiterId> {
        let first = match &self.tenants {
            None => self.order.first(),
            Some(tenants) => tenants.first(),
        };
        first.map(WaiterId::of)
    }

    /// The waiters in their order, while tenants do not take turns.
    #[cfg(feature = "redis")]
    pub(crate) fn in_order(&self) -> impl Iterator<Item = WaiterId> {
        self.order.iter().map(WaiterId::of)
    }

    /// Shows the waiters in the order in which they will be granted, those ahead of a place or all, as long as `visit` says
    /// to go on.
    pub(crate) fn visit_ahead(
        &self,
        place: Option<&Place>,
        mut visit: impl FnMut(WaiterId) -> bool,
    ) {
        let visit = &mut |at| visit(WaiterId::of(at));
        match &self.tenants {
            None => self.order.visit(place.map(|place| place.at()), visit),
            Some(tenants) => {
                let price = &|at| {
                    let Place { tenant, permits, .. } = self.place_of(WaiterId::of(at));
                    price(tenant, permits)
                };
                tenants.visit_ahead(place.map(|place| place.in_lane()), price, visit);
            }
        }
    }

    /// The place that a waiter has.
    pub(crate) fn place_of(&self, id: WaiterId) -> Place {
        let &Entry { arrival, rank, ref value, .. } = self.entry(id);
        Place { arrival, rank, tenant: self.tenant(id), permits: value.permits() }
    }

    fn tenant(&self, id: WaiterId) -> Option<Tenant> {
        self.entry(id).tenant.as_deref().copied()
    }

    /// How many callers of a tenant wait.
    pub(crate) fn len_of(&self, tenant: Tenant) -> usize {
        self.tenants.as_ref().map_or(0, |tenants| tenants.len_of(tenant))
    }

    pub(crate) fn deadline(&self, id: WaiterId) -> Option<Nanos> {
        Some(self.entry(id).deadline).filter(|&deadline| deadline != NEVER)
    }

    pub(crate) fn set_deadline(&mut self, id: WaiterId, deadline: Option<Nanos>) {
        let deadline = deadline.unwrap_or(NEVER);
        let old = mem::replace(&mut self.entry_mut(id).deadline, deadline);
        if old != NEVER {
            self.deadlines.remove(id.at(old.get(), 0));
        }
        if deadline != NEVER {
            self.deadlines.insert(id.at(deadline.get(), 0));
        }
    }

    pub(crate) fn first_deadline(&self) -> Option<(Nanos, WaiterId)> {
        self.deadlines.first().map(|first| (Nanos::new(first.time()), WaiterId::of(first)))
    }
}

/// The wakers, and the alarm.
impl<T: Waits> WaitQueue<T> {
    /// A caller that waits for something else of the owner, and is no waiter, is here.
    #[cfg(feature = "redis")]
    pub(crate) fn note_caller(&mut self) {
        self.wakers.polled_since_armed = true;
    }

    /// Keeps the waker to be called for a waiter, instead of the last one.
    pub(crate) fn keep_waker(&mut self, id: WaiterId, waker: &Waker) {
        self.wakers.polled_since_armed = true;
        let kept = &mut self.entry_mut(id).waker;
        if !kept.will_wake(waker) {
            let old = mem::replace(kept, waker.clone());
            self.wakers.wakes.discard(old);
        }
    }

    /// Drops the waker of a waiter that will not be woken.
    #[cfg(feature = "redis")]
    pub(crate) fn drop_waker(&mut self, id: WaiterId) {
        let waker = self.take_waker(id);
        self.wakers.wakes.discard(waker);
    }

    fn take_waker(&mut self, id: WaiterId) -> Waker {
        mem::replace(&mut self.entry_mut(id).waker, no_waker().clone())
    }

    /// Wakes a waiter after the lock is released.
    pub(crate) fn wake_after_unlock(&mut self, id: WaiterId) {
        let waker = self.take_waker(id);
        self.wakers.wakes.wake(waker);
    }

    /// Wakes all waiters after the lock is released, and keeps their wakers.
    pub(crate) fn wake_all(&mut self) {
        for (_, entry) in &self.entries {
            self.wakers.wakes.wake(entry.waker.clone());
        }
    }

    /// Keeps the waker of a caller that waits until all others are served.
    pub(crate) fn keep_until_drained(&mut self, waker: &Waker) {
        self.wakers.polled_since_armed = true;
        let draining = &mut self.wakers.draining;
        if !draining.iter().any(|kept| kept.will_wake(waker)) {
            draining.push(waker.clone());
        }
    }

    /// Wakes such callers after the lock is released.
    pub(crate) fn wake_drained(&mut self) {
        self.wakers.wakes.wake_all(&mut self.wakers.draining);
    }

    /// Holds back all wakers but the first.
    #[cfg(feature = "redis")]
    pub(crate) fn hold_back(&mut self) {
        self.wakers.deferred.append(&mut self.wakers.wakes.more().others);
    }

    #[cfg(feature = "redis")]
    pub(crate) fn holds_back(&self) -> bool {
        !self.wakers.deferred.is_empty()
    }

    /// Wakes those that were held back after the lock is released.
    #[cfg(feature = "redis")]
    pub(crate) fn wake_held_back(&mut self) {
        self.wakers.wakes.wake_all(&mut self.wakers.deferred);
    }

    /// Sets the alarm for `due`, unless it is set for an earlier time: an early alarm is harmless, and to set it
    /// at each departure would cost more. `None`: nothing is due at a known time. `now`: as the owner has read it.
    pub(crate) fn arm(&mut self, due: Option<Nanos>, now: Nanos, alarm: impl FnOnce() -> Alarm) {
        let is_empty = self.len == 0;
        let wakers = &mut self.wakers;
        let was_polled = mem::take(&mut wakers.polled_since_armed);
        let no_next_event = !is_empty && due.is_none_or(|due| due > Nanos::END);
        let had_none = mem::replace(&mut wakers.no_next_event, no_next_event);
        // A caller that comes later, in another place, may make the time known.
        let waits_here = was_polled && !is_empty;
        if due.is_some() || waits_here {
            wakers.alarm.get_or_insert_with(alarm);
        }
        let Some(alarm) = &mut wakers.alarm else { return };
        let needs_task = if let Some(due) = due {
            let armed = wakers.armed.unwrap_or(NEVER);
            let is_earlier = due < armed;
            // What was due before `now` is for the owner to see.
            if is_earlier && alarm.set(due) && due > now {
                wakers.wakes.more().missed = Some(alarm.line.clone());
            }
            wakers.armed = Some(armed.min(due));
            is_earlier || was_polled
        } else {
            let is_armed = wakers.armed.is_some();
            if (is_empty || is_armed) && alarm.unset(is_empty, is_armed) {
                wakers.armed = None;
            }
            waits_here
        };
        #[cfg(feature = "tokio")]
        if needs_task && let Some(task) = alarm.timer_task(was_polled) {
            wakers.wakes.more().timer_task = Some(task);
        }
        let _ = needs_task;
        if had_none && !no_next_event && alarm.clock.advances_by_itself() {
            self.wake_all();
        }
    }

    /// The alarm went off.
    pub(crate) fn disarm(&mut self) {
        self.wakers.armed = None;
    }

    /// The alarm cannot be relied on in some place: wakes all waiters, each of which looks for itself.
    #[cfg(feature = "tokio")]
    pub(crate) fn forget_alarm(&mut self) {
        self.disarm();
        self.wake_all();
        self.wake_drained();
        // There may be none, but an owner that waits.
        self.wakers.polled_since_armed = true;
    }

    pub(crate) fn after_unlock(&mut self) -> AfterUnlock {
        let wakes = &mut self.wakers.wakes;
        // An empty one is not written, or the processor of the next caller would have to fetch it.
        if wakes.is_empty() { AfterUnlock::default() } else { mem::take(wakes) }
    }
}

#[derive(Default)]
struct Wakers {
    /// Made when a caller first waits.
    alarm: Option<Alarm>,
    /// The time that the alarm is set for, if it is: never later than the next event. It goes off up to the clock's slack later.
    armed: Option<Nanos>,
    /// Whether a caller has joined or was polled since the last [`arm`](WaitQueue::arm), by the same thread: the alarm
    /// has to go off there.
    polled_since_armed: bool,
    /// Whether callers wait and nothing is due that a clock can come to. Callers that are polled then cannot move one
    /// that advances by itself.
    no_next_event: bool,
    /// To be woken when nothing is left to wait for.
    draining: WakerList,
    wakes: AfterUnlock,
    /// To be woken by the first of those that are woken.
    #[cfg(feature = "redis")]
    deferred: WakerList,
}

// Not inlined, because many places need them, and each would have the code for an entry that is not there.
impl<T> WaitQueue<T> {
    #[inline(never)]
    fn entry(&self, id: WaiterId) -> &Entry<T> {
        &self.entries[id.place()]
    }

    #[inline(never)]
    fn entry_mut(&mut self, id: WaiterId) -> &mut Entry<T> {
        &mut self.entries[id.place()]
    }
}

impl<T> Index<WaiterId> for WaitQueue<T> {
    type Output = T;

    fn index(&self, id: WaiterId) -> &T {
        &self.entry(id).value
    }
}

impl<T> IndexMut<WaiterId> for WaitQueue<T> {
    fn index_mut(&mut self, id: WaiterId) -> &mut T {
        &mut self.entry_mut(id).value
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    /// A task that waits takes 350 bytes with it, of which tokio's task takes 256 and the order 33.
    #[test]
    fn an_entry_takes_72_bytes() {
        struct Waiter {
            _joined: Nanos,
            _cost: u32,
            _outcome: Option<Box<u64>>,
        }
        // The slab needs no room to tell free entries from others.
        assert_eq!(size_of::<Option<Entry<Waiter>>>(), 72);
    }

    impl Waits for usize {
        fn permits(&self) -> u64 {
            1
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn a_crowd_takes_little_more_than_its_entries_and_leaves_nothing() {
        let mut queue = WaitQueue::new();
        let place = Place::new(Arrival::new(Nanos::ZERO, Duration::ZERO), None, 1);
        let ids: Vec<_> =
            (0..100_000).map(|number| queue.join(&place, number, None, None)).collect();
        assert!(queue.entries.capacity() <= 100_000 + 100_000 / GROWTH);
        let mut next = 0..100_000;
        queue.visit_ahead(None, |id| next.next() == Some(queue[id]));
        assert_eq!(next.len(), 0);
        for id in ids {
            queue.unlink(id);
            queue.remove(id);
        }
        assert_eq!((queue.len(), queue.entries.capacity()), (0, 0));
    }
}
