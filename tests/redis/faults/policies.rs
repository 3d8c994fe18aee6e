//! Limiters that disagree on the policy of a key, and limiters that learn of a later one.

use std::time::Duration;

use tollgate::redis::{RedisRateLimiter, State, Unavailable};
use tollgate::{
    FixedWindow, InFlight, LeakyBucket, Limiter as _, LockOut, Rate, Rated, SmoothBursty,
};

use super::report::{is_back, not_longer};
use super::{Events, KEY, Limiter, builder, bursty, is, ms, reconnecting, store, timed};
use crate::support::server::Server;

fn process(server: &Server, policy: SmoothBursty) -> (Limiter, Events) {
    let events = Events::default();
    let limiter = builder(policy, reconnecting(&server.url()))
        .deadline(ms(200))
        .on_event(events.listener())
        .build();
    (limiter, events)
}

fn rate(limiter: &Limiter) -> f64 {
    limiter.policy().rate().as_per_second()
}

/// The key holds something else, which is no outage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_key_is_an_error_even_where_an_outage_is_none() {
    let server = Server::start();
    server.command(&["SET", KEY, "something else"]);
    let limiter = builder(bursty(100.0), reconnecting(&server.url()));
    let limiter = limiter.unavailable(Unavailable::Allow).build();
    assert!(!store(limiter.acquire(1).await).is_unavailable());
    assert_eq!((limiter.state(), limiter.counters().without_redis), (State::Up, 0));
}

/// Two processes set a policy at the same time: one of the two holds for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_policies_set_at_the_same_time_one_holds_for_all() {
    let server = Server::start();
    for round in 0..10 {
        server.command(&["DEL", KEY]);
        let ((one, _), (other, _)) =
            (process(&server, bursty(100.0)), process(&server, bursty(100.0)));
        let (third, _) = process(&server, bursty(100.0));
        third.acquire(1).await.expect("granted");
        let (first, second) = tokio::join!(
            one.set_rate(Rate::per_second(200.0)),
            other.set_rate(Rate::per_second(300.0)),
        );
        first.and(second).expect("set");
        for limiter in [&one, &other, &third, &one] {
            limiter.acquire(1).await.expect("granted");
        }
        let rates = [rate(&one), rate(&other), rate(&third)];
        assert!(rates == [200.0; 3] || rates == [300.0; 3], "round {round}: {rates:?}");
    }
}

/// It was set by a program that is gone, and there was no call for longer than the earlier debt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_was_set_is_kept_without_callers() {
    let server = Server::start();
    let setter = builder(bursty(100.0), reconnecting(&server.url())).absent_is_new(false).build();
    setter.acquire(1).await.expect("granted");
    let left = || server.query::<i64>(&["PTTL", KEY]);
    assert!(left() < 5_000, "as long as the debt: {}", left());
    setter.set_rate(Rate::per_second(5.0)).await.expect("set");
    let month = 30 * 86_400_000;
    assert!(left() > month, "{}", left());
    setter.acquire(1).await.expect("granted");
    assert!(left() > month, "{}", left());
}

/// The key has lost the policy that was set. A process that knows it writes it there again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_key_gets_the_later_policy_back() {
    let server = Server::start();
    let (setter, _) = process(&server, bursty(100.0));
    let (knows, _) = process(&server, bursty(100.0));
    setter.set_rate(Rate::per_second(300.0)).await.expect("set");
    knows.acquire(1).await.expect("granted");
    assert_eq!(rate(&knows), 300.0);
    drop(setter);
    server.restart();
    let (late, late_hears) = process(&server, bursty(100.0));
    // The first call is from a process that does not know it.
    late.acquire(1).await.expect("granted by the policy that it knows");
    assert_eq!(rate(&late), 100.0);
    store(knows.acquire(1).await);
    let back = is(&knows, State::Up).await;
    knows.acquire(1).await.expect("granted by the policy that it knows");
    late.acquire(1).await.expect("granted");
    assert_eq!((rate(&late), late_hears.adopted()), (300.0, late_hears.adopted()));
    assert_eq!(late_hears.adopted().len(), 1);
    is_back(back);
}

/// It is unknown whether the policy was set; after the next reply it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_could_not_be_set_is_set_later() {
    let server = Server::start();
    let (limiter, _) = process(&server, bursty(100.0));
    let (other, hears) = process(&server, bursty(100.0));
    limiter.acquire(1).await.expect("granted");
    server.stop_process();
    let (answer, longest) = timed(limiter.set_rate(Rate::per_second(300.0))).await;
    assert!(store(answer).is_unavailable());
    server.continue_process();
    let back = is(&limiter, State::Up).await;
    limiter.acquire(1).await.expect("granted");
    other.acquire(1).await.expect("granted");
    assert_eq!((rate(&limiter), rate(&other), hears.adopted().len()), (300.0, 300.0, 1));
    not_longer(longest, ms(200));
    is_back(back);
}

/// A lock that a refusal begins leaves the places of calls that the same request granted.
#[tokio::test]
async fn a_place_stays_taken_when_the_next_call_of_its_request_begins_a_lock() {
    let server = Server::start();
    let window = FixedWindow::new(2, Duration::from_secs(3600));
    let policy = (LockOut::new(window, Duration::from_secs(600)), InFlight::new(9));
    let limiter = RedisRateLimiter::new(policy, reconnecting(&server.url()), KEY);
    // The second call and the third share the request after the first.
    let calls = [(); 3].map(|()| limiter.try_acquire((1, 1)));
    let granted = futures::future::join_all(calls).await;
    assert_eq!(granted.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false]);
    assert_eq!(limiter.available().await.expect("a reply"), (0, 7));
}

/// A process keeps its places when it or another process writes the key.
#[tokio::test]
async fn a_limit_of_places_that_is_set_twice_forgets_none_that_is_taken() {
    let server = Server::start();
    let open = || RedisRateLimiter::new(InFlight::new(10), reconnecting(&server.url()), KEY);
    let (limiter, other) = (open(), open());
    let _held = limiter.acquire(5).await.expect("free");
    for places in [12, 11] {
        limiter.set_policy(InFlight::new(places)).await.expect("a reply");
    }
    assert_eq!(other.available().await.expect("a reply"), 6);
}

/// A queue and a meter are kept in different forms.
#[tokio::test]
async fn a_leaky_bucket_of_another_kind_is_an_error_and_changes_nothing() {
    let server = Server::start();
    let rate = Rate::per_minute(1.0);
    let limiter =
        RedisRateLimiter::new(LeakyBucket::new(rate, 5), reconnecting(&server.url()), KEY);
    limiter.acquire(1).await.expect("granted");
    limiter.set_policy(LeakyBucket::meter(rate, 5)).await.expect_err("another kind");
    assert!(limiter.try_acquire(1).await.expect_err("too early").retry_after().is_some());
}
