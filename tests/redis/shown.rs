//! What a limiter over Redis says of itself, and what its calls ask of the server.

use tollgate::redis::{Reconnecting, RedisRateLimiter};
use tollgate::{Limiter, Rate, TokenBucket};

use crate::support::server::Server;

fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(0.1), 5)
}

fn limiter<P: tollgate::redis::Scripted>(
    server: &Server,
    policy: P,
) -> RedisRateLimiter<P, Reconnecting> {
    let connection = Reconnecting::open(&server.url()).expect("an address");
    assert_eq!(format!("{connection:?}"), "Reconnecting { .. }");
    RedisRateLimiter::new(policy, connection, "shown")
}

#[tokio::test]
async fn to_ask_for_the_wait_for_one_number_books_nothing() {
    let server = Server::start();
    let limiter = limiter(&server, bucket());
    limiter.acquire(3).await.expect("full");
    let asked = limiter.counters().asked;
    assert_eq!(limiter.would_wait(2).await.expect("an answer").map(|wait| wait.as_secs()), Some(0));
    let wait = limiter.would_wait(4).await.expect("an answer").expect("a known wait");
    assert!((19..=20).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(limiter.counters().asked, asked);
}

#[test]
fn a_thread_settles_a_grant() {
    let server = Server::start();
    let limiter = limiter(&server, bucket());
    let mut grant = limiter.blocking_acquire(4).expect("full");
    grant.blocking_settle(1).expect("an answer");
    assert_eq!(grant.cost(), 1);
    assert!(limiter.blocking_try_acquire(4).is_ok(), "three have come back");
}
