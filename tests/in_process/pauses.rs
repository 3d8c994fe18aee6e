//! Pauses that end early.

use std::time::Duration;

use tollgate::{
    AllOf, FixedWindow, InFlight, LeakyBucket, LockOut, ManualClock, Policy, Rate, RateLimiter,
    Same, SlidingWindowLog, SmoothBursty, TokenBucket,
};

use crate::support::secs;

fn bucket(per_second: f64, capacity: u32) -> TokenBucket {
    TokenBucket::new(Rate::per_second(per_second), capacity)
}

#[test]
fn what_happens_in_a_pause_counts_after_its_early_end() {
    let clock = ManualClock::new();
    let minute = secs(60);
    let policy = (SlidingWindowLog::new(10, minute), bucket(1.0, 10), InFlight::new(2));
    let limiter = RateLimiter::with_clock(policy, &clock);
    let mut kept = limiter.try_acquire((4, 4, 1)).expect("granted");
    let dropped = limiter.try_acquire((4, 4, 1)).expect("granted");
    limiter.pause_for(secs(600));
    clock.advance(secs(3));
    kept.settle((1, 6, 1)).expect("settled");
    drop(dropped);
    limiter.resume();
    // The log has 3 back; the bucket stored nothing in the pause, and owes the two of the settlement;
    // a place is free again.
    assert_eq!(limiter.available(), (5, 0, 1));
    clock.advance(secs(3));
    assert_eq!(limiter.available(), (5, 1, 1));
}

/// The end of the pause was rounded twice, by the old rate and by the new one, and the difference was taken for water.
#[test]
fn a_new_rate_in_a_pause_does_not_fill_an_empty_bucket() {
    for nanos in 0..500 {
        let clock = ManualClock::new();
        let [fast, slow] = [4_724, 28_344].map(|nanos| Rate::new(3, Duration::from_nanos(nanos)));
        let limiter = RateLimiter::with_clock(LeakyBucket::new(fast, 1), &clock);
        clock.advance(Duration::from_nanos(11_000 + nanos));
        limiter.pause_for(Duration::from_nanos(4_428));
        clock.advance(Duration::from_nanos(1_478));
        limiter.set_rate(slow);
        let place = limiter.reserve(1).expect("an empty bucket");
        assert_eq!(place.delay(), Duration::from_nanos(2_950));
    }
}

/// As if it had never begun, whatever is charged and given back in that instant.
#[test]
fn a_pause_that_ends_in_its_first_instant_discards_nothing() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(bucket(10.0, 10), &clock);
    let [three, _two] = [3, 2].map(|n| limiter.try_acquire(n).expect("a full bucket"));
    limiter.pause_for(secs(60));
    limiter.pause_for(secs(90));
    three.refund();
    limiter.resume();
    assert_eq!(limiter.available(), 8);
    // A nanosecond later nothing is stored.
    limiter.pause_for(secs(60));
    clock.advance(Duration::from_nanos(1));
    limiter.resume();
    assert_eq!(limiter.available(), 0);
}

/// As without the pause.
fn resumes_after_the_clock_was_set_back<P: Policy<Cost = u32>>(policy: P) {
    let limiter = |pauses: bool| {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(policy.clone(), &clock);
        clock.set(secs(100));
        limiter.try_acquire(1).expect("a new limiter grants at once");
        clock.set(secs(50));
        if pauses {
            limiter.pause_for(secs(3600));
            limiter.resume();
        }
        [0, 10, 49, 50].map(|seconds| {
            clock.set(secs(50 + seconds));
            limiter.try_acquire(1).map(drop)
        })
    };
    assert_eq!(limiter(true), limiter(false));
}

#[test]
fn a_pause_that_began_after_the_clock_was_set_back_can_be_ended() {
    resumes_after_the_clock_was_set_back(bucket(10.0, 10));
    resumes_after_the_clock_was_set_back(SmoothBursty::new(Rate::per_second(10.0)));
    resumes_after_the_clock_was_set_back(SlidingWindowLog::new(10, secs(1)));
    resumes_after_the_clock_was_set_back(FixedWindow::new(10, secs(1)));
    resumes_after_the_clock_was_set_back(LeakyBucket::new(Rate::per_second(10.0), 10));
    resumes_after_the_clock_was_set_back(InFlight::new(10));
}

#[test]
fn a_reset_keeps_places_in_flight_in_rules_together() {
    fn check<P: Policy<Cost = u32>>(policy: P) {
        let limiter = RateLimiter::with_clock(policy, ManualClock::new());
        let place = limiter.try_acquire(1).expect("a place");
        drop(limiter.try_acquire(2).expect("places"));
        limiter.reset();
        assert_eq!(limiter.available(), 2);
        drop(place);
        assert_eq!(limiter.available(), 3);
        drop(limiter.try_acquire(3).expect("a full bucket"));
        drop(limiter.try_acquire(2).expect("a full bucket"));
        assert_eq!(limiter.available(), 0);
    }
    let together = || Same((bucket(10.0, 5), InFlight::new(3)));
    check(together());
    check(LockOut::new(together(), secs(1)));
    check(AllOf::new([bucket(10.0, 5).into(), InFlight::new(3).into()]));
    let locked = LockOut::new(InFlight::new(3), secs(1));
    check(AllOf::new([locked.into(), bucket(10.0, 5).into()]));
}

#[test]
fn a_reset_ends_a_lock_and_what_was_taken_before_gives_nothing_back_to_rules_of_a_file() {
    let limiter =
        RateLimiter::with_clock(LockOut::new(bucket(10.0, 2), secs(9)), ManualClock::new());
    drop(limiter.try_acquire(2).expect("a full bucket"));
    limiter.try_acquire(1).expect_err("it is locked");
    limiter.reset();
    drop(limiter.try_acquire(2).expect("a full bucket"));
    let rules = AllOf::new([bucket(10.0, 5).into()]);
    let limiter = RateLimiter::with_clock(rules, ManualClock::new());
    let before = limiter.try_acquire(5).expect("a full bucket");
    limiter.reset();
    drop(limiter.try_acquire(5).expect("a full bucket"));
    before.refund();
    assert_eq!(limiter.available(), 0);
}

#[test]
fn nothing_is_whole_again_before_a_pause_ends() {
    fn check<P: Policy<Cost = u32>>(policy: P, taken: u32) {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(policy, &clock);
        let _ = limiter.try_acquire(taken).expect("free").settle(taken);
        limiter.pause_for(secs(30));
        let quota = limiter.quota();
        assert_eq!((quota.remaining, quota.reset_after), (0, Some(secs(30))));
        clock.advance(secs(30));
        assert_eq!(limiter.quota().remaining, 10);
    }
    for taken in [0, 4] {
        check(FixedWindow::new(10, secs(1)), taken);
        check(SlidingWindowLog::new(10, secs(1)), taken);
    }
    check(InFlight::new(10), 0);
}

/// The end of the pause was counted twice, and the second time took what the new policy had brought.
#[test]
fn a_policy_that_is_set_just_before_the_end_of_a_pause_keeps_what_it_brings() {
    let clock = ManualClock::new();
    let meter = |capacity| LeakyBucket::meter(Rate::per_second(1.0), capacity);
    let limiter = RateLimiter::with_clock(meter(1), &clock);
    limiter.pause_for(secs(9));
    clock.advance(secs(1));
    limiter.set_policy(meter(3));
    limiter.resume();
    assert_eq!(limiter.available(), 2);
}
