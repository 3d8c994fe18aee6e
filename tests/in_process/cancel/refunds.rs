//! An unused grant is refunded: exactly if there was no grant since, and otherwise never more than
//! is safe.

use std::time::Duration;

use tollgate::{
    Grant, LeakyBucket, ManualClock, Rate, RateLimiter, Rated, SmoothBursty, SmoothWarmingUp,
};

use crate::support::{bursty, busy, is_waiting, ms, outcome, secs, waited};

/// The waits of the next callers at this moment: the state, as seen from outside.
fn seen<P: Rated<Cost = u32>>(limiter: &RateLimiter<P>) -> (u32, [Duration; 3]) {
    let available = limiter.available();
    let next: Vec<_> =
        [7, 5, 1].into_iter().map(|n| limiter.reserve(n).expect("a place")).collect();
    let delays = [0, 1, 2].map(|place: usize| next[place].delay());
    // The last one first, so that each of them is given back exactly.
    next.into_iter().rev().for_each(drop);
    (available, delays)
}

#[test]
fn a_refund_is_exact_if_there_was_no_grant_since() {
    fn check<P: Rated<Cost = u32>>(policy: P) {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(policy, clock.clone());
        for step in 1..50 {
            clock.advance(ms(37 * step % 400));
            let Ok(kept) = limiter.try_acquire(u32::try_from(step % 3).expect("small")) else {
                continue;
            };
            drop(kept);
            let before = seen(&limiter);
            if let Ok(grant) = limiter.try_acquire(30) {
                grant.refund();
                assert_eq!(seen(&limiter), before, "step {step}");
            }
            if let Ok(mut grant) = limiter.try_acquire(30) {
                grant.settle(0).expect("less");
                assert_eq!(seen(&limiter), before, "step {step}");
            }
        }
    }
    check(SmoothBursty::new(Rate::per_second(5.0)));
    check(SmoothBursty::new(Rate::per_second(7.0)).max_burst(ms(0)));
    check(SmoothWarmingUp::new(Rate::per_second(5.0), secs(3)));
}

#[test]
fn refunds_in_reverse_order_are_exact() {
    fn check<P: Rated<Cost = u32>>(policy: P) {
        let clock = ManualClock::new();
        let [untouched, limiter] =
            [(); 2].map(|()| RateLimiter::with_clock(policy.clone(), &clock));
        clock.advance(secs(60));
        let first = limiter.try_acquire(7).expect("a grant");
        let ready = limiter.would_wait(1).expect("a wait").expect("a known one");
        clock.advance(ready);
        let second = limiter.try_acquire(2).expect("a grant");
        second.refund();
        first.refund();
        assert_eq!(seen(&limiter), seen(&untouched));
    }
    check(SmoothBursty::new(Rate::per_second(5.0)).max_burst(secs(2)));
    check(SmoothWarmingUp::new(Rate::per_second(5.0), secs(4)));
}

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
fn a_refund_after_later_grants_is_as_if_the_permits_had_never_been_taken() {
    for (later, expected) in [(0, 4), (200, 5), (600, 5), (5000, 5)] {
        let (clock, limiter) = bursty(5.0);
        clock.advance(secs(1));
        let grant = limiter.try_acquire(3).expect("stored");
        clock.advance(ms(100));
        limiter.try_acquire(1).expect("stored");
        clock.advance(ms(later));
        grant.refund();
        // Cut down by some nanoseconds at most.
        clock.advance(Duration::from_nanos(10));
        assert_eq!(limiter.available(), expected, "{later} ms later");
    }
}

#[test]
fn a_refund_returns_what_a_waiter_has_waited_for() {
    let (clock, limiter) = bursty(5.0);
    let first = limiter.try_acquire(5).expect("a new limiter grants at once");
    let mut second = limiter.acquire(5);
    assert!(is_waiting(&mut second));
    clock.advance(secs(1));
    let second = outcome(&mut second).expect("a grant");
    assert_eq!(limiter.try_acquire(1).expect_err("owed").retry_after(), Some(secs(1)));
    // Without the first call five would have been stored in this second, and the second call would have them.
    first.refund();
    assert!(limiter.try_acquire(1).is_ok());
    drop(second);
}

/// Had they never been taken, the store would have been full all the same.
#[test]
fn a_refund_after_the_store_was_full_returns_nothing() {
    let (clock, limiter) = bursty(5.0);
    let first = limiter.try_acquire(5).expect("a new limiter grants at once");
    clock.advance(secs(2));
    limiter.try_acquire(5).expect("stored");
    first.refund();
    assert_eq!(limiter.available(), 0);
    limiter.try_acquire(1).expect("the first is granted whatever it costs");
    assert_eq!(limiter.try_acquire(1).expect_err("owed").retry_after(), Some(ms(200)));
}

/// In any span at most the burst, the yield of the rate, and one prepaid request.
#[test]
fn refunds_in_any_order_never_let_more_through_than_the_burst_and_the_rate() {
    let (clock, limiter) = bursty(5.0);
    clock.advance(secs(10));
    let mut kept = 0;
    let mut grants: Vec<Grant<'_, SmoothBursty>> = Vec::new();
    for step in 0..2000_usize {
        if let Ok(grant) = limiter.try_acquire(1) {
            kept += 1;
            grants.push(grant);
        }
        // Somewhere in the middle of the recent grants.
        if step % 3 == 0 && grants.len() > 4 {
            grants.remove(grants.len() - 1 - step % 4).refund();
            kept -= 1;
        }
        clock.advance(ms(20));
        let elapsed = u32::try_from(clock.elapsed().as_millis()).expect("short") - 10_000;
        assert!(kept <= 5 + elapsed / 200 + 1, "{kept} after {elapsed} ms");
    }
}

#[test]
fn a_partial_refund_by_settling_is_exact_too() {
    let (clock, limiter) = busy(5.0);
    let reservation = limiter.reserve(10).expect("a place");
    clock.advance(ms(200));
    outcome(&mut reservation.wait()).expect("a grant").settle(4).expect("less");
    assert_eq!(limiter.try_acquire(1).expect_err("owed").retry_after(), Some(ms(800)));
    let next = limiter.reserve(1).expect("a place");
    clock.advance(secs(1));
    assert_eq!(waited(next), ms(800));
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

/// Found by review: halving the rate leaves the position as it is, but not the price.
#[test]
fn a_refund_after_halving_the_rate_gives_back_the_price_paid() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(2.0)), clock);
    let mut grant = limiter.try_acquire(100).expect("a new limiter grants at once");
    limiter.set_rate(Rate::per_second(1.0));
    grant.settle(50).expect("less than was taken");
    // Fifty were bought at two a second.
    let owed = limiter.try_acquire(1).expect_err("owed").retry_after().expect("a time");
    assert!(owed.abs_diff(secs(25)) < Duration::from_micros(1), "{owed:?}");
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
