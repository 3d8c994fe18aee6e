//! Between `poll_ready` and `call`, with the services of tower-test in the layer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use tokio_test::{assert_pending, assert_ready, assert_ready_ok};
use tollgate::tower::{RateLimitLayer, RefuseLayer};
use tollgate::{
    Error, FixedWindow, InFlight, ManualClock, Rate, RateLimit, RateLimiter, SmoothBursty,
    TokenBucket,
};
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_test::mock::{self, Handle, Mock, Spawn};

type Inner = Mock<Request<()>, Response<String>>;
type Calls = Handle<Request<()>, Response<String>>;

fn service(layer: &RateLimitLayer) -> (Spawn<<RateLimitLayer as Layer<Inner>>::Service>, Calls) {
    mock::spawn_with(|inner| layer.layer(inner))
}

/// Ten a second, ten at once.
fn bucket(clock: &ManualClock) -> RateLimiter<TokenBucket> {
    RateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 10), clock)
}

fn limits_error(error: &BoxError) -> &Error {
    error.downcast_ref().expect("the limiter's error")
}

#[tokio::test]
async fn the_permit_is_taken_in_poll_ready_and_spent_in_call() {
    let limiter = bucket(&ManualClock::new());
    let (mut service, mut calls) = service(&RateLimitLayer::new(limiter.clone()));
    assert_ready_ok!(service.poll_ready());
    assert_ready_ok!(service.poll_ready());
    assert_eq!(limiter.available(), 9);
    let response = service.call(Request::new(()));
    let response = tokio::spawn(response);
    calls.next_request().await.expect("the call").1.send_response(Response::new("hi".into()));
    let response = response.await.expect("no panic").expect("an answer");
    assert_eq!(response.into_body().size_hint().exact(), Some(2));
    assert_eq!(limiter.available(), 9);
    assert_ready_ok!(service.poll_ready());
    assert_eq!(limiter.available(), 8);
}

#[tokio::test]
async fn no_permit_is_taken_while_the_inner_service_is_not_ready() {
    let limiter = bucket(&ManualClock::new());
    let (mut service, mut calls) = service(&RateLimitLayer::new(limiter.clone()));
    calls.allow(0);
    assert_pending!(service.poll_ready());
    assert_eq!(limiter.available(), 10);
    calls.allow(1);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());
    assert_eq!(limiter.available(), 9);
}

/// Ready as the test says: the mock stays ready once it was.
#[derive(Clone)]
struct Moody(Arc<AtomicBool>);

impl Service<Request<()>> for Moody {
    type Response = Response<String>;
    type Error = BoxError;
    type Future = std::future::Ready<Result<Response<String>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        if self.0.load(Relaxed) { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        std::future::ready(Ok(Response::default()))
    }
}

#[tokio::test]
async fn a_permit_waits_for_a_service_that_got_busy_meanwhile() {
    let clock = ManualClock::new();
    let limiter = bucket(&clock);
    limiter.try_acquire(10).expect("full");
    let ready = Arc::new(AtomicBool::new(true));
    let inner = Moody(Arc::clone(&ready));
    let mut service = Spawn::new(RateLimitLayer::new(limiter.clone()).layer(inner));
    assert_pending!(service.poll_ready());
    assert_eq!(limiter.queue_len(), 1);
    ready.store(false, Relaxed);
    clock.advance(Duration::from_millis(100));
    assert!(service.is_woken());
    assert_pending!(service.poll_ready());
    assert_eq!((limiter.queue_len(), limiter.available()), (0, 0));
    ready.store(true, Relaxed);
    assert_ready_ok!(service.poll_ready());
    drop(service);
    assert_eq!(limiter.available(), 1);
}

#[tokio::test]
async fn a_service_that_fails_takes_no_permit() {
    let limiter = bucket(&ManualClock::new());
    let (mut service, mut calls) = service(&RateLimitLayer::new(limiter.clone()));
    calls.send_error("gone");
    let error = assert_ready!(service.poll_ready()).expect_err("it failed");
    assert_eq!(error.to_string(), "gone");
    assert_eq!(limiter.available(), 10);
}

#[tokio::test]
async fn a_service_that_was_ready_and_is_dropped_gives_its_permit_back() {
    let rate = bucket(&ManualClock::new());
    let (mut service, _calls) = service(&RateLimitLayer::new(rate.clone()));
    assert_ready_ok!(service.poll_ready());
    drop(service);
    assert_eq!(rate.available(), 10);

    let places = RateLimiter::new(InFlight::new(1));
    let (mut service, _calls) = self::service(&RateLimitLayer::new(places.clone()));
    assert_ready_ok!(service.poll_ready());
    assert_eq!(places.available(), 0);
    drop(service);
    assert_eq!(places.available(), 1);
}

#[tokio::test]
async fn a_clone_has_its_own_readiness() {
    let limiter = RateLimiter::new(InFlight::new(1));
    let (mut service, _calls) = service(&RateLimitLayer::new(limiter.clone()));
    assert_ready_ok!(service.poll_ready());
    let mut clone = service.clone();
    assert_pending!(clone.poll_ready());
    assert_eq!(limiter.queue_len(), 1);
    drop(service);
    assert!(clone.is_woken());
    assert_ready_ok!(clone.poll_ready());
}

#[tokio::test]
#[should_panic(expected = "`call` before `poll_ready` was ready")]
async fn a_clone_of_a_ready_service_is_not_ready() {
    let (mut service, _calls) = service(&RateLimitLayer::new(bucket(&ManualClock::new())));
    assert_ready_ok!(service.poll_ready());
    drop(service.clone().call(Request::new(())));
}

#[tokio::test]
async fn a_limiter_that_refuses_fails_the_call_and_not_the_service() {
    let clock = ManualClock::new();
    let limiter = bucket(&clock);
    limiter.try_acquire(10).expect("full");
    let layer = RateLimitLayer::new(limiter.clone()).max_wait(Duration::from_millis(99));
    let (mut service, mut calls) = service(&layer);
    for _ in 0..2 {
        assert_ready_ok!(service.poll_ready());
        let error = service.call(Request::new(())).await.expect_err("100 ms are needed");
        assert_eq!(limits_error(&error).retry_after(), Some(Duration::from_millis(100)));
    }
    // The next call asks anew.
    clock.advance(Duration::from_millis(100));
    assert_ready_ok!(service.poll_ready());
    let response = tokio::spawn(service.call(Request::new(())));
    calls.next_request().await.expect("the call").1.send_response(Response::default());
    assert!(response.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn errors_of_the_limiter_are_typed_and_nothing_hangs() {
    let refused = async |layer: RateLimitLayer| {
        let (service, _calls) = mock::pair::<Request<()>, Response<String>>();
        layer.layer(service).oneshot(Request::new(())).await.expect_err("refused")
    };
    let closed = RateLimiter::new(FixedWindow::new(0, Duration::from_secs(1)));
    let error = refused(RateLimitLayer::new(closed)).await;
    assert!(matches!(limits_error(&error), Error::ExceedsCapacity(_)), "{error}");

    let policy = SmoothBursty::new(Rate::per_second(1.0));
    let full = RateLimiter::builder(policy).max_waiters(0).clock(ManualClock::new()).build();
    full.try_acquire(1).expect("unused");
    let error = refused(RateLimitLayer::new(full)).await;
    assert!(
        matches!(limits_error(&error), Error::QueueFull { limit: "max_waiters", .. }),
        "{error}"
    );
}

#[tokio::test]
async fn the_layer_for_servers_is_ready_when_its_service_is() {
    let layer = RefuseLayer::new(RateLimiter::new(InFlight::new(1)));
    let (mut service, mut calls): (_, Calls) = mock::spawn_with(|inner: Inner| layer.layer(inner));
    calls.allow(0);
    assert_pending!(service.poll_ready());
    calls.allow(1);
    assert_ready_ok!(service.poll_ready());
}

/// The cost of a request: asked in the future of `call`.
#[tokio::test]
async fn a_cost_of_the_request_is_awaited_by_the_call() {
    let clock = ManualClock::new();
    let limiter = bucket(&clock);
    let chosen = limiter.clone();
    let layer = RateLimit::by(move |_| chosen.clone())
        .cost(|request| request.extensions.get().copied().unwrap_or_default());
    let (mut service, mut calls) = mock::spawn_with(|inner: Inner| layer.layer(inner));
    let ask = |cost: u32| Request::get("/").extension(cost).body(()).expect("valid");
    let send = |service: &mut Spawn<_>, cost| {
        assert_ready_ok!(Spawn::poll_ready(service));
        tokio_test::task::spawn(service.call(ask(cost)))
    };
    let mut first = send(&mut service, 9);
    let mut second = send(&mut service, 2);
    let mut third = send(&mut service, 1);
    assert_eq!(limiter.available(), 10);
    assert_pending!(first.poll());
    assert_eq!(limiter.available(), 1);
    assert_pending!(second.poll());
    assert_pending!(third.poll());
    assert_eq!(limiter.queue_len(), 2);
    drop(second);
    assert!(third.is_woken());
    // Too large for ever.
    let mut large = send(&mut service, 11);
    let error = assert_ready!(large.poll()).expect_err("never");
    assert!(matches!(limits_error(&error), Error::ExceedsCapacity(error) if error.max == 10));
    drop(calls.next_request().await);
    let error = assert_ready!(first.poll()).expect_err("the mock dropped it");
    assert!(error.downcast_ref::<Error>().is_none());
    // The permits of a call that was made stay spent.
    assert_pending!(third.poll());
    assert_eq!(limiter.available(), 0);
}
