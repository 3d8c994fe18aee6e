//! The token bucket: it holds up to `capacity` tokens and is filled at a steady rate.
//!
//! Let `e` be the time at which the bucket was, or would have been, empty. `n` permits are ready at `e + n / rate`;
//! charging `n` at `t` sets `e = max(e, t - capacity / rate) + n / rate`. With `refill_every`, all these times are
//! rounded down to the last step.
//!
//! Source: J. Turner, "New directions in communications (or which way to the information age?)", IEEE Communications
//! Magazine 24(10), 1986, where it is a counter that is stepped down. Units: see [`schedule`](super::schedule).

use super::rated::*;

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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    pub(crate) rate: Rate,
    pub(crate) capacity: u32,
    /// The tokens in a new bucket.
    pub(crate) initial: u32,
    pub(crate) catch_up: Duration,
    pub(crate) schedule: Schedule,
}

impl TokenBucket {
    /// A bucket that starts full.
    #[must_use]
    pub fn new(rate: Rate, capacity: u32) -> Self {
        let schedule = Schedule::bucket(rate, capacity);
        Self { rate, capacity, initial: capacity, catch_up: TWO_TICKS, schedule }
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
        check_span(period, "a refill period");
        Self { schedule: Schedule { period: saturating_nanos(period), ..self.schedule }, ..self }
    }
}

scheduled! {
    TokenBucket,
    schedule: |it| Schedule { period: it.schedule.period, ..Schedule::bucket(it.rate, it.capacity) },
    start: |bucket, now| {
        let stored = bucket.schedule.units(u64::from(bucket.initial));
        let mut state = bucket.schedule.empty(now);
        state.position -= stored.min(bucket.schedule.burst.into());
        state.origin = now;
        state
    },
    migrate: |bucket, old, state, now| bucket.schedule.migrate_number(&old.schedule, state, now)
}
