//! An unused grant is refunded: exactly if there was no grant since, and otherwise never more than
//! is safe.

use std::time::Duration;

use tollgate::{LeakyBucket, ManualClock, Rate, RateLimiter, SmoothBursty, SmoothWarmingUp};

use crate::support::{ms, secs};

#[test]
fn a_refund_of_an_earlier_charge_while_warming_up_is_at_the_stable_price() {
    let policy = SmoothWarmingUp::new(Rate::per_second(5.0), secs(4));
    let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    let wait = || limiter.would_wait(1).expect("a wait").expect("a known one");
    let first = limiter.try_acquire(7).expect("a grant");
    limiter.try_acquire(0).expect("nothing").settle(2).expect("two more");
    let before = wait();
    first.refund();
    assert_eq!(before - wait(), ms(1_400));
}

#[test]
fn a_grant_of_a_limiter_that_warms_up_is_settled_in_steps_as_at_once() {
    let next = |steps: &[u32]| {
        let policy = SmoothWarmingUp::new(Rate::per_second(5.0), secs(4));
        let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
        limiter.try_acquire(20).expect("the first");
        let mut grant = limiter.blocking_acquire(12).expect("in its turn");
        for &cost in steps {
            grant.settle(cost).expect("less");
        }
        limiter.reserve(1).expect("a place").delay()
    };
    assert!(next(&[]) > next(&[7]) && next(&[7]) > next(&[2]));
    assert_eq!(next(&[7, 2]), next(&[2]));
    assert_eq!(next(&[7, 5, 4, 0]), next(&[0]));
}

/// Found by review: an earlier refund brought the position back to where an older booking had ended,
/// and that one was then taken for the last.
#[test]
fn a_refund_is_not_taken_for_the_last_because_the_numbers_come_again() {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(1.0)).max_burst(secs(10));
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    clock.advance(secs(10));
    let mut x = limiter.try_acquire(6).expect("stored");
    let a = limiter.try_acquire(5).expect("stored");
    x.settle(1).expect("less than was taken");
    clock.advance(secs(6));
    limiter.try_acquire(5).expect("stored");
    a.refund();
    // Ten stored at most, one prepaid, and five have gone at this moment already.
    let more = (0..20).take_while(|_| limiter.try_acquire(1).is_ok()).count();
    assert!(more <= 6, "{more} more at once");
}

/// Found by review: a warming limiter was put back to a state of other parameters.
#[test]
fn a_refund_across_a_change_of_the_warm_up_fits_the_new_store() {
    let rate = Rate::per_second(10.0);
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SmoothWarmingUp::new(rate, secs(100)), clock);
    let grant = limiter.try_acquire(1000).expect("a new limiter grants at once");
    limiter.set_policy(SmoothWarmingUp::new(rate, secs(1)));
    grant.refund();
    assert_eq!(limiter.available(), 10);
}

#[test]
fn a_refund_of_one_of_many_after_a_change_of_the_rate_delays_no_waiter() {
    let clock = ManualClock::new();
    let policy = SmoothWarmingUp::new(Rate::per_second(10.0), secs(1));
    let limiter = RateLimiter::with_clock(policy, clock);
    let mut grant = limiter.try_acquire(100).expect("a new limiter grants at once");
    limiter.set_rate(Rate::per_second(1.0));
    let owed = || limiter.try_acquire(1).expect_err("owed").retry_after().expect("a time");
    let before = owed();
    grant.settle(99).expect("less than was taken");
    assert!(before.abs_diff(owed() + ms(100)) < Duration::from_micros(1), "{before:?}");
}

/// At 25 ns a queue of one permit each 8 ns has leaked, and a nanosecond more, which rounding leaves to it. It stays if
/// what time has paid comes back.
#[test]
fn a_refund_of_what_time_has_paid_takes_nothing() {
    let nanos = Duration::from_nanos;
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(LeakyBucket::new(Rate::every(nanos(8)), 4), &clock);
    let first = limiter.try_acquire(3).expect("empty");
    clock.advance(nanos(24));
    let second = limiter.try_acquire(1).expect("all has leaked");
    clock.advance(nanos(1));
    second.refund();
    first.refund();
    limiter.try_acquire(1).expect("empty");
    let retry_after = limiter.try_acquire(1).expect_err("too soon").retry_after();
    assert_eq!(retry_after, Some(nanos(7)));
}
