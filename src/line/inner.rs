//! The state under the mutex of a line: all decisions about waiting callers.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use smallvec::SmallVec;

use super::atomic_state::{AtomicState, Attempt, Published};
use super::charge::{Change, Charge, Taking};
use super::tail::ROUGHLY;
use super::timer::Timer;
use super::waiting::{Owed, Place, Waiter, Waiting};
use crate::clock::Monotone;
use crate::error::{Error, QueueLimit};
use crate::policy::{Asked, Cost, Limit, Policy, Quota, Ready, TWO_TICKS, charge_wholly, wholly};
use crate::stats::Stats;
use crate::units::{Nanos, saturating_nanos};
use crate::wait_queue::{AfterUnlock, Arrival, Bounds, Claim, Tenant, WaiterId};

/// The decision about a new caller.
pub(crate) enum Admission<P: Policy> {
    Granted(Charge<P::Receipt>),
    Waiting(WaiterId),
}

/// The decision about a waiting caller.
pub(crate) enum WaitStatus<P: Policy> {
    Over(Result<Charge<P::Receipt>, Error>),
    /// The next event is at this time, if that is known.
    Waiting(Option<Nanos>),
}

/// After a panic of the policy the line tries again this much later, if no call comes before.
const AFTER_A_PANIC: Duration = Duration::from_secs(1);

/// The state under the mutex.
#[derive(Debug)]
pub(crate) struct Inner<P: Policy> {
    pub(super) time: Monotone,
    pub(super) policy: P,
    pub(super) state: P::State,
    pub(super) published: Published,
    /// Nothing is charged before this time: the last grant, change, end of a pause, or departure of the head of
    /// the queue.
    pub(super) not_before: Nanos,
    pub(super) stats: Stats,
    /// `None` until a caller waits.
    pub(super) waiting: Option<Box<Waiting<P>>>,
}

impl<P: Policy> Inner<P> {
    pub(super) fn new(policy: P, state: P::State, time: Monotone) -> Self {
        let not_before = time.latest();
        let (published, stats) = (Published::default(), Stats::default());
        Self { time, policy, state, published, not_before, stats, waiting: None }
    }

    pub(super) fn waiting(&mut self) -> &mut Waiting<P> {
        self.waiting.get_or_insert_with(|| Box::new(Waiting::new()))
    }

    /// The entry of a caller in the queue.
    fn waiter(&mut self, key: WaiterId) -> &mut Waiter<P> {
        &mut self.waiting().queue[key]
    }

    /// Whether no caller waits and nothing is paused.
    #[inline]
    pub(super) fn is_quiet(&self, now: Nanos) -> bool {
        self.queue_len() == 0 && self.not_before <= now
    }

    /// Whether something is still to be given back.
    #[inline(always)]
    pub(super) fn owes(&self) -> bool {
        !P::HOOKS.infallible
            && self.waiting.as_ref().is_some_and(|waiting| !waiting.owed.is_empty())
    }

    #[inline(always)]
    pub(super) fn is_ready(&self, now: Nanos, cost: P::Cost) -> bool {
        (P::HOOKS.ready_now)(&self.policy, &self.state, now, cost)
    }

    /// Charges a cost that is ready while no caller waits.
    #[inline(always)]
    pub(super) fn charge_at_once(&mut self, now: Nanos, cost: P::Cost) -> Charge<P::Receipt> {
        let receipt = Some(charge_wholly(&self.policy, &mut self.state, now, cost));
        self.not_before = now;
        self.stats.granted += 1;
        Charge { waited: 0, receipt, limited_by: None }
    }

    /// Refuses a caller whose cost is not ready and that cannot wait.
    // Not inlined, to keep call sites small.
    #[inline(never)]
    pub(super) fn refuse(&mut self, now: Nanos, cost: P::Cost) -> Error {
        self.stats.refused += 1;
        // As `denial`, without a queue and without a pause.
        let mut ready = match self.policy.ready_at(&self.state, now, cost) {
            Ok(ready) => ready,
            Err(error) => return error.into(),
        };
        let policy = &self.policy;
        if wholly::<P, _>(&mut self.state, |state| policy.refused(state, now, cost)) {
            ready = self.policy.ready_at(&self.state, now, cost).unwrap_or(ready);
        }
        let part = self.policy.limited_by(&self.state, now, cost);
        Error::Denied { retry_after: ready.wait(now), part }
    }

    /// Gives back what a grant held, if no caller waits for it. Returns whether it did.
    #[inline(always)]
    pub(super) fn release_at_once(&mut self, cost: P::Cost) -> bool {
        let is_alone = |waiting: &Waiting<P>| waiting.queue.len() == 0 && waiting.resumed.is_none();
        let is_quiet = self.waiting.as_deref().is_none_or(is_alone);
        if is_quiet {
            let now = self.time.latest();
            if P::HOOKS.infallible {
                self.policy.release(&mut self.state, now, cost);
            } else {
                self.give_back(now, Change::release(cost));
            }
        }
        is_quiet
    }

    /// As `Line::take_up_to`.
    pub(super) fn take_up_to(
        &mut self,
        now: Nanos,
        least: P::Cost,
        most: P::Cost,
    ) -> Result<Taking<P>, Error> {
        let taken = self.at_hand(now, least, most);
        match self.enter(now, taken, Some(Duration::ZERO), Claim::InOrder, None)? {
            Admission::Granted(charge) => Ok((taken, charge)),
            Admission::Waiting(_) => unreachable!("waiting without time to wait"),
        }
    }

    /// The part of `most` that can be taken now; `least` if that cannot.
    fn at_hand(&self, now: Nanos, least: P::Cost, most: P::Cost) -> P::Cost {
        if !self.is_quiet(now) || !self.is_ready(now, least) {
            return least;
        }
        let there = self.policy.available(&self.state, now).each(least, u32::max);
        let part = most.each(there, u32::min);
        // A policy of the user's own may say otherwise.
        if self.is_ready(now, part) { part } else { least }
    }

    pub(super) fn enter(
        &mut self,
        now: Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
        claim: Claim,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        let result = self.try_enter(now, cost, max_wait, claim, waker);
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
        claim: Claim,
        waker: Option<&Waker>,
    ) -> Result<Admission<P>, Error> {
        let ready = self.policy.ready_at(&self.state, now, cost)?;
        let (ahead, tenant) = (claim.ahead(), claim.tenant());
        let arrival = Arrival::new(now, ahead);
        let place = self.place(arrival, ahead, tenant, cost);
        if self.is_first(place) && self.not_before <= now && ready.has_come(now) {
            if !matches!(place, Place::Last) {
                self.charge_in_tail(now, cost, true);
                self.waiting().queue.grant_turn_at_once(tenant, cost.permits());
            }
            return Ok(Admission::Granted(self.charge_at_once(now, cost)));
        }
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        if deadline.is_some_and(|deadline| self.is_too_early(deadline, now, cost, place)) {
            // A caller that does not wait is granted when no caller waits.
            let is_last = deadline == Some(now) && self.waiting().queue.is_fair();
            let place = if is_last { Place::Last } else { place };
            return Err(self.denial(place, now, cost, deadline.unwrap_or(now)));
        }
        let waiting = self.waiting();
        let (queued, exceeded) = (waiting.queued, waiting.exceeded_by(cost, tenant));
        if let Some(limit) = exceeded {
            let moves = match self.due() {
                Some(due) => Some(due.since(now)),
                None => self.projected_at(place, now, cost, 0, now).0.wait(now),
            };
            return Err(Error::QueueFull { limit, retry_after: moves });
        }
        let room = self.policy.room_at(&self.state, now, queued, cost);
        if room > now {
            let (limit, retry_after) = (QueueLimit::Capacity, Some(room.since(now)));
            return Err(Error::QueueFull { limit, retry_after });
        }
        if self.queue_len() == 0 {
            self.forget_tail();
        }
        self.charge_in_tail(now, cost, !matches!(place, Place::Last));
        let (waiter, waker) = (Waiter { cost, arrival }, waker.cloned());
        let id = self.waiting().join((place, tenant), waiter, now, deadline, waker);
        Ok(Admission::Waiting(id))
    }

    /// Whether a new caller could not be granted by `deadline`.
    fn is_too_early(&mut self, deadline: Nanos, now: Nanos, cost: P::Cost, place: Place) -> bool {
        if deadline <= now {
            return true;
        }
        if !matches!(place, Place::Last) {
            return !self.is_in_time_behind_all(deadline, now, cost)
                && deadline < self.projected_at(place, now, cost, 0, deadline).0.earliest();
        }
        // Waiters that have left can only make it look later: if the time is enough with them, it is enough. But where
        // one that is unpredictable was the last to count, more of them count now.
        let with_them = self.projected(now, cost, usize::MAX).0;
        let is_enough = matches!(with_them, Ready::At(due) if due <= deadline);
        !is_enough && deadline < self.projected(now, cost, 0).0.earliest()
    }

    /// The error of a caller that cannot wait, or not long enough.
    fn denial(&mut self, place: Place, now: Nanos, cost: P::Cost, deadline: Nanos) -> Error {
        if self.change_state(now, |policy, state, _| policy.refused(state, now, cost)) {
            self.forget_tail();
        }
        let (due, part) = self.projected_at(place, now, cost, 0, deadline);
        Error::Denied { retry_after: due.wait(now), part }
    }

    /// The time at which a waiter that became ready at `ready` is charged: its due time, so that a late alarm
    /// costs nothing, but not before the last event or further back than the policy catches up.
    fn charge_time(&self, ready: Nanos, joined: Nanos, now: Nanos) -> Nanos {
        let catch_up = now.saturating_sub(self.policy.catch_up());
        ready.max(joined).max(self.not_before).max(catch_up)
    }

    fn charge(&mut self, at: Nanos, joined: Nanos, cost: P::Cost) -> Charge<P::Receipt> {
        let receipt = Some(charge_wholly(&self.policy, &mut self.state, at, cost));
        let waited = at.since(joined);
        self.not_before = self.not_before.max(at);
        self.stats.granted += 1;
        self.stats.waited = self.stats.waited.saturating_add(waited);
        Charge { waited: saturating_nanos(waited), receipt, limited_by: None }
    }

    /// Grants all that is due, in order, and refuses the waiters whose time is up.
    pub(super) fn pump(&mut self, now: Nanos) {
        let Some(waiting) = &mut self.waiting else { return };
        if self.not_before <= now {
            waiting.resumed = None;
        }
        self.grant_due(now);
        let mut over: SmallVec<[WaiterId; 4]> = SmallVec::new();
        while let Some((deadline, key)) = self.waiting().queue.first_deadline()
            && deadline <= now
        {
            self.turn_away(key, now);
            over.push(key);
        }
        if over.is_empty() {
            return;
        }
        self.grant_due(now);
        // All of them have left before the first `retry_after` is computed behind the rest.
        let mut last = None;
        for key in over {
            let tenant = self.waiting().queue.tenant(key);
            let &mut Waiter { cost, arrival } = self.waiter(key);
            let joined = self.waiting().joined(key);
            let ahead = arrival.ahead_at(joined);
            // A crowd ahead of others, or of a tenant, does not need a walk for each.
            let is_known = |&(caller, _): &_| {
                caller == (cost, ahead, tenant) && (!ahead.is_zero() || tenant.is_some())
            };
            let (ready, part) = last.filter(is_known).map_or_else(
                || {
                    let place = self.place(Arrival::new(now, ahead), ahead, tenant, cost);
                    self.projected_at(place, now, cost, self.queue_len() / ROUGHLY, now)
                },
                |(_, projected)| projected,
            );
            last = Some(((cost, ahead, tenant), (ready, part)));
            self.waiting().finish(key, Err(Error::Denied { retry_after: ready.wait(now), part }));
        }
    }

    fn grant_due(&mut self, now: Nanos) {
        let due = self.waiting().due.take();
        let late = due.is_some_and(|due| due < now);
        let ticks = self.policy.catch_up().saturating_add(TWO_TICKS);
        if due.is_some_and(|due| now.since(due) > ticks) {
            // Not a late tick: the process stood still, and the projection is too early by as much.
            self.forget_tail();
        }
        while let Some(key) = self.waiting().queue.front() {
            let cost = self.waiter(key).cost;
            let joined = self.waiting().joined(key);
            let deadline = self.waiting().queue.deadline(key);
            let ready = match self.policy.ready_at(&self.state, now, cost) {
                Ok(ready) => ready,
                Err(error) => {
                    self.turn_away(key, now);
                    self.waiting().finish(key, Err(error.into()));
                    continue;
                }
            };
            let at = self.charge_time(ready.earliest(), joined, now);
            if deadline.is_some_and(|deadline| deadline < at) {
                let part = self.part_that_holds(&self.state, now, now, cost);
                self.turn_away(key, now);
                let retry_after = ready.and(Ready::At(at)).wait(now);
                self.waiting().finish(key, Err(Error::Denied { retry_after, part }));
            } else if at > now || matches!(ready, Ready::NotBefore(_)) {
                // After a pause, if there is one.
                let limited_by =
                    self.policy.limited_by(&self.state, now.max(self.not_before), cost);
                let waiting = self.waiting();
                waiting.due = matches!(ready, Ready::At(_)).then_some(at);
                waiting.limited_by = limited_by;
                break;
            } else {
                let charge = self.charge(at, joined, cost);
                let waiting = self.waiting();
                if let Some(tail) = &mut waiting.tail {
                    tail.late += usize::from(late);
                }
                waiting.queue.grant_turn(key);
                waiting.unlink(key);
                waiting.finish(key, Ok(Charge { limited_by: waiting.limited_by, ..charge }));
            }
        }
    }

    /// Which of several rules is not ready at `at`: none of them in a pause.
    pub(super) fn part_that_holds(
        &self,
        state: &P::State,
        now: Nanos,
        at: Nanos,
        cost: P::Cost,
    ) -> Option<usize> {
        let is_paused = self.not_before > now;
        if is_paused { None } else { self.policy.limited_by(state, at, cost) }
    }

    /// Takes a waiter out of the queue without a grant.
    fn turn_away(&mut self, key: WaiterId, now: Nanos) {
        self.stats.refused += 1;
        self.depart(key, now);
        // Replaced by a better answer, unless the policy panics before.
        self.waiting().finish(key, Err(Error::Denied { retry_after: None, part: None }));
    }

    /// A waiter leaves without a grant. If it was the head, waiters behind it get no credit for time before now.
    fn depart(&mut self, key: WaiterId, now: Nanos) {
        let waiting = self.waiting();
        if let Some(tail) = &mut waiting.tail {
            tail.left += 1;
        }
        let was_head = waiting.queue.front() == Some(key);
        waiting.unlink(key);
        if was_head {
            self.not_before = self.not_before.max(now);
        }
    }

    /// The outcome of a waiter. While there is none, keeps `waker` to be called.
    pub(crate) fn poll(&mut self, key: WaiterId, waker: &Waker) -> WaitStatus<P> {
        if let Some(outcome) = self.take_outcome(key) {
            return WaitStatus::Over(outcome);
        }
        let waiting = self.waiting();
        waiting.queue.keep_waker(key, waker);
        WaitStatus::Waiting(waiting.next_event())
    }

    /// Takes the outcome of a waiter, if there is one.
    pub(super) fn take_outcome(
        &mut self,
        key: WaiterId,
    ) -> Option<Result<Charge<P::Receipt>, Error>> {
        self.waiting().take_outcome(key)
    }

    /// A waiting caller leaves, if that changes nothing for the others but their order: the next grant stays due
    /// as it is, and the alarm. `now` is only read for the head of the queue. Returns its waker, which is to be
    /// dropped after the lock is released.
    pub(super) fn leave_quietly(
        &mut self,
        key: WaiterId,
        now: impl FnOnce() -> Nanos,
    ) -> Option<Waker> {
        let waiting = self.waiting.as_deref_mut().filter(|waiting| !waiting.is_over(key))?;
        if waiting.queue.front() == Some(key) {
            if waiting.queue.is_fair() {
                return None;
            }
            // The next one asks for the same, and so is due at the same time.
            let next = waiting.queue.behind(key)?;
            let is_same = waiting.queue[next].cost == waiting.queue[key].cost;
            let due = waiting.due.filter(|_| is_same)?;
            // At the head it is refused if that is too late for it.
            let is_too_late = waiting.queue.deadline(next).is_some_and(|deadline| deadline < due);
            if is_too_late || due <= self.time.read(now()) {
                return None;
            }
        }
        self.stats.given_up += 1;
        Some(waiting.leave_quietly(key))
    }

    /// A waiting caller leaves: its entry is removed, and a grant that it did not take is given back.
    pub(crate) fn leave(&mut self, key: WaiterId, now: Nanos) {
        let cost = self.waiter(key).cost;
        match self.take_outcome(key) {
            None => {
                self.stats.given_up += 1;
                self.depart(key, now);
                self.waiting().remove(key);
            }
            Some(Ok(charge)) => self.give_up(now, cost, charge),
            Some(Err(_)) => {}
        }
    }

    /// Something happened that moves all waiters.
    pub(crate) fn moved(&mut self, not_before: Nanos) {
        self.not_before = self.not_before.max(not_before);
        self.forget_tail();
    }

    pub(super) fn forget_tail(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.tail = None;
        }
    }

    /// Changes a charge that was granted before. `changed` gets the receipt of the rest, also if the policy panics over
    /// other callers afterwards.
    pub(crate) fn change(
        &mut self,
        now: Nanos,
        change: Change<P>,
        changed: impl FnOnce(Option<P::Receipt>),
    ) -> Result<(), Error> {
        change.check(&self.policy, &self.state, now)?;
        changed(self.apply(now, &change));
        Ok(())
    }

    fn apply(&mut self, now: Nanos, change: &Change<P>) -> Option<P::Receipt> {
        let receipt =
            self.change_state(now, |policy, state, from| change.apply(policy, state, now, from));
        self.moved(now);
        receipt
    }

    /// Makes a change for which no caller is left that could try again. It is noted first: what the policy keeps from
    /// being given back by a panic is given back with the next event.
    pub(crate) fn give_back(&mut self, now: Nanos, change: Change<P>) {
        if P::HOOKS.infallible {
            self.apply(now, &change);
            return;
        }
        let owed = &mut self.waiting().owed;
        owed.extend(
            change.steps().into_iter().flatten().map(|change| Owed { change, tried: false }),
        );
        if let Err(panic) = self.pay(now) {
            resume_unwind(panic);
        }
    }

    /// Gives back what is noted, each for itself. Returns a panic over what had not been tried before: it is that of
    /// its caller. A refund that panics again is forgotten, so that those of a broken policy take no memory for good.
    pub(super) fn pay(&mut self, now: Nanos) -> thread::Result<()> {
        let mut result = Ok(());
        for Owed { change, tried } in std::mem::take(&mut self.waiting().owed) {
            let paid = catch_unwind(AssertUnwindSafe(|| _ = self.apply(now, &change)));
            if paid.is_err() && (!tried || change.is_release()) {
                self.waiting().owed.push(Owed { change, tried: true });
            }
            if !tried {
                result = result.and(paid);
            }
        }
        result
    }

    /// The caller did not take its grant.
    pub(crate) fn give_up(&mut self, now: Nanos, cost: P::Cost, charge: Charge<P::Receipt>) {
        if cost.is_zero() {
            return;
        }
        self.stats.given_up += 1;
        let receipt = charge.receipt;
        self.give_back(now, Change::Refund { part: cost, held: cost, receipt });
    }

    pub(crate) fn set_policy(&mut self, now: Nanos, policy: P) {
        self.change_state(now, |old, state, _| policy.migrate(old, state, now));
        self.policy = policy;
        self.moved(now);
        // Requests that exceed the new capacity need not wait, nor count for others.
        let too_much = |waiter: &Waiter<P>| {
            self.policy.ready_at(&self.state, now, waiter.cost).err().map(Error::from)
        };
        let waiters = self.waiting.iter().flat_map(|waiting| waiting.queue.iter());
        let over: Vec<_> =
            waiters.filter_map(|(key, waiter)| Some((key, too_much(waiter)?))).collect();
        for (key, error) in over {
            self.turn_away(key, now);
            self.waiting().finish(key, Err(error));
        }
    }

    pub(crate) fn policy(&self) -> &P {
        &self.policy
    }

    /// Waiters beyond the new bounds stay.
    pub(crate) fn set_bounds(&mut self, bounds: Bounds) {
        if bounds != self.bounds() {
            self.waiting().bounds = bounds;
        }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        self.waiting.as_ref().map_or(Bounds::NONE, |waiting| waiting.bounds)
    }

    #[inline]
    pub(crate) fn queue_len(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.queue.len())
    }

    /// How many callers of a tenant wait.
    pub(crate) fn queue_len_of(&self, tenant: Tenant) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.queue.len_of(tenant))
    }

    /// When the next waiter is granted, if that is known.
    pub(super) fn due(&self) -> Option<Nanos> {
        self.waiting.as_ref()?.due
    }

    pub(crate) fn available(&self, now: Nanos) -> P::Cost {
        if self.is_quiet(now) {
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

    /// How much is left of each limit, for a request of `cost`.
    pub(crate) fn limits(&self, now: Nanos, cost: P::Cost) -> Vec<Limit<P::Cost>> {
        let mut opens = Ready::At(self.not_before);
        if let Some(waiting) = &self.waiting
            && waiting.queue.len() > 0
        {
            opens = opens.and(waiting.due.map_or(Ready::NotBefore(now), Ready::At));
        }
        Limit::all(&self.policy, &self.state, Asked { now, cost, opens })
    }

    /// Sets the alarm for the next grant or deadline. What is left to do after the lock is released.
    pub(super) fn arm(&mut self, timer: &impl Timer, now: Nanos) -> AfterUnlock {
        let Some(waiting) = &mut self.waiting else { return AfterUnlock::default() };
        let timer_task = waiting.queue.arm(waiting.next_event(), now, || timer.alarm());
        waiting.queue.after_unlock(timer_task)
    }

    /// The policy panicked, so that the next grant is unpredictable, and nothing that was projected counts.
    pub(super) fn try_again_later(&mut self, now: Nanos) {
        self.forget_tail();
        if let Some(waiting) = &mut self.waiting
            && waiting.queue.len() > 0
        {
            waiting.due.get_or_insert(now.saturating_add(AFTER_A_PANIC));
        }
    }

    /// The alarm went off: it has to be set again.
    pub(super) fn disarm(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.queue.disarm();
        }
    }

    /// Wakes all waiting callers, which then check for themselves: the alarm cannot be relied on.
    pub(super) fn wake_all(&mut self) -> AfterUnlock {
        let Some(waiting) = &mut self.waiting else { return AfterUnlock::default() };
        waiting.queue.forget_alarm();
        waiting.queue.after_unlock(None)
    }

    /// Takes over the position from the word, and notes what the word has charged since it was published `before`.
    pub(super) fn take_over(&mut self, [before, position]: [i128; 2], now: Nanos) {
        let Some(lock_free) = P::HOOKS.lock_free else { return };
        let state = (lock_free.state)(&mut self.state);
        state.position = position;
        if position != before
            && let Some(schedule) = (lock_free.schedule)(&self.policy)
        {
            schedule.note_charges(state, before, now.min(self.published.until));
        }
    }

    /// Decides a call by the word, and records what it finds.
    #[inline]
    pub(super) fn attempt_recorded(
        &mut self,
        word: &AtomicState,
        now: Nanos,
        permits: u64,
        read_again: impl FnOnce() -> Nanos,
    ) -> Attempt {
        let Some(lock_free) = P::HOOKS.lock_free else { return Attempt::Undecided };
        let (attempt, found) = word.attempt_recorded(now, permits);
        if let (Attempt::Granted(receipt), Some(found)) = (&attempt, found) {
            if let Some(positions) = word.unrecorded(&self.published, &found) {
                self.take_over(positions, read_again());
            }
            (lock_free.state)(&mut self.state).note(found.units, receipt, found.level);
            word.open_slot_behind(&mut self.published, &found, now);
        }
        attempt
    }

    /// Lets the word decide again, if no caller waits and nothing is paused.
    pub(super) fn publish(&mut self, word: &AtomicState, now: Nanos) {
        if let Some(lock_free) = P::HOOKS.lock_free
            && self.is_quiet(now)
            && let Some(schedule) = (lock_free.schedule)(&self.policy)
        {
            let state = (lock_free.state)(&mut self.state);
            word.publish(&mut self.published, &schedule, state, now);
        }
    }
}
