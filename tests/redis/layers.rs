//! The layers for tower, with a limit in Redis.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use tollgate::redis::{Reconnecting, RedisRateLimiter};
use tollgate::tower::{RateLimitLayer, RefuseLayer, ResponseBody};
use tollgate::{Error, FixedWindow, InFlight, LockOut, Rate, RateLimit, Same, TokenBucket};
use tower::util::ServiceFn;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::server::Server;

type Answer = std::future::Ready<Result<Response<String>, Infallible>>;

/// A limit of three in an hour and two at a time, and a service within it.
fn service() -> ServiceFn<fn(Request<()>) -> Answer> {
    service_fn(|_| std::future::ready(Ok(Response::new("hello".to_owned()))))
}

pub(super) fn open(server: &Server) -> Reconnecting {
    Reconnecting::open(&server.url()).expect("a URL")
}

pub(super) fn hour(limit: u32) -> FixedWindow {
    FixedWindow::new(limit, Duration::from_secs(3600))
}

pub(super) async fn left<
    P: tollgate::redis::Scripted<Cost = u32>,
    C: tollgate::redis::Connection,
>(
    limiter: &RedisRateLimiter<P, C>,
) -> u32 {
    limiter.quota().await.expect("the server is there").remaining
}

#[tokio::test]
async fn a_client_waits_in_poll_ready_and_gives_back_what_it_did_not_use() {
    let server = Server::start();
    let limiter = RedisRateLimiter::new(hour(3), open(&server), "layers");
    let layer = RateLimitLayer::new(limiter.clone()).max_wait(Duration::from_secs(10));
    let mut client = layer.layer(service());
    client.ready().await.expect("granted");
    assert_eq!(left(&limiter).await, 2);
    client.call(Request::new(())).await.expect("an answer");
    let mut clone = client.clone();
    clone.ready().await.expect("granted");
    assert_eq!(left(&limiter).await, 1);
    drop(clone); // ready, and never called
    assert_eq!(left(&limiter).await, 2);
    for _ in 0..2 {
        client.ready().await.expect("granted").call(Request::new(())).await.expect("an answer");
    }
    let refused = client.ready().await.expect("ready to refuse").call(Request::new(()));
    let error = refused.await.expect_err("three an hour");
    let error = error.downcast_ref::<Error>().expect("the limiter's error");
    assert!(error.retry_after() > Some(Duration::from_secs(3500)), "{error}");
}

#[tokio::test]
async fn a_place_in_flight_in_redis_is_held_by_the_body() {
    let server = Server::start();
    let policy = Same((hour(9), InFlight::new(1)));
    let limiter = RedisRateLimiter::new(policy, open(&server), "layers");
    let shared = limiter.clone();
    let client = RateLimit::by(move |_| shared.clone()).cost(|_| 1).layer(service());
    let response = client.clone().oneshot(Request::new(())).await.expect("an answer");
    assert_eq!(left(&limiter).await, 0);
    assert!(limiter.try_acquire(1).await.is_err());
    drop(response);
    // It waits for the place, which a request of its own gives back.
    let next = client.oneshot(Request::new(()));
    tokio::time::timeout(Duration::from_secs(10), next).await.expect("in time").expect("an answer");
}

#[tokio::test]
async fn each_limit_of_several_is_told() {
    let server = Server::start();
    let minute = TokenBucket::new(Rate::per_minute(1.0), 2);
    let rules = Same((hour(9), Same((minute.clone(), minute.clone())), InFlight::new(5)));
    let limiter = RedisRateLimiter::new(
        LockOut::new(rules, Duration::from_secs(600)),
        open(&server),
        "layers",
    );
    let layer = RefuseLayer::new(limiter.clone());
    let ask = async |layer: &RefuseLayer| {
        layer.layer(service()).oneshot(Request::new(())).await.expect("infallible")
    };
    let rests = |response: &Response<ResponseBody<String>>| -> Vec<(String, Option<u64>)> {
        let items = response.headers()["ratelimit"].to_str().expect("ASCII").split(", ");
        let item = |item: &str| match item.split_once(";t=") {
            Some((rest, time)) => (rest.to_owned(), Some(time.parse().expect("seconds"))),
            None => (item.to_owned(), None),
        };
        items.map(item).collect()
    };
    let is = |rest: &(String, Option<u64>), expected: &str, time: u64| {
        rest.0 == expected && rest.1.is_some_and(|rest| (time - 30..=time).contains(&rest))
    };
    let mut held = vec![ask(&layer).await];
    assert_eq!(
        held[0].headers()["ratelimit-policy"],
        "\"default-0\";q=9;w=3600, \"default-1\";q=2;w=120, \"default-2\";q=2;w=120, \
         \"default-3\";q=5;qu=\"concurrent-requests\""
    );
    let told = rests(&held[0]);
    assert!(is(&told[0], "\"default-0\";r=8", 3600), "{told:?}");
    assert!(
        is(&told[1], "\"default-1\";r=1", 60) && is(&told[2], "\"default-2\";r=1", 60),
        "{told:?}"
    );
    assert_eq!(told[3], ("\"default-3\";r=4".to_owned(), None));
    held.push(ask(&layer).await);
    let told = rests(&ask(&RefuseLayer::new(limiter.clone()).cost(|_| 2)).await);
    // It was refused, and has locked the limit: nothing is left of any part.
    assert!(
        is(&told[0], "\"default-0\";r=0", 600) && is(&told[1], "\"default-1\";r=0", 600),
        "{told:?}"
    );
    assert!(is(&told[3], "\"default-3\";r=0", 600), "{told:?}");
}

#[tokio::test]
async fn servers_share_a_limit_by_key_and_tell_it() {
    let server = Server::start();
    let limiter = |connection| RedisRateLimiter::new(hour(3), connection, "layers:");
    let layer = || {
        let limiter = limiter(open(&server));
        RefuseLayer::by(move |request| limiter.at(format!("layers:{}", request.uri.path())))
    };
    let servers = [layer().layer(service()), layer().layer(service())];
    let ask = async |number: usize, path: &str| {
        let request = Request::get(path).body(()).expect("valid");
        servers[number % 2].clone().oneshot(request).await.expect("infallible")
    };
    for number in 0..3 {
        let response = ask(number, "/one").await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["ratelimit-policy"], "\"default\";q=3;w=3600");
        let limit = response.headers()["ratelimit"].to_str().expect("ASCII").to_owned();
        assert!(limit.starts_with(&format!("\"default\";r={};t=", 2 - number)), "{limit}");
    }
    let refused = ask(3, "/one").await;
    assert_eq!(refused.status(), 429);
    let seconds: u64 =
        refused.headers()["retry-after"].to_str().expect("ASCII").parse().expect("seconds");
    assert!((3500..=3600).contains(&seconds));
    assert_eq!(ask(0, "/two").await.status(), 200);
}
