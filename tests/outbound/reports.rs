//! Events and waits.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures::FutureExt;
use tollgate::feedback::{Feedback, Unit, When};
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
    let waits = limiter.stats();
    let limited_by: Vec<_> = waits.limited_by().map(|(part, n)| (part.to_string(), n)).collect();
    let expected = [("limit 1 of 2, smooth-bursty", 2), ("limit 2 of 2, sliding-window-log", 1)];
    assert_eq!(limited_by, expected.map(|(part, n)| (part.to_owned(), n)));
    assert_eq!(waits.waits(), 3);
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
    assert_eq!(limiter.stats().waits(), 5);
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
    assert_eq!((seen.take().len(), limiter.stats().waits()), (0, 0));
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
        limiter.at(&key).blocking_acquire(2).expect("it is full");
        limiter.at(&key).blocking_acquire(key.max(1)).expect("it waits for 1, 1 and 2 s");
    }
    limiter.at(&7).pause_for(SECOND).expect("there is room");
    limiter.set_policy(TokenBucket::new(Rate::per_second(2.0), 2));
    limiter.set_policies(|_| TokenBucket::new(Rate::per_second(3.0), 2));
    let changed = "the policy was changed";
    assert_eq!(seen.take(), ["waited for 2s", "paused for 1s", changed, changed]);
    assert_eq!(limiter.stats().waits(), 3);
    clock.advance(60 * SECOND);
    limiter.remove_idle();
    assert_eq!((limiter.stats().waits(), limiter.stats().pauses), (3, 1), "keys are forgotten");
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

#[tokio::test]
async fn a_wait_for_the_server_is_reported_to_the_listener_of_the_feedback() {
    let seen = Seen::default();
    let limiter = RateLimiter::with_clock(InFlight::new(10), ManualClock::auto_advance());
    let feedback = Feedback::builder(limiter).on_event(seen.listener()).build();
    let mut call = feedback.acquire(1).await.expect("a place");
    let none_left = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "5")];
    call.observe(200u16, &none_left).await;
    drop(feedback.acquire(1).await.expect("after the reset"));
    assert_eq!(seen.take(), ["waited for 5s (the server)"]);
}

#[tokio::test]
async fn what_is_known_of_a_server_is_told_as_long_as_it_holds() {
    let clock = ManualClock::new();
    let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(10), &clock));
    let known = || {
        let state = feedback.server_state();
        (state.pause, state.lowered, state.is_down, state.under_way)
    };
    let meters = || {
        let meters = feedback.server_state().meters.into_iter();
        meters.map(|(unit, it)| (unit, it.limit, it.remaining, it.reset)).collect::<Vec<_>>()
    };
    assert_eq!((known(), meters()), ((None, None, false, 0), Vec::new()));
    let mut call = feedback.acquire(1).await.expect("a place");
    assert_eq!(known(), (None, None, false, 1));
    let headers =
        [("x-ratelimit-limit", "50"), ("x-ratelimit-remaining", "41"), ("x-ratelimit-reset", "20")];
    call.observe(200u16, &headers).await;
    drop(call);
    let told = |seconds| {
        let reset = When::After(Duration::from_secs(seconds));
        vec![(Unit::Requests, Some(50), Some(41), Some(reset))]
    };
    assert_eq!((known(), meters()), ((None, None, false, 0), told(20)));
    clock.advance(Duration::from_secs(19));
    assert_eq!(meters(), told(1));
    clock.advance(Duration::from_secs(1));
    assert_eq!(meters(), Vec::new());
    let pause = Duration::from_secs(7);
    feedback.acquire(1).await.expect("a place").refused(Some(pause)).await;
    assert_eq!(known(), (Some(pause), Some(Duration::ZERO), false, 0));
    clock.advance(pause);
    assert_eq!(known(), (None, Some(pause), false, 0));
}

#[tokio::test]
async fn an_answer_that_another_has_overtaken_is_stale() {
    let clock = ManualClock::new();
    let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(10), &clock));
    let mut first = feedback.acquire(1).await.expect("a place");
    let mut second = feedback.acquire(1).await.expect("a place");
    clock.advance(Duration::from_secs(1));
    second.observe(200u16, &[("x-ratelimit-remaining", "40"), ("x-ratelimit-reset", "20")]).await;
    assert_eq!(feedback.server_state().stale, 0);
    first.observe(200u16, &[("x-ratelimit-remaining", "41"), ("x-ratelimit-reset", "20")]).await;
    assert_eq!(feedback.server_state().stale, 1);
    assert_eq!(feedback.server_state().meters[0].1.remaining, Some(40));
}

/// Of other errors the caller is the cause.
#[tokio::test]
async fn a_server_is_down_if_most_of_its_statuses_are_500_or_more() {
    for (status, is_down) in [(499u16, false), (500, true)] {
        let clock = ManualClock::auto_advance();
        let feedback = Feedback::new(RateLimiter::with_clock(InFlight::new(10), clock));
        let none: [(&str, &str); 0] = [];
        for _ in 0..30 {
            feedback.acquire(1).await.expect("a place").observe(status, &none).await;
        }
        assert_eq!(feedback.server_state().is_down, is_down, "{status}");
    }
}
