//! A limiter's decisions and its queue of waiting callers.
//!
//! A caller is charged when it is granted, not when it arrives. So leaving the queue is free and moves all
//! later callers up, a change of rate or a pause re-times the whole queue, and small requests do not starve a
//! big one.
//!
//! No caller depends on another one being polled: each use of the line grants all that is due
//! ([`Inner::pump`]), and the clock's alarm uses it when the next grant is due. Wakers are called after the
//! lock is released.

mod atomic_state;
mod charge;
mod close;
mod decide;
mod grants;
mod inner;
#[cfg(all(test, tollgate_loom))]
mod loom;
mod pause;
mod projection;
mod recorded;
mod settle;
#[cfg(test)]
mod testing;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;
mod waiting;

use std::sync::{Arc, Weak};
use std::task::Waker;

use crate::clock::{Clock, Monotone, OnAlarm};
use crate::observe::Observer;
use crate::policy::{Policy, Rated};
use crate::stats::{Counters, Stats, Waits};
use crate::sync::Mutex;
use crate::units::{Nanos, Rate};
use crate::wait_queue::{AfterUnlock, Bounds};
use atomic_state::AtomicState;
pub(crate) use charge::{Change, Charge};
pub(crate) use inner::{Admission, Decided, Inner, WaitStatus, decide};

/// One limiter: a word for calls that need not wait, if its state fits one, a mutex for the rest, the clock of both, and
/// the observer. Clones of a limiter share one.
pub(crate) struct Line<P: Policy> {
    pub(crate) clock: Clock,
    /// `None` if the mutex decides all calls.
    word: Option<Box<AtomicState>>,
    /// Counts what the word decided. Not in the cache line of the word, which other processors read.
    counters: Counters,
    inner: Mutex<Inner<P>>,
    pub(crate) observer: Arc<Observer>,
    this: Weak<Self>,
}

impl<P: Policy> Line<P> {
    /// A line that decides without its mutex if the policy allows it.
    pub(crate) fn new(
        policy: P,
        clock: Clock,
        observer: Arc<Observer>,
        bounds: Bounds,
    ) -> Arc<Self> {
        let time = Monotone::new(clock.now());
        let state = policy.start(time.latest());
        let mut inner = Inner::new(policy, state, time);
        if bounds != Bounds::NONE {
            inner.set_bounds(bounds);
        }
        let word = P::ONE_RATE.is_some().then(|| {
            let word = Box::new(AtomicState::locked());
            inner.publish(&word, inner.time.latest());
            word
        });
        Self::around(inner, word, clock, observer)
    }

    /// The line of a key, in which callers will wait: its mutex decides all calls.
    pub(crate) fn of_key(
        policy: P,
        state: P::State,
        (clock, observer): (&Clock, &Arc<Observer>),
        bounds: Bounds,
    ) -> Arc<Self> {
        let mut inner = Inner::new(policy, state, Monotone::new(clock.now()));
        inner.set_bounds(bounds);
        Self::around(inner, None, clock.clone(), Arc::clone(observer))
    }

    fn around(
        inner: Inner<P>,
        word: Option<Box<AtomicState>>,
        clock: Clock,
        observer: Arc<Observer>,
    ) -> Arc<Self> {
        let (counters, inner) = (Counters::new(), Mutex::new(inner));
        Arc::new_cyclic(|this| Self { clock, word, counters, inner, observer, this: this.clone() })
    }

    /// The memory that a limiter takes as long as one thread uses it and no caller waits.
    #[cfg(all(test, not(tollgate_loom)))]
    pub(crate) fn bytes() -> usize {
        let counts = 2 * size_of::<usize>();
        let word = if P::ONE_RATE.is_some() { size_of::<AtomicState>() } else { 0 };
        counts.max(align_of::<Self>()) + size_of::<Self>() + word
    }

    /// Locks, grants what is due, runs `act`, grants what is due after it, sets the alarm, unlocks and wakes:
    /// the one way to change something that takes longer.
    pub(crate) fn with_lock<R>(&self, act: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> R {
        let (result, after_unlock) = self.locked(act);
        after_unlock.run();
        result
    }

    /// As [`with_lock`](Self::with_lock), for callers that hold a lock of their own: they run what is left to do after
    /// both locks are released.
    #[inline]
    fn locked<R>(&self, act: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> (R, AfterUnlock) {
        let mut inner = self.inner.lock();
        let now = self.begin(&mut inner);
        // `act` may change when the next waiter is granted.
        inner.due_may_change();
        let result = act(&mut inner, now);
        (result, self.finish(&mut inner, now))
    }

    /// Takes the state over from the word, and grants what is due.
    // `begin` and `finish` are not inlined, as they are the longest part of whatever is done between them.
    #[inline(never)]
    fn begin(&self, inner: &mut Inner<P>) -> Nanos {
        // While callers wait, it stays locked.
        let word = self.word.as_ref().filter(|_| inner.queue_len() == 0);
        let positions = word.and_then(|word| word.lock(&mut inner.published));
        // Read under the lock, so that the order of times is the order of events.
        let now = inner.time.read(self.clock.now());
        if let Some(positions) = positions {
            inner.take_over(positions, now);
        }
        inner.pump(now);
        now
    }

    /// Grants what is due, sets the alarm, and lets the word decide again.
    #[inline(never)]
    fn finish(&self, inner: &mut Inner<P>, now: Nanos) -> AfterUnlock {
        inner.pump(now);
        inner.wake_if_drained();
        let after_unlock = inner.arm(now, || self.clock.alarm(self.this.clone()));
        if let Some(word) = &self.word {
            inner.publish(word, now);
        }
        after_unlock
    }

    /// The alarm went off. Returns how many go on waiting.
    fn sound(&self) -> (usize, AfterUnlock) {
        let mut inner = self.inner.lock();
        inner.disarm();
        let now = self.begin(&mut inner);
        (inner.queue_len(), self.finish(&mut inner, now))
    }

    /// Reads under the mutex. Changes nothing, except that waiting callers get what is due. While no caller
    /// waits, the word goes on deciding calls.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Inner<P>, Nanos) -> R) -> R {
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

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = self.look(|inner, _| inner.stats);
        let (granted, refused) = self.counters.sum();
        stats.granted += granted;
        stats.refused += refused;
        stats
    }

    pub(crate) fn waits(&self) -> Waits {
        self.observer.waits()
    }

    pub(crate) fn policy(&self) -> P {
        self.inner.lock().policy.clone()
    }

    /// As `RateLimiter::set_policy`, for a caller that holds a lock.
    pub(crate) fn set_policy_quietly(&self, policy: P) -> AfterUnlock {
        self.locked(|inner, now| inner.set_policy(now, policy)).1
    }

    /// As [`set_policy_quietly`](Self::set_policy_quietly), with the policy in force at another rate.
    pub(crate) fn set_rate_quietly(&self, rate: Rate) -> AfterUnlock
    where
        P: Rated,
    {
        let set = |inner: &mut Inner<P>, now| {
            let policy = inner.policy().clone().with_rate(rate);
            inner.set_policy(now, policy);
        };
        self.locked(set).1
    }

    /// The state and the counts of a line, if no caller waits and nothing is paused. Only for the line
    /// [of a key](Self::of_key).
    pub(crate) fn quiet_state(&self, now: Nanos) -> Option<(P::State, Stats)> {
        let inner = self.inner.lock();
        inner.is_quiet(now).then(|| (inner.state.clone(), inner.stats))
    }
}

impl<P: Policy> OnAlarm for Line<P> {
    fn on_alarm(&self) {
        self.sound().1.run();
    }

    fn on_round(&self, wake: &mut Vec<Waker>) -> usize {
        let (waiting, after_unlock) = self.sound();
        after_unlock.run_without_waking(wake);
        waiting
    }

    fn wake_all(&self) {
        let after_unlock = self.inner.lock().wake_all();
        after_unlock.run();
    }
}
