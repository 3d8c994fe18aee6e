//! The leaky bucket: requests are water, which leaks out at a steady rate. As a queue, a request is granted when the
//! water before it has leaked. As a meter, it is granted at once if it fits.
//!
//! Let `v` be the time at which the bucket will be, or was, empty. As a queue, `n` permits are ready at `v`, and they fit if
//! `(v - t) x rate + n <= capacity`, where queued permits count too. As a meter, they are ready at
//! `v + (n - capacity) / rate`. Charging `n` at `t` sets `v = max(v, t) + n / rate`. The [`schedule`](super::schedule)
//! keeps `v`, or for the meter `v - capacity / rate`.
//!
//! Source: J. Turner, "New directions in communications", 1986 (the meter); A. Tanenbaum, "Computer Networks", on traffic
//! shaping (the queue).

use super::rated::*;

/// A queue with an even outflow or, with [`meter`](Self::meter), a bucket that grants at once until it is
/// full.
///
/// As a queue, it grants requests one at a time: after a request for `n` permits the next one waits
/// `n / rate`, however the calls arrive. No unused time is stored. Permits that have not leaked yet and
/// permits in the queue never exceed `capacity` together: further callers get
/// [`Error::QueueFull`](crate::Error), with the time after which there is room. In a pause only the permits
/// count that will not have leaked at its end, so more callers than its room may enter then. In any span of time `t` at most
/// `rate x (t + catch_up)` permits plus one request are granted. A request for more than the capacity is an
/// error at once.
///
/// As a meter, in any span of time `t` at most `capacity + rate x (t + catch_up)` permits are granted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Error, LeakyBucket, ManualClock, Rate, RateLimiter};
///
/// let policy = LeakyBucket::new(Rate::per_second(5.0), 3);
/// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
/// let places = [limiter.reserve(1)?, limiter.reserve(1)?, limiter.reserve(1)?];
/// assert_eq!(places.each_ref().map(|place| place.delay().as_millis()), [0, 200, 400]);
/// let error = limiter.reserve(1).unwrap_err();
/// assert!(matches!(error, Error::QueueFull { .. }));
/// assert_eq!(error.retry_after(), Some(Duration::from_millis(200)));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    pub(crate) rate: Rate,
    pub(crate) capacity: u32,
    pub(crate) meter: bool,
    pub(crate) catch_up: Duration,
    pub(crate) schedule: Schedule,
}

impl LeakyBucket {
    /// A queue that leaks at `rate` and holds `capacity`.
    #[must_use]
    pub fn new(rate: Rate, capacity: u32) -> Self {
        let schedule = Schedule::queue(rate, capacity);
        Self { rate, capacity, meter: false, catch_up: TWO_TICKS, schedule }
    }

    /// A meter: grants `capacity` at once, and then permits as they leak at `rate`. The same limit as a
    /// [`TokenBucket`](crate::TokenBucket), described by the level of the bucket instead of the tokens left.
    ///
    /// ```
    /// use tollgate::{LeakyBucket, ManualClock, Rate, RateLimiter};
    ///
    /// let policy = LeakyBucket::meter(Rate::per_hour(360.0), 60);
    /// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    /// limiter.try_acquire(60)?;
    /// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after().unwrap().as_secs(), 10);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[must_use]
    pub fn meter(rate: Rate, capacity: u32) -> Self {
        Self { meter: true, ..Self::new(rate, capacity) }.scheduled()
    }
}

scheduled! {
    LeakyBucket,
    schedule: |it| {
        let new = if it.meter { Schedule::bucket } else { Schedule::queue };
        new(it.rate, it.capacity)
    },
    start: |bucket, now| bucket.schedule.full(now),
    // Queued water leaks out in the same time as before; a meter keeps its level.
    migrate: |bucket, old, state, now| {
        if bucket.meter || old.meter {
            bucket.schedule.migrate_missing(&old.schedule, state, now);
        } else {
            bucket.schedule.migrate(&old.schedule, state, now);
        }
    }
}
