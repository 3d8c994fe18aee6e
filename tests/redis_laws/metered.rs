//! A metered grant over Redis: its drop settles, for all processes.

use std::future::pending;
use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::RedisRateLimiter;
use tollgate::{InFlight, ManualClock, Rate, TokenBucket};

use crate::manual::{Manual, new_key};

const HOUR: Duration = Duration::from_secs(3_600);

type Both = (TokenBucket, InFlight);

/// Two processes at one key: a hundred permits, one more an hour, and four places.
fn two() -> [RedisRateLimiter<Both, Manual>; 2] {
    let clock = ManualClock::new();
    clock.advance(HOUR);
    let (server, key) = (Manual::new(&clock), new_key());
    [(); 2].map(|()| {
        let policy = (TokenBucket::new(Rate::new(1, HOUR), 100), InFlight::new(4));
        RedisRateLimiter::builder(policy, server.clone(), &*key).clock(&clock).build()
    })
}

/// What another process sees.
fn left(theirs: &RedisRateLimiter<Both, Manual>) -> (u32, u32) {
    theirs.quota().now_or_never().expect("an answer").expect("a server").remaining
}

#[test]
fn a_metered_grant_over_redis_settles_when_it_is_dropped() {
    let [ours, theirs] = two();
    let ask =
        |n| ours.try_acquire((n, 1)).now_or_never().expect("an answer").expect("there").metered();
    let mut less = ask(50);
    assert_eq!(left(&theirs), (50, 3));
    less.add((15, 0));
    less.add((5, 0));
    drop(less);
    assert_eq!(left(&theirs), (80, 4));
    let mut more = ask(10);
    more.set((40, 1));
    drop(more);
    assert_eq!(left(&theirs), (40, 4));
    // Nothing is reported: the estimate, or another default.
    drop(ask(10));
    assert_eq!(left(&theirs), (30, 4));
    drop(ask(10).or((0, 1)));
    assert_eq!(left(&theirs), (30, 4));
    // More than there is: the debt is paid off before the next permit, in 71 hours.
    let mut debt = ask(10);
    debt.set((100, 1));
    drop(debt);
    assert_eq!(left(&theirs), (0, 4));
    let error = theirs.try_acquire((1, 1)).now_or_never().expect("an answer").expect_err("none");
    assert_eq!(error.retry_after(), Some(71 * HOUR));
}

/// Behind a later grant, and by a future that is dropped while it waits for the answer of its call.
#[test]
fn a_cancelled_call_over_redis_settles_at_what_it_reported() {
    let [ours, theirs] = two();
    let mut call = Box::pin(async {
        let mut call = ours.acquire((60, 1)).await.expect("there").metered();
        call.add((20, 0));
        pending::<()>().await;
    });
    assert!((&mut call).now_or_never().is_none());
    let later = theirs.try_acquire((30, 1)).now_or_never().expect("an answer").expect("there");
    assert_eq!(left(&theirs), (10, 2));
    drop(call);
    assert_eq!(left(&theirs), (50, 3));
    drop(later);
    assert_eq!(left(&theirs), (50, 4));
}

/// The program settles it: the drop does not do so once more.
#[test]
fn a_metered_grant_that_is_taken_out_settles_once() {
    let [ours, theirs] = two();
    let mut call =
        ours.acquire((10, 1)).now_or_never().expect("an answer").expect("there").metered();
    call.add((30, 0));
    let actual = call.cost();
    let mut grant = call.into_grant();
    Box::pin(grant.settle(actual)).now_or_never().expect("an answer").expect("settled");
    drop(grant);
    assert_eq!(left(&theirs), (70, 4));
}
