//! The line of one key in this process: who waits, who holds a booking, and what is asked for next. All
//! of it under one lock, and nothing of it waits.
//!
//! Redis keeps the bookings, the process keeps the line, and only near bookings are booked: those due
//! within the horizon. So whoever leaves before that costs nothing, and a pause or another rate holds
//! for everybody within the horizon and a round trip. A request is under way at most once for each
//! key; who comes meanwhile shares the next.

mod agreement;
mod alarm;
mod answer;
pub(super) mod change;
mod failure;
mod handover;
mod lease;
mod queue;
pub(super) mod request;
pub(super) mod waiter;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use tokio::sync::oneshot;

use crate::clock::{Alarm, Steady};
use crate::line::{Queue, WaiterId};
use crate::redis::events::Event;
use crate::redis::health::KeyOutage;
use crate::redis::script::Scripted;
use crate::redis::script::wire::PolicyHeader;
use crate::stats::Stats;
use crate::units::Nanos;
use change::{Done, KeyChange, Refund};
use lease::Lease;
use waiter::{Booking, KeyWaiter};

/// How many calls or changes go in one request: a script holds up everybody else on the server.
const BATCH: usize = 1024;

pub(crate) struct KeyLine<P: Scripted> {
    key: Arc<str>,
    pub(crate) time: Steady,
    pub(crate) policy: P,
    pub(crate) header: PolicyHeader,
    /// Whether nothing has been heard of the policy that was set here.
    pub(crate) unheard: bool,
    /// The policy of before the first change of it.
    base: PolicyHeader,
    /// First those with a booking, in the order of their bookings, then those without.
    queue: Queue<KeyWaiter<P::Cost>>,
    /// The first without a booking.
    head: Option<WaiterId>,
    deadlines: BTreeSet<(Nanos, WaiterId)>,
    /// How many without a booking wait, and how many of the queue are still there for an answer only.
    waiting: usize,
    gone: usize,
    permits: u64,
    pub(crate) under_way: bool,
    /// Whether the last request was for changes: then it is the turn of those in line.
    changed_last: bool,
    pub(crate) changes: VecDeque<KeyChange<P::Cost>>,
    changes_made: u64,
    /// The first who has no booking is not asked for before this. `None`: at once.
    ask_at: Option<Nanos>,
    /// How often the head was asked for in its time and others had been quicker.
    passed: u32,
    /// Set while requests for this key fail.
    failing: Option<KeyOutage>,
    /// What was refused last, when it will be ready, and why it is not.
    denied: Option<(P::Cost, Nanos, Option<usize>)>,
    /// Tickets of callers who left while those behind them were being asked for, and what each is for.
    spare: VecDeque<Booking>,
    spare_cost: P::Cost,
    /// How many are asked for in their time.
    reach: usize,
    last_due: Nanos,
    lease: Lease,
    random: u64,
    alarm: Alarm,
    armed: Nanos,
    pub(crate) stats: Stats,
    pub(crate) wake: Vec<Waker>,
    pub(crate) discard: Vec<Waker>,
    pub(crate) events: Vec<Event>,
}

const NEVER: Nanos = Nanos::new(u64::MAX);

impl<P: Scripted> KeyLine<P> {
    pub(crate) fn new(
        key: Arc<str>,
        policy: P,
        header: PolicyHeader,
        time: Steady,
        alarm: Alarm,
        seed: u64,
    ) -> Self {
        Self {
            key,
            time,
            policy,
            unheard: false,
            base: header.clone(),
            header,
            queue: Queue::new(),
            head: None,
            deadlines: BTreeSet::new(),
            waiting: 0,
            gone: 0,
            permits: 0,
            under_way: false,
            changed_last: false,
            changes: VecDeque::new(),
            changes_made: 0,
            ask_at: None,
            passed: 0,
            failing: None,
            denied: None,
            spare: VecDeque::new(),
            spare_cost: P::Cost::default(),
            reach: BATCH,
            last_due: Nanos::ZERO,
            lease: Lease::default(),
            random: seed | 1,
            alarm,
            armed: NEVER,
            stats: Stats::default(),
            wake: Vec::new(),
            discard: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len() - self.gone
    }

    /// Whether nothing would be lost with it.
    pub(crate) fn is_quiet(&self, now: Nanos) -> bool {
        self.queue.len() == 0
            && !self.under_way
            && self.changes.is_empty()
            // Redis may lose what only those who know it can restore.
            && self.header.generation == 0
            && self.lease.is_free()
            && self.denied.is_none_or(|(_, due, _)| due <= now)
    }

    /// Whether nothing has been given back of which Redis does not know yet.
    pub(crate) fn has_told_all(&self) -> bool {
        !self.under_way && self.changes.is_empty() && self.spare.is_empty() && !self.lease.released
    }

    pub(crate) fn refund(&mut self, part: P::Cost, all: P::Cost, booking: Booking) {
        let refund = Some(Refund { part, all, booking });
        self.change(KeyChange { refund, ..KeyChange::of(Vec::new()) });
    }

    /// Something to be done, whose end is told.
    pub(crate) fn request(
        &mut self,
        change: KeyChange<P::Cost>,
    ) -> oneshot::Receiver<Done<P::Cost>> {
        let (done, answer) = oneshot::channel();
        self.change(KeyChange { done: Some(done), ..change });
        answer
    }

    fn change(&mut self, change: KeyChange<P::Cost>) {
        self.changes.push_back(change);
        self.changes_made += 1;
        self.ask_again();
    }

    /// A caller holds permits in flight.
    pub(crate) fn hold(&mut self, cost: P::Cost) {
        self.lease.count::<P>(cost, u64::saturating_add);
    }

    /// Permits in flight have come back.
    pub(crate) fn let_go(&mut self, cost: P::Cost) {
        self.lease.count::<P>(cost, u64::saturating_sub);
        if P::HELD {
            self.lease.released = true;
            self.ask_again();
        }
    }
}
