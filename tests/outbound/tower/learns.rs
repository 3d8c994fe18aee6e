//! Layers whose limiter hears the responses.

use std::convert::Infallible;
use std::future::Ready;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use tollgate::feedback::{Feedback, Servers, Unit};
use tollgate::tower::RateLimitLayer;
use tollgate::{Error, InFlight, Limiter, ManualClock, Rate, RateLimiter, TokenBucket};
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
    assert_eq!((response.status().as_u16(), feedback.stats().refused), (429, 1));
    let error = service.oneshot(get("/")).await.expect_err("paused");
    assert_eq!(refused_for(&error), Some(Duration::from_secs(7)));
}

/// The same, where the request decides.
#[tokio::test]
async fn so_does_one_that_the_request_chooses() {
    let clock = ManualClock::new();
    let feedback = Feedback::new(ten(&clock));
    let chosen = feedback.clone();
    let service = RateLimitLayer::by(move |_| chosen.clone()).max_wait(Duration::ZERO).layer(
        service_fn(async |_: Request<()>| {
            Ok::<_, Infallible>(says(
                200,
                &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "9")],
            ))
        }),
    );
    service.clone().oneshot(get("/")).await.expect("sent");
    assert_eq!(feedback.remaining(Unit::Requests), Some(0));
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
    let service = RateLimitLayer::by(move |request| servers.of(request))
        .max_wait(Duration::ZERO)
        .layer(service_fn(async |request: Request<()>| {
            let is_busy = request.uri().host() == Some("busy.example");
            Ok::<_, Infallible>(if is_busy {
                says(429, &[("retry-after", "5")])
            } else {
                says(200, &[])
            })
        }));
    let call = |uri| service.clone().oneshot(get(uri));
    call("http://busy.example/a").await.expect("sent");
    call("http://other.example/").await.expect("not its concern");
    let error = call("http://busy.example/b").await.expect_err("paused");
    assert_eq!(refused_for(&error), Some(Duration::from_secs(5)));
    clock.advance(Duration::from_secs(5));
    call("http://busy.example/").await.expect("its time has come");
}

/// A server with windows as GitHub's, of a minute each.
#[derive(Default)]
struct GitHub {
    /// Taken and refused.
    core: Mutex<(u32, u32)>,
    search: Mutex<(u32, u32)>,
}

impl GitHub {
    const MINUTE: Duration = Duration::from_secs(60);

    fn answer(&self, now: Duration, path: &str) -> Response<String> {
        let (name, quota, counts) = match path.starts_with("/search") {
            true => ("search", 60, &self.search),
            false => ("core", 600, &self.core),
        };
        let window = u32::try_from(now.as_secs() / Self::MINUTE.as_secs()).expect("short");
        let mut counts = counts.lock().expect("no panic");
        let left = (quota * (window + 1)).saturating_sub(counts.0.max(quota * window));
        let is_taken = left > 0;
        // What was not used of earlier windows is lost.
        counts.0 = counts.0.max(quota * window) + u32::from(is_taken);
        counts.1 += u32::from(!is_taken);
        let reset = 1_700_000_000 + u64::from(window + 1) * 60;
        says(
            if is_taken { 200 } else { 403 },
            &[
                ("x-ratelimit-resource", name),
                ("x-ratelimit-limit", &quota.to_string()),
                ("x-ratelimit-remaining", &left.saturating_sub(1).to_string()),
                ("x-ratelimit-reset", &reset.to_string()),
                ("date", &httpdate(1_700_000_000 + now.as_secs())),
            ],
        )
    }
}

/// Of a second since the epoch, within the day that begins at 1,699,920,000.
fn httpdate(second: u64) -> String {
    let second = second - 1_699_920_000;
    format!("Tue, 14 Nov 2023 {:02}:{:02}:{:02} GMT", second / 3600, second / 60 % 60, second % 60)
}

/// Of GitHub's `search` and `core` each has its own quota, all of which is used: one that is used up does not hold the
/// other back.
#[tokio::test(start_paused = true)]
async fn search_used_up_does_not_stop_core() {
    let policy = TokenBucket::new(Rate::per_second(100.0), 20);
    let limiter = RateLimiter::with_clock(policy, tollgate::Clock::tokio());
    let github = Arc::new(GitHub::default());
    let start = tokio::time::Instant::now();
    let server = Arc::clone(&github);
    let service = RateLimitLayer::learn(limiter).layer(service_fn(move |request: Request<()>| {
        let server = Arc::clone(&server);
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok::<_, Infallible>(server.answer(start.elapsed(), request.uri().path()))
        }
    }));
    let caller = |path: &'static str| {
        let service = service.clone();
        tokio::spawn(async move {
            for page in 0.. {
                let uri = format!("https://api.github.com{path}/{page}");
                service.clone().oneshot(get(&uri)).await.expect("an answer");
            }
        })
    };
    let callers: Vec<_> =
        ["/repos/a/b/issues", "/search/issues", "/repos/a/b/pulls", "/search/code", "/users"]
            .into_iter()
            .flat_map(|path| [caller(path), caller(path)])
            .collect();
    tokio::time::sleep(3 * GitHub::MINUTE).await;
    callers.iter().for_each(tokio::task::JoinHandle::abort);
    let (core, search) =
        (*github.core.lock().expect("no panic"), *github.search.lock().expect("no panic"));
    println!("core {core:?}, search {search:?}");
    assert!(
        core.0 >= 1800 * 97 / 100 && search.0 >= 180 * 97 / 100,
        "core {core:?}, search {search:?}"
    );
    assert!(core.1 + search.1 <= 12, "core {core:?}, search {search:?}");
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
    let service = RateLimitLayer::by(move |_| chosen.clone()).cost(|_| 3).layer(Fails);
    let error = service.oneshot(get("/")).await.expect_err("it fails");
    assert_eq!((error.to_string().as_str(), limiter.available()), ("gone", 5));
}

/// As kube's, which has one handle.
#[tokio::test]
async fn a_service_that_is_no_clone_learns_by_a_feedback() {
    let feedback = Feedback::new(ten(&ManualClock::new()));
    let inner =
        service_fn(async |_: Request<()>| Ok::<_, BoxError>(says(429, &[("retry-after", "7")])));
    let inner = tower::util::BoxService::new(inner);
    let layer = RateLimitLayer::new(feedback.clone()).max_wait(Duration::ZERO);
    let mut service = layer.layer(inner);
    service.ready().await.expect("ready").call(get("/")).await.expect("sent");
    let error = service.ready().await.expect("ready").call(get("/")).await.expect_err("paused");
    assert_eq!(refused_for(&error), Some(Duration::from_secs(7)));
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
    assert_eq!(feedback.remaining(Unit::Requests), Some(4));
    assert_eq!(feedback.limiter().stats().granted, 1);
    let held = feedback.limiter().available();
    assert_eq!(response.text().await.expect("a body"), "hello");
    assert_eq!(feedback.limiter().available(), held + 1);

    let feedback = Feedback::new(ten(&ManualClock::new()));
    let service = RateLimitLayer::new(feedback.clone()).layer(service_fn(async |_: &str| {
        Ok::<_, Infallible>(reqwest::Response::from(says(429, &[])))
    }));
    service.oneshot("any request").await.expect("an answer");
    assert_eq!(feedback.stats().refused, 1);
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
    assert_eq!(feedback.stats().refused, 1);
}
