//! What a shared limiter reports: events, waits, and the counts of all keys.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::RedisRateLimiter;
use tollgate::{Event, ManualClock, Rate, SmoothBursty};

use crate::manual::{Manual, new_key};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn waits_pauses_and_changes_are_events_of_the_process_that_makes_them() {
    let clock = ManualClock::auto_advance();
    let (server, key) = (Manual::new(&clock), new_key());
    let limiter = || {
        let events = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&events);
        let policy = SmoothBursty::new(Rate::per_second(1.0)).max_burst(Duration::ZERO);
        let limiter = RedisRateLimiter::builder(policy, server.clone(), &*key)
            .clock(&clock)
            .slow_wait(SECOND)
            .on_event(move |event: &Event| log.lock().expect("no panic").push(event.to_string()))
            .build();
        (limiter, events)
    };
    let (ours, events) = limiter();
    let (theirs, their_events) = limiter();
    for n in [1, 2, 1] {
        ours.acquire(n).now_or_never().expect("the clock advances").expect("granted");
    }
    let pause = Box::pin(ours.pause_for(5 * SECOND)).now_or_never();
    pause.expect("the clock advances").expect("a server");
    theirs.acquire(1).now_or_never().expect("the clock advances").expect("granted");
    let set = Box::pin(ours.set_rate(Rate::per_second(2.0))).now_or_never();
    set.expect("the clock advances").expect("a server");
    let seen = events.lock().expect("no panic");
    assert_eq!(*seen, ["waited for 1s", "waited for 2s", "paused for 5s", "the rate is now 2/s"]);
    assert_eq!(*their_events.lock().expect("no panic"), ["waited for 5s"]);
    assert_eq!((ours.waits().count(), theirs.waits().count()), (2, 1));
    assert_eq!((ours.stats().pauses, theirs.stats().pauses), (1, 0));
}

/// Also those of keys whose lines are dropped while they are idle.
#[test]
fn the_counts_of_forgotten_keys_stay_in_the_sum() {
    const KEYS: u64 = 100;
    let clock = ManualClock::auto_advance();
    let server = Manual::new(&clock);
    let policy = SmoothBursty::new(Rate::per_second(1.0)).max_burst(Duration::ZERO);
    let limiter = RedisRateLimiter::builder(policy, server, new_key()).clock(&clock).build();
    for _ in 0..KEYS {
        let key = limiter.at(new_key());
        for _ in 0..2 {
            key.acquire(1).now_or_never().expect("the clock advances").expect("granted");
        }
        assert!(key.try_acquire(1).now_or_never().expect("at once").is_err());
    }
    clock.advance(60 * SECOND);
    for _ in 0..KEYS {
        drop(limiter.at(new_key()));
    }
    let sum = limiter.stats();
    assert_eq!((sum.granted, sum.refused), (2 * KEYS, KEYS));
    assert_eq!(sum.waited, SECOND * u32::try_from(KEYS).expect("few"));
    assert_eq!(limiter.waits().count(), KEYS);
    assert_eq!(limiter.key_stats().granted, 0, "its own key");
}
