//! A change of the rate and a pause hold for all waiters: none of them has been charged yet.

use std::time::Duration;

use tollgate::{Error, ManualClock, Rate, RateLimiter, Reservation, SmoothBursty, SmoothWarmingUp};

use crate::support::{Limiter, bursty, busy, is_waiting, ms, outcome, secs, waited};

fn a_hundred(limiter: &Limiter) -> Vec<Reservation<tollgate::RateLimiter<SmoothBursty>>> {
    (0..100).map(|_| limiter.reserve(1).expect("a place")).collect()
}

fn waits(line: Vec<Reservation<tollgate::RateLimiter<SmoothBursty>>>) -> Vec<Duration> {
    line.into_iter().map(waited).collect()
}

/// 200, 400, 600, 800 and 1000 ms at 5 per second, the next 200 ms later because it was charged for
/// at that rate, and from there on at the `interval`.
fn changed_after_a_second(interval: Duration) -> impl Iterator<Item = Duration> {
    let before = (1..=5).map(|place| ms(200) * place);
    before.chain((0..95).map(move |place| ms(1200) + interval * place))
}

/// Each change of the rate rounds the debt up to a whole unit, by less than a nanosecond.
#[track_caller]
fn assert_times(
    happened: Vec<Duration>,
    expected: impl IntoIterator<Item = Duration>,
    changes: u64,
) {
    for (happened, expected) in happened.into_iter().zip(expected) {
        let latest = expected + Duration::from_nanos(changes);
        assert!((expected..=latest).contains(&happened), "{happened:?} instead of {expected:?}");
    }
}

#[test]
fn rates_that_go_up_and_down_leave_no_trace() {
    let (clock, limiter) = busy(5.0);
    let line = a_hundred(&limiter);
    clock.advance(secs(1));
    for _ in 0..100 {
        limiter.set_rate(Rate::per_second(1000.0));
        limiter.set_rate(Rate::every(secs(86_400)));
        limiter.set_rate(Rate::per_second(5.0));
    }
    clock.advance(secs(600));
    assert_times(waits(line), changed_after_a_second(ms(200)), 300);
}

#[test]
fn a_pause_moves_a_hundred_waiters_behind_its_end() {
    let (clock, limiter) = busy(5.0);
    let line = a_hundred(&limiter);
    clock.advance(secs(1));
    limiter.pause_for(secs(10));
    clock.advance(secs(600));
    let before = (1..=5).map(|place| ms(200) * place);
    let after = (0..95).map(|place| secs(11) + ms(200) * place);
    assert_eq!(waits(line), before.chain(after).collect::<Vec<_>>());
}

#[test]
fn a_pause_shorter_than_the_debt_changes_nothing() {
    let (clock, limiter) = bursty(5.0);
    limiter.try_acquire(50).expect("a new limiter grants at once");
    limiter.pause_for(secs(3));
    let reservation = limiter.reserve(1).expect("a place");
    clock.advance(secs(60));
    assert_eq!(waited(reservation), secs(10));
}

#[test]
fn a_pause_is_made_longer_but_never_shorter() {
    let (clock, limiter) = bursty(5.0);
    limiter.pause_for(secs(10));
    let reservation = limiter.reserve(1).expect("a place");
    limiter.pause_for(secs(3));
    limiter.pause_for(Duration::ZERO);
    assert_eq!(reservation.delay(), secs(10));
    clock.advance(secs(8));
    // Until 11 s now.
    limiter.pause_for(secs(3));
    assert_eq!(reservation.delay(), secs(3));
    clock.advance(secs(60));
    assert_eq!(waited(reservation), secs(11));
}

#[test]
fn in_a_pause_nothing_is_granted_and_every_refusal_has_the_wait() {
    let (clock, limiter) = bursty(5.0);
    clock.advance(secs(60));
    limiter.pause_for(secs(10));
    clock.advance(secs(4));
    assert_eq!(limiter.available(), 0);
    let error = limiter.try_acquire(1).expect_err("a pause");
    assert_eq!(error.retry_after(), Some(secs(6)));
    let mut hopeless = limiter.try_acquire_timeout(1, ms(5999));
    let error = outcome(&mut hopeless).expect_err("a pause");
    assert_eq!(error.retry_after(), Some(secs(6)));
    clock.advance(ms(5999));
    assert!(limiter.try_acquire(1).is_err());
    clock.advance(ms(1));
    assert!(limiter.try_acquire(1).is_ok());
}

#[test]
fn no_credit_accrues_in_a_pause() {
    let (clock, limiter) = bursty(5.0);
    limiter.pause_for(secs(10));
    clock.advance(secs(10));
    assert_eq!(limiter.available(), 0);
    assert!(limiter.try_acquire(1).is_ok());
    assert_eq!(limiter.try_acquire(1).expect_err("no credit").retry_after(), Some(ms(200)));
    // Afterwards it does.
    clock.advance(ms(800));
    assert_eq!(limiter.available(), 3);
}

#[test]
fn permits_stored_before_a_pause_are_gone_after_it() {
    let (clock, limiter) = bursty(5.0);
    clock.advance(secs(60));
    assert_eq!(limiter.available(), 5);
    limiter.pause_for(secs(10));
    clock.advance(secs(10));
    assert_eq!(limiter.available(), 0);
}

#[test]
fn a_rate_set_in_a_pause_does_not_end_it() {
    let (clock, limiter) = bursty(5.0);
    limiter.pause_for(secs(10));
    let line = a_hundred(&limiter);
    clock.advance(secs(5));
    limiter.set_rate(Rate::per_second(50.0));
    limiter.set_rate(Rate::per_second(10.0));
    clock.advance(secs(60));
    assert_times(waits(line), (0..100).map(|place| secs(10) + ms(100) * place), 2);
}

#[test]
fn a_refund_in_a_pause_earns_no_credit() {
    let (clock, limiter) = bursty(1.0);
    let grant = limiter.try_acquire(10).expect("a new limiter grants at once");
    limiter.pause_for(secs(5));
    grant.refund();
    clock.advance(secs(5));
    assert_eq!(limiter.available(), 0);
    assert!(limiter.try_acquire(1).is_ok());
    assert!(limiter.try_acquire(1).is_err());
}

#[test]
fn predictions_after_a_change_are_met_while_warming_up() {
    let clock = ManualClock::new();
    let policy = SmoothWarmingUp::new(Rate::per_second(5.0), secs(4));
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    let line: Vec<_> = (0..50).map(|_| limiter.reserve(2).expect("a place")).collect();
    clock.advance(secs(2));
    limiter.set_rate(Rate::per_second(20.0));
    clock.advance(secs(1));
    limiter.pause_for(secs(1));
    limiter.set_rate(Rate::per_second(8.0));
    let predicted: Vec<_> = line.iter().map(Reservation::delay).collect();
    clock.advance(secs(600));
    let mut waiting = 0;
    for (predicted, reservation) in
        predicted.into_iter().zip(line).filter(|(predicted, _)| !predicted.is_zero())
    {
        // Rounded to whole nanoseconds once for each grant ahead, or once in total.
        let happened = waited(reservation) - secs(3);
        assert!(
            predicted.abs_diff(happened) <= Duration::from_nanos(1),
            "{predicted:?} {happened:?}"
        );
        waiting += 1;
    }
    assert!(waiting > 40);
}

#[test]
fn waiters_for_more_than_the_new_policy_can_grant_get_an_error_and_do_not_block_the_queue() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1e9)), clock.clone());
    limiter.try_acquire(1_000_000_000).expect("a new limiter grants at once");
    let mut huge = limiter.acquire(u32::MAX);
    let mut next = limiter.acquire(1);
    assert!(is_waiting(&mut huge) && is_waiting(&mut next));
    limiter.set_rate(Rate::every(secs(86_400)));
    let error = outcome(&mut huge).expect_err("more than 146 years");
    assert!(matches!(error, Error::ExceedsCapacity(_)), "{error:?}");
    assert_eq!(error.retry_after(), None);
    clock.advance(secs(2));
    let waited = outcome(&mut next).expect("a grant").waited();
    assert_times(vec![waited], [secs(1)], 1);
}
