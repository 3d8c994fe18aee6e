//! What a call is: how long it holds its place, what is refused, and what stays of its response.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, header::LOCATION};
use axum::routing::get;
use http_body_util::StreamBody;
use reqwest_middleware::ClientBuilder;
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tokio::sync::{mpsc, oneshot};
use tollgate::reqwest::take_grant;
use tollgate::{
    InFlight, ManualClock, Rate, RateLimit, RateLimiter, SlidingWindowLog, TokenBucket,
};

use super::{answered, client, refusal};
use crate::support::serve;

fn one_place() -> RateLimiter<InFlight> {
    RateLimiter::new(InFlight::new(1))
}

type Frame = Result<http_body::Frame<bytes::Bytes>, std::io::Error>;

/// A server whose `/` sends what the test sends, and its address.
async fn streaming() -> (mpsc::UnboundedSender<Frame>, String) {
    let (sender, receiver) = mpsc::unbounded_channel::<Frame>();
    let receiver = Arc::new(std::sync::Mutex::new(Some(receiver)));
    let stream = async move || {
        let mut receiver = receiver.lock().expect("no panic").take().expect("one call");
        let frames = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
        Body::new(StreamBody::new(frames))
    };
    let url = serve(Router::new().route("/", get(stream))).await;
    (sender, url)
}

fn data(text: &'static str) -> Frame {
    Ok(http_body::Frame::data(text.into()))
}

#[tokio::test]
async fn a_place_is_held_until_the_body_has_been_read() {
    let limiter = one_place();
    let (sender, url) = streaming().await;
    let mut response = client(RateLimit::new(limiter.clone())).get(url).send().await.expect("sent");
    sender.send(data("hello")).expect("it listens");
    assert_eq!(response.chunk().await.expect("a chunk").expect("data"), "hello");
    assert_eq!(limiter.available(), 0);
    drop(sender);
    assert!(response.chunk().await.expect("the end").is_none());
    // Although the response is still there.
    assert_eq!(limiter.available(), 1);
}

#[tokio::test]
async fn a_place_is_given_back_when_the_body_is_dropped_or_fails() {
    let limiter = one_place();
    let (sender, url) = streaming().await;
    let response = client(RateLimit::new(limiter.clone())).get(url).send().await.expect("sent");
    sender.send(data("hello")).expect("it listens");
    assert_eq!(limiter.available(), 0);
    drop(response);
    assert_eq!(limiter.available(), 1);

    // The head is kept, with the grant in its extensions.
    let (_sender, url) = streaming().await;
    let response = client(RateLimit::new(limiter.clone())).get(url).send().await.expect("sent");
    let (_head, body) = http::Response::from(response).into_parts();
    assert_eq!(limiter.available(), 0);
    drop(body);
    assert_eq!(limiter.available(), 1);

    let (sender, url) = streaming().await;
    let mut response = client(RateLimit::new(limiter.clone())).get(url).send().await.expect("sent");
    sender.send(Err(std::io::Error::other("the disk is full"))).expect("it listens");
    response.chunk().await.expect_err("the connection breaks");
    assert_eq!(limiter.available(), 1);
}

#[tokio::test]
async fn a_place_is_given_back_when_the_call_fails_or_is_dropped() {
    let limiter = one_place();
    let client = client(RateLimit::new(limiter.clone()));
    client.get("http://127.0.0.1:1/").send().await.expect_err("no server");
    assert_eq!(limiter.available(), 1);

    let (arrived, arrives) = oneshot::channel();
    let arrived = Arc::new(std::sync::Mutex::new(Some(arrived)));
    let hang = async move || {
        arrived.lock().expect("no panic").take().expect("one call").send(()).expect("it waits");
        pending::<()>().await;
    };
    let url = serve(Router::new().route("/", get(hang))).await;
    let request = client.get(&url).send();
    let queued = client.get(&url).send();
    tokio::select! {
        _ = request => panic!("it hangs"),
        () = async { arrives.await.expect("sent") } => {}
    }
    assert_eq!(limiter.available(), 1);
    // One that waits for the place takes nothing with it.
    let held = limiter.try_acquire(1).expect("free");
    assert!(tokio::time::timeout(Duration::from_millis(20), queued).await.is_err());
    assert_eq!(limiter.queue_len(), 0);
    drop(held);
    assert_eq!(limiter.available(), 1);
}

#[tokio::test]
async fn a_redirect_is_one_call_and_holds_one_place() {
    let log = SlidingWindowLog::new(10, Duration::from_secs(60));
    let limiter = RateLimiter::new((log, InFlight::new(1)));
    let app = Router::new()
        .route("/", get(async || (StatusCode::FOUND, [(LOCATION, "/there")])))
        .route("/there", get(async || "there"));
    let url = serve(app).await;
    let response = client(RateLimit::new(limiter.clone())).get(&url).send().await.expect("sent");
    assert_eq!(response.url().path(), "/there");
    assert_eq!(limiter.available(), (9, 0));
    assert_eq!(response.text().await.expect("a body"), "there");
    assert_eq!(limiter.available(), (9, 1));
}

#[tokio::test]
async fn a_response_with_a_wrapped_body_is_the_same_response() {
    #[derive(Clone, Debug, PartialEq)]
    struct Kept(u32);

    let app = Router::new().route("/a", get(async || ([("x-field", "value")], "hello")));
    let url = serve(app).await;
    let plain = reqwest::get(format!("{url}/a")).await.expect("sent");
    let held = client(RateLimit::new(one_place()));
    let mut held = held.get(format!("{url}/a?b=c")).send().await.expect("sent");
    assert_eq!(held.url().as_str(), format!("{url}/a?b=c"));
    assert_eq!(held.remote_addr(), plain.remote_addr());
    assert!(held.remote_addr().is_some());
    assert_eq!((held.version(), held.status()), (plain.version(), plain.status()));
    assert_eq!(held.headers()["x-field"], "value");
    assert_eq!(held.content_length(), Some(5));
    held.extensions_mut().insert(Kept(7));
    assert_eq!(held.extensions().get(), Some(&Kept(7)));
    // A program that passes it on sees that there is a body.
    let held = http::Response::<reqwest::Body>::from(held);
    assert!(!http_body::Body::is_end_stream(held.body()));
    assert_eq!(reqwest::Response::from(held).text().await.expect("a body"), "hello");
    // An error of a status has the URL.
    let held = client(RateLimit::new(one_place()));
    let response = held.get(format!("{url}/none")).send().await.expect("sent");
    let error = response.error_for_status().expect_err("404");
    assert_eq!(error.url().expect("known").path(), "/none");
}

#[tokio::test]
async fn a_timeout_of_the_body_is_still_a_timeout() {
    let (sender, url) = streaming().await;
    sender.send(data("hello")).expect("it listens");
    let request = client(RateLimit::new(one_place())).get(url).timeout(Duration::from_millis(100));
    let response = request.send().await.expect("sent");
    let error = response.text().await.expect_err("it does not end");
    assert!(error.is_timeout(), "{error:?}");
}

#[tokio::test]
async fn a_grant_that_is_taken_out_holds_the_place_and_settles_the_cost() {
    let log = SlidingWindowLog::new(1000, Duration::from_secs(60));
    let limiter = RateLimiter::with_clock((log, InFlight::new(1)), ManualClock::new());
    let client = answered(RateLimit::new(limiter.clone()).cost(|_| (100, 1)));
    let mut response = client.get("http://a.org").send().await.expect("sent");
    assert!(take_grant::<u32>(&mut response).is_none());
    let mut grant = take_grant::<(u32, u32)>(&mut response).expect("held by the body");
    assert_eq!(response.text().await.expect("a body"), "hello");
    assert_eq!(limiter.available(), (900, 0));
    grant.settle((40, 1)).await.expect("in process");
    drop(grant);
    assert_eq!(limiter.available(), (960, 1));
}

#[tokio::test]
async fn retries_are_calls_if_the_limits_are_inside() {
    let arrived = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&arrived);
    let fail = async move || {
        count.fetch_add(1, Ordering::Relaxed);
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let url = serve(Router::new().route("/", get(fail))).await;
    let policy = ExponentialBackoff::builder()
        .retry_bounds(Duration::from_millis(1), Duration::from_millis(2))
        .build_with_max_retries(3);
    let limiter = RateLimiter::new(TokenBucket::new(Rate::per_second(1.0), 10));
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(RetryTransientMiddleware::new_with_policy(policy))
        .with(RateLimit::new(limiter.clone()))
        .build();
    let response = client.get(&url).send().await.expect("a response");
    assert_eq!(response.status(), 500);
    assert_eq!((arrived.load(Ordering::Relaxed), limiter.available()), (4, 6));
    // A refusal is not retried, and is found in the error.
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(RetryTransientMiddleware::new_with_policy(policy))
        .with(RateLimit::new(limiter.clone()).cost(|_| 11))
        .build();
    let error = client.get(&url).send().await.expect_err("more than there ever is");
    assert!(matches!(refusal(&error), Some(tollgate::Error::ExceedsCapacity(_))), "{error:?}");
    assert_eq!(limiter.stats().refused, 1);
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_refused_at_once() {
    let policy = TokenBucket::new(Rate::per_second(1.0), 1);
    let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    let same = limiter.clone();
    for limit in [RateLimit::new(limiter.clone()), RateLimit::by(move |_| same.clone())] {
        let client = answered(limit.max_wait(Duration::from_millis(999)));
        let _ = limiter.try_acquire(1);
        // The clock stands still: a wait would not end.
        let error = client.get("http://a.org").send().await.expect_err("a second");
        assert!(error.is_middleware());
        assert_eq!(error.to_string(), "a rate limit refused the request");
        let wait = refusal(&error).expect("refused by the limit").retry_after();
        assert_eq!(wait, Some(Duration::from_secs(1)));
    }
    let client = answered(RateLimit::new(limiter).cost(|_| 2));
    let error = client.get("http://a.org").send().await.expect_err("more than there ever is");
    assert!(matches!(refusal(&error), Some(tollgate::Error::ExceedsCapacity(_))), "{error}");
}
