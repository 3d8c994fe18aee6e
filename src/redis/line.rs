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
//! | [`outbox`] | the changes that wait to be sent |
//! | [`agreement`] | the policy, here and in the fleet |
//! | [`lease`] | the permits in flight that this process holds |
//! | [`outage`] | the requests of this key that fail |
//!
//! What happens to a line is written here and in the files of its steps: [`callers`] come and leave, a [`request`] is
//! made, its [`reply`] is applied, and [`time`] passes. These call this file, and each other from the last to the first.

mod agreement;
mod callers;
pub(super) mod change;
mod close;
mod flight;
mod lease;
mod outage;
mod outbox;
mod pacing;
mod reply;
mod report;
mod request;
mod roster;
mod time;
pub(super) mod waiter;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Monotone;
use crate::error::store::StoreError;
use crate::observe::Event;
use crate::redis::connection::random;
use crate::redis::context::Context;
use crate::redis::options::Unavailable;
use crate::redis::script::Scripted;
use crate::redis::script::wire::PolicyHeader;
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;
use agreement::Agreement;
use change::{Done, KeyChange, Refund};
use flight::Flight;
use lease::Lease;
use outage::KeyOutage;
use outbox::Outbox;
use pacing::Pacing;
use roster::Roster;
use waiter::{Booking, GrantInfo, Outcome};

/// A request keeps its slot for this part of the deadline, and longer only if it waits in a crowd.
const QUICK: u32 = 16;

/// A line is kept for this long after its last use; and if a policy was set for its key.
pub(super) const UNUSED: Duration = Duration::from_secs(1);
const UNUSED_BUT_SET: Duration = Duration::from_secs(86_400);

pub(crate) struct KeyLine<P: Scripted> {
    key: Arc<str>,
    context: Arc<Context<P>>,
    time: Monotone,
    roster: Roster<P::Cost>,
    pacing: Pacing<P::Cost>,
    flight: Option<Flight<P::Cost>>,
    /// How many there have been.
    flights: u64,
    /// The last request was for changes: the next is for waiters.
    changed_last: bool,
    /// How long the next request waits for callers that the last reply has served.
    collect_until: Nanos,
    outbox: Outbox<P::Cost>,
    /// Bookings of callers that left, in the order in which they are due, and their cost: for waiters in the request in flight.
    spare: (VecDeque<Booking>, P::Cost),
    /// When the last booking is due, spare or not.
    last_due: Nanos,
    /// When it was noticed that the process had stood still, until the next grant.
    stood_still: Option<Nanos>,
    agreement: Agreement<P>,
    lease: Lease,
    outage: KeyOutage,
    pub(crate) stats: Stats,
    pub(crate) events: Vec<Event>,
}

/// Adds a spare booking: they are handed on in the order in which they are due.
fn put_aside(spare: &mut VecDeque<Booking>, booking: Booking) {
    let place = spare.partition_point(|other| other.due <= booking.due);
    spare.insert(place, booking);
}

/// What others ask of a line.
impl<P: Scripted> KeyLine<P> {
    pub(crate) fn new(key: Arc<str>, context: Arc<Context<P>>) -> Self {
        let policy = context.policy.clone();
        let header = PolicyHeader::of(&policy, (context.options.version, 0));
        Self {
            key,
            time: Monotone::new(context.options.clock.now()),
            context,
            roster: Roster::new(),
            pacing: Pacing::new(random()),
            flight: None,
            flights: 0,
            changed_last: false,
            collect_until: Nanos::ZERO,
            outbox: Outbox::default(),
            spare: Default::default(),
            last_due: Nanos::ZERO,
            stood_still: None,
            agreement: Agreement::new(policy, header),
            lease: Lease::default(),
            outage: KeyOutage::default(),
            stats: Stats::default(),
            events: Vec::new(),
        }
    }

    /// Reads the clock: what happens next happens then.
    pub(crate) fn read_clock(&mut self) -> Nanos {
        self.time.read(self.context.options.clock.now())
    }

    pub(crate) fn len(&self) -> usize {
        self.roster.len()
    }

    pub(crate) fn queued_permits(&self) -> u64 {
        self.roster.permits
    }

    /// Whether the line can be dropped without a loss. `comes_closed`: a new one would be closed.
    pub(crate) fn is_quiet(&self, comes_closed: bool) -> bool {
        let now = self.context.options.clock.now();
        let is_own = self.agreement.is_own(self.context.options.version);
        let kept = if is_own { UNUSED } else { UNUSED_BUT_SET };
        now.since(self.time.latest()) >= kept
            && self.roster.queue.len() == 0
            && self.has_told_all()
            && self.lease.is_free()
            && !self.outage.is_on()
            && !self.pacing.remembers_refusal(now)
            && (comes_closed || !self.roster.queue.is_closed)
    }

    pub(crate) fn policy(&self) -> &P {
        &self.agreement.policy
    }

    /// Whether Redis knows all that was given back.
    pub(crate) fn has_told_all(&self) -> bool {
        self.flight.is_none()
            && self.outbox.is_empty()
            && self.spare.0.is_empty()
            && !self.lease.released
    }

    /// Whether changes wait to be sent.
    pub(crate) fn has_changes(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Whether all callers that were just served have taken their outcome, and a request may be due.
    pub(crate) fn has_collected(&self) -> bool {
        self.roster.served == 0 && self.flight.is_none() && self.has_business()
    }

    fn has_business(&self) -> bool {
        self.roster.waiting > 0 || !self.outbox.is_empty() || self.lease.released
    }

    pub(crate) fn refund(&mut self, part: P::Cost, all: P::Cost, booking: Booking) {
        if let refund @ Some(_) = Refund::of(part, all, booking) {
            self.change(KeyChange { refund, ..KeyChange::of(Vec::new()) });
        }
    }

    /// Queues a change, and reports its end.
    pub(crate) fn request(
        &mut self,
        change: KeyChange<P::Cost>,
    ) -> oneshot::Receiver<Done<P::Cost>> {
        // A caller that comes after it sees its effect.
        self.return_spare();
        self.roster.queue.note_caller();
        let (done, answer) = oneshot::channel();
        self.change(KeyChange { done: Some(done), ..change });
        answer
    }

    /// Sets a new policy, here and for the fleet.
    pub(crate) fn set_policy(&mut self, policy: P) -> oneshot::Receiver<Done<P::Cost>> {
        if self.agreement.set(policy) {
            self.turn_away_the_too_large();
        }
        self.request(KeyChange::setting())
    }

    /// A caller holds permits in flight.
    pub(crate) fn hold(&mut self, cost: P::Cost) {
        self.lease.hold::<P>(cost);
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

    /// What a caller gets while Redis is away.
    fn without_redis(&self, error: StoreError) -> Outcome {
        self.context.count(|counters| counters.without_redis += 1);
        match &self.context.options.unavailable {
            Unavailable::Fail => Outcome::Refused(error.into()),
            Unavailable::Allow => Outcome::Granted(GrantInfo::default()),
            Unavailable::Local(_) => Outcome::Local,
        }
    }

    fn change(&mut self, change: KeyChange<P::Cost>) {
        self.outbox.push(change);
        self.pacing.ask_again();
    }

    /// Sets the policy again if that is not confirmed: the request may have been lost.
    fn set_again(&mut self) {
        if self.agreement.is_unheard() && !self.outbox.sets() {
            self.outbox.push_first(KeyChange::setting());
        }
    }

    /// Gives a booking back to Redis.
    fn return_booking(&mut self, cost: P::Cost, booking: Booking) {
        self.refund(cost, cost, booking);
        self.let_go(cost);
    }

    fn return_all(&mut self, (spare, cost): (impl IntoIterator<Item = Booking>, P::Cost)) {
        for booking in spare {
            self.return_booking(cost, booking);
        }
    }

    /// Gives back all bookings, of waiters and spare: the last one first, as less comes back of one with others behind.
    fn return_bookings(&mut self) {
        self.return_spare();
        for (cost, booking) in self.roster.unbook_all().into_iter().rev() {
            self.return_booking(cost, booking);
        }
    }

    fn return_spare(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        self.return_all(spare);
    }

    /// Hands bookings for `cost` to the waiters from `next` on that ask for the same cost. Those that are left go back,
    /// unless a waiter in the request in flight may need them.
    fn hand_on(&mut self, next: Option<WaiterId>, (mut spare, cost): (VecDeque<Booking>, P::Cost)) {
        let (has_booked, is_asked) = self.roster.hand_on(next, cost, &mut spare);
        if has_booked {
            self.pacing.ask_again();
        }
        if !is_asked || !self.spare.0.is_empty() && self.spare.1 != cost {
            return self.return_all((spare, cost));
        }
        self.spare.1 = cost;
        for booking in spare {
            put_aside(&mut self.spare.0, booking);
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
        if self.roster.waiting == 0 {
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

    /// The server has answered a request that was sent at `sent`.
    fn note_answer(&mut self, sent: Nanos) {
        let up = self.outage.answered(&self.context, self.now(), sent);
        self.events.extend(up);
    }
}
