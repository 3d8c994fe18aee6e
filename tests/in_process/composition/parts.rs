//! Tuples of two to six parts, and `Same`: which parts are charged, named in errors, and
//! asked.

use std::time::Duration;

use tollgate::{
    AllOf, Cost, Error, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, ManualClock, Policy,
    Rate, RateLimiter, Same, SlidingWindowCounter, SlidingWindowLog, SmoothBursty, TokenBucket,
};

use super::on_hold;
use crate::support::{is_waiting, ms, outcome, secs};

/// A part that has `n` in any ten seconds.
fn part(n: u32) -> SlidingWindowLog {
    SlidingWindowLog::new(n, secs(10))
}

/// The part that a refusal names, and its time.
#[track_caller]
fn refusal<P: Policy>(
    limiter: &RateLimiter<P>,
    cost: P::Cost,
) -> (Option<usize>, Option<Duration>) {
    let error = limiter.try_acquire(cost).expect_err("refused");
    (error.part().map(tollgate::Part::index), error.retry_after())
}

/// `full` is all that all parts have together; `one` is one of each; `most` asks the part `tight` for
/// all of its ten and the others for one.
#[track_caller]
fn assert_all_or_none<P: Policy>(
    policy: P,
    full: P::Cost,
    one: P::Cost,
    most: P::Cost,
    tight: usize,
) where
    P::Cost: Cost,
{
    let (clock, limiter) = on_hold(policy);
    assert_eq!(limiter.available(), full);
    let first = limiter.try_acquire(one).expect("all have one");
    assert_eq!(first.limited_by().map(tollgate::Part::index), None);
    let left = limiter.available();
    assert_eq!(left, full.saturating_sub(one));
    clock.advance(secs(1));
    // The full amount of one part is now too much by one: no part is charged, and that part is
    // named.
    for _ in 0..3 {
        assert_eq!(refusal(&limiter, most), (Some(tight), Some(secs(9))));
        assert_eq!(limiter.available(), left);
    }
    let mut waiting = limiter.acquire(most);
    assert!(is_waiting(&mut waiting));
    assert_eq!(limiter.available(), P::Cost::default());
    clock.advance(secs(9));
    let grant = outcome(&mut waiting).expect("a grant");
    assert_eq!(
        (grant.limited_by().map(tollgate::Part::index), grant.waited()),
        (Some(tight), secs(9))
    );
    assert_eq!(limiter.available(), full.saturating_sub(most));
    // And given back, all of it.
    grant.refund();
    assert_eq!(limiter.available(), full);
}

#[test]
fn two_parts() {
    assert_all_or_none((part(10), part(20)), (10, 20), (1, 1), (10, 1), 0);
    assert_all_or_none((part(20), part(10)), (20, 10), (1, 1), (1, 10), 1);
}

#[test]
fn three_parts() {
    let policy = (part(20), part(10), part(30));
    assert_all_or_none(policy, (20, 10, 30), (1, 1, 1), (1, 10, 1), 1);
    let policy = (part(20), part(30), part(10));
    assert_all_or_none(policy, (20, 30, 10), (1, 1, 1), (1, 1, 10), 2);
}

#[test]
fn four_five_and_six_parts() {
    let (a, b, z) = (part(20), part(30), part(10));
    let policy = (a.clone(), b.clone(), a.clone(), z.clone());
    assert_all_or_none(policy, (20, 30, 20, 10), (1, 1, 1, 1), (1, 1, 1, 10), 3);
    let policy = (a.clone(), b.clone(), a.clone(), b.clone(), z.clone());
    assert_all_or_none(policy, (20, 30, 20, 30, 10), (1, 1, 1, 1, 1), (1, 1, 1, 1, 10), 4);
    let policy = (a.clone(), b.clone(), a.clone(), b.clone(), a, z);
    let (full, one, most) = ((20, 30, 20, 30, 20, 10), (1, 1, 1, 1, 1, 1), (1, 1, 1, 1, 1, 10));
    assert_all_or_none(policy, full, one, most, 5);
}

#[test]
fn parts_with_one_cost() {
    assert_all_or_none(Same((part(20), part(10), part(30))), 10, 1, 10, 1);
    assert_all_or_none(Same((part(20), part(10))), 10, 1, 10, 1);
    assert_all_or_none(Same((part(20), part(30), part(10))), 10, 1, 10, 2);
    let window = FixedWindow::new(20, secs(10));
    let counter = SlidingWindowCounter::new(30, secs(10), 10);
    let policy = Same((window, counter, InFlight::new(11), part(10), part(20), part(30)));
    assert_all_or_none(policy, 10, 1, 10, 3);
}

/// A tuple as a part of a tuple has a tuple as its part of the cost.
#[test]
fn parts_within_parts() {
    let policy = ((part(20), part(30)), part(10));
    assert_all_or_none(policy, ((20, 30), 10), ((1, 1), 1), ((1, 1), 10), 1);
    // The outer part is named.
    let policy = ((part(20), part(10)), part(30));
    assert_all_or_none(policy, ((20, 10), 30), ((1, 1), 1), ((1, 10), 1), 0);
    let pairs = Same(((part(20), part(10)), (part(30), part(15))));
    assert_all_or_none(pairs, (20, 10), (1, 1), (1, 10), 0);
    assert_all_or_none(Same((Same((part(20), part(30))), part(10))), 10, 1, 10, 1);
}

#[test]
fn a_part_is_named_with_its_rule_in_every_composition() {
    // By a request that is too large, and by one that comes too early.
    fn named<P: Policy<Cost = u32>>(policy: P) -> [Option<String>; 2] {
        let (_, limiter) = on_hold(policy);
        let name = |n| Some(limiter.try_acquire(n).expect_err("too much").part()?.to_string());
        let too_large = name(11);
        limiter.try_acquire(10).expect("all of one part");
        [too_large, name(1)]
    }
    let both = |name: &str| [0, 1].map(|_| Some(name.to_owned()));
    let log = "limit 2 of 2, sliding-window-log";
    assert_eq!(named(Same((part(20), part(10)))), both(log));
    assert_eq!(named(Same((InFlight::new(20), part(10)))), both(log));
    assert_eq!(named(AllOf::new([InFlight::new(20).into(), part(10).into()])), both(log));
    let lock_out = LockOut::new(part(10), secs(1));
    assert_eq!(
        named(AllOf::new([lock_out.clone().into(), InFlight::new(20).into()])),
        both("limit 1 of 2, lock-out")
    );
    assert_eq!(named(Same((lock_out, part(20)))), both("limit 1 of 2, lock-out"));
    // The lock itself is no part.
    let locked = LockOut::new(Same((part(20), part(10))), secs(1));
    assert_eq!(named(locked), [Some(log.to_owned()), None]);
    // A rule that is composed itself has no one name, and a single rule is no part.
    assert_eq!(named(Same((Same((part(20), part(10))), part(30)))), both("limit 1 of 2"));
    assert_eq!(named(part(10)), [None, None]);
}

#[test]
fn too_much_for_one_part_names_it_and_charges_no_part() {
    let (_, limiter) = on_hold((part(10), InFlight::new(5), part(30)));
    for (cost, part, max) in [((11, 6, 31), 0, 10), ((10, 6, 31), 1, 5), ((1, 1, 31), 2, 30)] {
        let Err(Error::ExceedsCapacity(exceeds)) = limiter.try_acquire(cost) else {
            panic!("{cost:?}")
        };
        assert_eq!((exceeds.part().map(tollgate::Part::index), exceeds.max), (Some(part), max));
    }
    assert_eq!(limiter.available(), (10, 5, 30));
    let (_, limiter) = on_hold(Same((part(30), part(10))));
    assert_eq!(
        limiter.try_acquire(11).expect_err("too much").part().map(tollgate::Part::index),
        Some(1)
    );
    let (_, limiter) = on_hold(Same((part(10), part(30))));
    assert_eq!(
        limiter.try_acquire(11).expect_err("too much").part().map(tollgate::Part::index),
        Some(0)
    );
}

/// A part that is exhausted, locked, or without capacity does not delay callers that need nothing
/// of it.
#[test]
fn a_part_that_costs_nothing_is_not_charged_and_always_ready() {
    let rate = Rate::per_second(1.0);
    let locked = LockOut::new(part(2), secs(1000));
    let policy = (TokenBucket::new(rate, 10), InFlight::new(1), locked, InFlight::new(0));
    let (clock, limiter) = on_hold(policy);
    let held = limiter.try_acquire((0, 1, 0, 0)).expect("free");
    drop(limiter.try_acquire((0, 0, 2, 0)).expect("free"));
    assert!(limiter.try_acquire((0, 0, 1, 0)).is_err());
    assert_eq!(limiter.available(), (10, 0, 0, 0));
    for left in (0..10).rev() {
        drop(limiter.try_acquire((1, 0, 0, 0)).expect("a token"));
        assert_eq!(limiter.available().0, left);
    }
    // A cost of nothing is free, even while a caller waits.
    let mut waiting = limiter.acquire((0, 1, 0, 0));
    assert!(is_waiting(&mut waiting));
    assert!(limiter.try_acquire((0, 0, 0, 0)).is_ok());
    // A cost of any part waits in the one queue.
    clock.advance(secs(5));
    assert!(limiter.try_acquire((1, 0, 0, 0)).is_err());
    drop(held);
    let grant = outcome(&mut waiting).expect("free");
    // The token's part was not even asked by the one in flight.
    assert_eq!(
        (limiter.available().0, grant.limited_by().map(tollgate::Part::index)),
        (5, Some(1))
    );
}

/// The part named is the one that is ready last. A part that cannot predict when comes before all
/// others; of equal parts, the first is named.
#[test]
fn the_part_that_is_ready_last_is_named() {
    let rate = Rate::per_second(1.0);
    let bucket = TokenBucket::new(rate, 10);
    let (_, limiter) = on_hold((bucket.clone(), part(10), part(10), InFlight::new(1)));
    let held = limiter.try_acquire((10, 10, 10, 1)).expect("free");
    let named = |cost| refusal(&limiter, cost);
    assert_eq!(named((4, 1, 0, 0)), (Some(1), Some(secs(10))));
    assert_eq!(named((10, 1, 1, 0)), (Some(0), Some(secs(10))));
    assert_eq!(named((4, 0, 1, 0)), (Some(2), Some(secs(10))));
    assert_eq!(named((10, 1, 1, 1)), (Some(3), None));
    assert_eq!(named((4, 0, 0, 0)), (Some(0), Some(secs(4))));
    drop(held);
    assert_eq!(named((4, 0, 0, 1)), (Some(0), Some(secs(4))));
}

/// Although it asks for nothing of that one.
#[test]
fn a_caller_behind_others_names_the_part_that_they_wait_for() {
    let (_, limiter) = on_hold((part(10), part(5)));
    limiter.try_acquire((1, 5)).expect("all are there");
    let mut first = limiter.acquire((1, 1));
    assert!(is_waiting(&mut first));
    assert_eq!(refusal(&limiter, (1, 0)), (Some(1), Some(secs(10))));
}

#[test]
fn a_refusal_behind_a_waiter_names_the_part_that_is_ready_last() {
    let (clock, limiter) = on_hold((part(1), part(1)));
    limiter.try_acquire((1, 0)).expect("a grant");
    clock.advance(secs(3));
    limiter.try_acquire((0, 1)).expect("a grant");
    let mut first = limiter.acquire((1, 0));
    assert!(is_waiting(&mut first));
    // The last three seconds are its own.
    assert_eq!(refusal(&limiter, (0, 1)), (Some(1), Some(secs(10))));
}

#[test]
fn the_cost_of_several_parts_counts_together_in_a_bounded_queue() {
    let policy = (part(1), TokenBucket::new(Rate::per_second(1.0), 100));
    let builder = RateLimiter::builder(policy).clock(ManualClock::new());
    let limiter = builder.max_queued_permits(90).build();
    drop(limiter.try_acquire((1, 50)).expect("free"));
    let _waiting = limiter.reserve((1, 79)).expect("80 queued");
    assert!(matches!(limiter.reserve((1, 10)), Err(Error::QueueFull { .. })));
    assert!(limiter.reserve((1, 9)).is_ok());
}

/// One request that was thought to take 800 tokens.
#[test]
fn each_part_is_settled_by_itself() {
    let tokens = TokenBucket::new(Rate::per_second(100.0), 1000);
    for (actual, available) in [
        ((1, 800, 1), (9, 200, 4)),
        ((1, 650, 1), (9, 350, 4)),
        ((1, 1000, 1), (9, 0, 4)),
        ((0, 0, 0), (10, 1000, 5)),
        ((2, 700, 3), (8, 300, 2)),
        ((1, 800, 0), (9, 200, 5)),
        // More than was available: owed.
        ((1, 1300, 1), (9, 0, 4)),
    ] {
        let (clock, limiter) = on_hold((part(10), tokens.clone(), InFlight::new(5)));
        clock.advance(secs(60));
        let mut grant = limiter.try_acquire((1, 800, 1)).expect("free");
        grant.settle(actual).expect("some tokens");
        assert_eq!((limiter.available(), grant.cost()), (available, actual));
        drop(grant);
        assert_eq!(limiter.available(), (available.0, available.1, 5));
        if actual.1 == 1300 {
            let error = limiter.try_acquire((1, 100, 1)).expect_err("owed");
            assert_eq!(
                (error.part().map(tollgate::Part::index), error.retry_after()),
                (Some(1), Some(secs(4)))
            );
        }
        clock.advance(secs(13));
        assert_eq!(limiter.available(), (10, 1000, 5));
    }
}

#[test]
fn a_settlement_that_one_part_cannot_take_changes_no_part() {
    let daily = SmoothBursty::new(Rate::every(secs(86_400)));
    let (_, limiter) = on_hold((part(10), InFlight::new(5), daily));
    let mut grant = limiter.try_acquire((1, 1, 1)).expect("free");
    let before = limiter.quota();
    let error = grant.settle((5, 5, u32::MAX)).expect_err("more than 146 years");
    assert_eq!(error.part().map(tollgate::Part::index), Some(2));
    assert_eq!((limiter.quota(), grant.cost()), (before, (1, 1, 1)));
    drop(grant);
    assert_eq!(limiter.available(), (9, 5, 0));
}

/// Each part refunds by its own rule: permits on which later grants depend come back as far as is
/// safe.
#[test]
fn a_refund_gives_each_part_its_own_back() {
    let rate = Rate::per_second(10.0);
    let policy = (
        part(10),
        TokenBucket::new(rate, 10),
        FixedWindow::new(10, secs(1)),
        Gcra::new(9, 10, secs(1)),
        LeakyBucket::meter(rate, 10),
        InFlight::new(10),
    );
    let (clock, limiter) = on_hold(policy);
    let grant = limiter.try_acquire((4, 4, 4, 4, 4, 4)).expect("free");
    let other = limiter.try_acquire((1, 1, 1, 1, 1, 1)).expect("free");
    clock.advance(ms(200));
    assert_eq!(limiter.available(), (5, 7, 5, 7, 7, 5));
    grant.refund();
    // All four. Where there is a rate, the other has come back by itself.
    assert_eq!(limiter.available(), (9, 10, 9, 10, 10, 9));
    drop(other);
    clock.advance(secs(10));
    assert_eq!(limiter.available(), (10, 10, 10, 10, 10, 10));
}
