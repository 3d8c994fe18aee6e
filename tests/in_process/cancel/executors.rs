//! Several acquires on one task, some of which are not polled for a while.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt};
use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};

use crate::support::{Limiter, block_on, bursty, finishes, ms, poll, secs};

fn self_moving(per_second: f64) -> (ManualClock, Limiter) {
    let clock = ManualClock::auto_advance();
    let policy = SmoothBursty::new(Rate::per_second(per_second));
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

#[test]
fn join_on_one_task_grants_all_in_order() {
    finishes(|| {
        let (clock, limiter) = self_moving(5.0);
        let (a, b, c) = block_on(async {
            futures::join!(limiter.acquire(3), limiter.acquire(2), limiter.acquire(1))
        });
        let waits = [a, b, c].map(|grant| grant.expect("a grant").waited());
        assert_eq!(waits, [ms(0), ms(600), ms(400)]);
        assert_eq!(clock.elapsed(), secs(1));
    });
}

#[test]
fn join_on_a_clock_that_stands_still_takes_one_poll_for_each_grant() {
    let (clock, limiter) = bursty(5.0);
    let mut all =
        pin!(async { futures::join!(limiter.acquire(3), limiter.acquire(2), limiter.acquire(1)) });
    assert!(poll(&mut all).is_pending());
    clock.advance(secs(1));
    let Poll::Ready((a, b, c)) = poll(&mut all) else { panic!("all are granted") };
    let waits = [a, b, c].map(|grant| grant.expect("a grant").waited());
    assert_eq!(waits, [ms(0), ms(600), ms(1000)]);
}

/// The classic way to hang: a pinned acquire at the head of the queue, which is not polled while
/// its task waits for another one behind it.
#[test]
fn a_pinned_acquire_that_is_not_polled_does_not_block_the_next_one_on_its_task() {
    let (clock, limiter) = bursty(5.0);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    let mut task = pin!(async {
        let mut pinned = limiter.acquire(1);
        assert!(
            poll_fn(|context| Poll::Ready(futures::FutureExt::poll_unpin(&mut pinned, context)))
                .await
                .is_pending()
        );
        let behind = limiter.acquire(1).await.expect("a grant").waited();
        (pinned.await.expect("a grant").waited(), behind)
    });
    assert!(poll(&mut task).is_pending());
    clock.advance(ms(400));
    assert_eq!(poll(&mut task), Poll::Ready((ms(200), ms(400))));
}

#[test]
fn select_drops_the_loser_which_costs_nothing() {
    let (clock, limiter) = bursty(5.0);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    for round in 1..=10 {
        let mut race = select(limiter.acquire(1), limiter.acquire(50));
        assert!(poll(&mut race).is_pending());
        clock.advance(ms(200));
        let Poll::Ready(Either::Left((first, second))) = poll(&mut race) else {
            panic!("the one that came first is granted first, round {round}")
        };
        assert_eq!(first.expect("a grant").waited(), ms(200));
        drop(second);
        assert_eq!(limiter.queue_len(), 0);
    }
    assert_eq!(limiter.stats().granted, 11);
}

/// The losers were granted too, by the time the race is looked at.
#[test]
fn select_gives_back_the_grant_of_the_loser() {
    let (clock, limiter) = bursty(5.0);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    let mut race = select(limiter.acquire(1), limiter.acquire(50));
    assert!(poll(&mut race).is_pending());
    clock.advance(ms(500));
    assert_eq!(limiter.queue_len(), 0);
    drop(race);
    // Both are back, the later one first: `select` holds them in the other order, so that the first
    // was refunded when the second had been granted behind it. Its one interval is over.
    assert_eq!(limiter.stats().given_up, 2);
    assert!(limiter.try_acquire(1).is_ok());
}

#[test]
fn a_loop_around_select_keeps_the_place_of_a_pinned_acquire() {
    let (clock, limiter) = bursty(5.0);
    limiter.try_acquire(10).expect("a new limiter grants at once");
    let mut task = pin!(async {
        let mut pinned = limiter.acquire(1);
        let mut lost = 0;
        loop {
            match select(&mut pinned, limiter.acquire(1)).await {
                Either::Left((grant, _)) => break (grant.expect("a grant").waited(), lost),
                Either::Right(_) => lost += 1,
            }
        }
    });
    assert!(poll(&mut task).is_pending());
    clock.advance(secs(2));
    assert_eq!(poll(&mut task), Poll::Ready((secs(2), 0)));
}

#[test]
fn futures_unordered_finish_in_order_though_only_the_woken_are_polled() {
    let (clock, limiter) = bursty(5.0);
    let limiter = &limiter;
    let mut all: FuturesUnordered<_> = (0..20)
        .map(|n| async move { (n, limiter.acquire(1).await.expect("a grant").waited()) })
        .collect();
    for place in 0..20 {
        assert_eq!(poll(&mut all.next()), Poll::Ready(Some((place, ms(200) * place))));
        assert!(place == 19 || poll(&mut all.next()).is_pending());
        clock.advance(ms(200));
    }
    assert_eq!(poll(&mut all.next()), Poll::Ready(None));
}

#[test]
fn a_crowd_that_leaves_from_futures_unordered_lets_the_next_one_in() {
    let (clock, limiter) = bursty(5.0);
    let mut all: FuturesUnordered<_> = (0..1000).map(|_| limiter.acquire_owned(3)).collect();
    assert!(matches!(poll(&mut all.next()), Poll::Ready(Some(Ok(_)))));
    assert!(poll(&mut all.next()).is_pending());
    assert_eq!(limiter.queue_len(), 999);
    let mut next = limiter.acquire(1);
    assert!(poll(&mut next).is_pending());
    drop(all);
    clock.advance(ms(600));
    assert!(matches!(poll(&mut next), Poll::Ready(Ok(grant)) if grant.waited() == ms(600)));
}
