//! Where callers wait: one FIFO per limiter, charged when it grants.
//!
//! A caller is charged when it is granted, not when it arrives. So leaving the line costs nothing
//! and everybody behind moves up, a change of rate or a pause re-times everybody, and a big request
//! is not starved by small ones.
//!
//! Nobody depends on anybody else's being polled: whoever touches the line grants all that is due
//! ([`Inner::pump`]), and the clock's alarm touches it when the next grant is due. Wakers are called
//! after the lock is released.

#[cfg(all(test, tollgate_loom))]
mod loom;
mod queue;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod word;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clock::{Alarm, Errand};
use crate::error::{Error, ExceedsCapacity};
use crate::policy::{Cost, Policy};
use crate::stats::{Counters, Stats};
use crate::sync::{Mutex, MutexGuard};
use crate::units::{Nanos, saturating_nanos};
pub(crate) use queue::Key;
use queue::Queue;
use word::{Attempt, Published, Word};

/// One limiter's state: a word for calls that need not wait, a mutex for the rest.
#[derive(Debug)]
pub(crate) struct Line<P: Policy> {
    word: Word,
    counters: Counters,
    inner: Mutex<Inner<P>>,
}

/// Permits that were charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge<R> {
    /// In nanoseconds: to make a `Duration` of each would take longer than to decide.
    pub(crate) waited: u64,
    /// `None` for a cost of nothing.
    pub(crate) receipt: Option<R>,
}

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
    policy: P,
    state: P::State,
    published: Published,
    queue: Queue<Waiter<P>>,
    /// Those who will not wait for ever, the first to give up first.
    deadlines: BTreeSet<(Nanos, Key)>,
    /// Permits asked for by those in line.
    queued: u64,
    /// Nothing is charged at an earlier time than this: the last grant, change, pause or departure
    /// of a head.
    since: Nanos,
    bounds: Bounds,
    alarm: Alarm,
    /// When the alarm goes off; it may be early, never late.
    armed: Nanos,
    /// When the line moves next.
    due: Option<Nanos>,
    stats: Stats,
    wake: SmallVec<[Waker; 4]>,
    /// Dropping a waker can run anything, another touch of this line included: not under the lock.
    discard: SmallVec<[Waker; 4]>,
}

#[derive(Debug)]
struct Waiter<P: Policy> {
    cost: P::Cost,
    joined: Nanos,
    deadline: Option<Nanos>,
    waker: Option<Waker>,
    outcome: Option<Result<Charge<P::Receipt>, Error>>,
}

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) waiters: usize,
    pub(crate) permits: u64,
}

/// Far enough to mean "never".
const NEVER: Nanos = Nanos::new(u64::MAX);

impl<P: Policy> Line<P> {
    pub(crate) fn new(policy: P, now: Nanos, alarm: Alarm) -> Self {
        let state = policy.start(now);
        let mut inner = Inner {
            policy,
            state,
            published: Published::default(),
            queue: Queue::new(),
            deadlines: BTreeSet::new(),
            queued: 0,
            since: now,
            bounds: Bounds { waiters: usize::MAX, permits: u64::MAX },
            alarm,
            armed: NEVER,
            due: None,
            stats: Stats::default(),
            wake: SmallVec::new(),
            discard: SmallVec::new(),
        };
        let word = Word::locked();
        inner.publish(&word, now);
        Self { word, counters: Counters::default(), inner: Mutex::new(inner) }
    }

    /// Takes `cost` if it is ready and nobody waits, else waits up to `max_wait` in line; fails at
    /// once if that cannot be enough.
    #[inline]
    pub(crate) fn enter(
        &self,
        now: impl Fn() -> Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Entered<P>, Error> {
        if cost.is_zero() {
            return Ok(Entered::Granted(Charge { waited: 0, receipt: None }));
        }
        if let Some(one_word) = P::ONE_WORD {
            let at = now();
            match self.word.attempt(at, cost.permits()) {
                Attempt::Granted(booking) => {
                    self.counters.count(true);
                    let receipt = Some((one_word.receipt)(booking));
                    return Ok(Entered::Granted(Charge { waited: 0, receipt }));
                }
                Attempt::NotBefore(due)
                    if max_wait.is_some_and(|wait| due > at.saturating_add(wait)) =>
                {
                    self.counters.count(false);
                    return Err(Error::denied(due.since(at)));
                }
                Attempt::NotBefore(_) | Attempt::Locked => {}
            }
        }
        self.enter_by_mutex(now, cost, max_wait)
    }

    /// Out of line, to keep the way above short.
    #[inline(never)]
    fn enter_by_mutex(
        &self,
        now: impl Fn() -> Nanos,
        cost: P::Cost,
        max_wait: Option<Duration>,
    ) -> Result<Entered<P>, Error> {
        self.touch(now, |inner, now| inner.enter(now, cost, max_wait))
    }

    /// Locks, grants what is due, does `act`, grants what is due after it, sets the alarm, unlocks
    /// and wakes: every way into the mutex is this one.
    pub(crate) fn touch<R>(
        &self,
        now: impl Fn() -> Nanos,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> R {
        let mut inner = self.inner.lock();
        if let (Some(one_word), Some(position)) =
            (P::ONE_WORD, self.word.lock(&mut inner.published))
        {
            (one_word.ticket)(&mut inner.state).position = position;
        }
        // Read under the lock, so that the order of times is the order of events.
        let now = now();
        inner.pump(now);
        let result = act(&mut inner, now);
        inner.pump(now);
        let errand = inner.arm();
        inner.publish(&self.word, now);
        Self::unlock(inner, errand);
        result
    }

    #[inline]
    fn unlock(mut inner: MutexGuard<'_, Inner<P>>, errand: Errand) {
        if inner.wake.is_empty() && inner.discard.is_empty() {
            drop(inner);
            return errand.run();
        }
        let wake = std::mem::take(&mut inner.wake);
        let discard = std::mem::take(&mut inner.discard);
        drop(inner);
        errand.run();
        wake_each(wake);
        drop(discard);
    }

    /// The alarm went off: nothing is armed any more.
    pub(crate) fn turn(&self, now: impl Fn() -> Nanos) {
        self.touch(now, |inner, _| inner.armed = NEVER);
    }

    /// The caller is gone in a panic, perhaps one of the policy: its place is given up without
    /// asking the policy anything.
    pub(crate) fn abandon(&self, key: Key) {
        let mut inner = self.inner.lock();
        if inner.queue[key].outcome.is_none() {
            inner.unlink(key);
        }
        inner.stats.given_up += 1;
        let waiter = inner.queue.remove(key);
        drop(inner);
        drop(waiter);
    }

    /// Wakes all who wait, so that they look after themselves.
    pub(crate) fn wake_all(&self) {
        let mut inner = self.inner.lock();
        inner.armed = NEVER;
        // Those granted before somebody panicked, too.
        let mut wakers = std::mem::take(&mut inner.wake);
        wakers.extend(inner.queue.iter().filter_map(|(_, waiter)| waiter.waker.clone()));
        drop(inner);
        wake_each(wakers);
    }

    pub(crate) fn stats(&self, now: impl Fn() -> Nanos) -> Stats {
        let mut stats = self.touch(now, |inner, _| inner.stats);
        let (granted, refused) = self.counters.sum();
        stats.granted += granted;
        stats.refused += refused;
        stats
    }
}

/// A waker that panics keeps none of the others from being woken.
fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    let mut panicked = None;
    for waker in wakers {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            panicked.get_or_insert(panic);
        }
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

impl<P: Policy> Inner<P> {
    fn enter(
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
        if self.queue.len() == 0 && self.charge_time(ready, now, now) <= now {
            return Ok(Entered::Granted(self.charge(now, now, cost)));
        }
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        // Not before the line moves, in case the clock has gone back.
        let due = self.ready_behind(now, self.queued, cost).max(self.due.unwrap_or(now));
        if deadline.is_some_and(|deadline| deadline < due || deadline <= now) {
            return Err(Error::denied(due.since(now)));
        }
        let queued = self.queued.saturating_add(cost.permits());
        if self.queue.len() >= self.bounds.waiters || queued > self.bounds.permits {
            let moves = self.due.unwrap_or(due);
            return Err(Error::LineFull { retry_after: Some(moves.since(now)) });
        }
        self.queued = queued;
        let waiter = Waiter { cost, joined: now, deadline, waker: None, outcome: None };
        let key = self.queue.push_back(waiter);
        self.deadlines.extend(deadline.map(|deadline| (deadline, key)));
        Ok(Entered::Waiting(key))
    }

    /// When a caller is granted who stands behind `ahead` permits.
    fn ready_behind(&self, now: Nanos, ahead: u64, cost: P::Cost) -> Nanos {
        self.policy.ready_behind(&self.state, now.max(self.since), ahead, cost)
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
        Charge { waited: saturating_nanos(waited), receipt }
    }

    /// Grants all that is due, in order, and turns away those whose time is up.
    fn pump(&mut self, now: Nanos) {
        self.due = None;
        while let Some(key) = self.queue.front() {
            let Waiter { cost, joined, deadline, .. } = self.queue[key];
            let ready = match self.policy.ready_at(&self.state, now, cost) {
                Ok(ready) => ready,
                Err(error) => {
                    self.turn_away(key, now, error.into());
                    continue;
                }
            };
            let at = self.charge_time(ready, joined, now);
            if deadline.is_some_and(|deadline| deadline < at) {
                self.turn_away(key, now, Error::denied(at.since(now)));
            } else if at > now {
                self.due = Some(at);
                break;
            } else {
                let charge = self.charge(at, joined, cost);
                self.take_out(key, Ok(charge));
            }
        }
        // Whoever is still in line is due later than now.
        while let Some(&(deadline, key)) = self.deadlines.first()
            && deadline <= now
        {
            let cost = self.queue[key].cost;
            let again = self.ready_behind(now, self.queued.saturating_sub(cost.permits()), cost);
            self.turn_away(key, now, Error::denied(again.since(now)));
        }
    }

    fn turn_away(&mut self, key: Key, now: Nanos, error: Error) {
        self.stats.refused += 1;
        self.depart(key, now);
        self.take_out(key, Err(error));
    }

    /// Somebody leaves without a grant: if that was the head, time before now is not made good to
    /// those behind it.
    fn depart(&mut self, key: Key, now: Nanos) {
        if self.queue.front() == Some(key) {
            self.since = self.since.max(now);
        }
    }

    fn take_out(&mut self, key: Key, outcome: Result<Charge<P::Receipt>, Error>) {
        self.unlink(key);
        let waiter = &mut self.queue[key];
        waiter.outcome = Some(outcome);
        self.wake.extend(waiter.waker.take());
    }

    fn unlink(&mut self, key: Key) {
        self.queue.unlink(key);
        let waiter = &self.queue[key];
        self.queued = self.queued.saturating_sub(waiter.cost.permits());
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
        Standing::Waiting(self.due)
    }

    /// The caller is gone: its place is given up, or its grant given back.
    pub(crate) fn leave(&mut self, key: Key, now: Nanos) {
        match self.queue[key].outcome.take() {
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

    /// Gives `part` of a charge back.
    pub(crate) fn refund(&mut self, now: Nanos, part: P::Cost, receipt: Option<P::Receipt>) {
        if let Some(receipt) = receipt {
            self.since = self.since.max(now);
            self.policy.refund(&mut self.state, self.since, part, receipt);
        }
    }

    /// Nobody is there to take what was granted.
    pub(crate) fn give_back(&mut self, now: Nanos, cost: P::Cost, charge: Charge<P::Receipt>) {
        self.stats.given_up += 1;
        self.refund(now, cost, charge.receipt);
    }

    /// Charges more, ready or not; but not on top of a debt that reaches the horizon.
    pub(crate) fn overcharge(&mut self, now: Nanos, cost: P::Cost) -> Result<(), Error> {
        let ready = self.policy.ready_at(&self.state, now, cost)?;
        if ready.since(now) > Nanos::HORIZON {
            return Err(ExceedsCapacity::new(0).into());
        }
        self.policy.charge(&mut self.state, now, cost);
        self.since = self.since.max(now);
        Ok(())
    }

    pub(crate) fn set_policy(&mut self, now: Nanos, policy: P) {
        policy.adopt(&self.policy, &mut self.state, now);
        self.policy = policy;
        self.since = self.since.max(now);
    }

    pub(crate) fn pause(&mut self, now: Nanos, duration: Duration) {
        let until = now.saturating_add(duration.min(Nanos::HORIZON));
        self.policy.pause(&mut self.state, now, until);
        self.since = self.since.max(until);
    }

    #[cfg(all(test, tollgate_loom))]
    fn position_for_tests(&mut self) -> i128 {
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

    /// How long somebody in line, or granted already, still has to wait as things stand.
    pub(crate) fn delay(&self, key: Key, now: Nanos) -> Duration {
        if self.queue[key].outcome.is_some() {
            return Duration::ZERO;
        }
        let before = self.queue.iter().take_while(|&(other, _)| other != key);
        let ahead = before.map(|(_, waiter)| waiter.cost.permits()).sum();
        self.ready_behind(now, ahead, self.queue[key].cost).since(now)
    }

    /// Sets the alarm for the next grant or deadline, unless it is set for an earlier time anyway:
    /// an alarm too early is harmless, and setting it at each departure would cost more.
    fn arm(&mut self) -> Errand {
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        let Some(due) = self.due.into_iter().chain(deadline).min() else {
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
    fn publish(&mut self, word: &Word, now: Nanos) {
        if let Some(one_word) = P::ONE_WORD
            && self.queue.len() == 0
            && self.since <= now
        {
            let schedule = (one_word.schedule)(&self.policy);
            let ticket = *(one_word.ticket)(&mut self.state);
            word.publish(&mut self.published, schedule, ticket);
        }
    }
}
