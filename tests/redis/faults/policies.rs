//! Limiters that disagree on the policy of a key, and limiters that learn of a later one.

use tollgate::redis::{State, Unavailable};
use tollgate::{Rate, Rated, SmoothBursty};

use super::report::fault;
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
    fault("the key is lost after set_policy", "Reconnecting")
        .answer("granted; the first process that knows the later policy restores it")
        .back(back)
        .done();
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
    fault("set_policy without an answer", "Reconnecting")
        .answer("Store: may have been set; it holds once the process reaches Redis again")
        .longest(longest, ms(200))
        .back(back)
        .done();
}
