//! The limit holds however a service is cloned: tower's own `RateLimit` counts by service, so that axum, which
//! clones for each request, lets all requests through (axum#3682).

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::error_handling::HandleErrorLayer;
use axum::routing::get;
use axum::{BoxError, Router};
use http::{Request, Response, StatusCode};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tollgate::tower::RateLimitLayer;
use tollgate::{AnyRateLimiter, Clock, Error, RateLimiter, SlidingWindowLog};
use tower::{Service, ServiceBuilder, ServiceExt};

/// The seconds at which calls arrive.
#[derive(Clone)]
struct Arrivals {
    start: Instant,
    seconds: Arc<Mutex<Vec<u64>>>,
}

impl Arrivals {
    fn new() -> Self {
        Self { start: Instant::now(), seconds: Arc::default() }
    }

    fn one(&self) {
        self.seconds.lock().expect("no panic").push(self.start.elapsed().as_secs());
    }

    /// The number in each second.
    #[track_caller]
    fn assert_five_each_second(&self, seconds: u64) {
        let arrived = self.seconds.lock().expect("no panic");
        let expected: Vec<_> = (0..seconds).flat_map(|second| [second; 5]).collect();
        assert_eq!(*arrived, expected);
    }
}

fn five_a_second() -> AnyRateLimiter {
    let policy = SlidingWindowLog::new(5, Duration::from_secs(1));
    AnyRateLimiter::new(RateLimiter::with_clock(policy, Clock::tokio()))
}

fn handler(arrivals: &Arrivals) -> axum::routing::MethodRouter {
    let arrivals = arrivals.clone();
    get(async move || arrivals.one())
}

/// How many calls of `service`, all at once, got each status; `None` is an error.
async fn call<S, T>(service: S, calls: usize) -> Vec<Option<StatusCode>>
where
    S: Service<Request<axum::body::Body>, Response = Response<T>> + Clone + Send + 'static,
    S::Future: Send,
    T: Send + 'static,
    S::Error: Send + 'static,
{
    let mut tasks = JoinSet::new();
    for _ in 0..calls {
        let request = Request::new(axum::body::Body::empty());
        tasks.spawn(service.clone().oneshot(request));
    }
    let answers = tasks.join_all().await;
    answers.into_iter().map(|answer| answer.ok().map(|answer| answer.status())).collect()
}

fn count(answers: &[Option<StatusCode>], status: StatusCode) -> usize {
    answers.iter().filter(|answer| **answer == Some(status)).count()
}

async fn unavailable(error: BoxError) -> StatusCode {
    assert!(error.is::<tower::load_shed::error::Overloaded>() || error.is::<Error>(), "{error}");
    StatusCode::SERVICE_UNAVAILABLE
}

#[tokio::test(start_paused = true)]
async fn under_axum() {
    let arrivals = Arrivals::new();
    let limit = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(unavailable))
        .layer(RateLimitLayer::new(five_a_second()));
    let app = Router::new().route("/", handler(&arrivals)).layer(limit);
    let answers = call(app, 40).await;
    assert_eq!(count(&answers, StatusCode::OK), 40);
    arrivals.assert_five_each_second(8);
}

#[tokio::test(start_paused = true)]
async fn two_routes_of_axum_with_one_layer_share_the_limit() {
    let arrivals = Arrivals::new();
    let limit = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(unavailable))
        .layer(RateLimitLayer::new(five_a_second()));
    let one = Router::new().route("/", handler(&arrivals)).layer(limit.clone());
    let other = Router::new().route("/", handler(&arrivals)).layer(limit);
    tokio::join!(call(one, 20), call(other, 20));
    arrivals.assert_five_each_second(8);
}

#[tokio::test(start_paused = true)]
async fn buffered() {
    let arrivals = Arrivals::new();
    let service = ServiceBuilder::new()
        .buffer(1000)
        .layer(RateLimitLayer::new(five_a_second()))
        .service(Router::new().route("/", handler(&arrivals)));
    let answers = call(service, 40).await;
    assert_eq!(count(&answers, StatusCode::OK), 40);
    arrivals.assert_five_each_second(8);
}

#[tokio::test(start_paused = true)]
async fn load_shed() {
    let arrivals = Arrivals::new();
    let limit = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(unavailable))
        .load_shed()
        .layer(RateLimitLayer::new(five_a_second()));
    let app = Router::new().route("/", handler(&arrivals)).layer(limit);
    for _ in 0..8 {
        let answers = call(app.clone(), 40).await;
        assert_eq!(count(&answers, StatusCode::OK), 5);
        assert_eq!(count(&answers, StatusCode::SERVICE_UNAVAILABLE), 35);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    arrivals.assert_five_each_second(8);
}

/// A `Buffer` closes for good if its service fails in `poll_ready`.
#[tokio::test(start_paused = true)]
async fn a_buffer_survives_refusals() {
    let arrivals = Arrivals::new();
    let service = ServiceBuilder::new()
        .buffer(1000)
        .layer(RateLimitLayer::new(five_a_second()).max_wait(Duration::from_millis(999)))
        .service(Router::new().route("/", handler(&arrivals)));
    for _ in 0..8 {
        let answers = call(service.clone(), 40).await;
        assert_eq!(count(&answers, StatusCode::OK), 5);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    arrivals.assert_five_each_second(8);
}
