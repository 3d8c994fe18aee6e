//! Callers that wait: in the order of their arrival, with their deadlines, their wakers and the alarm that ends their waits.
//!
//! Decisions are made elsewhere. A waiter leaves the order when it is granted or refused; its entry stays until
//! the caller takes the outcome. Wakers are called, and dropped, after the owner's lock is released: both can run
//! anything.

mod ahead;
mod arrival;
mod deadlines;
mod end;
mod fair;
mod fifo;
mod take_turns;
mod tenant;
mod turns;
mod waiter_times;

use std::mem;
use std::ops::{Index, IndexMut};
use std::task::Waker;

use smallvec::SmallVec;

use crate::clock::{Alarm, TimerTask, wake_in_turn};
use crate::error::QueueLimit;
use crate::units::Nanos;
use arrival::Ahead;
pub(crate) use arrival::{Arrival, Arrived};
use deadlines::Deadlines;
pub(crate) use end::End;
use fifo::Fifo;
pub(crate) use fifo::{EntryId, EntryId as WaiterId};
use take_turns::TakeTurns;
pub(crate) use take_turns::Turn;
pub(crate) use tenant::{Claim, Tenant};
pub(crate) use waiter_times::WaiterTimes;

/// Far enough to mean "never".
pub(crate) const NEVER: Nanos = Nanos::new(u64::MAX);

/// A call wakes one caller at most, or many.
type Wakers = SmallVec<[Waker; 2]>;

#[derive(Debug)]
pub(crate) struct WaitQueue<T> {
    fifo: Fifo<Entry<T>>,
    ahead: Ahead,
    /// If callers come for tenants: the order of grants, instead of that of the FIFO.
    turns: Option<Box<dyn TakeTurns>>,
    deadlines: Deadlines,
    /// Made when a caller first waits.
    alarm: Option<Alarm>,
    /// When the alarm goes off; it may be early, never late.
    armed: Nanos,
    /// Whether a caller has joined or was polled since the last [`arm`](Self::arm), by the same thread: the alarm has
    /// to go off there.
    is_here: bool,
    /// Whether callers wait and nothing is due that a clock can come to. Callers that are polled then cannot move one
    /// that advances by itself.
    is_unknown: bool,
    /// New callers are refused, by the owner.
    pub(crate) is_closed: bool,
    /// To be woken when nothing is left to wait for.
    draining: Vec<Waker>,
    wake: Wakers,
    /// To be woken by the first of those that are woken.
    #[cfg(feature = "redis")]
    held_back: Vec<Waker>,
    discard: Vec<Waker>,
}

#[derive(Debug)]
struct Entry<T> {
    /// One that does nothing, if there is none: an `Option` would make the entries of the slab larger.
    waker: Waker,
    value: T,
}

impl<T> Entry<T> {
    fn new(value: T, waker: Option<Waker>) -> Self {
        Self { waker: waker.unwrap_or_else(|| Waker::noop().clone()), value }
    }

    fn take_waker(&mut self) -> Waker {
        mem::replace(&mut self.waker, Waker::noop().clone())
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

    /// Which of the bounds one more waiter would exceed, with which all together ask for `permits`. `of_tenant`:
    /// the waiters of the same tenant.
    pub(crate) fn exceeded(
        self,
        waiters: usize,
        permits: u64,
        of_tenant: Option<usize>,
    ) -> Option<QueueLimit> {
        let most = |waiters: usize| u32::try_from(waiters).unwrap_or(u32::MAX);
        if of_tenant.is_some_and(|waiters| waiters >= self.waiters_per_tenant) {
            Some(QueueLimit::WaitersPerTenant(most(self.waiters_per_tenant)))
        } else if waiters >= self.waiters {
            Some(QueueLimit::Waiters(most(self.waiters)))
        } else {
            let most = u32::try_from(self.permits).unwrap_or(u32::MAX);
            (permits > self.permits).then_some(QueueLimit::Permits(most))
        }
    }
}

impl<T: Arrived> WaitQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            fifo: Fifo::new(),
            ahead: Ahead::default(),
            turns: None,
            deadlines: Deadlines::default(),
            alarm: None,
            armed: NEVER,
            is_here: false,
            is_unknown: false,
            is_closed: false,
            draining: Vec::new(),
            wake: Wakers::new(),
            #[cfg(feature = "redis")]
            held_back: Vec::new(),
            discard: Vec::new(),
        }
    }

    /// How many callers wait.
    pub(crate) fn len(&self) -> usize {
        self.fifo.len()
    }

    pub(crate) fn front(&self) -> Option<WaiterId> {
        self.turns.as_ref().map_or_else(|| self.fifo.front(), |turns| turns.front())
    }

    /// The waiters, in the order of the FIFO.
    pub(crate) fn ids(&self) -> impl Iterator<Item = WaiterId> {
        self.fifo.iter().map(|(id, _)| id)
    }

    /// A caller joins, behind all others.
    pub(crate) fn push(
        &mut self,
        value: T,
        deadline: Option<Nanos>,
        waker: Option<Waker>,
    ) -> WaiterId {
        let id = self.fifo.push_back(Entry::new(value, waker));
        self.deadlines.set(id, deadline);
        self.is_here = true;
        id
    }

    /// A caller that waits for something else of the owner, and is no waiter, is here.
    #[cfg(feature = "redis")]
    pub(crate) fn note_caller(&mut self) {
        self.is_here = true;
    }

    /// The waiter behind another one.
    pub(crate) fn behind(&self, id: WaiterId) -> Option<WaiterId> {
        self.fifo.behind(id)
    }

    /// Takes a waiter out of the order, once only; its entry stays.
    pub(crate) fn unlink(&mut self, id: WaiterId) {
        self.forget_arrival(id);
        self.fifo.unlink(id);
        self.cancel_deadline(id);
        if let Some(turns) = &mut self.turns {
            turns.unlink(id);
            if self.fifo.len() == 0 {
                self.turns = None;
            }
        }
    }

    pub(crate) fn cancel_deadline(&mut self, id: WaiterId) {
        self.deadlines.set(id, None);
    }

    /// A waiter whose deadline was cancelled has it again.
    #[cfg(feature = "redis")]
    pub(crate) fn set_deadline(&mut self, id: WaiterId, deadline: Option<Nanos>) {
        self.deadlines.set(id, deadline);
    }

    /// Removes the entry of a waiter that is out of the order.
    pub(crate) fn remove(&mut self, id: WaiterId) -> T {
        let (value, waker) = self.take(id);
        if !waker.will_wake(Waker::noop()) {
            self.discard.push(waker);
        }
        value
    }

    /// The same. The waker is to be dropped after the lock is released.
    pub(crate) fn take(&mut self, id: WaiterId) -> (T, Waker) {
        if let Some(turns) = &mut self.turns {
            turns.remove(id);
        }
        let Entry { waker, value } = self.fifo.remove(id);
        (value, waker)
    }

    pub(crate) fn deadline(&self, id: WaiterId) -> Option<Nanos> {
        self.deadlines.of(id)
    }

    pub(crate) fn first_deadline(&self) -> Option<(Nanos, WaiterId)> {
        self.deadlines.first()
    }

    /// Keeps the waker to be called for a waiter, instead of the last one.
    pub(crate) fn keep_waker(&mut self, id: WaiterId, waker: &Waker) {
        self.is_here = true;
        let kept = &mut self.fifo[id].waker;
        if !kept.will_wake(waker) {
            self.discard.push(mem::replace(kept, waker.clone()));
        }
    }

    /// Drops the waker of a waiter that will not be woken.
    #[cfg(feature = "redis")]
    pub(crate) fn drop_waker(&mut self, id: WaiterId) {
        self.discard.push(self.fifo[id].take_waker());
    }

    /// Wakes a waiter after the lock is released.
    pub(crate) fn wake(&mut self, id: WaiterId) {
        let waker = self.fifo[id].take_waker();
        if !waker.will_wake(Waker::noop()) {
            self.wake.push(waker);
        }
    }

    /// Keeps the waker of a caller that waits until all others are served.
    pub(crate) fn keep_until_drained(&mut self, waker: &Waker) {
        self.is_here = true;
        if !self.draining.iter().any(|kept| kept.will_wake(waker)) {
            self.draining.push(waker.clone());
        }
    }

    /// Wakes such callers after the lock is released.
    pub(crate) fn wake_drained(&mut self) {
        self.draining.drain(..).for_each(|waker| self.wake.push(waker));
    }

    /// The alarm cannot be relied on in some place: wakes all waiters, each of which looks for itself.
    pub(crate) fn forget_alarm(&mut self) {
        self.disarm();
        self.wake_all();
        self.wake_drained();
        // There may be none, but an owner that waits.
        self.is_here = true;
    }

    /// Wakes all waiters after the lock is released, and keeps their wakers.
    pub(crate) fn wake_all(&mut self) {
        self.fifo.iter().for_each(|(_, entry)| self.wake.push(entry.waker.clone()));
    }

    /// Holds back all wakers but the first.
    #[cfg(feature = "redis")]
    pub(crate) fn hold_back(&mut self) {
        self.held_back.extend(self.wake.drain(self.wake.len().min(1)..));
    }

    #[cfg(feature = "redis")]
    pub(crate) fn holds_back(&self) -> bool {
        !self.held_back.is_empty()
    }

    /// Wakes those that were held back after the lock is released.
    #[cfg(feature = "redis")]
    pub(crate) fn wake_held_back(&mut self) {
        self.wake.extend(self.held_back.drain(..));
    }

    /// Sets the alarm for `due`, unless it is set for an earlier time: an early alarm is harmless, and to set it
    /// at each departure would cost more. `None`: nothing is due at a known time. `now`: as the owner has read it.
    pub(crate) fn arm(
        &mut self,
        due: Option<Nanos>,
        now: Nanos,
        alarm: impl FnOnce() -> Alarm,
    ) -> Option<TimerTask> {
        let is_here = mem::take(&mut self.is_here);
        let is_empty = self.fifo.len() == 0;
        let is_unknown = !is_empty && due.is_none_or(|due| due > Nanos::END);
        let was_unknown = mem::replace(&mut self.is_unknown, is_unknown);
        let Some(due) = due else {
            let unset = if is_empty { Alarm::rest } else { Alarm::unset };
            if (is_empty || self.armed != NEVER) && self.alarm.as_mut().is_some_and(unset) {
                self.armed = NEVER;
            }
            let waits_here = is_here && !is_empty;
            // A caller that comes later, in another place, may make the time known.
            return waits_here
                .then(|| self.alarm.get_or_insert_with(alarm))
                .and_then(|alarm| alarm.timer_task(true, false));
        };
        let alarm = self.alarm.get_or_insert_with(alarm);
        let is_earlier = due < self.armed;
        // What was due before `now` is for the owner to see.
        let is_missed = is_earlier && alarm.set(due) && due > now;
        self.armed = self.armed.min(due);
        let is_needed = is_earlier || is_here;
        let task = is_needed.then(|| alarm.timer_task(is_here, is_missed)).flatten();
        if was_unknown && !is_unknown && alarm.is_moved_by_callers() {
            self.wake_all();
        }
        task
    }

    /// The alarm went off.
    pub(crate) fn disarm(&mut self) {
        self.armed = NEVER;
    }

    pub(crate) fn after_unlock(&mut self, timer_task: Option<TimerTask>) -> AfterUnlock {
        // An empty list is not written, or the processor of the next caller would have to fetch it.
        let wake = if self.wake.is_empty() { Wakers::new() } else { mem::take(&mut self.wake) };
        let discard =
            if self.discard.is_empty() { Vec::new() } else { mem::take(&mut self.discard) };
        AfterUnlock { timer_task, wake, discard }
    }
}

impl<T> Index<WaiterId> for WaitQueue<T> {
    type Output = T;

    fn index(&self, id: WaiterId) -> &T {
        &self.fifo[id].value
    }
}

impl<T> IndexMut<WaiterId> for WaitQueue<T> {
    fn index_mut(&mut self, id: WaiterId) -> &mut T {
        &mut self.fifo[id].value
    }
}

/// What is left to do after the lock is released.
#[must_use]
#[derive(Default)]
pub(crate) struct AfterUnlock {
    timer_task: Option<TimerTask>,
    wake: Wakers,
    /// Dropped last.
    discard: Vec<Waker>,
}

impl AfterUnlock {
    pub(crate) fn run(mut self) {
        if let Some(task) = self.timer_task {
            task();
        }
        if !self.wake.is_empty() {
            wake_in_turn(&mut self.wake.drain(..));
        }
        drop(self.discard);
    }

    /// Adds the wakers to `wake` instead of waking.
    pub(crate) fn run_without_waking(mut self, wake: &mut Vec<Waker>) {
        wake.extend(self.wake.drain(..));
        self.run();
    }
}
