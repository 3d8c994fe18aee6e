//! A rate that is learned from servers that say nothing of it. All in paused time.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::feedback::Feedback;
use tollgate::{Clock, Granted, Limiter, ManualClock, Rate, RateLimiter, TokenBucket, Unlimited};

const NONE: [(&str, &str); 0] = [];

fn per_second(rate: f64) -> Rate {
    Rate::per_second(rate)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn adaptive(start: f64) -> Feedback<RateLimiter<Unlimited>> {
    let limiter = RateLimiter::with_clock(Unlimited, Clock::tokio());
    Feedback::builder(limiter).start(per_second(start)).seed(7).build()
}

/// Calls a second, learned or not.
fn rate_of<L: Limiter + 'static>(feedback: &Feedback<L>) -> f64 {
    feedback.rate().map_or(f64::INFINITY, Rate::as_per_second)
}

#[tokio::test(start_paused = true)]
async fn refusals_of_calls_that_were_under_way_together_lower_the_rate_once() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(Unlimited, &clock);
    let adaptive = Feedback::builder(limiter).start(per_second(100.0)).seed(7).build();
    let calls: Vec<_> = (0..4)
        .map(|_| adaptive.try_acquire(1).now_or_never().expect("at once").expect("a grant"))
        .collect();
    clock.advance(secs(1));
    for mut call in calls {
        call.refused(None).await;
    }
    // A first guess is worth twice what was delivered, at least two a second.
    assert_eq!(rate_of(&adaptive), 2.0);
    clock.advance(secs(10));
    let mut call = adaptive.acquire(1).await.expect("a grant");
    clock.advance(secs(1));
    call.refused(None).await;
    assert_eq!(rate_of(&adaptive), 1.5);
}

#[tokio::test]
async fn to_resume_begins_anew() {
    let clock = ManualClock::auto_advance();
    let limiter = RateLimiter::with_clock(Unlimited, &clock);
    let adaptive = Feedback::builder(limiter).start(per_second(50.0)).seed(7).build();
    for _ in 0..200 {
        adaptive.acquire(1).await.expect("a grant").accepted();
    }
    let found = rate_of(&adaptive);
    assert!(found > 150.0, "{found}");
    for _ in 0..3 {
        adaptive.acquire(1).await.expect("a grant").refused(None).await;
    }
    assert!(rate_of(&adaptive) < 0.9 * found, "{:?}", adaptive.rate());
    adaptive.resume().await.expect("in process");
    assert_eq!(rate_of(&adaptive), 50.0);
    clock.advance(secs(1));
    // With what is stored for a burst.
    for _ in 0..4 {
        let call = adaptive.acquire(1).await.expect("a grant");
        assert_eq!(call.waited(), Duration::ZERO);
    }
}

/// Its limit is the user's until the server refuses.
#[tokio::test]
async fn a_feedback_learns_nothing_until_there_is_something_to_learn() {
    let clock = ManualClock::auto_advance();
    let limiter = RateLimiter::with_clock(TokenBucket::new(per_second(100.0), 100), &clock);
    let feedback = Feedback::builder(limiter).seed(7).build();
    for _ in 0..1000 {
        feedback.acquire(1).await.expect("a grant").observe(200u16, &NONE).await;
    }
    assert_eq!(feedback.rate(), None);
    feedback.acquire(1).await.expect("a grant").observe(429u16, &NONE).await;
    // Twice what it took: 1,000 calls in nine seconds.
    assert!((150.0..230.0).contains(&rate_of(&feedback)), "{:?}", feedback.rate());
    for _ in 0..5 {
        feedback.acquire(1).await.expect("a grant").observe(429u16, &NONE).await;
    }
    // A quarter of it each time.
    assert!(rate_of(&feedback) < 75.0, "{:?}", feedback.rate());
}

/// A call that was acquired and not sent gives its place in the pace back.
#[tokio::test]
async fn a_call_that_was_not_sent_costs_no_pace() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(Unlimited, &clock);
    let adaptive = Feedback::builder(limiter).start(per_second(1.0)).seed(7).build();
    for _ in 0..50 {
        adaptive.try_acquire(1).await.expect("a grant").refund();
    }
    for _ in 0..4 {
        drop(adaptive.try_acquire(1).await.expect("a grant"));
    }
    let error = adaptive.try_acquire(1).await.expect_err("a burst of four");
    assert_eq!(error.retry_after(), Some(Duration::from_nanos(1_000_000_001)));
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_for_the_pace_wait_for_the_server() {
    let adaptive = adaptive(1.0);
    for _ in 0..4 {
        drop(adaptive.acquire(1).await.expect("a grant"));
    }
    let place = adaptive.acquire_for("ann", 1).reserve().await.expect("a place");
    assert_eq!(Limiter::queue_len(&adaptive), 1);
    assert_eq!(place.delay().as_secs(), 1);
    assert_eq!(place.wait().await.expect("a grant").waited().as_secs(), 1);
}

#[test]
fn a_call_that_waited_for_the_server_says_so_and_one_that_it_holds_back_too() {
    let limiter = RateLimiter::with_clock(Unlimited, ManualClock::auto_advance());
    let feedback = Feedback::new(limiter);
    let mut refused = feedback.blocking_acquire(1).expect("nothing is known");
    assert_eq!(refused.limited_by(), None);
    refused.blocking_observe(429u16, &[("retry-after", "3")]);
    let error = feedback
        .try_acquire_timeout(1, secs(1))
        .blocking_wait()
        .expect_err("a pause of three seconds");
    assert_eq!(error.part().and_then(|part| part.rule()), Some("server"), "{error}");
    let call = feedback.blocking_acquire(1).expect("after the pause");
    assert_eq!(
        (call.waited(), call.limited_by().map(|part| part.to_string())),
        (secs(3), Some("the server".into()))
    );
}

#[test]
fn many_callers_that_wait_raise_the_pace_once_it_is_learned() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(tollgate::InFlight::new(1_000), &clock);
    let feedback = Feedback::builder(limiter).start(per_second(10.0)).build();
    let mut call = feedback.sent(1);
    let waiting: Vec<_> = (0..19)
        .map(|_| futures::executor::block_on(feedback.reserve(1)).expect("a place"))
        .collect();
    futures::executor::block_on(call.observe(200u16, &[("x", "")]));
    // Some go at once.
    let queued = feedback.queue_len();
    assert!((15..=17).contains(&queued), "{queued}");
    assert!((19.0..21.0).contains(&rate_of(&feedback)), "{:?}", feedback.rate());
    drop(waiting);
}
