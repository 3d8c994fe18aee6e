//! The waiters of a key: their order, their bookings, and the outcomes that they have not fetched.

use std::collections::VecDeque;
use std::mem;
use std::ops::Index;
use std::task::Waker;
use std::time::Duration;

use crate::error::Error;
use crate::part::Part;
use crate::policy::Cost;
use crate::units::Nanos;
use crate::wait_queue::{Arrival, Place, WaitQueue, WaiterId, Waits};

/// Maximum calls or changes in one request: a script blocks the server.
pub(super) const BATCH: usize = 1024;

/// Permits that Redis has charged to a waiter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Booking {
    pub(crate) sequence: u32,
    /// When it is due by our clock, not earlier than by the server's.
    pub(crate) due: Nanos,
    /// The earliest time at which it can be due by the server's clock.
    pub(crate) earliest: Nanos,
    /// The number of the policy under which it was charged: see `Agreement`.
    pub(crate) policy: u32,
}

impl Booking {
    /// Of no permits: there is nothing to give back, and more can be charged to it.
    pub(crate) const NONE: Self =
        Self { sequence: 0, due: Nanos::ZERO, earliest: Nanos::ZERO, policy: 0 };
}

/// The wait of a grant, and its booking.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GrantInfo {
    pub(crate) waited: Duration,
    /// `None` if it was granted without Redis.
    pub(crate) booking: Option<Booking>,
    pub(crate) limited_by: Option<Part>,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    Granted(GrantInfo),
    Refused(Error),
    /// Redis is away: the caller goes to the local limiter.
    Local,
}

pub(crate) struct KeyWaiter<C> {
    pub(crate) cost: C,
    /// When its caller came: earlier if it has waited at the local limiter before.
    pub(crate) arrived: Nanos,
    /// The number of changes made before it joined: it is not asked for before these.
    pub(crate) changes: u64,
    pub(crate) deadline: Option<Nanos>,
    pub(crate) stage: Stage,
    /// When it would be due by the last reply, if that is known.
    pub(crate) projected: Option<Nanos>,
    pub(crate) limited_by: Option<Part>,
}

impl<C: Cost> Waits for KeyWaiter<C> {
    fn permits(&self) -> u64 {
        self.cost.permits()
    }
}

/// Where a waiter stands.
#[derive(Debug)]
pub(crate) enum Stage {
    /// In the queue, and in no request.
    Waiting(Turn),
    /// In the queue, and in the request in flight.
    Asked(Turn),
    /// It has a booking that is not due yet.
    Booked(Booking),
    /// It does not wait any longer; the caller has not fetched the outcome.
    Over(Outcome),
    /// The same, and the request in flight may book for it. `None` once the caller has the outcome, or has gone.
    Stale(Option<Outcome>),
}

/// The last reply about the turn of a waiter in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Redis has not answered for it.
    New,
    /// The same, and the caller waits to know it: a reservation.
    Reserving,
    /// Redis has answered: later. Or the caller waits without a limit.
    Later,
}

impl Stage {
    pub(super) fn is_asked(&self) -> bool {
        matches!(self, Self::Asked(_))
    }

    /// The turn, if it is in the queue.
    pub(super) fn turn(&self) -> Option<Turn> {
        match *self {
            Self::Waiting(turn) | Self::Asked(turn) => Some(turn),
            _ => None,
        }
    }
}

pub(crate) struct Roster<C> {
    /// The waiters without a booking, in the order in which they are asked for; and the entries of all waiters.
    pub(crate) queue: WaitQueue<KeyWaiter<C>>,
    /// The waiters with a booking, in the order in which they are due.
    booked: VecDeque<WaiterId>,
    /// Some in the queue need an answer at once.
    has_questions: bool,
    /// The permits that all waiters ask for.
    pub(crate) permits: u64,
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
        let (booked, has_questions, permits, served) = Default::default();
        Self { queue: WaitQueue::new(), booked, has_questions, permits, served }
    }

    /// How many callers wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len() + self.booked.len()
    }

    /// The first waiter without a booking.
    pub(super) fn head(&self) -> Option<WaiterId> {
        self.queue.front()
    }

    /// The first booking.
    pub(super) fn front_booking(&self) -> Option<Booking> {
        match self.queue[*self.booked.front()?].stage {
            Stage::Booked(booking) => Some(booking),
            _ => None,
        }
    }

    /// The waiters without a booking, from the head on.
    pub(super) fn unbooked(&self) -> impl Iterator<Item = WaiterId> {
        self.queue.in_order()
    }

    /// The waiters without a booking that are not in the request in flight.
    pub(super) fn unasked(&self) -> impl Iterator<Item = WaiterId> {
        self.unbooked().filter(|&id| !self.queue[id].stage.is_asked())
    }

    /// A caller joins: behind all others without a booking, or ahead of those that came later by their arrivals. `ahead`: by
    /// how much it goes ahead. Returns whether a request is due at once.
    pub(super) fn enter(
        &mut self,
        waiter: KeyWaiter<C>,
        (now, ahead): (Nanos, Duration),
        needs_answer: bool,
        waker: Option<Waker>,
    ) -> (WaiterId, bool) {
        self.permits = self.permits.saturating_add(waiter.cost.permits());
        // A caller that has no time to wait gets its outcome with the reply.
        let at = waiter.deadline.filter(|&at| at > now);
        let place = Place::new(Arrival::new(now, ahead), None, waiter.cost.permits());
        let (cost, first) = (waiter.cost, self.head());
        let id = self.queue.join(&place, waiter, at, waker);
        self.has_questions |= needs_answer;
        // It may be ready earlier than the one that was first.
        let is_other = |first| self.head() == Some(id) && self.queue[first].cost != cost;
        (id, first.is_some_and(is_other))
    }

    /// A reservation learns when its turn comes.
    fn reserved(&mut self, id: WaiterId) {
        if self.queue[id].stage.turn() == Some(Turn::Reserving) {
            self.queue.wake_after_unlock(id);
        }
    }

    pub(super) fn wake_booked(&mut self) {
        for &id in &self.booked {
            self.queue.wake_after_unlock(id);
        }
    }
}

/// Requests and their answers.
impl<C: Cost> Roster<C> {
    /// Whether [`ask`](Self::ask) would choose a waiter.
    pub(super) fn has_to_ask(&self, reach: usize, room: bool) -> bool {
        let needs_answer = |id| self.needs_answer(id, room);
        reach > 0 && self.queue.len() > 0
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

    /// What a reply says of a waiter: the part that limits it, and when it would be due.
    pub(super) fn learn(&mut self, id: WaiterId, part: Option<Part>, due: Option<Nanos>) {
        let waiter = &mut self.queue[id];
        waiter.limited_by = part.or(waiter.limited_by);
        waiter.projected = due;
    }

    /// Redis has answered for a waiter: later.
    pub(super) fn wait_on(&mut self, id: WaiterId) {
        self.reserved(id);
        self.queue[id].stage = Stage::Waiting(Turn::Later);
    }

    /// Books a waiter in the queue, behind all bookings.
    pub(super) fn book(&mut self, id: WaiterId, booking: Booking) {
        self.reserved(id);
        self.queue.unlink(id);
        self.booked.push_back(id);
        self.queue[id].stage = Stage::Booked(booking);
    }

    /// Books the head by a booking that another waiter for `cost` has left, if the head can use it. Returns whether it can.
    pub(super) fn book_head(&mut self, cost: C, booking: Booking) -> bool {
        let Some(id) = self.head() else { return false };
        let waiter = &self.queue[id];
        let is_in_time = waiter.deadline.is_none_or(|deadline| booking.due <= deadline);
        let fits = waiter.cost == cost && is_in_time && !waiter.stage.is_asked();
        if fits {
            self.book(id, booking);
        }
        fits
    }

    /// A waiter with a booking leaves: those behind it that ask for the same move up. Returns the booking that is left.
    pub(super) fn leave_booked(&mut self, id: WaiterId, mut booking: Booking) -> Booking {
        let place = self.booked.iter().position(|&other| other == id).unwrap_or_default();
        self.booked.remove(place);
        let cost = self.queue.remove(id).cost;
        self.permits = self.permits.saturating_sub(cost.permits());
        for &behind in self.booked.range(place..) {
            let waiter = &mut self.queue[behind];
            match &mut waiter.stage {
                Stage::Booked(its) if waiter.cost == cost => mem::swap(its, &mut booking),
                _ => break,
            }
        }
        booking
    }

    /// The waiters with a booking wait without one, as at first. Returns the bookings.
    pub(super) fn unbook_all(&mut self) -> Vec<(C, Booking)> {
        let mut bookings = Vec::new();
        for id in mem::take(&mut self.booked) {
            let waiter = &mut self.queue[id];
            let stage = mem::replace(&mut waiter.stage, Stage::Waiting(Turn::Later));
            if let Stage::Booked(booking) = stage {
                bookings.push((waiter.cost, booking));
            }
            waiter.projected = None;
            let deadline = waiter.deadline;
            self.queue.relink(id, deadline);
        }
        bookings
    }
}

/// Outcomes.
impl<C: Cost> Roster<C> {
    /// Grants the first booking, if it is due. Returns how long its caller waited.
    pub(super) fn grant_due(&mut self, now: Nanos) -> Option<Duration> {
        let booking = self.front_booking().filter(|booking| booking.due <= now)?;
        let id = self.booked.pop_front()?;
        let waiter = &self.queue[id];
        let waited = booking.due.since(waiter.arrived);
        let info = GrantInfo { waited, booking: Some(booking), limited_by: waiter.limited_by };
        self.permits = self.permits.saturating_sub(waiter.cost.permits());
        self.finish(id, Some(Outcome::Granted(info)));
        Some(waited)
    }

    /// A waiter without a booking does not wait any longer. `outcome`: what its caller still gets. Returns whether the
    /// next may be ready earlier.
    pub(super) fn give_up(&mut self, id: WaiterId, outcome: Option<Outcome>) -> bool {
        let (cost, is_head) = (self.queue[id].cost, self.head() == Some(id));
        self.permits = self.permits.saturating_sub(cost.permits());
        self.queue.unlink(id);
        if self.queue[id].stage.is_asked() {
            self.queue[id].stage = Stage::Stale(outcome);
            self.queue.wake_after_unlock(id);
            return false;
        }
        self.finish(id, outcome);
        // Unless it asks for the same.
        is_head && self.head().is_none_or(|head| self.queue[head].cost != cost)
    }

    /// Of a waiter that does not wait any longer only the outcome stays, until its caller fetches it.
    fn finish(&mut self, id: WaiterId, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else {
            self.queue.remove(id);
            return;
        };
        self.served += 1;
        self.queue[id].stage = Stage::Over(outcome);
        self.queue.wake_after_unlock(id);
    }

    /// The outcome of a caller, if there is one yet.
    pub(crate) fn take(&mut self, id: WaiterId) -> Option<Outcome> {
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
    pub(crate) fn poll(&mut self, id: WaiterId, reserving: bool, waker: &Waker) -> bool {
        let waiter = &self.queue[id];
        // The next request reaches only the first.
        let is_known = self.queue.len() > BATCH || waiter.stage.turn() != Some(Turn::Reserving);
        if matches!(waiter.stage, Stage::Over(_) | Stage::Stale(_)) || reserving && is_known {
            return true;
        }
        self.queue.keep_waker(id, waker);
        false
    }
}
