//! Several acquires on one task, some of which are not polled for a while.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use futures::future::{Either, select};
use futures::stream::{FuturesUnordered, StreamExt};

use crate::support::{bursty, ms, poll};

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
