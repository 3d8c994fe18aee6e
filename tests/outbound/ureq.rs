//! The middleware for ureq.

use std::io::Read;
use std::time::Duration;

use tollgate::feedback::{Feedback, Servers};
use tollgate::{Error, InFlight, ManualClock, Rate, RateLimit, RateLimiter, SmoothBursty};
use ureq::http::{Request, Response};
use ureq::middleware::MiddlewareNext;
use ureq::{Agent, Body, SendBody};

type Answer = Result<Response<Body>, ureq::Error>;

/// An agent whose calls are answered by `answer` in place of a server, by the path.
fn agent(limit: RateLimit, answer: fn(&str) -> Answer) -> Agent {
    let answer = move |request: Request<SendBody>, _: MiddlewareNext| answer(request.uri().path());
    let config = Agent::config_builder().http_status_as_error(false);
    config.middleware(limit).middleware(answer).build().new_agent()
}

fn hello(_: &str) -> Answer {
    Ok(Response::new(Body::builder().mime_type("text/plain").charset("utf-8").data("hello")))
}

fn refused(_: &str) -> Answer {
    let response = Response::builder().status(429).header("retry-after", "7");
    Ok(response.body(Body::builder().data("slower")).expect("a response"))
}

fn of_one() -> (RateLimiter<InFlight>, ManualClock) {
    let clock = ManualClock::auto_advance();
    (RateLimiter::with_clock(InFlight::new(1), &clock), clock)
}

#[test]
fn a_server_that_asks_to_wait_holds_its_own_calls_back() {
    let (limiter, clock) = of_one();
    let agent = agent(RateLimit::new(limiter), |path| match path {
        "/busy" => refused(path),
        _ => hello(path),
    });
    assert_eq!(agent.get("http://a.example/busy").call().expect("a response").status(), 429);
    agent.get("http://b.example/").call().expect("a response");
    assert_eq!(clock.elapsed(), Duration::ZERO);
    agent.get("http://a.example/").call().expect("a response");
    assert_eq!(clock.elapsed(), Duration::from_secs(7));
}

#[test]
fn a_limiter_that_learns_hears_the_responses() {
    let feedback = Feedback::new(of_one().0);
    let agent = agent(RateLimit::new(feedback.clone()), refused);
    assert_eq!(agent.get("http://a.example/").call().expect("a response").status(), 429);
    assert_eq!(feedback.server_state().refused, 1);
}

#[test]
fn a_status_that_is_an_error_is_learned_from_without_its_time() {
    let clock = ManualClock::auto_advance();
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1000.0)), &clock);
    let servers = Servers::new(limiter);
    let table = servers.clone();
    let limit = RateLimit::by(move |request| table.of(request));
    let agent = agent(limit, |path| match path {
        "/busy" => Err(ureq::Error::StatusCode(429)),
        "/odd" => Err(ureq::Error::StatusCode(7)),
        _ => Err(ureq::Error::ConnectionFailed),
    });
    for path in ["busy", "odd", "gone"] {
        agent.get(format!("http://a.example/{path}")).call().expect_err("an error");
    }
    let learned = servers.learned();
    let [learned] = learned.as_slice() else { panic!("{learned:?}") };
    assert_eq!(learned.server, "a.example");
    assert!(learned.feedback.rate().is_some());
    assert_eq!(learned.feedback.server_state().pauses, 0);
}

#[test]
fn a_place_in_flight_is_held_until_the_body_has_been_read() {
    let (limiter, _) = of_one();
    let agent = agent(RateLimit::new(limiter.clone()), |path| match path {
        "/empty" => Ok(Response::new(Body::builder().data(""))),
        "/lost" => Err(ureq::Error::ConnectionFailed),
        _ => hello(path),
    });
    let call = |path: &str| agent.get(format!("http://a.example/{path}")).call();

    let mut response = call("").expect("a response");
    assert_eq!(limiter.available(), 0);
    assert_eq!(
        (response.body().mime_type(), response.body().charset()),
        (Some("text/plain"), Some("utf-8"))
    );
    assert_eq!(response.body_mut().read_to_string().expect("text"), "hello");
    assert_eq!(limiter.available(), 1);

    let mut response = call("").expect("a response");
    let mut body = response.body_mut().as_reader();
    let mut read = |room: usize| body.read(&mut vec![0; room]).expect("text");
    assert_eq!((read(0), read(3), limiter.available()), (0, 3, 0));
    assert_eq!((read(9), read(0), limiter.available()), (2, 0, 0), "more may follow");
    assert_eq!((read(9), limiter.available()), (0, 1));
    drop(response);

    let response = call("").expect("a response");
    assert_eq!(limiter.available(), 0);
    drop(response);
    assert_eq!(limiter.available(), 1);

    let response = call("empty").expect("a response");
    assert_eq!(limiter.available(), 1);
    drop(response);
    call("lost").expect_err("no connection");
    assert_eq!(limiter.available(), 1);
}

#[test]
fn a_request_that_would_wait_too_long_is_not_sent() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(2.0)), &clock);
    let limit = RateLimit::new(limiter)
        .max_wait(Duration::from_millis(100))
        .cost(|request| if request.uri.path() == "/free" { 0 } else { 1 });
    let agent = agent(limit, hello);
    agent.get("http://a.example/").call().expect("a response");
    agent.get("http://a.example/free").call().expect("a response");
    let error = agent.get("http://a.example/").call().expect_err("a refusal");
    let ureq::Error::Other(error) = error else { panic!("{error}") };
    let refusal = error.downcast_ref().and_then(Error::retry_after);
    assert_eq!(refusal, Some(Duration::from_millis(500)));
}
