//! What a shared limiter reports: events, waits, and the counts of all keys.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::FutureExt;
use metrics_exporter_prometheus::PrometheusBuilder;
use tollgate::metrics::Publisher;
use tollgate::redis::{Reconnecting, RedisRateLimiter};
use tollgate::{Event, LeakyBucket, Limiter, ManualClock, Rate, SmoothBursty, TokenBucket};

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
    assert_eq!((ours.stats().waits(), theirs.stats().waits()), (2, 1));
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
    assert_eq!(limiter.stats().waits(), KEYS);
    assert_eq!(limiter.key_stats().granted, 0, "its own key");
}

#[test]
fn a_limiter_its_builder_its_calls_and_its_grants_say_what_they_are() {
    let (clock, key) = (ManualClock::new(), new_key());
    let policy = SmoothBursty::new(Rate::per_second(1.0)).max_burst(Duration::ZERO);
    let builder = RedisRateLimiter::builder(policy, Manual::new(&clock), &*key);
    assert_eq!(format!("{builder:?}"), "RateLimiterBuilder { name: None, .. }");
    let limiter = builder.clock(&clock).name("search").build();
    let grant = limiter.acquire(3).now_or_never().expect("an answer").expect("it is prepaid");
    assert_eq!(format!("{grant:?}"), "RedisGrant { cost: 3, waited: 0ns, .. }");
    let mut caller = limiter.acquire(1);
    assert_eq!(format!("{caller:?}"), "Acquire { cost: 1, .. }");
    assert!((&mut caller).now_or_never().is_none());
    assert_eq!(format!("{caller:?}"), "Acquire { cost: 1, .. }");
    let shown = format!("{limiter:?}");
    let begins =
        format!("RedisRateLimiter {{ name: \"search\", key: {key:?}, policy: SmoothBursty {{");
    assert!(shown.starts_with(&begins), "{shown}");
    assert!(shown.ends_with(", state: Up, waiting: 1, .. }"), "{shown}");
    let connection = Reconnecting::open("redis://127.0.0.1/").expect("an address");
    assert_eq!(format!("{connection:?}"), "Reconnecting { .. }");
}

#[test]
fn to_ask_for_the_wait_for_one_number_books_nothing() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 5);
    let limiter = RedisRateLimiter::builder(bucket, Manual::new(&clock), new_key());
    let limiter = limiter.clock(&clock).build();
    let _grant = limiter.acquire(3).now_or_never().expect("an answer").expect("full");
    let asked = limiter.counters().asked;
    let wait = |n| Box::pin(limiter.would_wait(n)).now_or_never().expect("an answer");
    assert_eq!(wait(2).expect("a server"), Some(Duration::ZERO));
    assert_eq!(wait(4).expect("a server"), Some(2 * SECOND));
    assert_eq!(limiter.counters().asked, asked);
}

/// That of this process, and that of the policy.
#[test]
fn to_ask_for_the_wait_behind_a_full_queue_is_no_error() {
    let clock = ManualClock::new();
    let bursty = SmoothBursty::new(Rate::per_second(0.1)).max_burst(Duration::ZERO);
    let limiter = RedisRateLimiter::builder(bursty, Manual::new(&clock), new_key());
    let limiter = limiter.clock(&clock).max_waiters(1).build();
    let ask = || Box::pin(limiter.would_wait(1)).now_or_never().expect("an answer");
    limiter.acquire(1).now_or_never().expect("an answer").expect("it is prepaid");
    let mut waiter = limiter.acquire(1);
    assert!((&mut waiter).now_or_never().is_none());
    assert_eq!(ask(), Ok(None));
    drop(waiter);
    assert_eq!(ask(), Ok(Some(10 * SECOND)));

    let leaky = LeakyBucket::new(Rate::per_second(0.1), 2);
    let limiter = RedisRateLimiter::builder(leaky, Manual::new(&clock), new_key());
    let limiter = limiter.clock(&clock).build();
    let ask = || Box::pin(limiter.would_wait(1)).now_or_never().expect("an answer");
    limiter.acquire(1).now_or_never().expect("an answer").expect("it is empty");
    let mut waiter = limiter.acquire(1);
    assert!((&mut waiter).now_or_never().is_none());
    assert_eq!(ask(), Ok(None));
}

#[test]
fn the_waits_and_the_rate_are_published() {
    let clock = ManualClock::auto_advance();
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let limiter = RedisRateLimiter::builder(policy, Manual::new(&clock), new_key());
    let limiter = limiter.clock(&clock).build();
    let (publisher, recorder) = (Publisher::new(), PrometheusBuilder::new().build_recorder());
    publisher.add(&limiter);
    for _ in 0..3 {
        limiter.acquire(1).now_or_never().expect("the clock advances").expect("granted");
    }
    metrics::with_local_recorder(&recorder, || publisher.publish());
    let shown = recorder.handle().render();
    for (metric, value) in [
        ("granted_total", 3),
        ("rate", 10),
        ("wait_seconds_count", 2),
        ("waited_microseconds_total", 200_000),
    ] {
        let line = format!("tollgate_{metric}{{limiter=\"unnamed\"}} {value}\n");
        assert!(shown.contains(&line), "{line}{shown}");
    }
}

/// Two limiters under `And` are one row for a recorder: their requests are added up, and so are their callers.
#[test]
fn the_requests_and_callers_of_both_limiters_are_published_together() {
    let clock = ManualClock::new();
    let server = Manual::new(&clock);
    let limiter = || {
        let policy = SmoothBursty::new(Rate::per_second(1.0)).max_burst(Duration::ZERO);
        let builder = RedisRateLimiter::builder(policy, server.clone(), new_key());
        builder.clock(&clock).name("search").build()
    };
    let [first, second] = [limiter(), limiter()];
    // The first permit of each is prepaid; the next callers wait.
    let mut waiting = Vec::new();
    for (limiter, callers) in [(&first, 3), (&second, 2)] {
        let granted = limiter.acquire(1).now_or_never().expect("an answer");
        granted.expect("the first is prepaid");
        for _ in 0..callers {
            let mut caller = limiter.acquire(1);
            assert!((&mut caller).now_or_never().is_none());
            waiting.push(caller);
        }
    }
    Box::pin(first.quota()).now_or_never().expect("an answer").expect("a quota");
    let [one, other] = [&first, &second].map(|limiter| limiter.counters().requests);
    assert!(one > other && other > 1, "{one} and {other}");
    let (publisher, recorder) = (Publisher::new(), PrometheusBuilder::new().build_recorder());
    publisher.add(&first.and(&second));
    metrics::with_local_recorder(&recorder, || publisher.publish());
    let shown = recorder.handle().render();
    for (metric, value) in [("redis_requests_total", one + other), ("waiting", 5)] {
        let line = format!("tollgate_{metric}{{limiter=\"search\"}} {value}\n");
        assert!(shown.contains(&line), "{line}{shown}");
    }
}
