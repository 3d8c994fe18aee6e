//! Waiters that are kept but never polled again, or leaked, are granted in their turn and do not
//! block the queue.

use tollgate::{Acquire, SmoothBursty};

use crate::support::wakers::Count;
use crate::support::{busy, busy_bounded, is_waiting, ms, outcome, poll_with, secs};

/// A queue of five, of which only the last is polled.
fn queue_behind_neglected(
    neglect: impl Fn(
        Acquire<tollgate::RateLimiter<SmoothBursty>>,
    ) -> Option<Acquire<tollgate::RateLimiter<SmoothBursty>>>,
) {
    let (clock, limiter) = busy(5.0);
    let mut kept = Vec::new();
    for _ in 0..4 {
        let mut future = limiter.acquire_owned(2);
        assert!(is_waiting(&mut future));
        kept.extend(neglect(future));
    }
    let (calls, waker) = Count::new();
    let mut last = limiter.acquire(1);
    assert!(poll_with(&mut last, &waker).is_pending());
    clock.advance(ms(1799));
    assert_eq!((calls.get(), limiter.queue_len()), (0, 1));
    clock.advance(ms(1));
    assert_eq!((calls.get(), limiter.queue_len()), (1, 0));
    assert_eq!(outcome(&mut last).expect("a grant").waited(), ms(1800));
    // A grant that waits to be fetched can still be fetched, at any time.
    clock.advance(secs(3600));
    for (place, future) in (0..).zip(&mut kept) {
        let grant = outcome(future).expect("a grant");
        assert_eq!(grant.waited(), ms(200) + ms(400) * place);
    }
}

#[test]
fn a_waiter_that_is_kept_but_not_polled_does_not_block_the_queue() {
    queue_behind_neglected(Some);
}

#[test]
fn a_leaked_waiter_does_not_block_the_queue() {
    queue_behind_neglected(|future| {
        std::mem::forget(future);
        None
    });
}

#[test]
fn leaked_waiters_leave_when_they_are_granted_and_do_not_fill_a_bounded_queue() {
    let (clock, limiter) = busy_bounded(5.0, 1, u64::MAX);
    for _ in 0..100 {
        let mut future = limiter.acquire(1);
        assert!(is_waiting(&mut future));
        std::mem::forget(future);
        clock.advance(ms(200));
    }
    assert_eq!((limiter.queue_len(), limiter.stats().granted), (0, 101));
}
