//! The same over Redis, each step a round trip to a real server: the clock that a wait moves
//! forward drives the process and the server alike.

#[path = "../../redis/manual.rs"]
mod manual;

use std::time::Duration;

use tollgate::redis::{RedisRateLimiter, Scripted};
use tollgate::{Error, ManualClock, Rate, Rated};

use super::subject::{Smooth, Verbs};
use super::{replay, selection, trace};
use manual::{Manual, new_key};

#[test]
fn bursty_waits_as_guava_does() {
    let (scenarios, left_out) = selection::divide(trace::bursty());
    assert_eq!(left_out, selection::bursty_left_out());

    let tally = replay::replay(&scenarios, make);
    println!("bursty: {tally}");
    assert_eq!((tally.scenarios, tally.steps), (161, 6_440));
}

#[test]
fn warming_up_waits_as_guava_does() {
    let (scenarios, left_out) = selection::divide(trace::warming_up());
    assert_eq!(left_out, selection::warming_up_left_out());

    let tally = replay::replay(&scenarios, make);
    println!("warming up: {tally}");
    assert_eq!((tally.scenarios, tally.steps), (167, 6_680));
}

fn make(policy: Smooth, clock: &ManualClock) -> Box<dyn Verbs> {
    match policy {
        Smooth::Bursty(policy) => Box::new(limiter_of(policy, clock)),
        Smooth::WarmingUp(policy) => Box::new(limiter_of(policy, clock)),
    }
}

fn limiter_of<P: Scripted>(policy: P, clock: &ManualClock) -> RedisRateLimiter<P, Manual> {
    let builder = RedisRateLimiter::builder(policy.clone(), Manual::new(clock), new_key());
    // No other process changes the key. A waiter that asked again each second of a wait of days would take
    // some thousand round trips a step, as the clock moves by itself. Some rest for years.
    let limiter = builder.clock(clock).refresh(Duration::MAX).keep(Duration::MAX).build();
    // Guava's limiter starts when it is made, a key when it is first written: so write it now.
    tollgate::block_on(limiter.set_policy(policy)).expect("Redis is there");
    limiter
}

impl<P: Scripted + Rated<Cost = u32>> Verbs for RedisRateLimiter<P, Manual> {
    fn acquire(&self, permits: u32) -> Result<Duration, Error> {
        self.blocking_acquire(permits).map(|grant| grant.waited())
    }

    fn try_acquire(&self, permits: u32, timeout: Duration) -> Result<Duration, Error> {
        self.try_acquire_timeout(permits, timeout).blocking_wait().map(|grant| grant.waited())
    }

    fn change_rate(&self, rate: Rate) {
        tollgate::block_on(self.set_rate(rate)).expect("Redis is there");
    }
}
