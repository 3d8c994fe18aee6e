//! A limiter over Redis, as the laws use it.

use std::fmt::Debug;
use std::time::Duration;

use tollgate::redis::{RedisRateLimiter, Scripted};
use tollgate::{ManualClock, Nanos};

use crate::manual::{Manual, new_key};
use crate::subject::{Subject, at_once};

/// A limiter that books tickets up to `MILLIS` milliseconds ahead. With zero a ticket is booked
/// when it is due: callers are charged when they are granted, as in process.
pub(crate) struct Ahead<P: Scripted, const MILLIS: u64> {
    limiter: RedisRateLimiter<P, Manual>,
    connection: Manual,
}

/// Longer than any script. Its renewal would take most of the round trips.
const LEASE: Duration = Duration::from_secs(1 << 30);

impl<P: Scripted + Debug, const MILLIS: u64> Subject<P> for Ahead<P, MILLIS> {
    type Limiter = RedisRateLimiter<P, Manual>;

    fn new(policy: P, clock: &ManualClock) -> Self {
        let connection = Manual::new(clock);
        let builder = RedisRateLimiter::builder(policy.clone(), connection.clone(), new_key());
        let horizon = Duration::from_millis(MILLIS);
        let builder = builder.clock(clock).horizon(horizon).lease(LEASE);
        // No other process changes the key, and a wait may be a day.
        let limiter = builder.refresh(LEASE).build();
        let idle_from = policy.idle_at(&policy.start(Nanos::ZERO));
        if MILLIS == 0 || idle_from.is_none_or(|from| from > Nanos::ZERO) {
            // A limiter in process starts when it is made, and a key when it is first written: so
            // write it now, also to give later changes a state to adopt. If the start makes no
            // difference, the key is left unwritten, to test that case.
            at_once(limiter.set_policy(policy)).expect("Redis is there");
        }
        Self { limiter, connection }
    }

    fn limiter(&self) -> &Self::Limiter {
        &self.limiter
    }

    fn set_policy(&self, policy: P) {
        at_once(self.limiter.set_policy(policy)).expect("Redis is there");
    }

    /// Sets back only the server's clock: those of processes do not go back.
    fn set_back(&self, _: &ManualClock, elapsed: Duration) -> bool {
        self.connection.set_back(elapsed);
        true
    }
}
