//! Callers that leave at any point: no permit is lost for good, and none is minted.

use std::time::Duration;

use futures::future::{FutureExt, poll_immediate};
use tollgate::redis::{RedisGrant, RedisRateLimiter};
use tollgate::{Acquire, FixedWindow, Rate, Rated, SlidingWindowLog, SmoothBursty};

use super::report::fault;
use super::wires::Gate;
use super::{KEY, Limiter, builder, bursty, denied, eventually, ms, reconnecting, slow, stored};
use crate::support::server::Server;

type Call = Acquire<RedisRateLimiter<SmoothBursty, Gate>>;

/// How far the request of a caller has got when the caller leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// Never polled.
    Outside,
    /// Its request is on its way to the server.
    Sent,
    /// The server has charged it; the answer is on its way.
    Charged,
    /// The reply has arrived, and the caller has not been polled.
    Answered,
}

const POINTS: [Point; 4] = [Point::Outside, Point::Sent, Point::Charged, Point::Answered];

fn gated(server: &Server, horizon: Duration) -> (Gate, Limiter<Gate>) {
    let gate = Gate::to(&server.url());
    (gate.clone(), builder(slow(), gate).horizon(horizon).build())
}

/// Polls `call` until its request has reached `point`, with `polls` extra polls on the way.
async fn advance(gate: &Gate, call: &mut Call, point: Point, polls: usize) {
    let before = gate.arrived();
    let answered = gate.answered();
    for step in POINTS.into_iter().take_while(|&step| step != point).chain([point]) {
        match step {
            Point::Outside => continue,
            Point::Sent => {
                for _ in 0..polls {
                    assert!(poll_immediate(&mut *call).await.is_none());
                }
                eventually("the request is sent", || gate.arrived() == before + 1).await;
            }
            Point::Charged => {
                gate.let_there();
                eventually("it is charged", || gate.answered() == answered + 1).await;
            }
            Point::Answered => gate.let_back(),
        }
        if step == Point::Sent || step == Point::Charged {
            for _ in 1..polls {
                assert!(poll_immediate(&mut *call).await.is_none());
            }
        }
    }
}

/// All requests have been answered, and the rest has been given back.
async fn settled(gate: &Gate) {
    gate.open();
    eventually("all is answered", || gate.arrived() == gate.answered()).await;
    // A refund may follow the reply that causes it.
    let mut seen = gate.answered();
    loop {
        tokio::time::sleep(ms(20)).await;
        let now = gate.answered();
        if now == seen && gate.arrived() == now {
            return;
        }
        seen = now;
    }
}

/// A single caller, at each point, polled once or several times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaver_gives_back_exactly_the_permits_taken() {
    let server = Server::start();
    for point in POINTS {
        for polls in 1..=3 {
            server.command(&["FLUSHALL"]);
            let (gate, limiter) = gated(&server, ms(250));
            let mut call = limiter.acquire(1);
            advance(&gate, &mut call, point, polls).await;
            if point == Point::Answered {
                eventually("it is granted", || limiter.stats().granted == 1).await;
            }
            drop(call);
            settled(&gate).await;
            assert_eq!(limiter.queue_len(), 0, "{point:?}");
            limiter.try_acquire(1).await.unwrap_or_else(|e| panic!("lost at {point:?}: {e}"));
            let retry_after = denied(limiter.try_acquire(1).await);
            assert!(retry_after > ms(5_000), "minted at {point:?}: {retry_after:?}");
            assert_eq!(stored(&server).map(|stored| stored.level), Some(1.0), "{point:?}");
        }
    }
    fault("a caller dropped at each await point, alone", "any")
        .answer("none; the charge is refunded")
        .over(0.0, 0.0)
        .under(0.0, 0.0)
        .done();
}

/// A caller with a ticket for later, and none behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leaver_with_a_ticket_gives_it_back() {
    let server = Server::start();
    let (gate, limiter) = gated(&server, Duration::from_secs(60));
    gate.open();
    limiter.acquire(1).await.expect("the first is prepaid");
    let mut call = limiter.acquire(1);
    assert!((&mut call).now_or_never().is_none());
    eventually("it is booked", || stored(&server).is_some_and(|s| s.level > 1.5)).await;
    let answered = gate.answered();
    assert!((&mut call).now_or_never().is_none());
    drop(call);
    eventually("the ticket is given back", || gate.answered() > answered).await;
    let retry_after = denied(limiter.try_acquire(1).await);
    assert!(retry_after <= ms(10_000) && retry_after > ms(5_000), "{retry_after:?}");
}

/// The first of three leaves at each point: the ticket goes to the second, and so on, and no request is
/// made for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ticket_is_handed_to_the_next() {
    for point in POINTS {
        let server = Server::start();
        let (gate, limiter) = gated(&server, Duration::from_secs(60));
        let mut first = limiter.acquire(1);
        let (mut second, mut third) = (limiter.acquire(1), limiter.acquire(1));
        advance(&gate, &mut first, point, 1).await;
        if point == Point::Answered {
            eventually("it is granted", || limiter.stats().granted == 1).await;
            // A granted caller gives back by another request.
            drop(first);
            gate.open();
            second.await.expect("what was given back");
            continue;
        }
        // They wait for the reply behind the first.
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        gate.open();
        second.await.unwrap_or_else(|error| panic!("at {point:?}: {error}"));
        assert!((&mut third).now_or_never().is_none());
        eventually("the third is booked", || stored(&server).is_some_and(|s| s.level > 1.9)).await;
        drop(third);
        settled(&gate).await;
        assert_eq!(stored(&server).map(|stored| stored.level.round()), Some(1.0), "{point:?}");
    }
    fault("the head of the queue leaves with a ticket or on the way to it", "any")
        .answer("the next has it")
        .done();
}

/// A caller asks for a place and does not wait for the reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_that_is_dropped_before_the_reply() {
    let server = Server::start();
    for polls in 0..=3 {
        server.command(&["FLUSHALL"]);
        let (gate, limiter) = gated(&server, Duration::from_secs(60));
        {
            let mut reserve = Box::pin(limiter.reserve(1));
            for poll in 0..polls {
                assert!(poll_immediate(&mut reserve).await.is_none());
                if poll == 1 {
                    gate.let_there();
                    eventually("it is charged", || gate.answered() == 1).await;
                }
            }
        }
        settled(&gate).await;
        limiter.try_acquire(1).await.unwrap_or_else(|e| panic!("lost after {polls} polls: {e}"));
        denied(limiter.try_acquire(1).await);
        drop(limiter.reserve(1).await.expect("a place"));
        settled(&gate).await;
        assert_eq!(stored(&server).map(|stored| stored.level.round()), Some(1.0));
    }
}

/// A change is made from the first poll on, and not before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_are_not_awaited_are_made() {
    let server = Server::start();
    let (gate, limiter) = gated(&server, ms(250));
    drop(limiter.pause_for(Duration::from_secs(60)));
    drop(limiter.set_rate(Rate::per_second(1.0)));
    settled(&gate).await;
    assert_eq!(gate.arrived(), 0);
    let mut grant = limiter.acquire(1).await.expect("the first is prepaid");
    // Whether the reply is there at once does not matter.
    drop(poll_immediate(Box::pin(grant.settle(3))).await);
    eventually("it is settled", || stored(&server).is_some_and(|s| s.level > 2.5)).await;
    drop(poll_immediate(Box::pin(limiter.set_rate(Rate::per_second(0.2)))).await);
    drop(poll_immediate(Box::pin(limiter.pause_for(Duration::from_secs(60)))).await);
    settled(&gate).await;
    assert_eq!(limiter.policy(), slow().with_rate(Rate::per_second(0.2)));
    assert!(denied(limiter.try_acquire(1).await) > Duration::from_secs(50));
}

/// With tickets, in the middle of the queue: all waiters behind move up by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_behind_move_up() {
    let server = Server::start();
    let (gate, limiter) = gated(&server, Duration::from_secs(600));
    gate.open();
    limiter.acquire(1).await.expect("the first is prepaid");
    let mut places = Vec::new();
    for _ in 0..4 {
        places.push(limiter.reserve(1).await.expect("a place"));
    }
    let seconds = |delay: Duration| (delay.as_secs_f64() / 10.0).ceil();
    let delays: Vec<_> = places.iter().map(|place| seconds(place.delay())).collect();
    assert_eq!(delays, [1.0, 2.0, 3.0, 4.0]);
    let requests = limiter.counters().requests;
    drop(places.remove(1));
    let delays: Vec<_> = places.iter().map(|place| seconds(place.delay())).collect();
    assert_eq!(delays, [1.0, 2.0, 3.0]);
    settled(&gate).await;
    // The last ticket has no owner any more.
    assert_eq!(limiter.counters().requests, requests + 1);
    assert!(stored(&server).is_some_and(|s| s.level > 3.9 - 0.5 && s.level <= 4.0));
}

/// A script blocks all other clients of the server, so thousands of refunds are sent in batches.
#[tokio::test]
async fn thousands_of_refunds_are_more_than_one_request() {
    const GRANTS: usize = 2_500;
    let server = Server::start();
    let gate = Gate::to(&server.url());
    let limiter = builder(bursty(1e9), gate.clone()).build();
    let mut grants = Vec::new();
    for _ in 0..GRANTS {
        gate.let_there();
        gate.let_back();
        grants.push(limiter.acquire(1).await.expect("granted"));
    }
    grants.into_iter().for_each(RedisGrant::refund);
    eventually("the first is on its way", || gate.arrived() == GRANTS + 1).await;
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    gate.open();
    // The others take 1024, 1024 and the rest.
    quota.await.expect("the server is there");
    assert_eq!(gate.answered(), GRANTS + 4);
}

/// Credit that a pause has voided does not come back after it, though there was no charge since.
#[tokio::test]
async fn a_refund_after_the_end_of_a_pause_is_no_credit() {
    let server = Server::start();
    // Six are stored, and the next takes ten seconds.
    let policy = slow().max_burst(Duration::from_secs(60));
    let limiter = builder(policy, reconnecting(&server.url())).absent_is_new(false).build();
    let grant = limiter.acquire(6).await.expect("a full store");
    limiter.pause_for(ms(10)).await.expect("the server is there");
    tokio::time::sleep(ms(20)).await;
    grant.refund();
    limiter.try_acquire(1).await.expect("the first is prepaid");
    assert!(denied(limiter.try_acquire(1).await) > Duration::from_secs(5));
}

/// The grants in the window count, though a caller was booked for a time at which they will not.
#[tokio::test]
async fn a_leaver_with_a_ticket_does_not_remove_the_window() {
    let server = Server::start();
    let policy = SlidingWindowLog::new(3, Duration::from_secs(60));
    let builder = RedisRateLimiter::builder(policy, reconnecting(&server.url()), KEY);
    let limiter = builder.horizon(Duration::from_secs(600)).build();
    limiter.acquire(3).await.expect("the window is empty");
    let place = limiter.reserve(3).await.expect("a place");
    assert!(place.delay() > Duration::from_secs(30));
    drop(place);
    assert_eq!(limiter.quota().await.expect("the server is there").remaining, 0);
    assert!(limiter.try_acquire(1).await.is_err());
}

/// A charge that takes nothing of the window is refunded between charges that do, and its number is
/// reused.
#[tokio::test]
async fn a_refund_does_not_prevent_the_next_refund() {
    let server = Server::start();
    let window = FixedWindow::new(5, Duration::from_secs(60));
    let connection = reconnecting(&server.url());
    let limiter = RedisRateLimiter::new((window.clone(), window), connection, KEY);
    let before = limiter.acquire((0, 1)).await.expect("the window is empty");
    let first = limiter.acquire((1, 1)).await.expect("there is room");
    first.refund();
    before.refund();
    let next = limiter.acquire((1, 1)).await.expect("there is room");
    next.refund();
    let quota = limiter.quota().await.expect("the server is there");
    assert_eq!((quota.remaining, quota.window), ((5, 5), Some(Duration::from_secs(60))));
}
