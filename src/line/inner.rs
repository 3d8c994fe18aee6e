//! What is under the mutex of a line: who waits, and all that is decided about them.

use std::collections::BTreeSet;
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use super::charge::{Change, Charge};
use super::queue::{Key, Queue};
use super::tail::{ROUGHLY, Tail};
use super::word::{Published, Word};
use crate::clock::{Alarm, Errand, Steady};
use crate::error::Error;
use crate::policy::{Cost, Policy, Quota, Ready, TWO_TICKS};
use crate::stats::Stats;
use crate::units::{Nanos, saturating_nanos};

/// What became of a caller who entered.
pub(crate) enum Entered<P: Policy> {
    Granted(Charge<P::Receipt>),
    Waiting(Key),
}

/// What became of a caller who waits.
pub(crate) enum Standing<P: Policy> {
    Over(Result<Charge<P::Receipt>, Error>),
    /// The line moves next at this time, if that is known.
    Waiting(Option<Nanos>),
}

/// What is under the mutex.
#[derive(Debug)]
pub(crate) struct Inner<P: Policy> {
    pub(super) time: Steady,
    pub(super) policy: P,
    pub(super) state: P::State,
    pub(super) published: Published,
    pub(super) queue: Queue<Waiter<P>>,
    /// Those who will not wait for ever, the first to give up first.
    pub(super) deadlines: BTreeSet<(Nanos, Key)>,
    /// The state behind all who wait, where the policy needs that to tell when a newcomer is ready.
    pub(super) tail: Option<Tail<P::State>>,
    /// Permits asked for by those in line.
    pub(super) permits: u64,
    /// The same, part by part.
    pub(super) queued: <P::Cost as Cost>::Sum,
    /// Nothing is charged at an earlier time than this: the last grant, change, pause or departure
    /// of a head.
    pub(super) since: Nanos,
    pub(super) bounds: Bounds,
    pub(super) alarm: Alarm,
    /// When the alarm goes off; it may be early, never late.
    pub(super) armed: Nanos,
    /// When the line moves next, if that is known.
    pub(super) due: Option<Nanos>,
    /// Which of several rules it waits for.
    pub(super) held_by: Option<usize>,
    pub(super) stats: Stats,
    pub(super) wake: SmallVec<[Waker; 4]>,
    /// Dropping a waker can run anything, another touch of this line included: not under the lock.
    pub(super) discard: SmallVec<[Waker; 4]>,
}

#[derive(Debug)]
pub(super) struct Waiter<P: Policy> {
    pub(super) cost: P::Cost,
    pub(super) joined: Nanos,
    pub(super) deadline: Option<Nanos>,
    pub(super) waker: Option<Waker>,
    pub(super) outcome: Option<Result<Charge<P::Receipt>, Error>>,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) waiters: usize,
    pub(crate) permits: u64,
}

/// Far enough to mean "never".
pub(super) const NEVER: Nanos = Nanos::new(u64::MAX);

impl<P: Policy> Inner<P> {
    pub(super) fn new(policy: P, state: P::State, time: Steady, alarm: Alarm) -> Self {
        let now = time.latest();
        Self {
            time,
            policy,
            state,
            published: Published::default(),
            queue: Queue::new(),
            deadlines: BTreeSet::new(),
            tail: None,
            permits: 0,
            queued: Default::default(),
            since: now,
            bounds: Bounds { waiters: usize::MAX, permits: u64::MAX },
            alarm,
            armed: NEVER,
            due: None,
            held_by: None,
            stats: Stats::default(),
            wake: SmallVec::new(),
            discard: SmallVec::new(),
        }
    }

    pub(super) fn enter(
        &mut self,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Entered<P>, Error> {
        let result = self.try_enter(now, cost, max_wait);
        if result.is_err() {
            self.stats.refused += 1;
        }
        result
    }

    fn try_enter(
        &mut self,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Entered<P>, Error> {
        let ready = self.policy.ready_at(&self.state, now, cost)?;
        if self.queue.len() == 0
            && let Ready::At(ready) = ready
            && self.charge_time(ready, now, now) <= now
        {
            return Ok(Entered::Granted(self.charge(now, now, cost)));
        }
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        // Those who have left can only make it look too late: what is enough with them is enough.
        if let Some(deadline) = deadline
            && (deadline <= now || deadline < self.projected(now, cost, usize::MAX).0.earliest())
        {
            let (mut due, mut part) = self.projected(now, cost, 0);
            if deadline <= now || deadline < due.earliest() {
                if self.policy.refused(&mut self.state, now, cost) {
                    self.tail = None;
                    (due, part) = self.projected(now, cost, 0);
                }
                return Err(Error::Denied { retry_after: due.wait(now), part });
            }
        }
        let permits = self.permits.saturating_add(cost.permits());
        if self.queue.len() >= self.bounds.waiters || permits > self.bounds.permits {
            let (due, _) = self.projected(now, cost, 0);
            let moves = self.due.map_or_else(|| due.wait(now), |due| Some(due.since(now)));
            return Err(Error::LineFull { retry_after: moves });
        }
        let room = self.policy.room_at(&self.state, now, self.queued, cost);
        if room > now {
            return Err(Error::LineFull { retry_after: Some(room.since(now)) });
        }
        if self.queue.len() == 0 {
            self.tail = None;
        }
        if let Some(tail) = &mut self.tail {
            tail.join(&self.policy, now.max(self.since), cost);
        }
        self.permits = permits;
        self.queued = cost.add_to(self.queued);
        let waiter = Waiter { cost, joined: now, deadline, waker: None, outcome: None };
        let key = self.queue.push_back(waiter);
        self.deadlines.extend(deadline.map(|deadline| (deadline, key)));
        Ok(Entered::Waiting(key))
    }

    /// The time at which somebody is charged who became ready at `ready`: the due time, so that a
    /// late alarm costs nothing, but not from before the last event or further back than the policy
    /// catches up.
    fn charge_time(&self, ready: Nanos, joined: Nanos, now: Nanos) -> Nanos {
        let catch_up = now.saturating_sub(self.policy.catch_up());
        ready.max(joined).max(self.since).max(catch_up)
    }

    fn charge(&mut self, at: Nanos, joined: Nanos, cost: P::Cost) -> Charge<P::Receipt> {
        let receipt = Some(self.policy.charge(&mut self.state, at, cost));
        let waited = at.since(joined);
        self.since = self.since.max(at);
        self.stats.granted += 1;
        self.stats.waited = self.stats.waited.saturating_add(waited);
        Charge { waited: saturating_nanos(waited), receipt, held_by: None }
    }

    /// Grants all that is due, in order, and turns away those whose time is up.
    pub(super) fn pump(&mut self, now: Nanos) {
        self.grant_due(now);
        let mut over: SmallVec<[Key; 4]> = SmallVec::new();
        while let Some(&(deadline, key)) = self.deadlines.first()
            && deadline <= now
        {
            self.turn_away(key, now);
            over.push(key);
        }
        if over.is_empty() {
            return;
        }
        self.grant_due(now);
        // All whose time is up have left before any of them is told what is behind the rest.
        for key in over {
            let cost = self.queue[key].cost;
            let (ready, part) = self.projected(now, cost, self.queue.len() / ROUGHLY);
            self.take_out(key, Err(Error::Denied { retry_after: ready.wait(now), part }));
        }
    }

    fn grant_due(&mut self, now: Nanos) {
        let due = self.due.take();
        let late = due.is_some_and(|due| due < now);
        let ticks = self.policy.catch_up().saturating_add(TWO_TICKS);
        if due.is_some_and(|due| now.since(due) > ticks) {
            // Not a late tick: the process stood still. All that was reckoned is too early by as much.
            self.tail = None;
        }
        while let Some(key) = self.queue.front() {
            let Waiter { cost, joined, deadline, .. } = self.queue[key];
            let ready = match self.policy.ready_at(&self.state, now, cost) {
                Ok(ready) => ready,
                Err(error) => {
                    self.turn_away(key, now);
                    self.take_out(key, Err(error.into()));
                    continue;
                }
            };
            let at = self.charge_time(ready.earliest(), joined, now);
            if deadline.is_some_and(|deadline| deadline < at) {
                let part = self.part_that_holds(&self.state, now, now, cost);
                self.turn_away(key, now);
                let retry_after = ready.and(Ready::At(at)).wait(now);
                self.take_out(key, Err(Error::Denied { retry_after, part }));
            } else if at > now || matches!(ready, Ready::NotBefore(_)) {
                self.due = matches!(ready, Ready::At(_)).then_some(at);
                // After a pause, if there is one.
                self.held_by = self.policy.held_by(&self.state, now.max(self.since), cost);
                break;
            } else {
                let held_by = self.held_by;
                let charge = Charge { held_by, ..self.charge(at, joined, cost) };
                if let Some(tail) = &mut self.tail {
                    tail.late += usize::from(late);
                }
                self.unlink(key);
                self.take_out(key, Ok(charge));
            }
        }
    }

    /// Which of several rules is not ready at `at`: none of them, if now nothing is granted anyway.
    pub(super) fn part_that_holds(
        &self,
        state: &P::State,
        now: Nanos,
        at: Nanos,
        cost: P::Cost,
    ) -> Option<usize> {
        let is_paused = self.since > now;
        if is_paused { None } else { self.policy.held_by(state, at, cost) }
    }

    /// Takes out of the line who is not granted.
    fn turn_away(&mut self, key: Key, now: Nanos) {
        self.stats.refused += 1;
        self.depart(key, now);
        self.unlink(key);
        // To be told more, unless the policy panics before.
        self.take_out(key, Err(Error::Denied { retry_after: None, part: None }));
    }

    /// Somebody leaves without a grant: if that was the head, time before now is not made good to
    /// those behind it.
    fn depart(&mut self, key: Key, now: Nanos) {
        if self.queue.front() == Some(key) {
            self.since = self.since.max(now);
        }
        if let Some(tail) = &mut self.tail {
            tail.left += 1;
        }
    }

    /// Tells somebody who is out of the line what became of it.
    fn take_out(&mut self, key: Key, outcome: Result<Charge<P::Receipt>, Error>) {
        let waiter = &mut self.queue[key];
        waiter.outcome = Some(outcome);
        self.wake.extend(waiter.waker.take());
    }

    pub(super) fn unlink(&mut self, key: Key) {
        self.queue.unlink(key);
        let waiter = &self.queue[key];
        self.permits = self.permits.saturating_sub(waiter.cost.permits());
        self.queued = waiter.cost.take_from(self.queued);
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, key));
        }
    }

    /// What became of somebody in line. If nothing yet, `waker` will be called when it has.
    pub(crate) fn poll(&mut self, key: Key, waker: &Waker) -> Standing<P> {
        let waiter = &mut self.queue[key];
        if let Some(outcome) = waiter.outcome.take() {
            self.queue.remove(key);
            return Standing::Over(outcome);
        }
        if !waiter.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            self.discard.extend(waiter.waker.replace(waker.clone()));
        }
        Standing::Waiting(self.next_event())
    }

    /// When something happens next by itself.
    fn next_event(&self) -> Option<Nanos> {
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        self.due.into_iter().chain(deadline).min()
    }

    /// The caller is gone: its place is given up, or its grant given back.
    pub(crate) fn leave(&mut self, key: Key, now: Nanos) {
        match self.queue[key].outcome {
            None => {
                self.stats.given_up += 1;
                self.depart(key, now);
                self.unlink(key);
            }
            Some(Ok(charge)) => self.give_back(now, self.queue[key].cost, charge),
            Some(Err(_)) => {}
        }
        self.discard.extend(self.queue.remove(key).waker);
    }

    /// Something happened that moves all who wait.
    pub(crate) fn moved(&mut self, since: Nanos) {
        self.since = self.since.max(since);
        self.tail = None;
    }

    /// Changes a charge that was granted before.
    pub(crate) fn change(
        &mut self,
        now: Nanos,
        change: Change<P>,
    ) -> Result<Option<P::Receipt>, Error> {
        let receipt = change.apply(&self.policy, &mut self.state, now, self.since)?;
        self.moved(now);
        Ok(receipt)
    }

    /// A grant has been dropped.
    pub(crate) fn release(&mut self, now: Nanos, cost: P::Cost) {
        if P::HELD {
            self.moved(now);
            self.policy.release(&mut self.state, now, cost);
        }
    }

    /// Nobody is there to take what was granted.
    pub(crate) fn give_back(&mut self, now: Nanos, cost: P::Cost, charge: Charge<P::Receipt>) {
        self.stats.given_up += 1;
        self.moved(now);
        if let Some(receipt) = charge.receipt {
            self.policy.refund(&mut self.state, self.since, cost, receipt);
        }
        self.release(now, cost);
    }

    pub(crate) fn set_policy(&mut self, now: Nanos, policy: P) {
        policy.adopt(&self.policy, &mut self.state, now);
        self.policy = policy;
        // Who waits for more than there ever is now need not wait, nor be counted by others.
        let too_much = |waiter: &Waiter<P>| {
            self.policy.ready_at(&self.state, now, waiter.cost).err().map(Error::from)
        };
        let waiting = self.queue.iter();
        let over: Vec<_> =
            waiting.filter_map(|(key, waiter)| Some((key, too_much(waiter)?))).collect();
        for (key, error) in over {
            self.turn_away(key, now);
            self.take_out(key, Err(error));
        }
        self.moved(now);
    }

    pub(crate) fn pause(&mut self, now: Nanos, duration: Duration) {
        if duration.is_zero() {
            return;
        }
        let until = now.saturating_add(duration.min(Nanos::HORIZON));
        self.policy.pause(&mut self.state, now, until);
        self.moved(until);
    }

    #[cfg(all(test, tollgate_loom))]
    pub(super) fn position_for_tests(&mut self) -> i128 {
        (P::ONE_WORD.expect("a policy of one word").ticket)(&mut self.state).position
    }

    pub(crate) fn policy(&self) -> &P {
        &self.policy
    }

    pub(crate) fn set_bounds(&mut self, change: impl FnOnce(&mut Bounds)) {
        change(&mut self.bounds);
    }

    pub(crate) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn available(&self, now: Nanos) -> P::Cost {
        if self.queue.len() == 0 && self.since <= now {
            self.policy.available(&self.state, now)
        } else {
            P::Cost::default()
        }
    }

    /// How much is left.
    pub(crate) fn quota(&self, now: Nanos) -> Quota<P::Cost> {
        let remaining = self.available(now);
        Quota { remaining, ..Quota::of(&self.policy, &self.state, now) }
    }

    /// Sets the alarm for the next grant or deadline, unless it is set for an earlier time anyway:
    /// an alarm too early is harmless, and setting it at each departure would cost more.
    pub(super) fn arm(&mut self) -> Errand {
        let Some(due) = self.next_event() else {
            if self.armed != NEVER && self.alarm.rest() {
                self.armed = NEVER;
            }
            return Errand::none();
        };
        if due < self.armed {
            self.alarm.set(due);
            self.armed = due;
        }
        self.alarm.errand(due)
    }

    /// Lets callers decide without the mutex again, if nobody waits and nothing is paused.
    pub(super) fn publish(&mut self, word: &Word, now: Nanos) {
        if let Some(one_word) = P::ONE_WORD
            && self.queue.len() == 0
            && self.since <= now
        {
            let ticket = *(one_word.ticket)(&mut self.state);
            if let Some(schedule) = (one_word.schedule)(&self.policy) {
                word.publish(&mut self.published, schedule, ticket);
            }
        }
    }
}
