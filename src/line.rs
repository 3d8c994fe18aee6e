//! One limiter: its state and its queue under a mutex, and a word beside it for calls that need not wait.
//!
//! The way of a call, and who charges it:
//!
//! ```text
//! Caller::decide ── Line::decide ─┬─ a rate whose word is open: Word::attempt ────────── granted or refused
//!                                 └─ no rate: inner::decide, under the mutex ─────────── granted or refused
//!      │ neither: callers wait, a pause, a rate whose word is locked or absent
//! Line::enter ── Inner::enter ────┬─ no waiter ahead, by the state ───────────────────── granted or refused
//!                                 └─ WaitQueue::join; the task sleeps
//!      │ any use of the mutex, and the clock's alarm for the next grant (Line::on_alarm)
//! Inner::pump ── grant_due ────────  the head, as of the time at which it was ready ──── granted
//!      │ WaitQueue::wake_after_unlock
//! Line::poll ── take_outcome
//! ```
//!
//! A caller is charged when it is granted, not when it arrives. So leaving the queue is free and moves all later callers up, a
//! change of rate or a pause re-times the whole queue, and small requests do not starve a big one. No caller depends on another
//! one being polled: each [`with_lock`](Line::with_lock) grants all that is due ([`Inner::pump`]), and so does the clock's
//! alarm when the next grant is due. Wakers are called after the mutex is released.

mod inner;
#[cfg(all(test, tollgate_loom))]
mod loom;
#[cfg(test)]
mod testing;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod word;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::{AfterUnlock, Clock, Monotone, OnAlarm};
use crate::error::{Error, ExceedsCapacity};
use crate::observe::Observer;
use crate::policy::schedule::Attempt;
use crate::policy::{Cost, Policy};
use crate::stats::{Counters, Stats};
use crate::sync::Mutex;
use crate::units::Nanos;
use crate::wait_queue::{Ask, Bounds, End, WaiterId};
pub(crate) use inner::{Caller, Change, Charge, Decided, Inner, Outcome, decide, is_too_late};
use word::Word;

/// One limiter: a word for calls that need not wait, if its state fits one, a mutex for the rest, the clock of both, and
/// the observer. Clones of a limiter share one.
// In this order a decision of several rules takes the same time wherever it is allocated; in others up to 6 % more.
#[repr(C)]
pub(crate) struct Line<P: Policy> {
    pub(crate) clock: Clock,
    /// `None` if the rule is no rate, or the limiter is a key's. It stays locked for a bucket that is refilled in steps.
    word: Option<Box<Word>>,
    /// Counts what the word decided. Not in the cache line of the word, which other processors read.
    counters: Counters,
    pub(crate) observer: Arc<Observer>,
    inner: Mutex<Inner<P>>,
}

impl<P: Policy> Line<P> {
    /// A line with `state`, or a new one, which decides without its mutex if the policy allows it. A key has a state: callers
    /// will wait there, so its mutex decides all calls.
    pub(crate) fn new(
        policy: P,
        state: Option<P::State>,
        (clock, observer): (Clock, Arc<Observer>),
        bounds: Bounds,
    ) -> Arc<Self> {
        let time = Monotone::new(clock.now());
        let has_word = P::ONE_RATE.is_some() && state.is_none();
        let word = has_word.then(|| Box::new(Word::locked()));
        let state = state.unwrap_or_else(|| policy.start(time.latest()));
        let mut inner = Inner::new(policy, state, time);
        if bounds != Bounds::NONE {
            inner.waiting().bounds = bounds;
        }
        if let Some(word) = &word {
            inner.publish(word, inner.time.latest());
        }
        let (counters, inner) = (Counters::new(), Mutex::new(inner));
        Arc::new(Self { clock, word, counters, inner, observer })
    }

    /// The memory that a limiter takes as long as one thread uses it and no caller waits.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn bytes() -> usize {
        let counts = 2 * size_of::<usize>();
        let word = if P::ONE_RATE.is_some() { size_of::<Word>() } else { 0 };
        counts.max(align_of::<Self>()) + size_of::<Self>() + word
    }
}

/// What callers ask.
impl<P: Policy> Line<P> {
    /// Decides a call at once if possible: by the word if the rule is a rate and the word is open, under the mutex if it is no
    /// rate. `None`: not decided here; [`enter`](Self::enter) does, for example because this caller or others have to wait.
    // Inlined, so that the answer stays in registers: a grant that is dropped at once is then never built.
    #[inline(always)]
    pub(crate) fn decide(&self, cost: P::Cost, max_wait: Option<Duration>) -> Decided<P> {
        if cost.is_zero() {
            return None;
        }
        let Some(one) = P::ONE_RATE else {
            return self.decide_by_mutex(cost, max_wait);
        };
        let word = self.word.as_ref()?;
        let now = self.clock.now();
        match word.attempt(now, cost.permits()) {
            Attempt::Granted(receipt) => {
                self.counters.count(true);
                Some(Ok(Charge::at_once(Some((one.receipt)(receipt)))))
            }
            Attempt::ReadyAt(due) => is_too_late(max_wait, due, now).then(|| {
                self.counters.count(false);
                Err(Error::Denied { retry_after: Some(due.since(now)), part: None })
            }),
            Attempt::Undecided => None,
        }
    }

    /// While no caller waits and nothing is paused, [`with_lock`](Self::with_lock) would have nothing to do besides the
    /// decision.
    #[inline(always)]
    fn decide_by_mutex(&self, cost: P::Cost, max_wait: Option<Duration>) -> Decided<P> {
        // Before the lock: to read the clock under it would keep other callers waiting.
        let read = P::TIMED.then(|| self.clock.now());
        let inner = &mut *self.inner.lock();
        let now = read.map_or(inner.time.latest(), |read| inner.time.read(read));
        if !inner.is_quiet(now) {
            return None;
        }
        let decided = decide(&inner.policy, &mut inner.state, now, cost, max_wait)?;
        if decided.is_ok() {
            inner.charges_from = now;
            inner.stats.granted += 1;
        } else {
            inner.stats.refused += 1;
        }
        Some(decided)
    }

    /// Grants, refuses, or puts into the queue a call that [`decide`](Self::decide) has left open.
    pub(crate) fn enter(
        self: &Arc<Self>,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<Caller<P>, Error> {
        self.with_lock(|inner, now| {
            let entered = inner.enter(now, ask, waker);
            // A call for nothing is not counted.
            inner.stats.refused += u64::from(entered.is_err() && !ask.cost.is_zero());
            entered
        })
    }

    /// Enters with no time to wait: the caller is granted or refused at once.
    // Not a grant, for the reason given at `Caller::poll_in_line`.
    #[inline(never)]
    pub(crate) fn enter_now(self: &Arc<Self>, cost: P::Cost) -> Result<Charge<P::Receipt>, Error> {
        match self.enter(&Ask::new(cost, Some(Duration::ZERO)), None)? {
            Caller::Granted(charge) => Ok(charge),
            _ => unreachable!("a caller with no time does not wait"),
        }
    }

    /// The outcome of a waiter, which is removed then. While there is none, keeps `waker` to be called, and tells when the
    /// next event is, if that is known. Also wakes the callers that were granted with this one.
    fn poll(self: &Arc<Self>, id: WaiterId, waker: &Waker) -> Result<Outcome<P>, Option<Nanos>> {
        self.clock.wake_others();
        // Most are polled when they have been granted: nothing else is to be done then.
        let outcome = self.inner.lock().take_outcome(id);
        outcome.map_or_else(|| self.with_lock(|inner, _| inner.poll(id, waker)), Ok)
    }

    /// A waiting caller leaves. Also wakes the callers that were granted with this one.
    pub(crate) fn leave(self: &Arc<Self>, id: WaiterId) {
        self.clock.wake_others();
        self.with_lock(|inner, now| inner.leave(id, now));
    }

    /// Called when a grant is dropped.
    #[inline(always)]
    pub(crate) fn release(self: &Arc<Self>, cost: P::Cost) {
        let read = P::RELEASE_TIMED.then(|| self.clock.now());
        if !(P::ONE_RATE.is_none() && self.inner.lock().release_at_once(read, cost)) {
            // Without a shortfall it cannot fail.
            let _ = self.change(&Change::back(P::Cost::default(), cost, None));
        }
    }

    /// As `Inner::change`.
    pub(crate) fn change(
        self: &Arc<Self>,
        change: &Change<P>,
    ) -> Result<Option<P::Receipt>, ExceedsCapacity> {
        self.with_lock(|inner, now| inner.change(now, change))
    }

    /// As `Inner::end`.
    pub(crate) fn end(self: &Arc<Self>, end: End<'_>) -> bool {
        self.clock.ask(|| self.with_lock(|inner, now| inner.end(now, end)))
    }
}

/// The mutex.
impl<P: Policy> Line<P> {
    /// Locks, grants what is due, runs `act`, grants what is due after it, sets the alarm, unlocks and wakes:
    /// the one way to change more than [`decide_by_mutex`](Self::decide_by_mutex) and a release do.
    pub(crate) fn with_lock<R>(self: &Arc<Self>, act: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> R {
        let mut act = (Some(act), None);
        self.lock_and_wake(&mut act);
        act.1.unwrap_or_else(|| unreachable!("it was run"))
    }

    // Not generic: it is the longest part of whatever is done.
    #[inline(never)]
    fn lock_and_wake(self: &Arc<Self>, act: &mut dyn Act<P>) {
        self.lock_for(act).run();
    }

    /// As [`with_lock`](Self::with_lock), for callers that hold a lock of their own: they run what is left to do after
    /// both locks are released.
    fn lock_for(self: &Arc<Self>, act: &mut dyn Act<P>) -> AfterUnlock {
        let mut inner = self.inner.lock();
        let now = self.begin(&mut inner);
        act.run(&mut inner, now);
        self.finish(&mut inner, now)
    }

    /// Takes the state over from the word, and grants what is due.
    #[inline(never)]
    fn begin(&self, inner: &mut Inner<P>) -> Nanos {
        let now = |time: &mut Monotone| time.read(self.clock.now());
        let now = match &self.word {
            // While callers wait, it stays locked.
            Some(word) if inner.queue_len() == 0 => inner.take_over(word, now),
            _ => now(&mut inner.time),
        };
        inner.pump(now);
        now
    }

    /// Grants what is due, lets the word decide again, and sets the alarm for the next grant or deadline.
    #[inline(never)]
    fn finish(self: &Arc<Self>, inner: &mut Inner<P>, now: Nanos) -> AfterUnlock {
        inner.pump(now);
        if inner.is_closed() && inner.is_drained() {
            inner.waiting().queue.wake_drained();
        }
        if let Some(word) = &self.word {
            inner.publish(word, now);
        }
        let Some(waiting) = &mut *inner.waiting else { return AfterUnlock::default() };
        let alarm = || self.clock.alarm(Arc::<Self>::downgrade(self));
        waiting.queue.arm(waiting.next_event(), now, alarm);
        waiting.queue.after_unlock()
    }

    /// Reads under the mutex. Changes nothing, except that waiting callers get what is due. While no caller
    /// waits, the word goes on deciding calls.
    pub(crate) fn look<R>(self: &Arc<Self>, look: impl FnOnce(&Inner<P>, Nanos) -> R) -> R {
        let mut inner = self.inner.lock();
        if inner.queue_len() > 0 {
            drop(inner);
            return self.with_lock(|inner, now| look(inner, now));
        }
        if let (Some(one), Some(word)) = (P::ONE_RATE, &self.word)
            && let Some(position) = word.position()
        {
            (one.state_mut)(&mut inner.state).position = position;
        }
        let now = inner.time.read(self.clock.now());
        look(&inner, now)
    }

    pub(crate) fn stats(self: &Arc<Self>) -> Stats {
        let mut stats = self.look(|inner, _| inner.stats.clone());
        let (granted, refused) = self.counters.sum();
        stats.granted += granted;
        stats.refused += refused;
        stats
    }

    pub(crate) fn policy(&self) -> P {
        self.inner.lock().policy.clone()
    }

    /// Replaces the policy by one that is made of it. Returns what is left to do, as the caller may hold a lock.
    pub(crate) fn set_policy(self: &Arc<Self>, of: impl FnOnce(&P) -> P) -> AfterUnlock {
        let act = |inner: &mut Inner<P>, now| inner.set_policy(now, of(&inner.policy));
        self.lock_for(&mut (Some(act), None))
    }

    /// The state and the counts of a line, if no caller waits and nothing is paused. Only for the line of a key.
    pub(crate) fn quiet_state(&self, now: Nanos) -> Option<(P::State, Stats)> {
        let inner = self.inner.lock();
        inner.is_quiet(now).then(|| (inner.state.clone(), inner.stats.clone()))
    }
}

/// A function to run under the mutex, and its result. Compiled once, and an `FnMut` twice: for callers that own one as well.
trait Act<P: Policy> {
    fn run(&mut self, inner: &mut Inner<P>, now: Nanos);
}

impl<P: Policy, R, F: FnOnce(&mut Inner<P>, Nanos) -> R> Act<P> for (Option<F>, Option<R>) {
    fn run(&mut self, inner: &mut Inner<P>, now: Nanos) {
        self.1 = self.0.take().map(|act| act(inner, now));
    }
}

impl<P: Policy> OnAlarm for Line<P> {
    fn on_alarm(self: Arc<Self>, after: &mut AfterUnlock) -> usize {
        let mut inner = self.inner.lock();
        inner.waiting().queue.disarm();
        let now = self.begin(&mut inner);
        let (waiting, after_unlock) = (inner.queue_len(), self.finish(&mut inner, now));
        drop(inner);
        after_unlock.run_without_waking(after);
        waiting
    }

    #[cfg(feature = "tokio")]
    fn wake_all(self: Arc<Self>) {
        let mut inner = self.inner.lock();
        let queue = &mut inner.waiting().queue;
        queue.forget_alarm();
        let after_unlock = queue.after_unlock();
        drop(inner);
        after_unlock.run();
    }
}

/// The way of a caller.
impl<P: Policy> Caller<P> {
    /// Decides a new call at once if possible.
    #[inline(always)]
    pub(crate) fn decide(&mut self, line: &Line<P>, ask: &Ask<P::Cost>) -> Decided<P> {
        let is_new = matches!(self, Self::Outside);
        let decided = if is_new { line.decide(ask.cost, ask.max_wait) } else { None }?;
        *self = Self::Over;
        Some(decided)
    }

    /// Is granted, or joins the queue, unless it is there.
    pub(crate) fn enter(
        &mut self,
        line: &Arc<Line<P>>,
        ask: &Ask<P::Cost>,
        waker: Option<&Waker>,
    ) -> Result<(), Error> {
        if matches!(self, Self::Outside) {
            *self = Self::Over;
            *self = line.enter(ask, waker)?;
        }
        Ok(())
    }

    /// Waits in the queue.
    // Returns a charge and not a grant: a grant would be returned through memory, and would force the calls that
    // are decided at once through memory too.
    #[inline(never)]
    pub(crate) fn poll_in_line(
        &mut self,
        line: &Arc<Line<P>>,
        ask: &Ask<P::Cost>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Charge<P::Receipt>, Error>> {
        if matches!(self, Self::Outside) {
            self.enter(line, ask, Some(context.waker()))?;
            if matches!(self, Self::Waiting(_)) && !line.clock.advances_by_itself() {
                return Poll::Pending;
            }
        }
        while let Self::Waiting(id) = *self {
            match line.poll(id, context.waker()) {
                Ok(outcome) => {
                    *self = Self::Over;
                    *self = Self::Granted(outcome?);
                }
                // A clock that advances by itself skips to the time at which the queue moves.
                Err(Some(due)) if line.clock.skip_to(due) => {}
                Err(_) => return Poll::Pending,
            }
        }
        let Self::Granted(charge) = self else { panic!("`Acquire` polled after it was ready") };
        if charge.waited > 0 {
            // This caller keeps the charge until it is reported, as a listener may panic.
            line.observer.granted(Duration::from_nanos(charge.waited), charge.limited_by);
        }
        let charge = charge.take();
        *self = Self::Over;
        Poll::Ready(Ok(charge))
    }

    /// Leaves the queue, or gives back a grant that was not taken.
    #[inline(always)]
    pub(crate) fn leave(&mut self, line: &Arc<Line<P>>, cost: P::Cost) {
        if !matches!(self, Self::Outside | Self::Over) {
            self.leave_line(line, cost);
        }
    }

    #[inline(never)]
    fn leave_line(&mut self, line: &Arc<Line<P>>, cost: P::Cost) {
        match self {
            Self::Outside | Self::Over => {}
            Self::Waiting(id) => line.leave(*id),
            Self::Granted(charge) => {
                line.with_lock(|inner, now| inner.give_up(now, cost, charge.take()));
            }
        }
    }

    pub(crate) fn delay(&self, line: &Arc<Line<P>>) -> Duration {
        match *self {
            Self::Waiting(id) => line.with_lock(|inner, now| inner.delay(id, now)),
            _ => Duration::ZERO,
        }
    }
}
