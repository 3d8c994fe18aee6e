//! What the middleware learns of responses, and which calls that holds back.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Next};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tollgate::feedback::{Dialect, Dialects, Feedback, Servers, Verdict};
use tollgate::{
    AnyRateLimiter, InFlight, KeyedRateLimiter, Limits, ManualClock, RateLimit, RateLimiter,
    RateLimiters, SlidingWindowLog, Unlimited,
};

use super::{client, refusal};

/// Answers as the path says: `/429/3600` is a refusal for an hour.
fn as_the_path_says<'a>(
    request: Request,
    _: &'a mut Extensions,
    _: Next<'a>,
) -> BoxFuture<'a, reqwest_middleware::Result<Response>> {
    let mut parts = request.url().path_segments().expect("a path").map(str::to_owned);
    let response = http::Response::builder()
        .status(parts.next().expect("a status").as_str())
        .header("retry-after", parts.next().expect("seconds"))
        .body("");
    Box::pin(async { Ok(response.expect("a response").into()) })
}

fn told(limit: RateLimit) -> ClientWithMiddleware {
    let limit = limit.max_wait(Duration::from_secs(60));
    ClientBuilder::new(reqwest::Client::new()).with(limit).with(as_the_path_says).build()
}

fn hundred() -> RateLimiters {
    RateLimiters::with_clock(
        Limits::per_host("100/s").expect("a limit"),
        ManualClock::auto_advance(),
    )
}

/// How long a call would have to wait, in seconds, if that is too long.
async fn refused_for(client: &ClientWithMiddleware, url: &str) -> Option<u64> {
    let error = client.get(url).send().await.err()?;
    Some(refusal(&error).expect("by the limit").retry_after().expect("known").as_secs())
}

#[tokio::test]
async fn a_refusal_stops_its_host_for_all_clones_and_no_other_host() {
    let client = told(RateLimit::limits(hundred()));
    let clone = client.clone();
    assert_eq!(refused_for(&client, "http://a.org/429/600").await, None);
    assert_eq!(refused_for(&clone, "http://a.org/200/0").await, Some(600));
    assert_eq!(refused_for(&clone, "http://b.org/200/0").await, None);
    // At most an hour by default, and as told.
    assert_eq!(refused_for(&client, "http://c.org/503/86400").await, None);
    assert_eq!(refused_for(&client, "http://c.org/200/0").await, Some(3600));
    let max = Duration::from_secs(120);
    let client = told(RateLimit::limits_with(hundred(), move |feedback| feedback.max_wait(max)));
    assert_eq!(refused_for(&client, "http://a.org/429/600").await, None);
    assert_eq!(refused_for(&client, "http://a.org/200/0").await, Some(120));
}

#[tokio::test]
async fn dialects_can_be_set_and_all_of_it_turned_off() {
    let client = told(RateLimit::limits(hundred()));
    assert_eq!(refused_for(&client, "http://a.org/403/600").await, None);
    assert_eq!(refused_for(&client, "http://a.org/200/0").await, None);
    let client = told(RateLimit::limits_with(hundred(), |feedback| {
        feedback.dialects(Dialects::only(Dialect::GITHUB))
    }));
    assert_eq!(refused_for(&client, "http://a.org/403/600").await, None);
    assert_eq!(refused_for(&client, "http://a.org/200/0").await, Some(600));
    let limiters = hundred();
    let client = told(RateLimit::by(move |request| limiters.at(&limiters.name_of(request))));
    assert_eq!(refused_for(&client, "http://a.org/429/600").await, None);
    assert_eq!(refused_for(&client, "http://a.org/200/0").await, None);
}

/// Whether or not the middleware learns as well.
#[tokio::test]
async fn a_limiter_that_learns_hears_the_responses() {
    static JUDGED: AtomicU32 = AtomicU32::new(0);
    type Taught = Feedback<RateLimiter<SlidingWindowLog>>;
    let judges = |feedback: Taught| {
        let servers = Servers::with(feedback, |feedback| {
            feedback.judge(|_, _| _ = JUDGED.fetch_add(1, Ordering::Relaxed))
        });
        RateLimit::by(move |request| servers.of(request))
    };
    let alone = |feedback: Taught| RateLimit::by(move |_| feedback.clone());
    for limit in [RateLimit::new, alone, judges] {
        let log = SlidingWindowLog::new(1000, Duration::from_secs(60));
        let feedback = Feedback::new(RateLimiter::with_clock(log, ManualClock::auto_advance()));
        let client = told(limit(feedback.clone()));
        assert_eq!(refused_for(&client, "http://a.org/429/600").await, None);
        assert_eq!(feedback.server_state().refused, 1);
        assert_eq!(refused_for(&client, "http://a.org/200/0").await, Some(600));
    }
    assert_eq!(JUDGED.load(Ordering::Relaxed), 1, "a response is judged once");
    let log = SlidingWindowLog::new(1000, Duration::from_secs(60));
    let feedback = Feedback::new(RateLimiter::with_clock(log, ManualClock::new()));
    let client = client(RateLimit::new(feedback.clone()));
    // Nothing listens there.
    client.get("http://127.0.0.1:1/").send().await.expect_err("no connection");
    assert_eq!(feedback.server_state().answers, 1, "that there is none is an answer");
    // A middleware inside has not sent the call.
    let none = RateLimiter::with_clock(InFlight::new(1), ManualClock::new());
    let _place = none.try_acquire(1).expect("free");
    let inside = RateLimit::new(none.clone()).max_wait(Duration::ZERO);
    let client = ClientBuilder::new(reqwest::Client::new());
    let client = client.with(RateLimit::new(feedback.clone())).with(inside).build();
    client.get("http://a.org/").send().await.expect_err("no place");
    assert_eq!(feedback.server_state().answers, 1, "and says nothing of the server");
}

/// A 429 with a body that begins, and then breaks off or stalls.
async fn broken_refusals(stalls: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let head = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 30\r\ncontent-length: 9\r\n\r\nhello";
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(head.as_bytes()).await;
            if stalls {
                tokio::spawn(async move {
                    let _open = stream;
                    std::future::pending::<()>().await;
                });
            }
        }
    });
    address
}

#[tokio::test]
async fn a_refusal_whose_body_does_not_come_is_heard_all_the_same() {
    for stalls in [false, true] {
        let url = format!("http://{}/", broken_refusals(stalls).await);
        let limiter = RateLimiter::with_clock(InFlight::new(10), ManualClock::new());
        let servers = Servers::with(limiter, |feedback| feedback.judge(|_, _| ()));
        let limit = RateLimit::by(move |request| servers.of(request));
        let client = client(limit.max_wait(Duration::ZERO));
        let call = tokio::time::timeout(Duration::from_millis(300), client.get(&url).send());
        match call.await {
            Ok(answer) => {
                let error = answer.expect_err("its body breaks off");
                assert!(!stalls && refusal(&error).is_none(), "{error:?}");
            }
            Err(_) => assert!(stalls),
        }
        assert_eq!(refused_for(&client, &url).await, Some(30), "stalls: {stalls}");
    }
}

#[tokio::test]
async fn keys_of_ones_own_are_taught_apart() {
    let log = SlidingWindowLog::new(1000, Duration::from_secs(60));
    let keyed = KeyedRateLimiter::<String, _>::with_clock(log, ManualClock::auto_advance());
    let unlimited = AnyRateLimiter::new(RateLimiter::new(Unlimited));
    let servers = Servers::new(unlimited.clone());
    let by_path = RateLimit::by(move |request| match request.uri.query() {
        Some(key) => {
            let limiter = AnyRateLimiter::new(keyed.at(key).into_owned());
            AnyRateLimiter::new(servers.behind(key, limiter).of(request))
        }
        None => unlimited.clone(),
    });
    let client = told(by_path);
    assert_eq!(refused_for(&client, "http://a.org/429/600?a").await, None);
    assert_eq!(refused_for(&client, "http://a.org/200/0?a").await, Some(600));
    assert_eq!(refused_for(&client, "http://a.org/200/0?b").await, None);
    // What has no key is not limited, and teaches nothing.
    assert_eq!(refused_for(&client, "http://a.org/429/600").await, None);
    assert_eq!(refused_for(&client, "http://a.org/200/0").await, None);
}

/// A limit for all hosts is the user's: what one of them says holds back no other.
#[tokio::test]
async fn a_refusal_delays_no_other_host_under_one_limit() {
    let limits = || Limits::per_name("100/s").expect("a limit");
    let limiters = RateLimiters::with_clock(limits(), ManualClock::auto_advance());
    let log = SlidingWindowLog::new(100, Duration::from_secs(1));
    let one = RateLimiter::with_clock(log, ManualClock::auto_advance());
    for limit in [RateLimit::limits(limiters), RateLimit::new(one)] {
        let client = told(limit);
        assert_eq!(refused_for(&client, "http://a.org/429/600").await, None);
        assert_eq!(refused_for(&client, "http://b.org/200/0").await, None);
        assert!(refused_for(&client, "http://a.org/200/0").await >= Some(599));
        assert_eq!(refused_for(&client, "http://a.org:8080/200/0").await, None);
    }
}

/// `/search/0` says that nothing is left of `search`.
fn with_buckets<'a>(
    request: Request,
    _: &'a mut Extensions,
    _: Next<'a>,
) -> BoxFuture<'a, reqwest_middleware::Result<Response>> {
    let mut parts = request.url().path_segments().expect("a path").map(str::to_owned);
    let response = http::Response::builder()
        .header("x-ratelimit-resource", parts.next().expect("a bucket"))
        .header("x-ratelimit-remaining", parts.next().expect("a number"))
        .header("x-ratelimit-reset", "60")
        .body("");
    Box::pin(async { Ok(response.expect("a response").into()) })
}

#[tokio::test]
async fn a_bucket_of_a_host_that_is_used_up_does_not_stop_the_others() {
    let limiters = hundred();
    let servers = Servers::new(limiters.at("any"));
    let kept = servers.clone();
    let limit = RateLimit::by(move |request| {
        let name = limiters.name_of(request);
        servers.behind(&name, limiters.at(&name)).of(request)
    });
    let limit = limit.max_wait(Duration::from_secs(10));
    let client = ClientBuilder::new(reqwest::Client::new()).with(limit).with(with_buckets).build();
    assert_eq!(refused_for(&client, "http://a.org/core/4999").await, None);
    assert_eq!(refused_for(&client, "http://a.org/search/0").await, None);
    for _ in 0..3 {
        assert!(refused_for(&client, "http://a.org/search/0").await >= Some(59));
        assert_eq!(refused_for(&client, "http://a.org/core/4999").await, None);
    }
    let mut buckets: Vec<_> = kept.learned().into_iter().map(|learned| learned.bucket).collect();
    buckets.sort();
    assert_eq!(buckets, ["", "core", "search"]);
}

/// `/429/insufficient_quota`: a refusal with this body.
fn with_body<'a>(
    request: Request,
    _: &'a mut Extensions,
    _: Next<'a>,
) -> BoxFuture<'a, reqwest_middleware::Result<Response>> {
    let mut parts = request.url().path_segments().expect("a path").map(str::to_owned);
    let response = http::Response::builder().status(parts.next().expect("a status").as_str());
    let response = response.header("retry-after", "600").body(parts.next().expect("a text"));
    Box::pin(async { Ok(response.expect("a response").into()) })
}

/// `OpenAI`'s 429 for good, which no wait helps against.
#[tokio::test]
async fn the_program_judges_by_the_body_which_the_caller_gets_all_the_same() {
    let limit = RateLimit::limits_with(hundred(), |feedback| {
        feedback.judge(|response, answer| {
            if String::from_utf8_lossy(response.body()).contains("insufficient_quota") {
                answer.verdict = Verdict::Accepted;
            }
        })
    });
    let limit = limit.max_wait(Duration::from_secs(60));
    let client = ClientBuilder::new(reqwest::Client::new()).with(limit).with(with_body).build();
    let response = client.get("http://a.org/429/insufficient_quota").send().await.expect("sent");
    assert_eq!(response.status(), 429);
    assert_eq!(response.text().await.expect("a body"), "insufficient_quota");
    assert_eq!(refused_for(&client, "http://a.org/429/slow_down").await, None);
    assert!(refused_for(&client, "http://a.org/200/ok").await >= Some(599));
}

/// `/json/28.1s`: a refusal as Google's APIs send it, with this delay.
fn with_delay<'a>(
    request: Request,
    _: &'a mut Extensions,
    _: Next<'a>,
) -> BoxFuture<'a, reqwest_middleware::Result<Response>> {
    let mut parts = request.url().path_segments().expect("a path").map(str::to_owned);
    let kind = format!("application/{}; charset=utf-8", parts.next().expect("a type"));
    let info = "\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\"";
    let delay = parts.next().expect("a delay");
    let body = format!("{{\"error\": {{\"details\": [{{{info}, \"retryDelay\": \"{delay}\"}}]}}}}");
    let response = http::Response::builder().status(429).header("content-type", kind).body(body);
    Box::pin(async { Ok(response.expect("a response").into()) })
}

#[tokio::test]
async fn the_delay_in_the_json_of_a_refusal_holds_calls_back() {
    let limit = RateLimit::limits(hundred()).max_wait(Duration::from_secs(10));
    let client = ClientBuilder::new(reqwest::Client::new()).with(limit).with(with_delay).build();
    let response = client.get("http://a.org/json/28.1s").send().await.expect("sent");
    assert!(response.text().await.expect("a body").ends_with("\"28.1s\"}]}}"));
    assert_eq!(refused_for(&client, "http://a.org/json/28.1s").await, Some(28));
    // Of another type it is not read.
    assert_eq!(refused_for(&client, "http://b.org/octet-stream/28.1s").await, None);
    assert!(refused_for(&client, "http://b.org/octet-stream/28.1s").await < Some(20));
}
