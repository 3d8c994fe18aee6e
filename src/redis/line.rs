//! The line of one key in this process: its waiters, their bookings, and the next request. All of it is
//! under one lock, and nothing in it waits.
//!
//! Redis keeps the bookings, the process keeps the queue, and only turns within the horizon are booked. So
//! leaving before that is free, and a pause or another rate takes effect for all within the horizon and a
//! round trip. Each key has at most one request in flight; callers that come meanwhile share the next.
//!
//! Its state has six parts, which do not call each other:
//!
//! | part | knows |
//! |---|---|
//! | [`roster`] | the waiters: their order, bookings and outcomes |
//! | [`pacing`] | when the head is asked for, how far a request reaches, the last refusal |
//! | [`change`] | the changes that wait to be sent |
//! | [`Agreement`] | the policy, here and in the fleet |
//! | [`lease`] | the permits in flight that this process holds |
//! | [`KeyOutage`] | the requests of this key that fail |
//!
//! What happens to a line is written here and in the files of its steps: [`callers`] come and leave, a [`request`] is
//! made, its [`reply`] is applied, and [`time`] passes. These call this file, and each other from the last to the first.

mod callers;
pub(super) mod change;
mod lease;
mod pacing;
mod reply;
mod request;
pub(super) mod roster;
mod time;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Monotone;
use crate::error::ExceedsCapacity;
use crate::error::store::StoreError;
use crate::observe::Event;
use crate::policy::PolicyExt;
use crate::redis::context::{Context, Unavailable};
use crate::redis::health::KeyOutage;
use crate::redis::script::wire::{PolicyHeader, Rank};
use crate::redis::script::{Rules, Scripted};
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;
use change::{Done, Flight, KeyChange, Refund};
use lease::Lease;
use pacing::Pacing;
use roster::{Booking, GrantInfo, Outcome, Roster};

/// A line is kept for this long after its last use; and if a policy was set for its key.
pub(super) const UNUSED: Duration = Duration::from_secs(1);
const UNUSED_BUT_SET: Duration = Duration::from_secs(86_400);

pub(crate) struct KeyLine<P: Scripted> {
    key: Arc<str>,
    context: Arc<Context<P>>,
    time: Monotone,
    pub(crate) roster: Roster<P::Cost>,
    pacing: Pacing<P::Cost>,
    flight: Option<Flight<P>>,
    /// How many there have been.
    flights: u64,
    /// The last request was for changes: the next is for waiters.
    changed_last: bool,
    /// How long the next request waits for callers that the last reply has served.
    collect_until: Nanos,
    /// The changes that wait to be sent, and how many have joined so far.
    pub(crate) outbox: VecDeque<KeyChange<P>>,
    changes: u64,
    /// Bookings of callers that left, with their costs, in the order in which they are due: for waiters in the request
    /// in flight.
    spare: VecDeque<(P::Cost, Booking)>,
    /// When the last booking is due, spare or not.
    last_due: Nanos,
    /// The process has stood still, and granted nothing since.
    stood_still: bool,
    pub(crate) agreement: Agreement<P>,
    pub(crate) lease: Lease,
    outage: KeyOutage,
    pub(crate) stats: Stats,
    pub(crate) events: Vec<Event>,
}

/// What others ask of a line.
impl<P: Scripted> KeyLine<P> {
    pub(crate) fn new(key: Arc<str>, context: Arc<Context<P>>) -> Self {
        let header = PolicyHeader::of(&context.policy, (context.options.version, 0));
        Self {
            key,
            time: Monotone::new(context.clock.now()),
            agreement: Agreement { policy: context.policy.clone(), header, number: 0 },
            context,
            roster: Roster::new(),
            pacing: Pacing::new(),
            flight: None,
            flights: 0,
            changed_last: false,
            collect_until: Nanos::ZERO,
            outbox: VecDeque::new(),
            changes: 0,
            spare: VecDeque::new(),
            last_due: Nanos::ZERO,
            stood_still: false,
            lease: Lease::default(),
            outage: KeyOutage::default(),
            stats: Stats::default(),
            events: Vec::new(),
        }
    }

    /// Reads the clock: what happens next happens then.
    pub(crate) fn read_clock(&mut self) -> Nanos {
        self.time.read(self.context.clock.now())
    }

    /// Whether the line can be dropped without a loss. `comes_closed`: a new one would be closed.
    pub(crate) fn is_quiet(&self, comes_closed: bool) -> bool {
        let now = self.context.clock.now();
        let is_own = self.agreement.header.rank == (self.context.options.version, 0);
        let kept = if is_own { UNUSED } else { UNUSED_BUT_SET };
        now.since(self.time.latest()) >= kept
            && self.roster.len() == 0
            && self.has_told_all()
            && self.lease.is_free()
            && !self.outage.is_on(&self.context.health)
            && !self.pacing.remembers_refusal(now)
            && (comes_closed || !self.roster.queue.is_closed)
    }

    /// Whether Redis knows all that was given back.
    pub(crate) fn has_told_all(&self) -> bool {
        self.flight.is_none()
            && self.outbox.is_empty()
            && self.spare.is_empty()
            && !self.lease.released
    }

    /// Whether all callers that were just served have taken their outcome, and a request may be due.
    pub(crate) fn has_collected(&self) -> bool {
        self.roster.served == 0 && self.flight.is_none() && self.has_business()
    }

    fn has_business(&self) -> bool {
        self.roster.queue.len() > 0 || !self.outbox.is_empty() || self.lease.released
    }

    pub(crate) fn refund(&mut self, part: P::Cost, all: P::Cost, booking: Booking) {
        if let refund @ Some(_) = Refund::of(part, all, booking) {
            self.change(KeyChange { refund, ..KeyChange::of(Vec::new()) });
        }
    }

    /// Queues a change, and reports its end.
    pub(crate) fn request(&mut self, change: KeyChange<P>) -> oneshot::Receiver<Done<P::Cost>> {
        // A caller that comes after it sees its effect.
        self.return_spare();
        self.roster.queue.note_caller();
        let (done, answer) = oneshot::channel();
        self.change(KeyChange { done: Some(done), ..change });
        answer
    }

    /// Permits in flight have come back.
    pub(crate) fn let_go(&mut self, cost: P::Cost) {
        self.lease.let_go::<P>(cost);
        if P::HELD {
            self.pacing.ask_again();
        }
    }
}

/// Steps that several others take.
impl<P: Scripted> KeyLine<P> {
    /// The time of what happens now, which was read when the line was locked.
    pub(crate) fn now(&self) -> Nanos {
        self.time.latest()
    }

    fn rules(&self) -> &Rules {
        &self.agreement.header.rules
    }

    /// What a caller gets while Redis is away.
    fn without_redis(&self, error: StoreError) -> Outcome {
        self.context.count(|counters| counters.without_redis += 1);
        match &self.context.options.unavailable {
            Unavailable::Fail => Outcome::Refused(error.into()),
            Unavailable::Allow => Outcome::Granted(GrantInfo::default()),
            Unavailable::Local(_) => Outcome::Local,
        }
    }

    fn change(&mut self, change: KeyChange<P>) {
        self.outbox.push_back(change);
        self.changes += 1;
        self.pacing.ask_again();
    }

    /// Gives a booking back to Redis.
    fn return_booking(&mut self, cost: P::Cost, booking: Booking) {
        self.refund(cost, cost, booking);
        self.let_go(cost);
    }

    /// Gives back all bookings: the last one first, as less comes back of one with others behind.
    fn return_bookings(&mut self) {
        self.return_spare();
        for (cost, booking) in self.roster.unbook_all().into_iter().rev() {
            self.return_booking(cost, booking);
        }
    }

    fn return_spare(&mut self) {
        for (cost, booking) in std::mem::take(&mut self.spare) {
            self.return_booking(cost, booking);
        }
    }

    /// Hands the spare bookings to the next waiters without one if these ask for the same cost, or back.
    fn hand_on(&mut self) {
        for (cost, booking) in std::mem::take(&mut self.spare) {
            if self.roster.book_head(cost, booking) {
                self.pacing.ask_again();
            } else {
                self.return_booking(cost, booking);
            }
        }
    }

    /// Ends the wait of a waiter without a booking.
    fn turn_away(&mut self, id: WaiterId, mut outcome: Outcome) {
        if let Outcome::Granted(info) = &mut outcome {
            info.waited = self.now().since(self.roster[id].arrived);
        }
        self.count(&outcome);
        self.give_up(id, Some(outcome));
    }

    /// Refuses waiters that ask for more than a new policy can ever grant.
    fn turn_away_the_too_large(&mut self) {
        let over: Vec<_> = {
            let check = self.agreement.check(self.now());
            let waiters = self.roster.unasked();
            waiters.filter_map(|id| Some((id, check(self.roster[id].cost).err()?))).collect()
        };
        for (id, error) in over {
            self.turn_away(id, Outcome::Refused(error.into()));
        }
    }

    /// A waiter without a booking does not wait any longer. `outcome`: what its caller still gets.
    fn give_up(&mut self, id: WaiterId, outcome: Option<Outcome>) {
        // It may have counted this waiter.
        self.pacing.refusal = None;
        if self.roster.give_up(id, outcome) {
            self.pacing.ask_again();
        }
        if self.roster.queue.len() == 0 {
            self.lease.stop_waiting();
        }
    }

    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(info) => self.stats.grant(info.waited),
            Outcome::Refused(_) => self.stats.refused += 1,
            // Counted when the local limiter has answered.
            Outcome::Local => {}
        }
    }

    /// The server has answered.
    fn note_answer(&mut self) {
        let up = self.outage.answered(&self.context.health, self.now());
        self.events.extend(up);
    }
}

/// The policy of a key in this process and in the fleet.
///
/// Each request decides by the policy of its process, unless the key has one of a higher rank: of a higher version, or of the
/// same version and set later. A process that reads it in a reply adopts it, also one that has set it itself. The script decides,
/// because only there is one order of events.
pub(crate) struct Agreement<P> {
    /// The policy in force here.
    pub(crate) policy: P,
    header: PolicyHeader,
    /// How many times the policy has changed here.
    number: u32,
}

impl<P: Scripted> Agreement<P> {
    /// Whether a cost can never be granted.
    fn check(&self, now: Nanos) -> impl Fn(P::Cost) -> Result<(), ExceedsCapacity> {
        let idle = self.policy.idle(now);
        move |cost| self.policy.ready_at(&idle, now, cost).map(drop)
    }

    /// The policy of the key is in force here. Returns whether it is another than the one before.
    fn adopt(&mut self, policy: P, rank: Rank) -> bool {
        let header = PolicyHeader::of(&policy, rank);
        let is_new = header.rules != self.header.rules;
        if is_new {
            (self.policy, self.number) = (policy, self.number.wrapping_add(1));
        }
        self.header = header;
        is_new
    }
}
