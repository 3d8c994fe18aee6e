//! Shadow mode: what an enforcing limiter would hold back is counted, and nothing is held back.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use reqwest_middleware::ClientBuilder;
use tollgate::tower::{RateLimitLayer, RefuseLayer};
use tollgate::{
    AnyRateLimiter, Error, FixedWindow, InFlight, Limiter, ManualClock, Policy, Rate, RateLimit,
    RateLimiter, Same, SlidingWindowLog, SmoothWarmingUp, TokenBucket,
};
use tower::{Layer, Service, ServiceExt, service_fn};

/// A limiter in shadow mode, and how many calls it would have held back.
fn shadow(
    limiter: impl tollgate::Limiter<Cost = u32> + 'static,
) -> (AnyRateLimiter, Arc<AtomicU64>) {
    let over = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&over);
    let limiter = AnyRateLimiter::new(limiter).observe_only(move |error| {
        assert!(!error.to_string().is_empty());
        count.fetch_add(1, Relaxed);
    });
    (limiter, over)
}

fn answers()
-> impl Service<Request<u32>, Response = Response<String>, Error = Infallible, Future: Send>
+ Clone
+ Send {
    service_fn(async |_: Request<u32>| Ok(Response::new("hello".to_owned())))
}

/// Sends the same calls of different costs to a server that refuses and to one that observes. Responses are read late.
async fn counts_as_its_twin(policy: impl Policy<Cost = u32>) {
    let clock = ManualClock::new();
    let strict = RateLimiter::with_clock(policy.clone(), &clock);
    let observed = RateLimiter::with_clock(policy, &clock);
    let (handle, over) = shadow(observed.clone());
    let cost = |request: &http::request::Parts| request.extensions.get().copied().unwrap_or(1);
    let refuses = RefuseLayer::new(strict.clone()).cost(cost).layer(answers());
    let observes = RefuseLayer::new(handle).cost(cost).layer(answers());
    let (mut refused, mut open, mut random) = (0, Vec::new(), 7_u64);
    for _ in 0..500 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = random >> 33;
        clock.advance(Duration::from_millis(number % 120));
        let request = || {
            let mut request = Request::new(0);
            request.extensions_mut().insert(1 + u32::try_from(number % 3).expect("small"));
            request
        };
        let answer = refuses.clone().oneshot(request()).await.expect("an answer");
        refused += u64::from(answer.status() != 200);
        let other = observes.clone().oneshot(request()).await.expect("an answer");
        assert_eq!(other.status(), 200);
        open.push((answer, other));
        if open.len() > usize::try_from(number % 9).expect("small") {
            let (answer, other) = open.swap_remove(0);
            answer.into_body().collect().await.expect("a body");
            other.into_body().collect().await.expect("a body");
        }
        assert_eq!(strict.stats(), observed.stats());
    }
    assert!(refused > 20, "{refused} of 500");
    assert_eq!((over.load(Relaxed), observed.stats().refused), (refused, refused));
}

#[tokio::test]
async fn it_counts_what_an_enforcing_twin_refuses() {
    let (second, rate) = (Duration::from_secs(1), Rate::per_second(20.0));
    counts_as_its_twin(TokenBucket::new(rate, 10)).await;
    counts_as_its_twin(FixedWindow::new(20, second)).await;
    counts_as_its_twin(SlidingWindowLog::new(20, second)).await;
    counts_as_its_twin(SmoothWarmingUp::new(rate, second)).await;
    counts_as_its_twin(InFlight::new(6)).await;
    counts_as_its_twin(Same((TokenBucket::new(rate, 10), InFlight::new(6)))).await;
    // Some calls never fit.
    counts_as_its_twin(TokenBucket::new(rate, 2)).await;
}

#[tokio::test]
async fn a_client_never_waits() {
    let limiter = RateLimiter::with_clock(InFlight::new(2), ManualClock::new());
    let (handle, over) = shadow(limiter.clone());
    let layer = RateLimitLayer::new(handle.clone());
    let chosen = handle.clone();
    let by = RateLimit::by(move |_| chosen.clone());
    let mut open = Vec::new();
    for _ in 0..2 {
        let request = || Request::new(0);
        open.push(layer.layer(answers()).oneshot(request()).await.expect("an answer"));
        open.push(by.layer(answers()).oneshot(request()).await.expect("an answer"));
    }
    assert_eq!((over.load(Relaxed), limiter.available()), (2, 0));
    drop(open);
    assert_eq!(limiter.available(), 2);

    let middleware = tollgate::RateLimit::new(handle);
    let client = ClientBuilder::new(reqwest::Client::new()).with(middleware);
    let client = client.with(super::reqwest::answer).build();
    let mut open = Vec::new();
    for _ in 0..5 {
        open.push(client.get("http://a.example").send().await.expect("an answer"));
    }
    assert_eq!((over.load(Relaxed), limiter.stats().granted), (5, 4));
}

#[tokio::test]
async fn it_is_one_handle_of_a_limiter() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(1.0), 1), &clock);
    let (one, over) = shadow(limiter.clone());
    for _ in 0..3 {
        assert_eq!(one.acquire(1).await.expect("let through").waited(), Duration::ZERO);
    }
    let place = one.reserve(1).await.expect("let through");
    assert_eq!(place.delay(), Duration::ZERO);
    let mut grant = place.wait().await.expect("let through");
    grant.settle(3).await.expect("nothing was charged");
    assert_eq!((grant.cost(), over.load(Relaxed)), (3, 3));
    grant.refund();
    // The limiter itself enforces.
    assert!(matches!(limiter.try_acquire(1), Err(Error::Denied { .. })));
    // Nor does a pause hold anything back.
    clock.advance(Duration::from_secs(1));
    one.pause_for(Duration::from_secs(9)).await.expect("in process");
    one.acquire(1).await.expect("let through");
    assert_eq!(over.load(Relaxed), 4);
    // A server is obeyed by a feedback around it.
    let (handle, _) = shadow(RateLimiter::with_clock(InFlight::new(1), &clock));
    let feedback = tollgate::feedback::Feedback::new(handle);
    let mut call = feedback.acquire(1).await.expect("let through");
    call.observe(429u16, &[("retry-after", "7")]).await;
    drop(call);
    let error = feedback.try_acquire(1).await.expect_err("the server said so");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    // An order to end is obeyed.
    one.close();
    assert!(matches!(one.acquire(1).await, Err(Error::Closed)));
}
