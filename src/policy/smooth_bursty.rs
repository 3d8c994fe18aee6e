//! Guava's `SmoothBursty`: a request waits until the permits taken *before* it are paid for, never for its own.
//!
//! Let `v` be the virtual time of the next free ticket. A request is ready at `v`; charging `n` at `t` sets
//! `v = max(v, t - max_burst) + n / rate`. If `v` lies in the past, the difference is the stored time.
//!
//! Source: Guava, `com.google.common.util.concurrent.SmoothRateLimiter`; `tests/guava/traces.rs` replays its results.
//! Units: see [`schedule`](super::schedule).

use super::rated::*;

/// A steady rate; up to [`max_burst`](SmoothBursty::max_burst) of unused time is stored.
///
/// This is the policy for calling an API with a quota. **The first request is always granted at once,
/// however large**, and the next one waits for it: after `acquire(10)` at 5 per second the next caller waits
/// two seconds. In any span of time `t` at most `rate x (t + max_burst + catch_up)` permits plus one request
/// are granted.
///
/// A new limiter has nothing stored. The default `max_burst` is one second, as in Guava: after one idle
/// second at 5 per second, five permits and one more request are granted at once. A server that counts
/// requests in windows sees this burst as over the rate. To stay under a strict quota, store nothing
/// ([`evenly_spaced`](Self::evenly_spaced)) or a short time, such as 20 ms.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let clock = ManualClock::auto_advance();
/// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), clock);
/// let mut waits = Vec::new();
/// for n in [5, 1, 1, 1, 5, 1] {
///     waits.push(limiter.blocking_acquire(n)?.waited().as_millis());
/// }
/// assert_eq!(waits, [0, 1000, 200, 200, 200, 1000]);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SmoothBursty {
    pub(crate) rate: Rate,
    pub(crate) max_burst: Duration,
    pub(crate) catch_up: Duration,
    pub(crate) schedule: Schedule,
}

impl SmoothBursty {
    /// `rate`, with up to one second of unused permits stored.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self::of(rate, Duration::from_secs(1))
    }

    fn of(rate: Rate, max_burst: Duration) -> Self {
        let schedule = Schedule::new(rate, max_burst);
        Self { rate, max_burst, catch_up: TWO_TICKS, schedule }
    }

    /// `rate`, with nothing stored: after a pause as during work, permits come one interval after another. The
    /// choice for an API with a strict quota.
    #[must_use]
    pub fn evenly_spaced(rate: Rate) -> Self {
        Self::of(rate, Duration::ZERO)
    }

    /// Sets the maximum of unused time that is stored. Zero spaces all permits evenly; more than the
    /// [horizon](Nanos::HORIZON) counts as the horizon.
    #[must_use]
    pub fn max_burst(self, max_burst: Duration) -> Self {
        Self { max_burst, ..self }.scheduled()
    }
}

scheduled! {
    SmoothBursty,
    schedule: |it| Schedule::new(it.rate, it.max_burst),
    start: |bursty, now| bursty.schedule.empty(now),
    // The stored time does not change.
    migrate: |bursty, old, state, now| bursty.schedule.migrate(&old.schedule, state, now)
}
