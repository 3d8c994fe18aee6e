//! Layers whose limiter hears the responses.

use std::convert::Infallible;
use std::future::Ready;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tollgate::feedback::{Feedback, Servers};
use tollgate::tower::RateLimitLayer;
use tollgate::{Error, InFlight, Limiter, ManualClock, Rate, RateLimit, RateLimiter, TokenBucket};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};

fn ten(clock: &ManualClock) -> RateLimiter<InFlight> {
    RateLimiter::with_clock(InFlight::new(10), clock)
}

/// A response without a body.
fn says(status: u16, fields: &[(&'static str, &str)]) -> Response<String> {
    let fields = fields.iter();
    let head = fields
        .fold(Response::builder().status(status), |head, (name, value)| head.header(*name, *value));
    head.body(String::new()).expect("valid")
}

fn get(uri: &str) -> Request<()> {
    Request::get(uri).body(()).expect("a URI")
}

/// How long a call would have to wait.
fn refused_for(error: &BoxError) -> Option<Duration> {
    error.downcast_ref::<Error>().expect("the limiter's").retry_after()
}

#[tokio::test]
async fn a_feedback_in_the_layer_hears_each_response() {
    let feedback = Feedback::new(ten(&ManualClock::new()));
    let service = RateLimitLayer::new(feedback.clone()).max_wait(Duration::ZERO).layer(service_fn(
        async |_: Request<()>| Ok::<_, Infallible>(says(429, &[("retry-after", "7")])),
    ));
    let response = service.clone().oneshot(get("/")).await.expect("sent");
    assert_eq!((response.status().as_u16(), feedback.server_state().refused), (429, 1));
    let error = service.oneshot(get("/")).await.expect_err("paused");
    assert_eq!(refused_for(&error), Some(Duration::from_secs(7)));
}

/// The same, where the request decides.
#[tokio::test]
async fn so_does_one_that_the_request_chooses() {
    let clock = ManualClock::new();
    let feedback = Feedback::new(ten(&clock));
    let chosen = feedback.clone();
    let service = RateLimit::by(move |_| chosen.clone()).max_wait(Duration::ZERO).layer(
        service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(says(
                200,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "9")],
            ))
        }),
    );
    service.clone().oneshot(get("/")).await.expect("sent");
    assert_eq!(feedback.server_state().meters[0].1.remaining, Some(0));
    let error = service.oneshot(get("/")).await.expect_err("nothing is left");
    assert_eq!(refused_for(&error), Some(Duration::from_secs(9)));
}

/// As an outage shows itself: after a while calls go as probes, of which one is sent at a time.
#[tokio::test]
async fn a_server_that_is_not_reached_gets_fewer_calls() {
    let clock = ManualClock::new();
    let feedback = Feedback::new(ten(&clock));
    let service = RateLimitLayer::new(feedback.clone())
        .max_wait(Duration::ZERO)
        .layer(service_fn(async |_: Request<()>| Err::<Response<String>, _>(BoxError::from("no"))));
    let mut sent = 0;
    for _ in 0..1000 {
        let error = service.clone().oneshot(get("/")).await.expect_err("it fails");
        sent += u32::from(error.to_string() == "no");
        clock.advance(Duration::from_millis(100));
    }
    assert!((10..200).contains(&sent), "{sent} calls in 100 seconds");
    assert_eq!(feedback.limiter().available(), 10);
}

#[tokio::test]
async fn a_refusal_of_one_host_delays_no_other() {
    let clock = ManualClock::new();
    let servers = Servers::new(ten(&clock));
    let service = RateLimit::by(move |request| servers.of(request)).max_wait(Duration::ZERO).layer(
        service_fn(async |request: Request<()>| {
            let is_busy = request.uri().host() == Some("busy.example");
            Ok::<_, Infallible>(if is_busy {
                says(429, &[("retry-after", "5")])
            } else {
                says(200, &[])
            })
        }),
    );
    let call = |uri| service.clone().oneshot(get(uri));
    call("http://busy.example/a").await.expect("sent");
    call("http://other.example/").await.expect("not its concern");
    let error = call("http://busy.example/b").await.expect_err("paused");
    assert_eq!(refused_for(&error), Some(Duration::from_secs(5)));
    clock.advance(Duration::from_secs(5));
    call("http://busy.example/").await.expect("its time has come");
}

/// Nothing was sent.
#[tokio::test]
async fn a_service_that_fails_after_the_grant_gives_the_permit_back() {
    #[derive(Clone)]
    struct Fails;

    impl Service<Request<()>> for Fails {
        type Response = Response<String>;
        type Error = BoxError;
        type Future = Ready<Result<Response<String>, BoxError>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
            Poll::Ready(Err("gone".into()))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            unreachable!("it fails before")
        }
    }

    let limiter =
        RateLimiter::with_clock(TokenBucket::new(Rate::per_second(1.0), 5), ManualClock::new());
    let chosen = limiter.clone();
    let service = RateLimit::by(move |_| chosen.clone()).cost(|_| 3).layer(Fails);
    let error = service.oneshot(get("/")).await.expect_err("it fails");
    assert_eq!((error.to_string().as_str(), limiter.available()), ("gone", 5));
}

#[tokio::test]
async fn what_a_gateway_in_front_of_grpc_answers_is_heard() {
    let feedback = Feedback::new(ten(&ManualClock::new()));
    let service = RateLimitLayer::new(feedback.clone()).layer(service_fn(async |_: Request<()>| {
        let fields = [("content-type", "application/grpc"), ("retry-after", "30")];
        Ok::<_, Infallible>(says(429, &fields))
    }));
    drop(service.oneshot(get("/")).await.expect("an answer"));
    let wait = feedback.try_acquire(1).await.expect_err("paused").retry_after();
    assert_eq!(wait, Some(Duration::from_secs(30)));
}

/// As async-openai's, whose responses are reqwest's.
#[tokio::test]
async fn responses_of_reqwest_hold_the_grant_and_teach() {
    let feedback = Feedback::new(ten(&ManualClock::new()));
    let service = RateLimitLayer::new(feedback.clone()).layer(service_fn(async |_: &str| {
        let response = says(200, &[("x-ratelimit-remaining", "4")]).map(|_| "hello");
        Ok::<_, Infallible>(reqwest::Response::from(response))
    }));
    let response: reqwest::Response = service.oneshot("any request").await.expect("an answer");
    assert_eq!(feedback.server_state().meters[0].1.remaining, Some(4));
    assert_eq!(feedback.limiter().stats().granted, 1);
    let held = feedback.limiter().available();
    assert_eq!(response.text().await.expect("a body"), "hello");
    assert_eq!(feedback.limiter().available(), held + 1);

    let feedback = Feedback::new(ten(&ManualClock::new()));
    let service = RateLimitLayer::new(feedback.clone()).layer(service_fn(async |_: &str| {
        Ok::<_, Infallible>(reqwest::Response::from(says(429, &[])))
    }));
    service.oneshot("any request").await.expect("an answer");
    assert_eq!(feedback.server_state().refused, 1);
}

/// As one limiter of two in one decision.
#[tokio::test]
async fn a_feedback_beside_another_limiter_hears_as_well() {
    let clock = ManualClock::new();
    let feedback = Feedback::new(ten(&clock));
    let both = ten(&clock).and(&feedback);
    let service = RateLimitLayer::new(both.clone()).max_wait(Duration::ZERO).layer(service_fn(
        async |_: Request<()>| Ok::<_, Infallible>(says(503, &[("retry-after", "7")])),
    ));
    service.clone().oneshot(get("/")).await.expect("sent");
    let error = service.oneshot(get("/")).await.expect_err("paused");
    assert_eq!(refused_for(&error), Some(Duration::from_secs(7)));
    assert_eq!(feedback.server_state().refused, 1);
}
