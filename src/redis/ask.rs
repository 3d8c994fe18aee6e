//! What the line of a key sends next, and what becomes of the answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::connection::failure::{Effect, Failure};
use super::connection::request::Reply;
use super::events::Event;
use super::health::{SendPermission, State};
use super::line::{
    BATCH, Booking, Change, Failing, InFlightRequest, Inner, NEVER, Outcome, Place, Refund,
    RequestKind, put_aside, refuse_all, without_redis,
};
use super::rules::Rules;
use super::script::policies::Scripted;
use super::script::wire::{self, Answer, Call, PolicyHeader, Verdict};
use crate::clock::TimerTask;
use crate::error::Error;
use crate::error::store::StoreError;
use crate::line::WaiterId;
use crate::policy::{Cost, Quota};
use crate::units::Nanos;

/// The parts of the horizon in which a process asks again for a head that others were quicker than: on
/// average, so that processes do not keep step.
const PACE: u32 = 16;

/// In how many steps who is passed over comes to reach the whole horizon.
const STEPS: u32 = 8;

/// So many are asked for at least, if so many wait: those who are told "later" cost the server, too.
const FEW: usize = 16;

impl<P: Scripted> Inner<P> {
    /// What is to be sent now, if anything is.
    pub(super) fn next(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
    ) -> Option<InFlightRequest<P::Cost>> {
        if self.under_way || self.failing.as_ref().is_some_and(|failing| now < failing.retry.at) {
            return None;
        }
        let may = rules.health.may_ask(now, self.failing.is_some());
        let Some(asking) = self.next_asking(rules, now, may) else {
            if may == SendPermission::Try {
                rules.health.abandoned();
            }
            return None;
        };
        self.changed_last = matches!(asking, RequestKind::Change(_));
        self.under_way = true;
        let mut arguments = match &asking {
            RequestKind::Take(keys) => self.calls(rules, now, keys),
            RequestKind::Change(_) | RequestKind::Probe => vec![self.header.bytes.clone()],
        };
        match &asking {
            RequestKind::Take(_) if P::HELD && arguments.len() == 1 => arguments.push(Vec::new()),
            RequestKind::Take(_) => {}
            RequestKind::Change(changes) => {
                let generation = self.header.generation;
                let mut todo = Vec::new();
                for change in changes {
                    todo.extend(&change.todo);
                    if let Some(Refund { part, all, ticket }) = change.refund
                        && ticket.generation == generation
                    {
                        let ago = ago(now, ticket.earliest);
                        wire::put_refund::<P>(&mut todo, part, all, ago, ticket.sequence);
                    }
                }
                if self.released || self.renew_at <= now {
                    todo.push(b'H');
                }
                arguments.push(todo);
            }
            // It writes: a server that only reads is of no use.
            RequestKind::Probe => arguments.push(vec![b'H']),
        }
        let take = matches!(asking, RequestKind::Take(_));
        if P::HELD {
            arguments.push(self.lease(rules));
            self.released = false;
            self.renew_at = self.renewal(rules, now);
        } else if !take {
            arguments.push(Vec::new());
        }
        if !take {
            let is_first = self.base.generation == self.header.generation;
            arguments.push(if is_first { Vec::new() } else { self.base.base() });
        }
        Some(InFlightRequest {
            arguments,
            asking,
            at: now,
            generation: self.header.generation,
            tries: may != SendPermission::Ask,
        })
    }

    fn next_asking(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        may: SendPermission,
    ) -> Option<RequestKind<P::Cost>> {
        match may {
            SendPermission::Ask | SendPermission::Try => {}
            SendPermission::Probe => return Some(RequestKind::Probe),
            SendPermission::Wait => return None,
        }
        if self.changed_last || self.changes.is_empty() {
            let keys = self.choose(rules, now);
            if !keys.is_empty() {
                return Some(RequestKind::Take(keys));
            }
        }
        if !self.changes.is_empty() {
            let first = self.changes.len().min(BATCH);
            return Some(RequestKind::Change(self.changes.drain(..first).collect()));
        }
        if P::HELD && (self.released || self.renew_at <= now) {
            return Some(RequestKind::Change(Vec::new()));
        }
        self.failing.is_some().then_some(RequestKind::Probe)
    }

    /// Who is asked for: everybody, if the first is to be asked for now; else those who have just come and
    /// want to know at once, and all before them. Nobody before a change that was made before: none is to see
    /// less than what was done.
    fn choose(&mut self, rules: &Rules<P>, now: Nanos) -> Vec<WaiterId> {
        let changes_sent = self.changes_made.saturating_sub(self.changes.len() as u64);
        let is_time = self.ask_at.is_none_or(|at| at <= now);
        let mut keys = Vec::new();
        let mut wanted = 0;
        for key in self.without_ticket().take(BATCH) {
            let waiter = &self.queue[key];
            if waiter.changes > changes_sent {
                break;
            }
            keys.push(key);
            let wants = waiter.deadline.is_some() || waiter.curious || rules.scripts.room;
            if (is_time && keys.len() <= self.reach) || (waiter.fresh && wants) {
                wanted = keys.len();
            }
        }
        keys.truncate(wanted);
        for &key in &keys {
            self.queue[key].asked = true;
        }
        keys
    }

    fn calls(&self, rules: &Rules<P>, now: Nanos, keys: &[WaiterId]) -> Vec<Vec<u8>> {
        let head = keys.first().copied();
        wire::calls::<P>(
            &self.header,
            keys.iter().map(|&key| {
                let waiter = &self.queue[key];
                let patience = waiter.deadline.map(|deadline| deadline.since(now));
                let is_head = Some(key) == head;
                let horizon = reach(rules.options.horizon, waiter.cost, self.passed, is_head);
                let limit = patience.map_or(horizon, |patience| horizon.min(patience));
                Call { cost: waiter.cost, limit, patience, fresh: waiter.fresh }
            }),
        )
    }

    /// When what is held must be renewed, if Redis heard of it at `heard`.
    fn renewal(&self, rules: &Rules<P>, heard: Nanos) -> Nanos {
        let holds = self.held.iter().any(|&held| held > 0);
        if holds { heard.saturating_add(rules.options.lease / 3) } else { NEVER }
    }

    /// Who asks, how much it holds, and how long that is to count without another word.
    fn lease(&self, rules: &Rules<P>) -> Vec<u8> {
        let mut bytes = rules.id.to_vec();
        for &number in &rules.scripts.held {
            #[allow(clippy::cast_precision_loss)] // nobody holds 2^53 places
            let held = self.held.get(number).copied().unwrap_or_default() as f64;
            bytes.extend(held.to_le_bytes());
        }
        #[allow(clippy::cast_precision_loss)]
        bytes.extend((rules.options.lease.as_micros() as f64).to_le_bytes());
        bytes
    }

    /// An answer has come, or will not.
    pub(super) fn answered(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        mut sent: InFlightRequest<P::Cost>,
        outcome: Result<Reply, Failure>,
    ) {
        if let Ok(Reply::Number(_) | Reply::Numbers(_)) = &outcome {
            // The key's policy is the one by which it was asked.
            self.unheard &= sent.generation != self.header.generation;
        }
        match outcome {
            Ok(Reply::Told(word, generation, parameters)) => {
                self.well(rules, now);
                self.disagree(rules, now, sent, &word, generation, &parameters);
            }
            Ok(reply) => match sent.asking {
                RequestKind::Take(ref keys) => {
                    match wire::answers(&reply, keys.len(), rules.scripts.parts) {
                        Some(answers) => {
                            self.well(rules, now);
                            self.taken(rules, now, keys, (sent.at, sent.generation), answers);
                        }
                        None => self.failed(rules, now, sent, Failure::strange(&reply)),
                    }
                }
                RequestKind::Change(ref mut changes) => match made::<P>(changes, &reply) {
                    Some(quotas) => {
                        self.well(rules, now);
                        if !changes.is_empty() {
                            // What was told while they were on their way is from before them.
                            self.ask_again();
                        }
                        for (change, quota) in changes.drain(..).zip(quotas) {
                            let _ = change.done.map(|done| done.send(Ok(quota)));
                        }
                    }
                    None => self.failed(rules, now, sent, Failure::strange(&reply)),
                },
                RequestKind::Probe => self.well(rules, now),
            },
            Err(failure) => self.failed(rules, now, sent, failure),
        }
        self.hand_on_spare();
    }

    /// So many others are under way that it has to wait. Nobody waits for that longer than for an answer.
    pub(super) fn no_slot(&mut self, rules: &Rules<P>, now: Nanos, sent: InFlightRequest<P::Cost>) {
        self.failing.get_or_insert_with(|| {
            let crowd = Failure::new(Effect::None, "too many other requests are under way".into());
            let error = crowd.error(&self.key);
            Failing { crowded: true, ..Failing::new(now, now, error) }
        });
        self.withdrawn(rules, sent);
    }

    /// It was not sent after all.
    pub(super) fn withdrawn(&mut self, rules: &Rules<P>, sent: InFlightRequest<P::Cost>) {
        if sent.tries {
            rules.health.abandoned();
        }
        self.put_back(sent.asking);
        self.hand_on_spare();
    }

    fn hand_on_spare(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        self.hand_on(self.head, self.spare_cost, spare);
    }

    fn taken(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        keys: &[WaiterId],
        (sent, generation): (Nanos, u32),
        answers: Vec<Answer>,
    ) {
        rules.counters.asked(keys.len());
        let was_time = self.ask_at.is_some_and(|at| at <= sent);
        let passed = self.passed;
        let mut spare = std::mem::take(&mut self.spare);
        if self.front_ticket().is_none() {
            self.last_due = spare.back().map_or(Nanos::ZERO, |ticket| ticket.due);
        }
        let mut spare_cost = (!spare.is_empty()).then_some(self.spare_cost);
        let mut later = None;
        let mut booked = 0;
        for (&key, answer) in keys.iter().zip(answers) {
            let waiter = &mut self.queue[key];
            waiter.asked = false;
            waiter.fresh = false;
            let cost = waiter.cost;
            if spare_cost.is_some_and(|spare_cost| spare_cost != cost) {
                self.return_all(spare_cost.take(), &mut spare);
            }
            let ticket = if let Verdict::Booked(sequence) = answer.fate {
                self.hold(cost);
                self.denied = None;
                booked += 1;
                let wait = answer.wait.unwrap_or(Duration::MAX);
                Some(self.ticket(now, (sent, generation), sequence, wait))
            } else {
                None
            };
            let waiter = &mut self.queue[key];
            if matches!(waiter.place, Place::Over(_)) {
                // Gone meanwhile: what it was charged is for those behind it.
                if let Some(ticket) = ticket {
                    put_aside(&mut spare, ticket);
                    spare_cost = Some(cost);
                }
                self.forget(key);
                continue;
            }
            waiter.limited_by = answer.part.or(waiter.limited_by);
            if let Some(ticket) = ticket {
                put_aside(&mut spare, ticket);
                let ticket = spare.pop_front().unwrap_or(ticket);
                spare_cost = (!spare.is_empty()).then_some(cost);
                self.book(key, ticket);
                continue;
            }
            // In the order of the line, even if who is before could not use it.
            if answer.fate == Verdict::Later
                && later.is_none()
                && let Some(&ticket) = spare.front()
                && waiter.deadline.is_none_or(|deadline| ticket.due <= deadline)
            {
                spare.pop_front();
                spare_cost = (!spare.is_empty()).then_some(cost);
                self.book(key, ticket);
                continue;
            }
            self.not_booked(rules, now, key, answer, &mut later);
        }
        if let Some(cost) = spare_cost {
            // Some may have come meanwhile.
            self.hand_on(self.head, cost, spare);
        }
        // If all were booked there may be room for more, else for about as many.
        self.reach = if booked == keys.len() { 2 * self.reach.max(booked) } else { 2 * booked };
        self.reach = self.reach.clamp(FEW, BATCH);
        if self.renew_at == NEVER {
            self.renew_at = self.renewal(rules, sent);
        }
        match later {
            None => self.ask_at = None,
            Some((key, wait)) => {
                // Others were quicker only if it was the first already.
                let was_passed = was_time && keys.first() == Some(&key);
                self.ask_later(rules, now, key, wait, was_passed.then_some(passed));
            }
        }
    }

    fn not_booked(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        key: WaiterId,
        answer: Answer,
        later: &mut Option<(WaiterId, Option<Duration>)>,
    ) {
        let due = answer.wait.map(|wait| now.saturating_add(wait));
        let waiter = &mut self.queue[key];
        waiter.projected = due;
        match answer.fate {
            Verdict::Later => {
                self.wake.extend(waiter.curious.then(|| waiter.waker.take()).flatten());
                later.get_or_insert((key, answer.wait));
            }
            Verdict::Full => {
                let error = Error::QueueFull { retry_after: answer.wait };
                self.turn_away(key, Outcome::Refused(error));
            }
            Verdict::Refused | Verdict::Booked(_) => {
                let cost = waiter.cost;
                let error = Error::Denied { retry_after: answer.wait, part: answer.part };
                self.turn_away(key, Outcome::Refused(error));
                // A rule that punishes must hear of each refusal.
                self.denied =
                    due.filter(|_| !rules.scripts.punish).map(|due| (cost, due, answer.part));
            }
        }
    }

    /// The first who has no ticket is to be asked for when its time is near.
    fn ask_later(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        key: WaiterId,
        wait: Option<Duration>,
        passed: Option<u32>,
    ) {
        if self.head != Some(key) {
            self.ask_at = None;
            return;
        }
        if let Some(passed) = passed {
            self.passed = passed + 1;
        }
        let horizon = rules.options.horizon;
        let Some(wait) = wait else {
            // Nobody knows when somebody gives something back: ask again, less and less often.
            let pause = Duration::from_millis(4 << self.passed.min(4));
            self.ask_at = Some(now.saturating_add(self.about(pause)));
            return;
        };
        // In its time it may be booked so far ahead.
        let ahead = reach(horizon, self.queue[key].cost, self.passed, true);
        let pace = horizon / PACE;
        let pause = wait.saturating_sub(ahead).max(self.about(pace));
        self.ask_at = Some(now.saturating_add(pause));
    }

    /// From half as long to one and a half times.
    fn about(&mut self, duration: Duration) -> Duration {
        // Xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let about =
            duration / 2 + duration.mul_f64((self.random >> 40) as f64 / (1u64 << 24) as f64);
        // Whole microseconds, as scripts count.
        about - Duration::from_nanos(u64::from(about.subsec_nanos() % 1_000))
    }

    fn ticket(
        &mut self,
        now: Nanos,
        (sent, generation): (Nanos, u32),
        sequence: u32,
        wait: Duration,
    ) -> Booking {
        // Never before one that was booked earlier, however quickly the answer came.
        let due = now.saturating_add(wait).max(self.last_due);
        self.last_due = due;
        Booking { sequence, due, earliest: sent.saturating_add(wait), generation }
    }

    fn return_all(&mut self, cost: Option<P::Cost>, spare: &mut VecDeque<Booking>) {
        let Some(cost) = cost else { return };
        for ticket in spare.drain(..) {
            self.return_ticket(cost, ticket);
        }
    }

    /// The key holds another policy than ours, or nothing that we know.
    fn disagree(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        sent: InFlightRequest<P::Cost>,
        word: &str,
        generation: i64,
        parameters: &[u8],
    ) {
        let generation = u32::try_from(generation).unwrap_or_default();
        let sets_policy = self.changes.iter().any(|change| change.policy)
            || matches!(&sent.asking, RequestKind::Change(changes) if changes.iter().any(|c| c.policy));
        // Another was set at the same time, and heard: without this ours never would be.
        let is_new = sets_policy || (word == "conflict" && self.unheard);
        let error = match word {
            "older" => {
                self.changes.push_front(Change::of(vec![b'N']));
                None
            }
            // From before our own was set.
            "adopt" if generation < self.header.generation => None,
            "adopt" | "conflict" if is_new => {
                // Somebody else has set one meanwhile; this is the later one.
                match generation.max(self.header.generation).checked_add(1) {
                    Some(next) => {
                        self.header = rules.header(&self.policy, next);
                        None
                    }
                    // Nobody sets it so often.
                    None => Some(StoreError::foreign(&self.key, None)),
                }
            }
            // Of the same generation: what was set before is forgotten, as by a fail-over.
            "adopt" | "conflict" if generation > 0 => {
                match self.policy.clone().read(&mut wire::floats(parameters)) {
                    Some(policy) => {
                        let idle = rules.options.absent_is_idle;
                        self.header =
                            PolicyHeader::of(&rules.scripts.kind, parameters, generation, idle);
                        self.policy = policy;
                        self.unheard = false;
                        let key = Arc::clone(&self.key);
                        self.events.push(Event::PolicyAdopted { key, generation });
                        None
                    }
                    None => Some(StoreError::foreign(&self.key, None)),
                }
            }
            "conflict" => Some(StoreError::conflict(&self.key)),
            _ => Some(StoreError::foreign(&self.key, None)),
        };
        self.ask_again();
        match error {
            None => self.put_back(sent.asking),
            Some(error) => self.refuse(rules, sent.asking, &error),
        }
        self.turn_away_the_too_large(now);
    }

    /// Nothing has happened: they are asked for again.
    fn put_back(&mut self, asking: RequestKind<P::Cost>) {
        self.released |= P::HELD;
        match asking {
            RequestKind::Take(keys) => {
                for key in keys {
                    self.unask(key);
                }
            }
            RequestKind::Change(changes) => {
                for change in changes.into_iter().rev() {
                    self.changes.push_front(change);
                }
            }
            RequestKind::Probe => {}
        }
    }

    /// The request is over for somebody. Whether it is still there.
    fn unask(&mut self, key: WaiterId) -> bool {
        let waiter = &mut self.queue[key];
        waiter.asked = false;
        let is_gone = matches!(waiter.place, Place::Over(_));
        if is_gone {
            self.forget(key);
        }
        !is_gone
    }

    /// All of them hear the same.
    pub(super) fn refuse(
        &mut self,
        rules: &Rules<P>,
        asking: RequestKind<P::Cost>,
        error: &StoreError,
    ) {
        // What it was to tell of places given back is not told; but a key that is at fault is left alone.
        self.released |= P::HELD && error.is_unavailable();
        match asking {
            RequestKind::Take(keys) => {
                for key in keys {
                    if self.unask(key) {
                        let outcome = if !error.is_unavailable() {
                            Outcome::Refused(error.clone().into())
                        } else {
                            without_redis(rules, error.clone())
                        };
                        self.turn_away(key, outcome);
                    }
                }
            }
            RequestKind::Change(changes) => {
                refuse_all(changes, error);
            }
            RequestKind::Probe => {}
        }
    }

    fn failed(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        sent: InFlightRequest<P::Cost>,
        failure: Failure,
    ) {
        let error = failure.error(&self.key);
        if failure.key {
            // The server is there.
            self.well(rules, now);
            self.ask_again();
            return self.refuse(rules, sent.asking, &error);
        }
        let failing = self.failing.get_or_insert_with(|| Failing::new(sent.at, now, error.clone()));
        failing.retry.failed(now);
        failing.error = error.clone();
        failing.idle += u32::from(sent.is_probe());
        // There may be many keys that cannot be reached, and nobody who wants to.
        self.failing.take_if(|failing| failing.idle > Failing::LOOKS);
        let down = rules.health.failed(now, sent.at, rules.options.deadline, &error);
        self.events.extend(down);
        if failure.effect == Effect::None {
            self.put_back(sent.asking);
        } else {
            self.lose(rules, sent.asking, &error);
        }
    }

    /// Nobody knows whether the request was carried out. A probe asks for nothing that would be owed.
    pub(super) fn lose(
        &mut self,
        rules: &Rules<P>,
        asking: RequestKind<P::Cost>,
        error: &StoreError,
    ) {
        if !matches!(asking, RequestKind::Probe) {
            rules.counters.lost();
        }
        self.refuse(rules, asking, error);
    }

    /// The server has answered.
    fn well(&mut self, rules: &Rules<P>, now: Nanos) {
        self.failing = None;
        let up = rules.health.well(now);
        self.events.extend(up);
    }

    /// An entry of somebody who has gone.
    fn forget(&mut self, key: WaiterId) {
        self.gone -= 1;
        self.unlink(key);
        if self.queue[key].left {
            self.queue.remove(key);
        }
    }

    /// When somebody is granted or turned away next by itself.
    fn next_turn(&self) -> Option<Nanos> {
        let ticket = self.front_ticket().map(|ticket| ticket.due);
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        ticket.into_iter().chain(deadline).min()
    }

    /// The same as long as Redis is there.
    fn next_event(&self) -> Option<Nanos> {
        let ask = self.ask_at.filter(|_| !self.under_way && self.head.is_some());
        let renew = Some(self.renew_at).filter(|&at| at < NEVER && !self.under_way);
        self.next_turn().into_iter().chain(ask).chain(renew).min()
    }

    /// When something happens next by itself.
    pub(super) fn next_alarm(&self, rules: &Rules<P>, now: Nanos) -> Option<Nanos> {
        match (rules.health.state(), &self.failing) {
            (State::Up, None) => self.next_event(),
            (state, failing) => {
                // Another key's request may find out for us, but not whether this key can be reached.
                let somebody_waits = self.waiting > 0 || !self.changes.is_empty();
                let has_business =
                    somebody_waits || failing.is_some() || self.released || self.renew_at < NEVER;
                let own = failing.as_ref().map(|failing| failing.retry.at);
                let again = match state {
                    State::Up => own,
                    // Not before either allows it.
                    _ => rules
                        .health
                        .again(now, has_business, failing.is_some())
                        .map(|at| own.unwrap_or(at).max(at)),
                };
                let again = again.filter(|_| !self.under_way);
                let until = failing.as_ref().map(|failing| failing.until(rules.options.deadline));
                let until = until.filter(|&at| at > now && somebody_waits);
                self.next_turn().into_iter().chain(again).chain(until).min()
            }
        }
    }

    /// Sets the alarm for what happens next.
    pub(super) fn arm(&mut self, rules: &Rules<P>, now: Nanos) -> Option<TimerTask> {
        let Some(due) = self.next_alarm(rules, now) else {
            if self.armed < NEVER && self.alarm.rest() {
                self.armed = NEVER;
            }
            return None;
        };
        if due != self.armed {
            self.armed = due;
            self.alarm.set(due);
        }
        if rules.options.clock.advances_by_itself() && !self.under_way {
            // It does so for whoever looks how long it has to wait.
            self.wake_all();
        }
        self.alarm.timer_task(due)
    }

    /// The alarm went off: nothing is armed any more.
    pub(super) fn went_off(&mut self) {
        self.armed = NEVER;
    }
}

/// How long ago a charge was due, in nanoseconds, by our clock and in the caller's disfavour: it counts
/// from the earliest time that is possible.
#[allow(clippy::cast_precision_loss)] // what is that long ago does not matter
fn ago(now: Nanos, earliest: Nanos) -> f64 {
    now.get() as f64 - earliest.get() as f64
}

/// How far ahead callers may be booked if other processes have passed over the first of them so often:
/// three quarters of the horizon and, step by step, all of it, so that who was passed over is quicker
/// next time than who was not. A first one that is big may need more than comes in that time.
fn reach<C: Cost>(horizon: Duration, cost: C, passed: u32, is_head: bool) -> Duration {
    if is_head && passed > 0 && cost.permits() > 1 {
        return horizon.saturating_mul(1 << passed.min(30));
    }
    horizon / (4 * STEPS) * (3 * STEPS + passed.min(STEPS))
}

/// What each hears whose change has been made, if that is more than that it has; nothing if the reply is not
/// that.
fn made<P: Scripted>(
    changes: &[Change<P::Cost>],
    reply: &Reply,
) -> Option<Vec<Option<Quota<P::Cost>>>> {
    let Reply::Numbers(numbers) = reply else { return None };
    let mut cost = Vec::new();
    P::write_cost(P::Cost::default(), &mut cost);
    let size = 2 * cost.len() + 1;
    let mut told = numbers.get(1..)?.chunks(size);
    let mut quota = || {
        let (reset, costs) = told.next().filter(|told| told.len() == size)?.split_last()?;
        let mut costs = costs.iter().map(|&number| u32::try_from(number).unwrap_or(u32::MAX));
        let remaining = P::read_cost(&mut costs);
        let limit = P::read_cost(&mut costs);
        let reset_after = u64::try_from(*reset).ok().map(Duration::from_micros);
        Some(Quota { limit, remaining, reset_after })
    };
    let asks = |change: &Change<P::Cost>| change.todo.first() == Some(&b'Q');
    let quotas: Option<_> = changes
        .iter()
        .map(|change| if asks(change) { quota().map(Some) } else { Some(None) })
        .collect();
    quotas.filter(|_| told.next().is_none())
}
