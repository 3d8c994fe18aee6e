//! The line of one key in this process: who waits, who holds a ticket, and what is asked for next. All
//! of it under one lock, and nothing of it waits.
//!
//! Redis keeps the tickets, the process keeps the line, and only near tickets are booked: those due
//! within the horizon. So whoever leaves before that costs nothing, and a pause or another rate holds
//! for everybody within the horizon and a round trip. A request is under way at most once for each
//! key; who comes meanwhile shares the next.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tokio::sync::oneshot;

use super::connection::failure::{Effect, Failure};
use super::events::Event;
use super::health::Retry;
use super::options::Unavailable;
use super::rules::Rules;
use super::script::policies::Scripted;
use super::script::wire::PolicyHeader;
use crate::clock::{Alarm, Steady};
use crate::error::Error;
use crate::error::store::StoreError;
use crate::line::{Queue, WaiterId};
use crate::policy::{Cost, Quota};
use crate::stats::Stats;
use crate::units::Nanos;

/// Permits that Redis has charged to somebody here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Booking {
    pub(super) sequence: u32,
    /// When it is due by our clock: certainly not earlier than by the server's.
    pub(super) due: Nanos,
    /// The earliest that it can be due by the server's clock.
    pub(super) earliest: Nanos,
    /// Under which policy it was charged.
    pub(super) generation: u32,
}

/// What a caller is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) waited: Duration,
    /// `None` if nobody was charged: for a cost of nothing, or without Redis.
    pub(super) ticket: Option<Booking>,
    pub(super) limited_by: Option<usize>,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Granted(Charge),
    Refused(Error),
    /// Redis is away: the local limiter is to be asked.
    Local,
}

/// What became of a caller who entered.
pub(super) enum Entered {
    Over(Outcome),
    Waiting(WaiterId),
}

pub(super) struct Waiter<C> {
    pub(super) cost: C,
    pub(super) joined: Nanos,
    /// How many changes were made before: it is not asked for before those.
    pub(super) changes: u64,
    pub(super) deadline: Option<Nanos>,
    pub(super) waker: Option<Waker>,
    pub(super) place: Place,
    /// In the request under way.
    pub(super) asked: bool,
    /// Nobody looks at the entry any more: it goes when the answer has come.
    pub(super) left: bool,
    /// Whether it has not been asked for yet.
    pub(super) fresh: bool,
    /// Whether it wants to know how long it will take, although it waits for ever.
    pub(super) curious: bool,
    /// When it would be due as things stood last, if that is known.
    pub(super) projected: Option<Nanos>,
    pub(super) limited_by: Option<usize>,
}

#[derive(Debug)]
pub(super) enum Place {
    Waiting,
    Booked(Booking),
    Over(Option<Outcome>),
}

/// What came of a change; a quota if that was asked for.
pub(super) type Done<C> = Result<Option<Quota<C>>, Error>;

/// The end of a change. The line that tells it lives as long as the caller has a handle on it.
pub(super) async fn confirmed<C>(answer: oneshot::Receiver<Done<C>>) -> Done<C> {
    answer.await.unwrap_or(Ok(None))
}

/// Something to be done to the key besides taking.
pub(super) struct Change<C> {
    pub(super) todo: Vec<u8>,
    pub(super) done: Option<oneshot::Sender<Done<C>>>,
    /// Whether it makes the key one of a new policy.
    pub(super) policy: bool,
    pub(super) refund: Option<Refund<C>>,
}

impl<C> Change<C> {
    pub(super) fn of(todo: Vec<u8>) -> Self {
        Self { todo, done: None, policy: false, refund: None }
    }
}

/// Something to be given back, at the price at which it was charged: under another policy it is left undone.
/// It is written when it is sent: how much comes back depends on the time.
#[derive(Clone, Copy)]
pub(super) struct Refund<C> {
    pub(super) part: C,
    /// All that is charged under the ticket.
    pub(super) all: C,
    pub(super) ticket: Booking,
}

/// What is sent and who is told of the answer.
pub(super) enum RequestKind<C> {
    Take(Vec<WaiterId>),
    Change(Vec<Change<C>>),
    /// Whether the server is there again.
    Probe,
}

pub(super) struct InFlightRequest<C> {
    pub(super) arguments: Vec<Vec<u8>>,
    pub(super) asking: RequestKind<C>,
    pub(super) at: Nanos,
    /// Of the policy under which it is asked.
    pub(super) generation: u32,
    /// Whether all others wait for what becomes of it.
    pub(super) tries: bool,
}

impl<C> InFlightRequest<C> {
    pub(super) fn is_take(&self) -> bool {
        matches!(self.asking, RequestKind::Take(_))
    }

    pub(super) fn is_probe(&self) -> bool {
        matches!(self.asking, RequestKind::Probe)
    }
}

/// Requests that fail, one after the other.
pub(super) struct Failing {
    pub(super) since: Nanos,
    pub(super) retry: Retry,
    pub(super) error: StoreError,
    /// How often it was tried again since anybody wanted to know.
    pub(super) idle: u32,
    /// Nothing has failed: so many others are under way that this key waits for its turn.
    pub(super) crowded: bool,
}

impl Failing {
    /// So often a key is looked at that nobody asks for: for five seconds.
    pub(super) const LOOKS: u32 = 20;

    pub(super) fn new(since: Nanos, now: Nanos, error: StoreError) -> Self {
        Self { since, retry: Retry::at_once(now), error, idle: 0, crowded: false }
    }

    /// Until then everybody waits.
    pub(super) fn until(&self, deadline: Duration) -> Nanos {
        self.since.saturating_add(deadline)
    }
}

/// What somebody gets while Redis is away.
pub(super) fn without_redis<P>(rules: &Rules<P>, error: StoreError) -> Outcome {
    rules.counters.without_redis();
    match &rules.options.unavailable {
        Unavailable::Fail => Outcome::Refused(error.into()),
        Unavailable::Allow => {
            Outcome::Granted(Charge { waited: Duration::ZERO, ticket: None, limited_by: None })
        }
        Unavailable::Local(_) => Outcome::Local,
    }
}

/// All changes come to the same.
pub(super) fn refuse_all<C>(changes: impl IntoIterator<Item = Change<C>>, error: &StoreError) {
    for change in changes {
        let _ = change.done.map(|done| done.send(Err(error.clone().into())));
    }
}

fn no_runtime() -> Failure {
    let what = "no tokio runtime to send it, or one that has ended: without one use `Blocking`";
    Failure::new(Effect::None, what.into())
}

/// One more ticket that nobody holds. They are handed on in the order in which they are due, whoever of
/// their holders left first.
pub(super) fn put_aside(spare: &mut VecDeque<Booking>, ticket: Booking) {
    let place = spare.partition_point(|other| other.due <= ticket.due);
    spare.insert(place, ticket);
}

/// How many calls or changes go in one request: a script holds up everybody else on the server.
pub(super) const BATCH: usize = 1024;

pub(super) struct Inner<P: Scripted> {
    pub(super) key: Arc<str>,
    pub(super) time: Steady,
    pub(super) policy: P,
    pub(super) header: PolicyHeader,
    /// Whether nothing has been heard of the policy that was set here.
    pub(super) unheard: bool,
    /// The policy of before the first change of it.
    pub(super) base: PolicyHeader,
    /// First those with a ticket, in the order of their tickets, then those without.
    pub(super) queue: Queue<Waiter<P::Cost>>,
    /// The first without a ticket.
    pub(super) head: Option<WaiterId>,
    pub(super) deadlines: BTreeSet<(Nanos, WaiterId)>,
    /// How many without a ticket wait, and how many of the queue are still there for an answer only.
    pub(super) waiting: usize,
    pub(super) gone: usize,
    permits: u64,
    pub(super) under_way: bool,
    /// Whether the last request was for changes: then it is the turn of those in line.
    pub(super) changed_last: bool,
    pub(super) changes: VecDeque<Change<P::Cost>>,
    pub(super) changes_made: u64,
    /// The first who has no ticket is not asked for before this. `None`: at once.
    pub(super) ask_at: Option<Nanos>,
    /// How often the head was asked for in its time and others had been quicker.
    pub(super) passed: u32,
    /// Since when requests for this key have failed, when it is tried again, and what the last one said:
    /// those for other keys may be answered.
    pub(super) failing: Option<Failing>,
    /// What was refused last, when it will be ready, and why it is not.
    pub(super) denied: Option<(P::Cost, Nanos, Option<usize>)>,
    /// Tickets of callers who left while those behind them were being asked for, and what each is for.
    pub(super) spare: VecDeque<Booking>,
    pub(super) spare_cost: P::Cost,
    /// How many are asked for in their time.
    pub(super) reach: usize,
    pub(super) last_due: Nanos,
    /// How much is out, number by number of the cost; only for policies with places in flight.
    pub(super) held: Vec<u64>,
    /// Places that have come back and of which Redis does not know yet.
    pub(super) released: bool,
    /// When the lease on what is held must be renewed.
    pub(super) renew_at: Nanos,
    pub(super) random: u64,
    pub(super) alarm: Alarm,
    pub(super) armed: Nanos,
    pub(super) stats: Stats,
    pub(super) wake: Vec<Waker>,
    pub(super) discard: Vec<Waker>,
    pub(super) events: Vec<Event>,
}

pub(super) const NEVER: Nanos = Nanos::new(u64::MAX);

impl<P: Scripted> Inner<P> {
    pub(super) fn new(
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
            held: Vec::new(),
            released: false,
            renew_at: NEVER,
            random: seed | 1,
            alarm,
            armed: NEVER,
            stats: Stats::default(),
            wake: Vec::new(),
            discard: Vec::new(),
            events: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() - self.gone
    }

    /// The request that was under way is lost with whoever sent it.
    pub(super) fn abandoned(&mut self, rules: &Rules<P>, sent: InFlightRequest<P::Cost>) {
        rules.health.abandoned();
        let cost = self.spare_cost;
        for _ in std::mem::take(&mut self.spare) {
            self.let_go(cost);
        }
        let failure = Failure::new(Effect::Unknown, "the runtime that sent it has ended".into());
        self.lose(rules, sent.asking, &failure.error(&self.key));
    }

    /// A request cannot be sent: the runtime that was to do it has ended.
    pub(super) fn unsent(&mut self, rules: &Rules<P>, sent: InFlightRequest<P::Cost>) {
        // Whoever tries it next may be the alarm, and find the same runtime.
        let now = self.time.latest();
        rules.health.unsent(now);
        if let Some(failing) = &mut self.failing {
            failing.retry.failed(now);
        }
        self.refuse(rules, sent.asking, &no_runtime().error(&self.key));
    }

    /// What was to be done to the key cannot be sent by whoever was to.
    pub(super) fn refuse_changes(&mut self, rules: &Rules<P>) {
        let changes = RequestKind::Change(std::mem::take(&mut self.changes).into());
        self.refuse(rules, changes, &no_runtime().error(&self.key));
    }

    /// Whoever sends requests has nothing to do with the last one any more.
    pub(super) fn free(&mut self) {
        self.under_way = false;
        self.failing.take_if(|failing| failing.crowded);
    }

    /// Wakes all who wait, so that they look after themselves.
    pub(super) fn wake_all(&mut self) {
        let wakers = self.queue.iter().filter_map(|(_, waiter)| waiter.waker.clone());
        self.wake.extend(wakers);
    }

    /// Whether nothing would be lost with it.
    pub(super) fn is_quiet(&self, now: Nanos) -> bool {
        self.queue.len() == 0
            && !self.under_way
            && self.changes.is_empty()
            && !self.released
            // Redis may lose what only those who know it can restore.
            && self.header.generation == 0
            && self.held.iter().all(|&held| held == 0)
            && self.denied.is_none_or(|(_, due, _)| due <= now)
    }

    /// Whether nothing has been given back of which Redis does not know yet.
    pub(super) fn has_told_all(&self) -> bool {
        !self.under_way && self.changes.is_empty() && self.spare.is_empty() && !self.released
    }

    pub(super) fn enter(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
        waker: Option<Waker>,
        curious: bool,
    ) -> Entered {
        match self.try_enter(rules, now, cost, max_wait, curious) {
            Ok(key) => {
                self.queue[key].waker = waker;
                Entered::Waiting(key)
            }
            Err(outcome) => {
                self.count(&outcome);
                Entered::Over(outcome)
            }
        }
    }

    fn try_enter(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
        curious: bool,
    ) -> Result<WaiterId, Outcome> {
        let refused = |error: Error| Outcome::Refused(error);
        if max_wait.is_some_and(|wait| wait.is_zero()) && self.waiting >= BATCH {
            // It would not even be asked for.
            return Err(refused(Error::Denied { retry_after: None, part: None }));
        }
        if let Err(error) = self.policy.ready_at(&self.policy.idle(now), now, cost) {
            return Err(refused(error.into()));
        }
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        if let Some(error) = rules.health.down() {
            return Err(without_redis(rules, error.unsent(&self.key)));
        }
        if let (Some(deadline), Some((denied, due, part))) = (deadline, self.denied)
            && denied == cost
            && deadline < due
            && self.waiting == 0
        {
            rules.counters.denied_locally();
            let retry_after = Some(due.since(now));
            return Err(refused(Error::Denied { retry_after, part }));
        }
        let permits = self.permits.saturating_add(cost.permits());
        if self.len() >= rules.options.max_waiters || permits > rules.options.max_queued_permits {
            let moves = self.next_move().map(|at| at.since(now));
            return Err(refused(Error::QueueFull { retry_after: moves }));
        }
        self.permits = permits;
        let key = self.queue.push_back(Waiter {
            cost,
            joined: now,
            changes: self.changes_made,
            deadline,
            waker: None,
            place: Place::Waiting,
            asked: false,
            left: false,
            fresh: true,
            curious,
            projected: None,
            limited_by: None,
        });
        self.head.get_or_insert(key);
        self.waiting += 1;
        // Who has no time to wait is told by the answer.
        self.deadlines.extend(deadline.filter(|&at| at > now).map(|deadline| (deadline, key)));
        Ok(key)
    }

    /// When the line moves next by itself.
    fn next_move(&self) -> Option<Nanos> {
        let front = self.queue.front()?;
        self.front_ticket().map_or(self.queue[front].projected, |ticket| Some(ticket.due))
    }

    /// The ticket that is due first.
    pub(super) fn front_ticket(&self) -> Option<Booking> {
        match self.queue[self.queue.front()?].place {
            Place::Booked(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Grants what is due, and turns away those whose time is up.
    pub(super) fn pump(&mut self, rules: &Rules<P>, now: Nanos) {
        while let Some(key) = self.queue.front()
            && let Place::Booked(ticket) = self.queue[key].place
            && ticket.due <= now
        {
            let waiter = &self.queue[key];
            let waited = ticket.due.since(waiter.joined);
            let charge = Charge { waited, ticket: Some(ticket), limited_by: waiter.limited_by };
            self.stats.grant(waited);
            self.unlink(key);
            self.tell(key, Outcome::Granted(charge));
        }
        while let Some(&(deadline, key)) = self.deadlines.first()
            && deadline <= now
        {
            let waiter = &self.queue[key];
            if let Some(error) = self.trouble(rules) {
                // Nobody can know whether it would have been its turn.
                let error = match waiter.asked {
                    true => {
                        let late = Failure::late(deadline.since(waiter.joined));
                        late.error(&self.key)
                    }
                    false => error.unsent(&self.key),
                };
                self.turn_away(key, without_redis(rules, error));
                continue;
            }
            if !waiter.asked && waiter.projected.is_some_and(|at| at <= now) {
                // It may be its turn: the answer tells.
                self.cancel_deadline(key);
                self.ask_at = None;
                continue;
            }
            let retry_after = waiter.projected.map(|at| at.since(now));
            let error = Error::Denied { retry_after, part: waiter.limited_by };
            self.turn_away(key, Outcome::Refused(error));
        }
        if rules.health.is_well() && self.failing.is_none() {
            return;
        }
        self.events.extend(rules.health.pass(now));
        let failing = self.failing.as_ref();
        let failing = failing
            .filter(|failing| now >= failing.until(rules.options.deadline))
            .map(|failing| failing.error.clone());
        if let Some(error) = rules.health.down().or(failing) {
            let error = error.unsent(&self.key);
            let waiting: Vec<WaiterId> = self.unasked().collect();
            if let Some(failing) = self.failing.as_mut().filter(|_| !waiting.is_empty()) {
                failing.idle = 0;
            }
            for key in waiting {
                let outcome = without_redis(rules, error.clone());
                self.turn_away(key, outcome);
            }
            refuse_all(std::mem::take(&mut self.changes), &error);
        }
    }

    /// Why Redis is not asked as usual, if it is not.
    fn trouble(&self, rules: &Rules<P>) -> Option<StoreError> {
        let own = self.failing.as_ref().map(|failing| failing.error.clone());
        own.or_else(|| rules.health.doubt())
    }

    /// Who waits for more than there ever is by a new policy need not wait.
    pub(super) fn turn_away_the_too_large(&mut self, now: Nanos) {
        let idle = self.policy.idle(now);
        let too_large = |&key: &WaiterId| {
            let cost = self.queue[key].cost;
            self.policy.ready_at(&idle, now, cost).err().map(|error| (key, error))
        };
        let over: Vec<_> = self.unasked().filter_map(|key| too_large(&key)).collect();
        for (key, error) in over {
            self.turn_away(key, Outcome::Refused(error.into()));
        }
    }

    /// Those without a ticket, and those who are still there for an answer.
    pub(super) fn without_ticket(&self) -> impl Iterator<Item = WaiterId> {
        std::iter::successors(self.head, |&key| self.queue.behind(key))
    }

    /// Those without a ticket who are not in the request under way.
    pub(super) fn unasked(&self) -> impl Iterator<Item = WaiterId> {
        self.without_ticket().filter(|&key| {
            let waiter = &self.queue[key];
            !waiter.asked && matches!(waiter.place, Place::Waiting)
        })
    }

    /// Takes out of the line who gets no ticket.
    pub(super) fn turn_away(&mut self, key: WaiterId, outcome: Outcome) {
        self.count(&outcome);
        self.give_up(key);
        self.tell(key, outcome);
    }

    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Granted(charge) => self.stats.grant(charge.waited),
            Outcome::Refused(_) => self.stats.refused += 1,
            // Counted when that limiter has answered.
            Outcome::Local => {}
        }
    }

    /// Somebody without a ticket does not wait any more.
    fn give_up(&mut self, key: WaiterId) {
        self.waiting -= 1;
        // That was reckoned behind it, perhaps.
        self.denied = None;
        if self.queue[key].asked {
            // The entry stands for whatever it is charged in the end.
            self.gone += 1;
            self.cancel_deadline(key);
        } else {
            let is_head = self.head == Some(key);
            self.unlink(key);
            // The next may be ready earlier, unless it asks for the same.
            let cost = self.queue[key].cost;
            if is_head && self.head.is_none_or(|head| self.queue[head].cost != cost) {
                self.ask_again();
            }
        }
    }

    /// Something has happened by which what was refused before may be ready.
    pub(super) fn ask_again(&mut self) {
        self.ask_at = None;
        self.passed = 0;
        self.denied = None;
    }

    fn tell(&mut self, key: WaiterId, outcome: Outcome) {
        let waiter = &mut self.queue[key];
        waiter.place = Place::Over(Some(outcome));
        self.wake.extend(waiter.waker.take());
    }

    pub(super) fn unlink(&mut self, key: WaiterId) {
        if self.head == Some(key) {
            self.head = self.queue.behind(key);
        }
        self.queue.unlink(key);
        self.permits = self.permits.saturating_sub(self.queue[key].cost.permits());
        self.cancel_deadline(key);
    }

    fn cancel_deadline(&mut self, key: WaiterId) {
        if let Some(deadline) = self.queue[key].deadline {
            self.deadlines.remove(&(deadline, key));
        }
    }

    /// What became of somebody in line, if anything has yet.
    pub(super) fn take(&mut self, key: WaiterId) -> Option<Outcome> {
        let waiter = &mut self.queue[key];
        let Place::Over(outcome) = &mut waiter.place else { return None };
        let outcome = outcome.take()?;
        if waiter.asked {
            waiter.left = true;
        } else {
            self.queue.remove(key);
        }
        Some(outcome)
    }

    /// What became of somebody in line. If nothing yet, `waker` will be called when it has.
    pub(super) fn poll(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        key: WaiterId,
        waker: &Waker,
    ) -> Result<Outcome, Option<Nanos>> {
        if let Some(outcome) = self.take(key) {
            return Ok(outcome);
        }
        self.keep_waker(key, waker);
        Err(self.moves_at(rules, now))
    }

    /// When something may change by itself: nothing does before the answer that is under way.
    pub(super) fn moves_at(&self, rules: &Rules<P>, now: Nanos) -> Option<Nanos> {
        if self.under_way { None } else { self.next_alarm(rules, now) }
    }

    fn keep_waker(&mut self, key: WaiterId, waker: &Waker) {
        let waiter = &mut self.queue[key];
        if !waiter.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.discard.extend(waiter.waker.replace(waker.clone()));
        }
    }

    /// The caller is gone: its place or its ticket goes to the next, or back.
    pub(super) fn leave(&mut self, key: WaiterId) {
        let waiter = &mut self.queue[key];
        self.discard.extend(waiter.waker.take());
        let (cost, place) = (waiter.cost, std::mem::replace(&mut waiter.place, Place::Over(None)));
        match place {
            Place::Waiting => {
                self.stats.given_up += 1;
                self.give_up(key);
            }
            Place::Booked(ticket) => {
                self.stats.given_up += 1;
                let next = self.queue.behind(key);
                self.unlink(key);
                self.hand_on(next, cost, [ticket].into());
            }
            Place::Over(Some(Outcome::Granted(charge))) => self.give_back(cost, charge.ticket),
            Place::Over(Some(Outcome::Local)) => self.stats.given_up += 1,
            Place::Over(_) => {}
        }
        let waiter = &mut self.queue[key];
        if waiter.asked {
            waiter.left = true;
        } else {
            self.queue.remove(key);
        }
    }

    /// Nobody is there to take what was granted.
    pub(super) fn give_back(&mut self, cost: P::Cost, ticket: Option<Booking>) {
        self.stats.given_up += 1;
        if let Some(ticket) = ticket {
            self.return_ticket(cost, ticket);
        }
    }

    /// A ticket goes back to Redis.
    pub(super) fn return_ticket(&mut self, cost: P::Cost, ticket: Booking) {
        self.refund(cost, cost, ticket);
        self.let_go(cost);
    }

    /// Tickets for `cost` that nobody holds go to those from `next` on, as long as they ask for the same:
    /// everybody moves up by one. What is left goes back.
    pub(super) fn hand_on(
        &mut self,
        mut next: Option<WaiterId>,
        cost: P::Cost,
        mut spare: VecDeque<Booking>,
    ) {
        while let Some(key) = next.filter(|_| !spare.is_empty()) {
            next = self.queue.behind(key);
            let waiter = &mut self.queue[key];
            if waiter.cost != cost {
                break;
            }
            if waiter.asked {
                // It may get one of its own: whoever gets none has this one.
                if self.spare.is_empty() || self.spare_cost == cost {
                    self.spare_cost = cost;
                    for ticket in spare.drain(..) {
                        put_aside(&mut self.spare, ticket);
                    }
                }
                break;
            }
            match waiter.place {
                Place::Booked(ref mut ticket) => {
                    spare.push_back(*ticket);
                    *ticket = spare.pop_front().unwrap_or(*ticket);
                }
                Place::Waiting => {
                    let deadline = waiter.deadline;
                    let in_time = |due| deadline.is_none_or(|deadline| due <= deadline);
                    let Some(&ticket) = spare.front().filter(|ticket| in_time(ticket.due)) else {
                        break;
                    };
                    spare.pop_front();
                    self.book(key, ticket);
                    self.ask_again();
                }
                Place::Over(_) => break,
            }
        }
        for ticket in spare {
            self.return_ticket(cost, ticket);
        }
    }

    /// The first without a ticket gets one.
    pub(super) fn book(&mut self, key: WaiterId, ticket: Booking) {
        debug_assert_eq!(self.head, Some(key), "tickets go to the first in line");
        self.cancel_deadline(key);
        self.head = self.queue.behind(key);
        self.waiting -= 1;
        self.passed = 0;
        let waiter = &mut self.queue[key];
        waiter.place = Place::Booked(ticket);
        // Who wants to know how long it will take knows now.
        self.wake.extend(waiter.curious.then(|| waiter.waker.take()).flatten());
    }

    pub(super) fn refund(&mut self, part: P::Cost, all: P::Cost, ticket: Booking) {
        let refund = Some(Refund { part, all, ticket });
        self.change(Change { refund, ..Change::of(Vec::new()) });
    }

    /// Something to be done, whose end is told.
    pub(super) fn request(&mut self, change: Change<P::Cost>) -> oneshot::Receiver<Done<P::Cost>> {
        let (done, answer) = oneshot::channel();
        self.change(Change { done: Some(done), ..change });
        answer
    }

    pub(super) fn change(&mut self, change: Change<P::Cost>) {
        self.changes.push_back(change);
        self.changes_made += 1;
        self.ask_again();
    }

    /// Places in flight have come back.
    pub(super) fn let_go(&mut self, cost: P::Cost) {
        if P::HELD {
            self.count_held(cost, |held, number| held.saturating_sub(number));
            self.released = true;
            self.ask_again();
        }
    }

    pub(super) fn hold(&mut self, cost: P::Cost) {
        if P::HELD {
            self.count_held(cost, u64::saturating_add);
        }
    }

    fn count_held(&mut self, cost: P::Cost, count: impl Fn(u64, u64) -> u64) {
        let mut numbers = Vec::new();
        P::write_cost(cost, &mut numbers);
        self.held.resize(numbers.len(), 0);
        for (held, number) in self.held.iter_mut().zip(numbers) {
            *held = count(*held, u64::from(number));
        }
    }

    /// How long somebody in line still has to wait as things stand, as far as is known.
    pub(super) fn delay(&self, key: WaiterId, now: Nanos) -> Duration {
        let waiter = &self.queue[key];
        match waiter.place {
            Place::Booked(ticket) => ticket.due.since(now),
            Place::Waiting => waiter.projected.map_or(Duration::ZERO, |at| at.since(now)),
            Place::Over(_) => Duration::ZERO,
        }
    }

    /// Why there is no place, if there is none. The entry is gone then.
    pub(super) fn refusal(&mut self, key: WaiterId) -> Option<Error> {
        let waiter = &mut self.queue[key];
        match &waiter.place {
            Place::Over(Some(Outcome::Refused(error))) if !waiter.asked => {
                let error = error.clone();
                self.queue.remove(key);
                Some(error)
            }
            _ => None,
        }
    }

    /// Whether a place in line is known to be one: it has been asked for. If not, when that may change by
    /// itself, and `waker` will be called when it has.
    pub(super) fn placed(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        key: WaiterId,
        waker: &Waker,
    ) -> Result<(), Option<Nanos>> {
        let is_far_back = self.waiting > BATCH;
        let waiter = &mut self.queue[key];
        if !waiter.fresh || is_far_back || !matches!(waiter.place, Place::Waiting) {
            return Ok(());
        }
        self.keep_waker(key, waker);
        Err(self.moves_at(rules, now))
    }
}
