//! The token bucket.
//!
//! A bucket holds up to `capacity` tokens and is filled at a steady rate. A request takes one token per
//! permit, and waits until the bucket holds all of them. A new bucket is full.
//!
//! Let `e` be the time at which the bucket was, or would have been, empty. `n` permits are ready at
//! `e + n / rate`; charging `n` at `t` sets `e = max(e, t - capacity / rate) + n / rate`. With
//! `refill_every`, all these times are rounded down to the last step.
//!
//! Source: J. Turner, "New directions in communications (or which way to the information age?)",
//! IEEE Communications Magazine 24(10), 1986, where it is a counter that is stepped down. Units:
//! nanoseconds and fractions of permits, see [`schedule`](super::schedule); fractions of a token are
//! carried, so that no error accumulates. Grants are rounded up to whole nanoseconds.

use super::schedule::{RateReceipt, RateState, Schedule};
use super::{Hooks, Policy, Rated, Ready, TWO_TICKS, shows};
use crate::error::ExceedsCapacity;
use crate::part::Kind;
use crate::policy::lock_free::LockFree;
use crate::policy::packed::{Attempt, Packed};
use crate::units::{Nanos, Rate, saturating_nanos};
use std::time::Duration;

/// Up to `capacity` tokens, filled at a steady rate; a request waits until the bucket holds all its tokens.
///
/// For quotas that are stated as a bucket: "40 calls at once, 2 more each second". In any span of time `t`
/// at most `capacity + rate x (t + catch_up)` permits are granted, and `rate x period` more with
/// [`refill_every`](Self::refill_every). A request for more than the capacity is an error at once. Unlike
/// [`SmoothBursty`](crate::SmoothBursty), this policy grants nothing on credit.
///
/// A bucket holds at most the tokens of [146 years](Nanos::HORIZON). A bucket with a capacity of zero grants
/// nothing.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
///
/// let policy = TokenBucket::new(Rate::per_second(2.0), 40);
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// assert_eq!(limiter.blocking_acquire(40)?.waited().as_millis(), 0);
/// assert_eq!(limiter.blocking_acquire(3)?.waited().as_millis(), 1500);
/// assert!(matches!(limiter.try_acquire(41), Err(tollgate::Error::ExceedsCapacity(_))));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    pub(crate) rate: Rate,
    pub(crate) capacity: u32,
    /// The tokens in a new bucket.
    pub(crate) initial: u32,
    /// The time between two steps; zero if tokens arrive continuously.
    pub(crate) period: u64,
    catch_up: Duration,
    pub(crate) schedule: Schedule,
}

shows!(TokenBucket: |policy| rate = policy.rate, capacity = policy.capacity, initial = policy.initial, refill_every = Duration::from_nanos(policy.period), catch_up = policy.catch_up);

impl TokenBucket {
    /// A bucket that starts full.
    #[must_use]
    pub fn new(rate: Rate, capacity: u32) -> Self {
        let schedule = Schedule::bucket(rate, capacity);
        Self { rate, capacity, initial: capacity, period: 0, catch_up: TWO_TICKS, schedule }
    }

    /// Sets the number of tokens in a new bucket, at most its capacity. A program that is restarted often should
    /// start with zero.
    #[must_use]
    pub fn initial(self, tokens: u32) -> Self {
        Self { initial: tokens, ..self }
    }

    /// Adds tokens in steps: after each `period`, all tokens that the rate yields in it. Steps are counted from
    /// the creation of the limiter; in a [`KeyedRateLimiter`](crate::KeyedRateLimiter), from the origin of its
    /// clock, for all keys. Fractions of a token are carried to the next step.
    ///
    /// A change of the rate rounds a fraction down by less than arrives in a nanosecond. A token that would be
    /// complete exactly at a step may then come with the next one. After a change of the period the bucket is as
    /// if it had always had the new steps: tokens that they would not have brought yet come with the next one.
    ///
    /// # Panics
    ///
    /// If the period is zero or longer than the [horizon](Nanos::HORIZON).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{ManualClock, Rate, RateLimiter, TokenBucket};
    ///
    /// // Three tokens, and one more every two seconds.
    /// let two_seconds = Duration::from_secs(2);
    /// let policy = TokenBucket::new(Rate::every(two_seconds), 3).refill_every(two_seconds);
    /// let clock = ManualClock::new();
    /// let limiter = RateLimiter::with_clock(policy, clock.clone());
    /// limiter.try_acquire(3)?;
    /// clock.advance(Duration::from_millis(1_999));
    /// assert_eq!(limiter.available(), 0);
    /// clock.advance(Duration::from_millis(1));
    /// assert_eq!(limiter.available(), 1);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn refill_every(self, period: Duration) -> Self {
        super::check_span(period, "a refill period");
        Self { period: saturating_nanos(period), ..self }
    }

    /// The maximum wake-up lateness that is credited back, 2 ms by default. It matters only if the capacity is
    /// less than the tokens that arrive in this time.
    #[must_use]
    pub fn with_catch_up(self, catch_up: Duration) -> Self {
        Self { catch_up, ..self }
    }

    /// The last step before `now`, or `now` if there are no steps.
    #[inline]
    fn last_step(&self, state: &TokenBucketState, now: Nanos) -> Nanos {
        if self.period == 0 { now } else { self.step_before(state, now) }
    }

    /// Not inlined, because few buckets have steps.
    #[inline(never)]
    fn step_before(&self, state: &TokenBucketState, now: Nanos) -> Nanos {
        let past = now.get().saturating_sub(state.origin.get()) % self.period;
        Nanos::new(now.get() - past.min(now.get()))
    }

    /// The first step at which the permit clock has reached its position at `time`.
    fn next_step(&self, state: &TokenBucketState, time: Nanos) -> Nanos {
        let last = self.last_step(state, time);
        if last == time { time } else { Nanos::new(last.get().saturating_add(self.period)) }
    }

    fn with_tokens(&self, mut state: RateState, tokens: u32) -> RateState {
        state.position -= self.schedule.units(u64::from(tokens)).min(self.schedule.capacity());
        state
    }
}

/// The state of a [`TokenBucket`] limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucketState {
    state: RateState,
    /// The time from which steps are counted.
    origin: Nanos,
}

impl Policy for TokenBucket {
    type Cost = u32;
    type State = TokenBucketState;
    type Receipt = RateReceipt;

    const HOOKS: Hooks<Self> = Hooks {
        kind: |_| Some(Kind::TokenBucket),
        rate: |policy| Some(policy.rate),
        small: true,
        ready_now: |policy, state, now, n| {
            policy.schedule.ready_now(&state.state, policy.last_step(state, now), n)
        },
        ready_behind: |policy, state, now, ahead, n| {
            // With steps: a waiter ahead that cannot be granted before a step loses time if the bucket is full by
            // then.
            let has_steps = policy.period != 0;
            (!has_steps).then(|| policy.schedule.ready_behind(&state.state, now, ahead, n))
        },
        charge_alone: |policy, state, at, n| {
            let at = policy.last_step(state, at);
            policy.schedule.charge_alone(&mut state.state, at, u64::from(n)).1
        },
        forget_receipts: |_, state| state.state.forget_receipts(),
        lock_free: Some(LockFree {
            schedule: |policy| (policy.period == 0).then_some(policy.schedule),
            state: |state| &mut state.state,
            receipt: |receipt| receipt,
        }),
        // Without steps their origin means nothing.
        packed: Some(Packed {
            pack: |policy, state, now| {
                let is_plain = policy.period == 0 || state.origin == Nanos::ZERO;
                policy.schedule.pack(&state.state, now).filter(|_| is_plain)
            },
            unpack: |policy, word| {
                let state = policy.schedule.unpack(word);
                TokenBucketState { state, origin: Nanos::ZERO }
            },
            attempt: |policy, word, now, n| match policy.period {
                0 => policy.schedule.attempt_packed(word, now, n),
                _ => Attempt::Undecided,
            },
        }),
        ..Hooks::none()
    };

    fn start(&self, now: Nanos) -> TokenBucketState {
        let state = self.with_tokens(self.schedule.empty(now), self.initial);
        TokenBucketState { state, origin: now }
    }

    fn idle(&self, now: Nanos) -> TokenBucketState {
        let mut state = TokenBucketState { state: RateState::new(0), origin: Nanos::ZERO };
        state.state = self.schedule.full(self.last_step(&state, now));
        state
    }

    fn idle_at(&self, state: &TokenBucketState) -> Option<Nanos> {
        Some(self.next_step(state, self.schedule.full_at(&state.state)))
    }

    fn ready_at(
        &self,
        state: &TokenBucketState,
        _: Nanos,
        n: u32,
    ) -> Result<Ready, ExceedsCapacity> {
        let ready = self.schedule.ready_at(&state.state, n)?;
        Ok(Ready::At(self.next_step(state, ready.earliest())))
    }

    fn check_debt(
        &self,
        state: &TokenBucketState,
        now: Nanos,
        n: u32,
    ) -> Result<(), ExceedsCapacity> {
        self.schedule.check_debt(&state.state, now, n)
    }

    #[inline(always)]
    fn charge(&self, state: &mut TokenBucketState, at: Nanos, n: u32) -> RateReceipt {
        let at = self.last_step(state, at);
        self.schedule.charge(&mut state.state, at, u64::from(n))
    }

    fn refund(
        &self,
        state: &mut TokenBucketState,
        now: Nanos,
        part: u32,
        receipt: RateReceipt,
    ) -> RateReceipt {
        let now = self.last_step(state, now);
        self.schedule.refund(&mut state.state, now, u64::from(part), receipt)
    }

    fn pause(&self, state: &mut TokenBucketState, _: Nanos, until: Nanos) {
        self.schedule.pause(&mut state.state, until);
    }

    /// The number of tokens that were stored at the last step does not change, or where the steps change at the
    /// earlier one of the last steps. A step that has begun yields tokens at the rate in force when it ends.
    fn migrate(&self, old: &Self, state: &mut TokenBucketState, now: Nanos) {
        let last = self.last_step(state, now).min(old.last_step(state, now));
        self.schedule.migrate_number(&old.schedule, &mut state.state, last);
    }

    fn available(&self, state: &TokenBucketState, now: Nanos) -> u32 {
        self.schedule.stored(state.state.position, self.last_step(state, now))
    }

    fn window(&self, permits: u32) -> Option<Duration> {
        super::time_at(self.rate, permits)
    }

    fn catch_up(&self) -> Duration {
        self.catch_up
    }
}

impl Rated for TokenBucket {
    fn rate(&self) -> Rate {
        self.rate
    }

    fn with_rate(self, rate: Rate) -> Self {
        Self { rate, schedule: Schedule::bucket(rate, self.capacity), ..self }
    }
}
