//! Changes of the policy while something is owed, stored, waiting or to be given back. Each test names a
//! fault that was there once.

use std::time::Duration;

use tollgate::{
    AllOf, AnyPolicy, Error, FixedWindow, Gcra, InFlight, KeyedRateLimiter, LeakyBucket, LockOut,
    ManualClock, Policy, Rate, RateLimiter, Same, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, TokenBucket,
};

use crate::support::{is_waiting, ms, outcome, secs};

/// On a clock that has run for long, so that nothing reaches back before its origin.
fn limiter<P: Policy<Cost = u32>>(policy: P) -> (ManualClock, RateLimiter<P>) {
    let clock = ManualClock::new();
    clock.advance(secs(1_000_000));
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

fn bucket(per_second: f64, capacity: u32) -> TokenBucket {
    TokenBucket::new(Rate::per_second(per_second), capacity)
}

fn leaky(per_second: f64, capacity: u32) -> LeakyBucket {
    LeakyBucket::new(Rate::per_second(per_second), capacity)
}

#[test]
fn a_refund_at_a_faster_rate_gives_back_no_more_permits_than_were_taken() {
    let (_, limiter) = limiter(bucket(1.0, 100));
    limiter.try_acquire(90).expect("a full bucket");
    let last = limiter.try_acquire(1).expect("ten are left");
    limiter.set_policy(bucket(100.0, 100));
    last.refund();
    assert_eq!(limiter.available(), 10);
}

#[test]
fn a_late_refund_at_a_faster_rate_gives_back_no_more_permits_than_were_taken() {
    let (_, limiter) = limiter(bucket(1.0, 100));
    let first = limiter.try_acquire(1).expect("a full bucket");
    limiter.try_acquire(90).expect("a full bucket");
    limiter.set_policy(bucket(100.0, 100));
    first.refund();
    assert!(limiter.available() <= 10);
}

/// A rate in between had already given the permits back, which neither the first nor the last rate
/// shows.
#[test]
fn a_late_refund_knows_of_all_rates_in_between() {
    let (clock, limiter) = limiter(bucket(1.0, 8));
    let mut first = limiter.try_acquire(7).expect("a full bucket");
    limiter.set_rate(Rate::per_second(50.0));
    clock.advance(ms(1203));
    limiter.try_acquire(8).expect("full again");
    limiter.set_rate(Rate::per_second(0.5));
    first.settle(0).expect("less");
    limiter.set_rate(Rate::per_second(50.0));
    assert_eq!(limiter.available(), 0);
}

#[test]
fn a_store_that_was_settled_by_a_change_is_not_filled_by_a_refund() {
    let rate = Rate::per_second(1000.0);
    let (clock, limiter) = limiter(SmoothBursty::new(rate).max_burst(Duration::ZERO));
    let grant = limiter.try_acquire(10).expect("prepaid");
    clock.advance(secs(1));
    limiter.set_policy(SmoothBursty::new(rate).max_burst(secs(1)));
    // Time gave it back long ago.
    grant.refund();
    assert_eq!(limiter.available(), 0);
}

/// A permit is then another number of units, and an undone charge would leave the place of an earlier one.
#[test]
fn a_refund_at_another_rate_does_not_bring_back_what_came_before_it() {
    let (clock, limiter) = limiter(bucket(4.0, 15));
    let first = limiter.try_acquire(11).expect("a full bucket");
    clock.advance(ms(2750));
    let last = limiter.try_acquire(15).expect("full again");
    limiter.set_policy(bucket(2.0, 25));
    last.refund();
    assert_eq!(limiter.available(), 15);
    first.refund();
    assert_eq!(limiter.available(), 15, "time gave the first ones back");
}

#[test]
fn permits_without_room_in_a_smaller_bucket_do_not_come_back() {
    let (clock, limiter) = limiter(bucket(1.0, 10));
    let first = limiter.try_acquire(3).expect("a full bucket");
    limiter.try_acquire(1).expect("a full bucket");
    clock.advance(ms(1));
    limiter.set_policy(bucket(1.0, 2));
    limiter.try_acquire(2).expect("a full bucket");
    first.refund();
    assert_eq!(limiter.available(), 0);
}

/// The policy changes to and fro every second. The grants of the first moment still age.
#[test]
fn buckets_of_a_window_that_are_changed_again_and_again_age() {
    let minute = secs(60);
    let of = |buckets| SlidingWindowCounter::new(100, minute, buckets);
    let (clock, limiter) = limiter(of(6));
    limiter.try_acquire(100).expect("an empty window");
    for second in 0..72 {
        limiter.set_policy(of(if second % 2 == 0 { 5 } else { 6 }));
        clock.advance(secs(1));
    }
    assert_eq!(limiter.available(), 100);
}

/// The water is the permits granted and not yet leaked, plus the permits queued. The time that the
/// queue waits does not count.
#[test]
fn a_delayed_queue_does_not_fill_the_bucket() {
    let (_, paused) = limiter(leaky(5.0, 3));
    paused.pause_for(secs(30));
    let places: Vec<_> = (0..4).map(|_| paused.reserve(1)).collect();
    assert!(places[..3].iter().all(Result::is_ok));
    assert!(matches!(places[3], Err(Error::QueueFull { .. })));

    let (_, slow) = limiter(Same((leaky(100.0, 50), bucket(1.0, 1))));
    let places: Vec<_> = (0..51).map(|_| slow.reserve(1)).collect();
    assert!(places[..50].iter().all(Result::is_ok));
    assert!(matches!(places[50], Err(Error::QueueFull { .. })));

    let (_, locked) = limiter(LockOut::new(leaky(1000.0, 10), secs(60)));
    locked.try_acquire(1).expect("an empty bucket");
    assert!(locked.try_acquire(1).is_err());
    let places: Vec<_> = (0..9).map(|_| locked.reserve(1)).collect();
    assert!(places.iter().all(Result::is_ok));
}

#[test]
fn the_quota_has_the_reset_time_even_if_less_than_one_permit_is_stored() {
    let (_, limiter) = limiter(SmoothBursty::new(Rate::per_second(0.5)).max_burst(Duration::ZERO));
    limiter.try_acquire(10).expect("prepaid");
    let quota = limiter.quota();
    assert_eq!((quota.limit, quota.remaining), (0, 0));
    assert_eq!(quota.reset_after, Some(secs(20)));
}

/// On the lock-free path and under the mutex alike, a request that exceeds the capacity gets no
/// `retry_after`.
#[test]
fn requests_beyond_the_horizon_are_refused_with_and_without_waiters() {
    let (_, limiter) = limiter(SmoothBursty::new("1/day".parse().expect("a rate")));
    limiter.try_acquire(1).expect("prepaid");
    assert!(matches!(limiter.try_acquire(60_000), Err(Error::ExceedsCapacity(_))));
    let _waits = limiter.reserve(1).expect("a place");
    assert!(matches!(limiter.try_acquire(60_000), Err(Error::ExceedsCapacity(_))));
}

/// An estimate that was too high is corrected after later grants, when the time it covered has
/// passed.
/// 30 are there that would not be missing. A bucket that was full meanwhile would have lost them.
#[test]
fn a_late_refund_is_credited_by_a_log_and_by_a_bucket_that_was_not_full() {
    let (clock, log) = limiter(SlidingWindowLog::new(100, secs(60)));
    let mut grant = log.try_acquire(40).expect("an empty log");
    log.try_acquire(60).expect("room");
    clock.advance(secs(30));
    grant.settle(10).expect("less");
    assert_eq!(log.available(), 30);

    for (seconds, expected) in [(4, 30), (7, 60), (8, 60), (60, 60)] {
        let (clock, tokens) = limiter(bucket(10.0, 100));
        let mut grant = tokens.try_acquire(40).expect("a full bucket");
        tokens.try_acquire(60).expect("a full bucket");
        clock.advance(secs(seconds));
        tokens.try_acquire(40).expect("what came meanwhile");
        grant.settle(10).expect("less");
        assert_eq!(tokens.available(), expected, "{seconds} s later");
    }
}

/// The pause refuses, not a policy.
#[test]
fn in_a_pause_no_part_is_named() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock((bucket(1.0, 1), InFlight::new(1)), &clock);
    limiter.pause_for(secs(30));
    let refused = limiter.try_acquire((1, 1)).expect_err("a pause");
    assert_eq!(
        (refused.part().map(tollgate::Part::index), refused.retry_after()),
        (None, Some(secs(31)))
    );
    let waits = limiter.reserve((1, 1)).expect("a place");
    assert_eq!(
        limiter.try_acquire((1, 1)).expect_err("a pause").part().map(tollgate::Part::index),
        None
    );
    clock.advance(secs(31));
    assert_eq!(
        waits.blocking_wait().expect("a grant").limited_by().map(tollgate::Part::index),
        Some(0)
    );
}

#[test]
fn a_bucket_owes_the_same_time_at_a_new_rate() {
    let (_, limiter) = limiter(bucket(1.0, 10));
    limiter.try_acquire(10).expect("full").settle(15).expect("five are owed");
    limiter.set_policy(bucket(10.0, 10));
    let denied = limiter.try_acquire(1).expect_err("owed");
    assert_eq!(denied.retry_after(), Some(secs(5) + ms(100)));
}

/// Time pays off what is owed, so it is not known how many permits of a charge are worth that at another price.
#[test]
fn what_is_owed_comes_back_while_its_price_is_the_same() {
    for (policy, before, after) in [
        (bucket(1.0, 20), secs(6), ms(0)),
        (bucket(10.0, 10), ms(5_100), ms(5_100)),
        (bucket(0.5, 10), secs(7), secs(7)),
    ] {
        let (_, limiter) = limiter(bucket(1.0, 10));
        limiter.try_acquire(4).expect("full");
        let mut grant = limiter.try_acquire(6).expect("full");
        grant.settle(11).expect("five are owed");
        limiter.set_policy(policy);
        assert_eq!(limiter.would_wait(1), Ok(Some(before)));
        grant.refund();
        assert_eq!(limiter.would_wait(1), Ok(Some(after)));
    }
}

#[test]
fn a_new_burst_holds_for_calls_without_a_lock_too() {
    let policy = |burst| SmoothBursty::new(Rate::per_second(5.0)).max_burst(burst);
    let (clock, limiter) = limiter(policy(secs(1)));
    for (burst, at_once) in [(1, 6), (2, 11), (1, 6)] {
        limiter.set_policy(policy(secs(burst)));
        clock.advance(secs(60));
        let granted = (0..20).filter(|_| limiter.try_acquire(1).is_ok()).count();
        assert_eq!(granted, at_once, "{burst} s");
    }
}

#[test]
fn a_new_rate_inside_a_lock_out_keeps_the_number_of_permits() {
    let (_, limiter) = limiter(LockOut::new(bucket(1.0, 10), secs(60)));
    limiter.try_acquire(4).expect("full");
    limiter.set_policy(LockOut::new(bucket(1000.0, 10), secs(60)));
    assert_eq!(limiter.available(), 6);
}

#[test]
fn from_the_end_of_a_lock_the_part_that_holds_is_named() {
    let (clock, limiter) = limiter(LockOut::new(Same((bucket(1.0, 1), bucket(0.04, 1))), secs(10)));
    limiter.try_acquire(1).expect("full");
    limiter.try_acquire(1).expect_err("which begins a lock");
    let mut waiter = limiter.acquire(1);
    assert!(is_waiting(&mut waiter));
    clock.advance(secs(10));
    limiter.pause_for(Duration::ZERO);
    clock.advance(secs(15));
    let grant = outcome(&mut waiter).expect("a grant");
    assert_eq!(grant.limited_by().map(tollgate::Part::index), Some(1));
}

#[test]
fn a_meter_that_is_slowed_down_in_a_pause_is_not_paused_for_longer() {
    for (per_second, first) in [(1.0, 1_000), (100.0, 10)] {
        let (clock, limiter) = limiter(LeakyBucket::meter(Rate::per_second(10.0), 10));
        limiter.pause_for(secs(60));
        limiter.set_policy(LeakyBucket::meter(Rate::per_second(per_second), 10));
        let retry_after = |n| limiter.try_acquire(n).expect_err("paused").retry_after();
        // It is full when the pause ends, and all of it has to leak at the new rate.
        let wait = |n: u32| Some(secs(60) + ms(first) * n);
        assert_eq!([1, 10].map(retry_after), [1, 10].map(wait));
        clock.advance(secs(60));
        assert_eq!(limiter.available(), 0);
    }
}

#[test]
fn a_meter_keeps_its_level_when_it_becomes_a_queue_and_back() {
    let meter = |per_second| LeakyBucket::meter(Rate::per_second(per_second), 10);
    let (_, limiter) = limiter(meter(1.0));
    limiter.try_acquire(10).expect("empty").settle(4).expect("less");
    limiter.set_policy(leaky(2.0, 10));
    // All four are to leak, in half the time.
    assert_eq!(limiter.try_acquire(1).expect_err("a queue").retry_after(), Some(secs(2)));
    limiter.set_policy(meter(1.0));
    assert_eq!(limiter.available(), 6);
}

/// Everything but the lock itself is up to the rule within.
#[test]
fn a_lock_out_asks_the_rule_within() {
    let bucket = || TokenBucket::new(Rate::every(86_400 * secs(1)), 1);
    let (_, daily) = limiter(LockOut::new(bucket(), secs(60)));
    let mut grant = daily.try_acquire(1).expect("full");
    assert!(matches!(grant.settle(u32::MAX), Err(Error::ExceedsCapacity(_))));
    let (_, daily) = limiter(LockOut::new(AnyPolicy::from(bucket()), secs(60)));
    let mut grant = daily.try_acquire(1).expect("full");
    assert!(matches!(grant.settle(u32::MAX), Err(Error::ExceedsCapacity(_))));
    let (_, queue) = limiter(LockOut::new(leaky(10.0, 2), secs(60)));
    let _places = [1, 1].map(|n| queue.reserve(n).expect("a place"));
    assert_eq!(queue.reserve(1).expect_err("full").retry_after(), Some(ms(100)));
}

/// The grant is of a rule that is gone, whatever has taken its place.
#[test]
fn a_refund_of_a_rule_that_is_gone_gives_nothing_back() {
    let (ten, window) = (|| bucket(0.01, 10), || FixedWindow::new(6, secs(1_000)));
    let within = |policy: AnyPolicy| AnyPolicy::from(LockOut::new(policy, secs(60)));
    let (_, locked) = limiter(within(ten().into()));
    let old = locked.try_acquire(4).expect("full");
    locked.set_policy(within(window().into()));
    locked.set_policy(within(ten().into()));
    old.refund();
    assert_eq!(locked.available(), 6);
    // One of the rule in force does.
    locked.try_acquire(2).expect("six are there").refund();
    assert_eq!(locked.available(), 6);

    let (one, two) =
        (|| AllOf::new([ten().into()]), || AllOf::new([ten().into(), window().into()]));
    let (_, all) = limiter(two());
    let old = all.try_acquire(4).expect("six are there");
    all.set_policy(one());
    all.set_policy(two());
    all.try_acquire(5).expect("six are there");
    // It comes back to the bucket, and not to the window, which is another one.
    old.refund();
    assert_eq!(all.available(), 1);
}

#[test]
fn a_queue_that_becomes_a_meter_in_a_pause_leaves_it_with_nothing() {
    let (clock, limiter) = limiter(leaky(10.0, 10));
    limiter.pause_for(secs(60));
    limiter.set_policy(LeakyBucket::meter(Rate::per_second(10.0), 10));
    clock.advance(secs(60));
    assert_eq!(limiter.available(), 0);
}

/// Drains 20 permits at 100 ms, makes the rate a quarter of it at 200 ms, and the same again after the clock has
/// gone back by 200 ms. What came between 100 ms and 200 ms is worth no more than the time in which it came.
#[test]
fn a_clock_that_goes_back_between_two_changes_brings_no_credit() {
    fn granted_in_the_second_after<P: Policy<Cost = u32>>(fast: P, slow: P) -> u32 {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(fast.clone(), &clock);
        clock.set(ms(100));
        limiter.try_acquire(20).expect("it is full");
        clock.set(ms(200));
        limiter.set_policy(slow);
        clock.set(ms(0));
        limiter.set_policy(fast);
        // A tenth of a permit each 10 ms, from the latest time on.
        (0..110)
            .filter(|&at| {
                clock.set(ms(10 * at));
                limiter.try_acquire(1).is_ok()
            })
            .count()
            .try_into()
            .expect("few")
    }
    let rates = [10.0, 2.5].map(Rate::per_second);
    let [fast, slow] = rates.map(|rate| TokenBucket::new(rate, 20));
    assert_eq!(granted_in_the_second_after(fast, slow), 9);
    let [fast, slow] = [100, 25].map(|count| Gcra::new(19, count, secs(10)));
    assert_eq!(granted_in_the_second_after(fast, slow), 9);
    let [fast, slow] = rates.map(|rate| LeakyBucket::meter(rate, 20));
    assert_eq!(granted_in_the_second_after(fast, slow), 9);
}

fn steps(rate: Rate, period: Duration) -> TokenBucket {
    TokenBucket::new(rate, 100).refill_every(period)
}

/// A bucket is as if it had always had the new steps. Those of a limiter are counted from 12.3 s, when it was made, those
/// of a key from the origin of the clock.
#[test]
fn a_change_of_the_steps_counts_those_of_the_new_period() {
    let rate = Rate::per_second(1.0);
    for (new, empty, full) in [
        (1, [9, 12], [100, 100]),
        (3, [9, 11], [100, 100]),
        (7, [7, 11], [100, 100]),
        (20, [0, 10], [100, 100]),
        // A key that was not there before is full since its last step, at 10 s.
        (1000, [0, 0], [100, 90]),
    ] {
        let (old, new) = (steps(rate, secs(10)), steps(rate, secs(new)));
        for (taken, left) in [(100, empty), (0, full)] {
            let clock = ManualClock::new();
            clock.set(ms(12_300));
            let limiter = RateLimiter::with_clock(old.clone(), &clock);
            let keyed = KeyedRateLimiter::<u32, _>::builder(old.clone()).clock(&clock).build();
            limiter.try_acquire(taken).expect("a full bucket");
            keyed.at(&7).try_acquire(taken).expect("a full bucket");
            clock.set(ms(12_300 + 9_990));
            limiter.set_policy(new.clone());
            keyed.set_policy(new.clone());
            assert_eq!([limiter.available(), keyed.at(&7).available()], left, "{new:?}");
            // What has not come yet comes with the next step.
            clock.set(secs(1000) + ms(12_300));
            assert_eq!([limiter.available(), keyed.at(&7).available()], [100, 100], "{new:?}");
        }
    }
}

/// A third of a token is rounded down.
#[test]
fn a_change_of_the_rate_delays_a_token_by_a_step_at_most() {
    for changes in 0..20 {
        let third = |n| Rate::new(n, secs(3));
        let (clock, limiter) = limiter(steps(third(1), secs(1)).initial(0));
        for second in 1..=30 {
            clock.advance(secs(1));
            let there = limiter.available();
            let least = if changes == 0 { second / 3 } else { (second - 1) / 3 };
            assert!((least..=second / 3).contains(&there), "{there} at {second} s, {changes}");
            for change in 0..changes {
                limiter.set_rate(third([2, 1][change % 2]));
            }
            limiter.set_rate(third(1));
        }
    }
}

/// Also by a rule that counts nothing beyond its window.
#[test]
fn a_change_of_kind_forgives_no_debt() {
    let (window, owed) = (secs(1), secs(3_600));
    let rules: [(AnyPolicy, Duration); 6] = [
        (FixedWindow::new(5, window).into(), Duration::ZERO),
        // On a grid a window or a part may end later than the debt.
        (FixedWindow::new(5, window).aligned(ms(300)).into(), window),
        (SlidingWindowLog::new(5, window).into(), Duration::ZERO),
        (SlidingWindowCounter::new(5, window, 3).into(), window * 2 / 3),
        (LockOut::new(FixedWindow::new(5, window), ms(1)).into(), Duration::ZERO),
        (bucket(5.0, 5).into(), ms(200)),
    ];
    for (rule, late) in rules {
        let (clock, limiter) = limiter(AnyPolicy::from(SmoothBursty::new(Rate::per_second(5.0))));
        limiter.try_acquire(18_000).expect("prepaid");
        limiter.set_policy(rule.clone());
        let wait = limiter.try_acquire(1).expect_err("owed").retry_after().expect("known");
        assert!((owed..=owed + late).contains(&wait), "{rule:?}: {wait:?}");
        clock.advance(wait);
        limiter.try_acquire(1).expect("paid");
    }
}
