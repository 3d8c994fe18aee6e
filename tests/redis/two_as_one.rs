//! Two limiters as one, of which each may need a request to Redis.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tollgate::feedback::Feedback;
use tollgate::redis::{Reconnecting, RedisRateLimiter};
use tollgate::{Error, FixedWindow, Granted, Limiter, ManualClock, RateLimiter};

use crate::layers::{hour, left, open};
use crate::support::server::Server;

fn limiter(server: &Server, key: &str) -> RedisRateLimiter<FixedWindow, Reconnecting> {
    RedisRateLimiter::new(hour(100), open(server), key)
}

#[tokio::test]
async fn a_settlement_is_over_when_it_is_at_both() {
    let server = Server::start();
    let (local, remote) =
        (RateLimiter::with_clock(hour(100), ManualClock::new()), limiter(&server, "remote"));
    let mut grant = local.and(&remote).acquire(10).await.expect("there");
    {
        let mut settled = pin!(Granted::settle(&mut grant, 4));
        // Else the reply may come before the poll has ended.
        server.stop_process();
        let polled = settled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        server.continue_process();
        assert!(polled.is_pending(), "no reply has come");
        settled.await.expect("in time");
    }
    assert_eq!((local.available(), left(&remote).await), (96, 96));
}

#[tokio::test]
async fn both_are_paused_by_what_the_server_says() {
    let server = Server::start();
    let limiters = ["one", "other"].map(|key| limiter(&server, key));
    let [one, other] = limiters.each_ref().map(|limiter| Feedback::new(limiter.clone()));
    let mut grant = one.and(&other).acquire(1).await.expect("there");
    let mut headers = http::HeaderMap::new();
    headers.insert("retry-after", http::HeaderValue::from_static("30"));
    // Else the replies may come before `hear` has polled.
    server.stop_process();
    let heard = grant.hear(http::StatusCode::TOO_MANY_REQUESTS, &headers, b"");
    server.continue_process();
    heard.expect("requests to Redis").await;
    for limiter in limiters {
        let refused = limiter.try_acquire(1).await.expect_err("paused");
        assert!(matches!(refused, Error::Denied { .. }), "{refused}");
        assert!(refused.retry_after() > Some(Duration::from_secs(20)), "{refused}");
    }
}
