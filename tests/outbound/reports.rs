//! Events and waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use tollgate::{
    Event, InFlight, KeyedRateLimiter, ManualClock, Rate, RateLimiter, SlidingWindowLog,
    SmoothBursty, TokenBucket,
};

const SECOND: Duration = Duration::from_secs(1);

/// The events of a limiter, as text.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn listener(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let seen = self.clone();
        move |event| seen.0.lock().expect("no panic").push(event.to_string())
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

fn one_per_second() -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(1.0)).max_burst(Duration::ZERO)
}

#[test]
fn a_wait_names_the_part_of_the_policy() {
    let seen = Seen::default();
    let daily = SlidingWindowLog::new(3, Duration::from_secs(60));
    let limiter = RateLimiter::builder((one_per_second(), daily))
        .clock(ManualClock::auto_advance())
        .on_event(seen.listener())
        .build();
    for _ in 0..4 {
        limiter.blocking_acquire((1, 1)).expect("it waits");
    }
    let expected = [
        "waited for 1s (limit 1 of 2, smooth-bursty)",
        "waited for 1s (limit 1 of 2, smooth-bursty)",
        "waited for 58s (limit 2 of 2, sliding-window-log)",
    ];
    assert_eq!(seen.take(), expected);
    let waits = limiter.waits();
    let limited_by: Vec<_> = waits.limited_by().map(|(part, n)| (part.to_string(), n)).collect();
    let expected = [("limit 1 of 2, smooth-bursty", 2), ("limit 2 of 2, sliding-window-log", 1)];
    assert_eq!(limited_by, expected.map(|(part, n)| (part.to_owned(), n)));
    assert_eq!(waits.count(), 3);
}

#[test]
fn async_timed_owned_and_reserved_callers_are_reported_alike() {
    let (seen, clock) = (Seen::default(), ManualClock::auto_advance());
    let limiter =
        RateLimiter::builder(one_per_second()).clock(&clock).on_event(seen.listener()).build();
    let waited = |what: &str| assert_eq!(seen.take(), ["waited for 1s"], "{what}");
    limiter.try_acquire(1).expect("the first");
    limiter.acquire(1).now_or_never().expect("the clock advances").expect("granted");
    waited("acquire");
    limiter.acquire_owned(1).now_or_never().expect("the clock advances").expect("granted");
    waited("acquire_owned");
    let timed = limiter.try_acquire_timeout(1, SECOND).now_or_never();
    timed.expect("the clock advances").expect("in time");
    waited("try_acquire_timeout");
    limiter.blocking_acquire(1).expect("granted");
    waited("blocking_acquire");
    limiter.reserve(1).expect("a place").blocking_wait().expect("granted");
    waited("reserve");
    assert!(limiter.try_acquire(1).is_err());
    assert!(limiter.try_acquire_timeout(1, SECOND / 2).now_or_never().expect("at once").is_err());
    assert_eq!(seen.take(), [""; 0], "refusals");
    assert_eq!(limiter.waits().count(), 5);
}

/// A future that was granted and is dropped without being polled again has not taken its grant.
#[test]
fn a_caller_that_leaves_has_not_waited() {
    let (seen, clock) = (Seen::default(), ManualClock::new());
    let limiter =
        RateLimiter::builder(one_per_second()).clock(&clock).on_event(seen.listener()).build();
    limiter.try_acquire(1).expect("the first");
    let mut acquire = limiter.acquire(1);
    assert!((&mut acquire).now_or_never().is_none());
    clock.advance(SECOND);
    drop(acquire);
    assert_eq!((seen.take().len(), limiter.waits().count()), (0, 0));
    assert_eq!(limiter.stats().given_up, 1);
}

#[test]
fn a_pause_is_counted_when_it_makes_callers_wait_longer() {
    let seen = Seen::default();
    let limiter = RateLimiter::builder(one_per_second())
        .clock(ManualClock::new())
        .on_event(seen.listener())
        .build();
    for seconds in [0, 30, 10, 40] {
        limiter.pause_for(Duration::from_secs(seconds));
    }
    limiter.resume();
    assert_eq!(seen.take(), ["paused for 30s", "paused for 10s", "paused for 40s", "resumed"]);
    assert_eq!(limiter.stats().pauses, 2);
}

#[test]
fn all_keys_report_to_one_listener() {
    let (seen, clock) = (Seen::default(), ManualClock::auto_advance());
    let limiter = KeyedRateLimiter::builder(TokenBucket::new(Rate::per_second(1.0), 2))
        .clock(&clock)
        .slow_wait(Duration::from_secs(2))
        .on_event(seen.listener())
        .build();
    for key in 0..3 {
        limiter.blocking_acquire(&key, 2).expect("it is full");
        limiter.blocking_acquire(&key, key.max(1)).expect("it waits for 1, 1 and 2 s");
    }
    limiter.pause_for(&7, SECOND).expect("there is room");
    limiter.set_policy(TokenBucket::new(Rate::per_second(2.0), 2));
    limiter.set_policies(|_| TokenBucket::new(Rate::per_second(3.0), 2));
    let changed = "the policy was changed";
    assert_eq!(seen.take(), ["waited for 2s", "paused for 1s", changed, changed]);
    assert_eq!(limiter.waits().count(), 3);
    clock.advance(60 * SECOND);
    limiter.remove_idle();
    assert_eq!((limiter.waits().count(), limiter.stats().pauses), (3, 1), "keys are forgotten");
}

/// It runs without a lock.
#[test]
fn a_listener_may_use_the_limiter() {
    let own = Arc::new(OnceLock::<RateLimiter<InFlight>>::new());
    let known = Arc::clone(&own);
    let limiter = RateLimiter::builder(InFlight::new(1))
        .clock(ManualClock::new())
        .on_event(move |_| {
            let limiter = known.get().expect("set before");
            limiter.set_policy_once(InFlight::new(limiter.available() + 2));
        })
        .build();
    own.set(limiter.clone()).expect("once");
    limiter.pause_for(SECOND);
    assert_eq!(limiter.policy(), InFlight::new(2));
}

/// Changes the policy, whose event must not do so again.
trait SetPolicyOnce {
    fn set_policy_once(&self, policy: InFlight);
}

impl SetPolicyOnce for RateLimiter<InFlight> {
    fn set_policy_once(&self, policy: InFlight) {
        if self.policy() == InFlight::new(1) {
            self.set_policy(policy);
        }
    }
}

/// The permits of the call in which it panics are given back.
#[test]
fn a_listener_that_panics_keeps_no_permits() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::builder((one_per_second(), InFlight::new(1)))
        .clock(&clock)
        .slow_wait(Duration::ZERO)
        .on_event(|event| assert!(!matches!(event, Event::Waited { .. }), "the listener panics"))
        .build();
    drop(limiter.try_acquire((1, 1)).expect("the first"));
    let mut acquire = Box::pin(limiter.acquire((1, 1)));
    assert!((&mut acquire).now_or_never().is_none());
    clock.advance(SECOND);
    let polled = catch_unwind(AssertUnwindSafe(|| (&mut acquire).now_or_never()));
    assert!(polled.is_err(), "the listener panics");
    drop(acquire);
    assert!(limiter.try_acquire((1, 1)).is_ok(), "the place and the permit are there");
}
