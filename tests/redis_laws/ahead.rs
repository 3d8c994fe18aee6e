//! A limiter over Redis with the methods that the laws use.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::redis::{Connection, RedisGrant, RedisRateLimiter, Scripted};
use tollgate::{Error, ManualClock, Nanos, Stats};

use crate::manual::{Manual, new_key};
use crate::subject::{Answer, Permits, Subject, Waiting, answer, waiting};

/// A limiter that books tickets up to `MILLIS` milliseconds ahead. With zero a ticket is booked
/// when it is due: callers are charged when they are granted, as in process.
pub(crate) struct Ahead<P: Scripted, const MILLIS: u64> {
    limiter: RedisRateLimiter<P, Manual>,
    connection: Manual,
}

/// Longer than any script. Its renewal would take most of the round trips.
const LEASE: Duration = Duration::from_secs(1 << 30);

impl<P: Scripted, const MILLIS: u64> Subject<P> for Ahead<P, MILLIS> {
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

    fn acquire(&self, cost: P::Cost, ahead: Duration) -> Waiting<'_> {
        waiting(self.limiter.acquire(cost).ahead_by(ahead))
    }

    fn reserve(&self, cost: P::Cost, ahead: Duration) -> Option<Result<Waiting<'_>, Error>> {
        let place = at_once(self.limiter.acquire(cost).ahead_by(ahead).reserve());
        Some(place.map(|place| waiting(place.wait())))
    }

    fn try_acquire(&self, cost: P::Cost) -> Answer<'_> {
        answer(at_once(self.limiter.try_acquire(cost)))
    }

    fn try_acquire_timeout(
        &self,
        cost: P::Cost,
        timeout: Duration,
        ahead: Duration,
    ) -> Waiting<'_> {
        waiting(self.limiter.try_acquire_timeout(cost, timeout).ahead_by(ahead))
    }

    fn set_policy(&self, policy: P) {
        at_once(self.limiter.set_policy(policy)).expect("Redis is there");
    }

    fn pause_for(&self, duration: Duration) {
        at_once(self.limiter.pause_for(duration)).expect("Redis is there");
    }

    fn available(&self) -> P::Cost {
        at_once(self.limiter.quota()).expect("Redis is there").remaining
    }

    fn queue_len(&self) -> usize {
        self.limiter.queue_len()
    }

    fn stats(&self) -> Stats {
        self.limiter.stats()
    }

    /// Sets back only the server's clock: those of processes do not go back.
    fn set_back(&self, _: &ManualClock, elapsed: Duration) -> bool {
        self.connection.set_back(elapsed);
        true
    }
}

impl<P: Scripted, C: Connection> Permits for RedisGrant<P, C> {
    fn waited(&self) -> Duration {
        self.waited()
    }

    fn refund(self: Box<Self>) {
        (*self).refund();
    }
}

/// The output of a future that waits only for a reply of Redis, which is there at once.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("answers are there at once"),
    }
}
