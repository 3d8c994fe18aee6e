//! The line of one key in this process: its waiters, their bookings, and the next request. All of it is
//! under one lock, and nothing in it waits.
//!
//! Redis keeps the bookings, the process keeps the queue, and only turns within the horizon are booked. So
//! leaving before that is free, and a pause or another rate takes effect for all within the horizon and a
//! round trip. Each key has at most one request in flight; callers that come meanwhile share the next.

mod agreement;
mod alarm;
mod answer;
pub(super) mod change;
mod failure;
pub(super) mod flight;
mod handover;
mod lease;
mod queue;
mod request;
mod sending;
pub(super) mod waiter;

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Monotone;
use crate::error::{Error, QueueLimit};
use crate::observe::Event;
use crate::redis::context::Slot;
use crate::redis::health::KeyOutage;
use crate::redis::script::Scripted;
use crate::redis::script::wire::{PolicyHeader, Terms};
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::{WaitQueue, WaiterId};
use change::{Done, KeyChange, Refund};
use flight::Flight;
use lease::Lease;
use waiter::{Answered, Booking, KeyWaiter};

/// Maximum calls or changes in one request: a script blocks the server.
const BATCH: usize = 1024;

/// Maximum changes that wait to be sent. Refunds are not bounded: each of them ends a grant.
const MOST_CHANGES: u32 = 100_000;

/// A line is kept for this long after its last use; and if a policy was set for its key.
const UNUSED: Duration = Duration::from_secs(1);
const UNUSED_BUT_SET: Duration = Duration::from_secs(86_400);

pub(crate) struct KeyLine<P: Scripted> {
    key: Arc<str>,
    pub(crate) time: Monotone,
    pub(crate) policy: P,
    header: PolicyHeader,
    /// What a policy that was set here replaces, until a reply confirms it.
    unheard: Option<Terms>,
    /// The policy that this process has in its code.
    base: PolicyHeader,
    /// How many times the policy has changed here.
    policies: u32,
    /// The policy of the key, if only its state was asked for: the next caller takes the key over.
    looks_at: Option<(P, PolicyHeader)>,
    /// First the waiters with a booking, in the order of their bookings, then those without.
    queue: WaitQueue<KeyWaiter<P::Cost>>,
    /// The first waiter without a booking.
    head: Option<WaiterId>,
    /// The waiters from the head on that need no answer now.
    later: Answered<P::Cost>,
    /// Waiters without a booking; and stale entries, which stay in the queue until the reply.
    waiting: usize,
    gone: usize,
    permits: u64,
    /// The request in flight, or the task that is about to send one.
    pub(crate) flight: Option<Flight<P::Cost>>,
    flights: u64,
    /// Callers that the last reply has served and that have not taken their outcome, and how long the next
    /// request waits for them.
    served: usize,
    collect_until: Nanos,
    /// The slot of the last request: dropped after the lock is released, as it wakes a task.
    pub(crate) returned: Option<Slot>,
    /// The last request was for changes: the next is for waiters.
    changed_last: bool,
    pub(crate) changes: VecDeque<KeyChange<P::Cost>>,
    changes_made: u64,
    /// The head cannot be booked before this. `None`: it is asked for at once.
    ask_at: Option<Nanos>,
    /// Until then the last reply about the head, or about the last refused caller, counts. Then a request hears
    /// what other processes have changed.
    refresh_at: Nanos,
    /// How many times other processes were quicker than the head.
    passed: u32,
    /// How long the last request took.
    trip: Duration,
    /// Set while requests for this key fail.
    failing: Option<KeyOutage>,
    /// When the first and the last of the requests failed that have failed in a row.
    failed: Option<(Nanos, Nanos)>,
    /// Since when no request was sent because too many of other keys are in flight.
    crowded: Option<Nanos>,
    /// The last refusal: its cost, when that will be ready, and the part that limits it.
    denied: Option<(P::Cost, Nanos, Option<usize>)>,
    /// Bookings of callers that left, all of one cost, for the waiters that are being asked for or the next
    /// callers.
    spare: VecDeque<Booking>,
    spare_cost: P::Cost,
    /// How many waiters a request asks for.
    reach: usize,
    last_due: Nanos,
    /// When it was noticed that the process had stood still, until the next grant.
    stood_still: Option<Nanos>,
    /// Keeps the line until its spare bookings have gone back.
    pub(crate) keeps: Option<Arc<dyn Any + Send + Sync>>,
    lease: Lease,
    random: u64,
    pub(crate) stats: Stats,
    pub(crate) events: Vec<Event>,
}

impl<P: Scripted> KeyLine<P> {
    pub(crate) fn new(
        key: Arc<str>,
        policy: P,
        header: PolicyHeader,
        time: Monotone,
        seed: u64,
    ) -> Self {
        Self {
            key,
            time,
            policy,
            unheard: None,
            base: header.clone(),
            header,
            policies: 0,
            looks_at: None,
            queue: WaitQueue::new(),
            head: None,
            later: Answered::default(),
            waiting: 0,
            gone: 0,
            permits: 0,
            flight: None,
            flights: 0,
            served: 0,
            collect_until: Nanos::ZERO,
            returned: None,
            changed_last: false,
            changes: VecDeque::new(),
            changes_made: 0,
            ask_at: None,
            refresh_at: Nanos::ZERO,
            passed: 0,
            trip: Duration::ZERO,
            failing: None,
            failed: None,
            crowded: None,
            denied: None,
            spare: VecDeque::new(),
            spare_cost: P::Cost::default(),
            reach: BATCH,
            last_due: Nanos::ZERO,
            stood_still: None,
            keeps: None,
            lease: Lease::default(),
            random: seed | 1,
            stats: Stats::default(),
            events: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len() - self.gone
    }

    /// Whether the line can be dropped without a loss.
    pub(crate) fn is_quiet(&self, now: Nanos) -> bool {
        // If Redis loses the policy that was set, only a process that knows it can restore it.
        let is_own = self.unheard.is_none() && self.header.rank == self.base.rank;
        let kept = if is_own { UNUSED } else { UNUSED_BUT_SET };
        now.since(self.time.latest()) >= kept
            && self.queue.len() == 0
            && self.has_told_all()
            && self.lease.is_free()
            && self.denied.is_none_or(|(_, due, _)| due.min(self.refresh_at) <= now)
    }

    /// The policy of the key, as far as it is known.
    pub(crate) fn policy_of_key(&self) -> P {
        self.looks_at.as_ref().map_or(&self.policy, |(policy, _)| policy).clone()
    }

    /// Whether there are spare bookings, which are returned when they are due.
    pub(crate) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Whether Redis knows all that was given back.
    pub(crate) fn has_told_all(&self) -> bool {
        self.flight.is_none()
            && self.changes.is_empty()
            && self.spare.is_empty()
            && !self.lease.released
    }

    pub(crate) fn refund(&mut self, part: P::Cost, all: P::Cost, booking: Booking) {
        if let refund @ Some(_) = Refund::of(part, all, booking) {
            self.change(KeyChange { refund, ..KeyChange::of(Vec::new()) });
        }
    }

    /// Queues a change, if there is room for it, and reports its end.
    pub(crate) fn request(
        &mut self,
        change: KeyChange<P::Cost>,
    ) -> oneshot::Receiver<Done<P::Cost>> {
        // A caller that comes after it sees its effect.
        self.return_spare();
        self.queue.note_caller();
        let (done, answer) = oneshot::channel();
        if self.changes.len() < MOST_CHANGES as usize {
            self.change(KeyChange { done: Some(done), ..change });
        } else {
            let limit = QueueLimit::Waiters(MOST_CHANGES);
            let _ = done.send(Err(Error::QueueFull { limit, retry_after: None }));
        }
        answer
    }

    fn change(&mut self, change: KeyChange<P::Cost>) {
        self.changes.push_back(KeyChange { made: self.time.latest(), ..change });
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
