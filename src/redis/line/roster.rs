//! The waiters of a key: their order, their bookings, and the outcomes that they have not fetched.

use std::collections::VecDeque;
use std::ops::Index;
use std::task::Waker;
use std::time::Duration;

use super::flight::BATCH;
use super::waiter::{Booking, GrantInfo, KeyWaiter, Outcome, Stage, Turn};
use crate::error::QueueLimit;
use crate::part::Part;
use crate::policy::Cost;
use crate::units::Nanos;
use crate::wait_queue::{Arrival, Bounds, Place, WaitQueue, WaiterId};

/// Greater than the number of any booking.
const UNBOOKED: u64 = 1 << 61;

pub(super) struct Roster<C> {
    /// First the waiters with a booking, in the order of their bookings, then those without.
    pub(super) queue: WaitQueue<KeyWaiter<C>>,
    /// The first waiter without a booking.
    pub(super) head: Option<WaiterId>,
    /// Some of those without a booking need an answer at once.
    has_questions: bool,
    /// How many bookings there have been: the places of the waiters with one.
    booked: u64,
    /// Waiters without a booking; and stale entries, which stay in the queue until the reply.
    pub(super) waiting: usize,
    gone: usize,
    pub(super) permits: u64,
    /// Callers that the last reply has served and that have not taken their outcome.
    pub(super) served: usize,
}

impl<C> Index<WaiterId> for Roster<C> {
    type Output = KeyWaiter<C>;

    fn index(&self, id: WaiterId) -> &KeyWaiter<C> {
        &self.queue[id]
    }
}

/// The order.
impl<C: Cost> Roster<C> {
    pub(super) fn new() -> Self {
        let (head, has_questions, booked, waiting, gone, permits, served) = Default::default();
        Self {
            queue: WaitQueue::new(),
            head,
            has_questions,
            booked,
            waiting,
            gone,
            permits,
            served,
        }
    }

    /// How many callers wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len() - self.gone
    }

    /// Whether one more caller exceeds the bounds.
    pub(super) fn exceeds(&self, bounds: Bounds, cost: C) -> Option<QueueLimit> {
        bounds.exceeded(self.len(), self.permits.saturating_add(cost.permits()), None)
    }

    /// The first booking.
    pub(super) fn front_booking(&self) -> Option<Booking> {
        match self.queue[self.queue.front()?].stage {
            Stage::Booked(booking) => Some(booking),
            _ => None,
        }
    }

    /// When the front is served next.
    pub(super) fn next_move(&self) -> Option<Nanos> {
        let front = self.queue.front()?;
        self.front_booking().map_or(self.queue[front].projected, |booking| Some(booking.due))
    }

    /// The waiters without a booking, and stale entries.
    fn unbooked(&self) -> impl Iterator<Item = WaiterId> {
        std::iter::successors(self.head, |&id| self.queue.behind(id))
    }

    /// The waiters without a booking that are not in the request in flight.
    pub(super) fn unasked(&self) -> impl Iterator<Item = WaiterId> {
        self.unbooked().filter(|&id| matches!(self.queue[id].stage, Stage::Waiting(_)))
    }

    /// The waiters that still wait for a reply.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = WaiterId> {
        self.unbooked().filter(|&id| !matches!(self.queue[id].stage, Stage::Stale(_)))
    }

    /// How many waiters a request asks for that reaches this one, unless they are too many.
    pub(super) fn reach_of(&self, id: WaiterId) -> Option<usize> {
        let position = self.unbooked().take(BATCH).position(|other| other == id);
        position.map(|position| position + 1)
    }

    /// A caller joins: behind all others, or ahead of those that came later by their arrivals. Waiters with a booking are
    /// not overtaken. `ahead`: by how much it goes ahead. Returns whether a request is due at once.
    pub(super) fn enter(
        &mut self,
        waiter: KeyWaiter<C>,
        ahead: Duration,
        needs_answer: bool,
        waker: Option<Waker>,
    ) -> (WaiterId, bool) {
        self.permits = self.permits.saturating_add(waiter.cost.permits());
        self.waiting += 1;
        // A caller that has no time to wait gets its outcome with the reply.
        let at = waiter.deadline.filter(|&at| at > waiter.joined);
        let arrival = Arrival::new(waiter.joined, ahead);
        let place = Place::new(arrival, None, waiter.cost.permits());
        let id = self.queue.join(&place, waiter, at, waker);
        self.has_questions |= needs_answer;
        let next = self.queue.behind(id);
        if self.head == next {
            self.head = Some(id);
        }
        // The first one may be ready earlier than the one that was first.
        let is_other = |next| self.head == Some(id) && self.queue[next].cost != self.queue[id].cost;
        (id, next.is_some_and(is_other))
    }

    /// A reservation learns when its turn comes.
    fn reserved(&mut self, id: WaiterId) {
        if self.queue[id].stage.turn() == Some(Turn::Reserving) {
            self.queue.wake(id);
        }
    }

    fn unlink(&mut self, id: WaiterId) {
        if self.head == Some(id) {
            self.head = self.queue.behind(id);
        }
        self.queue.unlink(id);
        self.permits = self.permits.saturating_sub(self.queue[id].cost.permits());
    }
}

/// Requests and their answers.
impl<C: Cost> Roster<C> {
    /// Whether [`ask`](Self::ask) would choose a waiter.
    pub(super) fn has_to_ask(&self, reach: usize, room: bool) -> bool {
        let needs_answer = |id| self.needs_answer(id, room);
        reach > 0 && self.head.is_some()
            || self.has_questions && self.unbooked().take(BATCH).any(needs_answer)
    }

    fn needs_answer(&self, id: WaiterId, room: bool) -> bool {
        let waiter = &self.queue[id];
        match waiter.stage.turn() {
            Some(Turn::Reserving) => true,
            Some(Turn::New) => waiter.deadline.is_some() || room,
            _ => false,
        }
    }

    /// Chooses the waiters to ask for: the first `reach`, and all up to the last that needs an answer at once. A waiter
    /// does not overtake a change that was made before it came, because it must see the effect: `sent` changes are.
    /// `room`: whether a newcomer needs a reply that waits as long as it takes.
    pub(super) fn ask(&mut self, reach: usize, sent: u64, room: bool) -> Vec<WaiterId> {
        let most = if self.has_questions { BATCH } else { reach };
        let first: Vec<_> = self.unbooked().take(most).collect();
        let mut ids: Vec<_> =
            first.iter().copied().take_while(|&id| self.queue[id].changes <= sent).collect();
        // Those behind others than these stay for a later request.
        self.has_questions &= first.len() == BATCH || ids.len() < first.len();
        let wanted = ids.iter().rposition(|&id| self.needs_answer(id, room));
        let wanted = wanted.map_or(0, |last| last + 1);
        ids.truncate(wanted.max(reach));
        for &id in &ids {
            let stage = &mut self.queue[id].stage;
            *stage = Stage::Asked(stage.turn().unwrap_or(Turn::Later));
        }
        ids
    }

    /// The request in flight has ended for a waiter. Whether it still waits.
    pub(super) fn unask(&mut self, id: WaiterId) -> bool {
        match &mut self.queue[id].stage {
            Stage::Stale(outcome) => {
                let outcome = outcome.take();
                self.gone -= 1;
                self.unlink(id);
                self.finish(id, outcome);
                false
            }
            stage => {
                if let Stage::Asked(turn) = *stage {
                    *stage = Stage::Waiting(turn);
                    self.has_questions |= turn != Turn::Later;
                }
                true
            }
        }
    }

    /// The part that limits a waiter, by a reply.
    pub(super) fn limit(&mut self, id: WaiterId, part: Option<Part>) {
        let waiter = &mut self.queue[id];
        waiter.limited_by = part.or(waiter.limited_by);
    }

    /// When a waiter would be due, by a reply.
    pub(super) fn project(&mut self, id: WaiterId, due: Option<Nanos>) {
        self.queue[id].projected = due;
    }

    /// Redis has answered for a waiter: later.
    pub(super) fn wait_on(&mut self, id: WaiterId) {
        self.reserved(id);
        self.queue[id].stage = Stage::Waiting(Turn::Later);
    }

    /// Books the first waiter without a booking, or one that was asked for before others entered ahead of it.
    pub(super) fn book(&mut self, id: WaiterId, booking: Booking) {
        self.queue.set_deadline(id, None);
        self.waiting -= 1;
        self.reserved(id);
        if self.head == Some(id) {
            self.head = self.queue.behind(id);
        }
        self.booked += 1;
        self.queue.reorder(id, Arrival::ahead_of_all(self.booked));
        self.queue[id].stage = Stage::Booked(booking);
    }

    /// Hands bookings for `cost` to the waiters from `next` on that ask for the same cost: each moves up. `spare` keeps
    /// those that are left. Returns whether a waiter without a booking got one, and whether the next one is in the request in
    /// flight: it gets one of these if that books none for it.
    pub(super) fn hand_on(
        &mut self,
        mut next: Option<WaiterId>,
        cost: C,
        spare: &mut VecDeque<Booking>,
    ) -> (bool, bool) {
        let (mut has_booked, mut is_asked) = (false, false);
        while let Some(id) = next.filter(|_| !spare.is_empty()) {
            let waiter = &mut self.queue[id];
            if waiter.cost != cost {
                break;
            }
            match waiter.stage {
                Stage::Booked(ref mut booking) => {
                    spare.push_back(*booking);
                    *booking = spare.pop_front().unwrap_or(*booking);
                    next = self.queue.behind(id);
                }
                Stage::Waiting(_) => {
                    let in_time = |booking: &&Booking| waiter.is_in_time(booking);
                    let Some(&booking) = spare.front().filter(in_time) else { break };
                    spare.pop_front();
                    next = self.queue.behind(id);
                    self.book(id, booking);
                    has_booked = true;
                }
                Stage::Asked(_) | Stage::Stale(_) => {
                    is_asked = true;
                    break;
                }
                Stage::Over(_) => break,
            }
        }
        (has_booked, is_asked)
    }

    /// The waiters with a booking wait without one, as at first. Returns the bookings.
    pub(super) fn unbook_all(&mut self) -> Vec<(C, Booking)> {
        // They stay ahead of callers, in this order, but behind bookings to come.
        let mut place = UNBOOKED - self.booked;
        let (mut bookings, mut next) = (Vec::new(), self.queue.front());
        while let Some(id) = next
            && let Stage::Booked(booking) = self.queue[id].stage
        {
            next = self.queue.behind(id);
            place += 1;
            self.queue.reorder(id, Arrival::ahead_of_all(place));
            let waiter = &mut self.queue[id];
            waiter.stage = Stage::Waiting(Turn::Later);
            let (cost, deadline) = (waiter.cost, waiter.deadline);
            self.queue.set_deadline(id, deadline);
            self.waiting += 1;
            bookings.push((cost, booking));
        }
        self.head = self.queue.front();
        bookings
    }
}

/// Outcomes.
impl<C: Cost> Roster<C> {
    /// Grants the first booking, if it is due. Returns how long its caller waited.
    pub(super) fn grant_due(&mut self, now: Nanos) -> Option<Duration> {
        let id = self.queue.front()?;
        let booking = self.front_booking().filter(|booking| booking.due <= now)?;
        let waiter = &self.queue[id];
        let waited = booking.due.since(waiter.arrived);
        let info = GrantInfo { waited, booking: Some(booking), limited_by: waiter.limited_by };
        self.unlink(id);
        self.finish(id, Some(Outcome::Granted(info)));
        Some(waited)
    }

    /// A waiter without a booking does not wait any longer. `outcome`: what its caller still gets. Returns whether the
    /// next may be ready earlier.
    pub(super) fn give_up(&mut self, id: WaiterId, outcome: Option<Outcome>) -> bool {
        self.waiting -= 1;
        let waiter = &mut self.queue[id];
        if waiter.stage.is_asked() {
            waiter.stage = Stage::Stale(outcome);
            self.gone += 1;
            self.queue.wake(id);
            self.queue.set_deadline(id, None);
            return false;
        }
        let (cost, is_head) = (waiter.cost, self.head == Some(id));
        self.unlink(id);
        // Unless it asks for the same.
        let is_earlier = is_head && self.head.is_none_or(|head| self.queue[head].cost != cost);
        self.finish(id, outcome);
        is_earlier
    }

    /// Of a waiter that has left the queue only the outcome stays, until its caller fetches it.
    fn finish(&mut self, id: WaiterId, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else {
            self.queue.remove(id);
            return;
        };
        self.served += 1;
        self.queue[id].stage = Stage::Over(outcome);
        self.queue.wake(id);
    }

    /// The outcome of a caller, if there is one yet.
    pub(super) fn take(&mut self, id: WaiterId) -> Option<Outcome> {
        match &mut self.queue[id].stage {
            Stage::Stale(outcome) => outcome.take(),
            Stage::Over(_) => {
                self.served = self.served.saturating_sub(1);
                match self.queue.remove(id).stage {
                    Stage::Over(outcome) => Some(outcome),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Whether there is an outcome or, for a `reserving` caller, whether Redis has replied when its turn comes. If not,
    /// `waker` is called when there is.
    pub(super) fn poll(&mut self, id: WaiterId, reserving: bool, waker: &Waker) -> bool {
        let waiter = &self.queue[id];
        // The next request reaches only the first.
        let is_known = self.waiting > BATCH || waiter.stage.turn() != Some(Turn::Reserving);
        if matches!(waiter.stage, Stage::Over(_) | Stage::Stale(_)) || reserving && is_known {
            return true;
        }
        self.queue.keep_waker(id, waker);
        false
    }

    /// A waiter with a booking leaves. Returns the one behind it.
    pub(super) fn remove_booked(&mut self, id: WaiterId) -> Option<WaiterId> {
        let next = self.queue.behind(id);
        self.unlink(id);
        self.queue.remove(id);
        next
    }
}
