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
use crate::policy::{Cost, Policy, Quota, Ready};
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
    counters: Option<Box<Counters>>,
    inner: Mutex<Inner<P>>,
}

/// Permits that were charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge<R> {
    /// In nanoseconds: to make a `Duration` of each would take longer than to decide.
    pub(crate) waited: u64,
    /// `None` for a cost of nothing.
    pub(crate) receipt: Option<R>,
    /// Which of several rules the line waited for last.
    pub(crate) held_by: Option<usize>,
}

/// What can become of a charge later.
pub(crate) enum Change<P: Policy> {
    /// It is to be `more`, or less by `part` and what nobody has a receipt for.
    Settle {
        more: P::Cost,
        less: P::Cost,
        part: P::Cost,
        receipt: Option<P::Receipt>,
    },
    Refund {
        part: P::Cost,
        receipt: Option<P::Receipt>,
    },
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
    /// The state behind all who wait, where the policy needs that to tell when a newcomer is ready.
    tail: Option<Tail<P::State>>,
    /// Permits asked for by those in line.
    queued: u64,
    /// Nothing is charged at an earlier time than this: the last grant, change, pause or departure
    /// of a head.
    since: Nanos,
    bounds: Bounds,
    alarm: Alarm,
    /// When the alarm goes off; it may be early, never late.
    armed: Nanos,
    /// When the line moves next, if that is known.
    due: Option<Nanos>,
    /// Which of several rules it waits for.
    held_by: Option<usize>,
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

/// What the policy's state will be when all who wait have been charged, each as soon as it is ready.
#[derive(Clone, Debug)]
struct Tail<S> {
    state: S,
    /// When the last of them is charged; at least.
    ready: Ready,
    /// How many have left or were granted late since this was computed: it is too late by the first,
    /// too early by the second.
    left: usize,
    late: usize,
}

/// As long as no more than one in so many has left, those whose time is up hear what was computed
/// before. So a crowd whose time runs out is not gone through once for each.
const ROUGHLY: usize = 64;

/// How much may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) waiters: usize,
    pub(crate) permits: u64,
}

/// Far enough to mean "never".
const NEVER: Nanos = Nanos::new(u64::MAX);

impl<P: Policy> Line<P> {
    /// `counters` are for calls that need no lock; without them there are none.
    pub(crate) fn new(
        policy: P,
        state: P::State,
        now: Nanos,
        alarm: Alarm,
        counters: Option<Box<Counters>>,
    ) -> Self {
        let mut inner = Inner {
            policy,
            state,
            published: Published::default(),
            queue: Queue::new(),
            deadlines: BTreeSet::new(),
            tail: None,
            queued: 0,
            since: now,
            bounds: Bounds { waiters: usize::MAX, permits: u64::MAX },
            alarm,
            armed: NEVER,
            due: None,
            held_by: None,
            stats: Stats::default(),
            wake: SmallVec::new(),
            discard: SmallVec::new(),
        };
        let word = Word::locked();
        if counters.is_some() {
            inner.publish(&word, now);
        }
        Self { word, counters, inner: Mutex::new(inner) }
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
            return Ok(Entered::Granted(Charge { waited: 0, receipt: None, held_by: None }));
        }
        if let Some(one_word) = P::ONE_WORD
            && let Some(counters) = &self.counters
        {
            let at = now();
            match self.word.attempt(at, cost.permits()) {
                Attempt::Granted(booking) => {
                    counters.count(true);
                    let receipt = Some((one_word.receipt)(booking));
                    return Ok(Entered::Granted(Charge { waited: 0, receipt, held_by: None }));
                }
                Attempt::NotBefore(due)
                    if max_wait.is_some_and(|wait| due > at.saturating_add(wait)) =>
                {
                    counters.count(false);
                    return Err(Error::Denied { retry_after: Some(due.since(at)), part: None });
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
        let (result, errand) = self.act(&mut inner, now, act);
        Self::unlock(inner, errand);
        result
    }

    /// As [`touch`](Self::touch), for those who hold a lock of their own: what there is to do after
    /// unlocking is left to them.
    pub(crate) fn touch_quietly<R>(
        &self,
        now: impl Fn() -> Nanos,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> (R, Aftermath) {
        let mut inner = self.inner.lock();
        let (result, errand) = self.act(&mut inner, now, act);
        let (wake, discard) = (std::mem::take(&mut inner.wake), std::mem::take(&mut inner.discard));
        (result, Aftermath { errand, wake, discard })
    }

    #[inline]
    fn act<R>(
        &self,
        inner: &mut Inner<P>,
        now: impl Fn() -> Nanos,
        act: impl FnOnce(&mut Inner<P>, Nanos) -> R,
    ) -> (R, Errand) {
        if let (Some(one_word), Some(position)) =
            (P::ONE_WORD, self.word.lock(&mut inner.published))
        {
            (one_word.ticket)(&mut inner.state).position = position;
        }
        // Read under the lock, so that the order of times is the order of events.
        let now = now();
        inner.pump(now);
        let result = act(inner, now);
        inner.pump(now);
        let errand = inner.arm();
        if self.counters.is_some() {
            inner.publish(&self.word, now);
        }
        (result, errand)
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
        Aftermath { errand, wake, discard }.run();
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
        if let Some(counters) = &self.counters {
            let (granted, refused) = counters.sum();
            stats.granted += granted;
            stats.refused += refused;
        }
        stats
    }

    /// What is left of a line, and what it has done, if nobody waits and nothing is paused. Only for
    /// one without counters, whose word is not in use.
    pub(crate) fn quiet_state(&self, now: Nanos) -> Option<(P::State, Stats)> {
        let inner = self.inner.lock();
        let quiet = inner.queue.len() == 0 && inner.since <= now;
        quiet.then(|| (inner.state.clone(), inner.stats))
    }
}

/// What there is to do after unlocking.
#[must_use]
pub(crate) struct Aftermath {
    errand: Errand,
    wake: SmallVec<[Waker; 4]>,
    /// Dropped last, and without a lock.
    discard: SmallVec<[Waker; 4]>,
}

impl Aftermath {
    pub(crate) fn run(self) {
        self.errand.run();
        wake_each(self.wake);
        drop(self.discard);
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
        if self.queue.len() == 0
            && let Ready::At(ready) = ready
            && self.charge_time(ready, now, now) <= now
        {
            return Ok(Entered::Granted(self.charge(now, now, cost)));
        }
        let deadline = max_wait.map(|wait| now.saturating_add(wait));
        if let Some(deadline) = deadline {
            let (mut due, mut part) = self.projected(now, cost, 0);
            if deadline <= now || deadline < due.earliest() {
                if self.policy.refused(&mut self.state, now, cost) {
                    self.tail = None;
                    (due, part) = self.projected(now, cost, 0);
                }
                return Err(Error::Denied { retry_after: due.wait(now), part });
            }
        }
        let queued = self.queued.saturating_add(cost.permits());
        if self.queue.len() >= self.bounds.waiters || queued > self.bounds.permits {
            let (due, _) = self.projected(now, cost, 0);
            let moves = self.due.map_or_else(|| due.wait(now), |due| Some(due.since(now)));
            return Err(Error::LineFull { retry_after: moves });
        }
        if P::BOUNDED {
            let room =
                self.behind(now, 0, |inner, state, _| inner.policy.room_at(state, now, cost));
            if room > now {
                return Err(Error::LineFull { retry_after: Some(room.since(now)) });
            }
        }
        if self.queue.len() == 0 {
            self.tail = None;
        }
        if let Some(tail) = &mut self.tail {
            tail.join(&self.policy, now.max(self.since), cost);
        }
        self.queued = queued;
        let waiter = Waiter { cost, joined: now, deadline, waker: None, outcome: None };
        let key = self.queue.push_back(waiter);
        self.deadlines.extend(deadline.map(|deadline| (deadline, key)));
        Ok(Entered::Waiting(key))
    }

    /// When a caller is granted who stands behind all who wait, and which of several rules it then
    /// waits for. Where that takes a walk, those who have left may still count; up to `left` of them.
    fn projected(&mut self, now: Nanos, cost: P::Cost, left: usize) -> (Ready, Option<usize>) {
        // Not before the line moves, in case the clock has gone back.
        let moves = Ready::At(self.due.unwrap_or(now));
        let from = now.max(self.since);
        if let Some(due) = self.policy.ready_behind(&self.state, from, self.queued, cost) {
            return (Ready::At(due).and(moves), None);
        }
        self.behind(now, left, |inner, state, ready| {
            let ready = ready.and(moves);
            let from = ready.earliest();
            let Ok(own) = inner.policy.ready_at(state, from, cost) else { return (ready, None) };
            let part = inner.policy.held_by(state, from, cost);
            // Or what those in front wait for.
            let part = part.or(inner.held_by.filter(|_| inner.queue.len() > 0));
            (own.and(ready), part)
        })
    }

    /// Looks at the state behind all who wait, and at when the last of them is charged. The line is
    /// gone through for that if more than `left` have left since it last was, or most were granted
    /// late.
    fn behind<R>(
        &mut self,
        now: Nanos,
        left: usize,
        look: impl FnOnce(&Self, &P::State, Ready) -> R,
    ) -> R {
        let start = Ready::At(now.max(self.since));
        let in_line = self.queue.len();
        if in_line == 0 {
            return look(self, &self.state, start);
        }
        let usable = |tail: &Tail<_>| tail.left <= left && tail.late <= in_line;
        let tail = self.tail.take().filter(usable).unwrap_or_else(|| self.project(now, None));
        let result = look(self, &tail.state, tail.ready.and(start));
        self.tail = Some(tail);
        result
    }

    /// Goes through the line, up to somebody in it or all of it.
    fn project(&self, now: Nanos, until: Option<Key>) -> Tail<P::State> {
        let from = now.max(self.since);
        let mut tail = Tail { state: self.state.clone(), ready: Ready::At(from), left: 0, late: 0 };
        for (_, waiter) in self.queue.iter().take_while(|&(key, _)| Some(key) != until) {
            tail.join(&self.policy, from, waiter.cost);
            if matches!(tail.ready, Ready::NotBefore(_)) && !P::BOUNDED {
                // Nobody can know anything of those behind.
                break;
            }
        }
        tail
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
    fn pump(&mut self, now: Nanos) {
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
        let late = self.due.take().is_some_and(|due| due < now);
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
                let part = self.policy.held_by(&self.state, now, cost);
                self.turn_away(key, now);
                let retry_after = ready.and(Ready::At(at)).wait(now);
                self.take_out(key, Err(Error::Denied { retry_after, part }));
            } else if at > now || matches!(ready, Ready::NotBefore(_)) {
                self.due = matches!(ready, Ready::At(_)).then_some(at);
                self.held_by = self.policy.held_by(&self.state, now, cost);
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

    /// Takes out of the line who is not granted.
    fn turn_away(&mut self, key: Key, now: Nanos) {
        self.stats.refused += 1;
        self.depart(key, now);
        self.unlink(key);
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
        Standing::Waiting(self.next_event())
    }

    /// When something happens next by itself.
    fn next_event(&self) -> Option<Nanos> {
        let deadline = self.deadlines.first().map(|&(deadline, _)| deadline);
        self.due.into_iter().chain(deadline).min()
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

    /// Something happened that moves all who wait.
    fn moved(&mut self, since: Nanos) {
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
        self.moved(now);
    }

    pub(crate) fn pause(&mut self, now: Nanos, duration: Duration) {
        let until = now.saturating_add(duration.min(Nanos::HORIZON));
        self.policy.pause(&mut self.state, now, until);
        self.moved(until);
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

    /// How much is left.
    pub(crate) fn quota(&self, now: Nanos) -> Quota<P::Cost> {
        let remaining = self.available(now);
        Quota { remaining, ..Quota::of(&self.policy, &self.state, now) }
    }

    /// How long somebody in line, or granted already, still has to wait as things stand: at least, if
    /// nobody can know.
    pub(crate) fn delay(&self, key: Key, now: Nanos) -> Duration {
        if self.queue[key].outcome.is_some() {
            return Duration::ZERO;
        }
        let tail = self.project(now, Some(key));
        let from = tail.ready.earliest();
        let ready = self.policy.ready_at(&tail.state, from, self.queue[key].cost);
        ready.map_or(from, Ready::earliest).max(from).since(now)
    }

    /// Sets the alarm for the next grant or deadline, unless it is set for an earlier time anyway:
    /// an alarm too early is harmless, and setting it at each departure would cost more.
    fn arm(&mut self) -> Errand {
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
    fn publish(&mut self, word: &Word, now: Nanos) {
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

impl<S> Tail<S> {
    /// One more is charged as soon as it is ready, at `now` or later.
    fn join<P: Policy<State = S>>(&mut self, policy: &P, now: Nanos, cost: P::Cost) {
        let from = self.ready.earliest().max(now);
        // Who asks for too much now will be turned away.
        if let Ok(ready) = policy.ready_at(&self.state, from, cost) {
            self.ready = self.ready.and(ready).and(Ready::At(from));
            policy.charge(&mut self.state, self.ready.earliest(), cost);
        }
    }
}

impl<P: Policy> Change<P> {
    /// The receipt of what is left. `since`: refunds are reckoned from then on, if that is later than
    /// now.
    pub(crate) fn apply(
        self,
        policy: &P,
        state: &mut P::State,
        now: Nanos,
        since: Nanos,
    ) -> Result<Option<P::Receipt>, ExceedsCapacity> {
        let (less, part, mut receipt) = match self {
            Self::Settle { more, less, part, receipt } => {
                if !more.is_zero() {
                    policy.overdraw(state, now, more)?;
                    policy.charge(state, now, more);
                }
                (less, part, receipt)
            }
            Self::Refund { part, receipt } => (P::Cost::default(), part, receipt),
        };
        if let Some(receipt) = &mut receipt
            && !part.is_zero()
        {
            *receipt = policy.refund(state, since.max(now), part, *receipt);
        }
        if !less.is_zero() {
            policy.release(state, now, less);
        }
        Ok(receipt)
    }
}
