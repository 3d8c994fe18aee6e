//! Grants from a key: settled, refunded and dropped long after, whatever became of the key.

use tollgate::{InFlight, KeyedRateLimiter, ManualClock, Rate, TokenBucket};

use crate::support::{ms, outcome, secs};

fn buckets(max_keys: usize) -> (ManualClock, KeyedRateLimiter<u64, TokenBucket>) {
    let clock = ManualClock::new();
    let policy = TokenBucket::new(Rate::per_second(10.0), 100);
    (clock.clone(), KeyedRateLimiter::builder(policy).clock(clock).max_keys(max_keys).build())
}

/// An estimate of ten, and the answer a minute later: the key has been full again for long, and
/// must not have been forgotten, or the real cost of the call would be lost.
#[test]
fn additional_cost_is_owed_however_late_it_is_known() {
    let (clock, limiter) = buckets(1);
    let mut grant = limiter.at(&1).try_acquire(10).expect("a full bucket");
    clock.advance(secs(60));
    for key in 2..1000 {
        assert!(limiter.at(&key).try_acquire(1).is_err(), "the only place is taken");
    }
    grant.settle(150).expect("far from the horizon");
    assert_eq!(limiter.at(&1).available(), 0);
    assert_eq!(limiter.at(&1).try_acquire(10).expect_err("refused").retry_after(), Some(secs(5)));
    drop(grant);
    clock.advance(secs(20));
    assert!(limiter.at(&2).try_acquire(1).is_ok());
}

/// The key has gained a queue meanwhile, and lost it again.
#[test]
fn a_grant_finds_its_key_with_and_without_a_queue() {
    let (clock, limiter) = buckets(10);
    let mut early = limiter.at(&1).try_acquire(100).expect("a full bucket");
    let place = limiter.at(&1).reserve(5).expect("a place");
    assert_eq!(place.delay(), ms(500));
    // A partial refund moves the waiter up.
    early.settle(97).expect("less");
    assert_eq!(place.delay(), ms(200));
    clock.advance(ms(200));
    assert_eq!(outcome(&mut place.wait()).expect("a grant").waited(), ms(200));
    early.settle(107).expect("more");
    assert_eq!(limiter.at(&1).try_acquire(1).expect_err("refused").retry_after(), Some(ms(1100)));
}

#[test]
fn nothing_can_be_settled_to_something() {
    let (_, limiter) = buckets(10);
    let mut grant = limiter.at(&1).try_acquire(0).expect("nothing is always there");
    grant.settle(30).expect("little");
    assert_eq!(limiter.at(&1).available(), 70);
    assert_eq!(limiter.stats().granted, 0);

    let limiter = KeyedRateLimiter::with_clock(InFlight::new(2), ManualClock::new());
    let mut grant = limiter.at(&1).try_acquire(0).expect("nothing is always there");
    grant.settle(2).expect("little");
    assert_eq!(limiter.at(&1).available(), 0);
    drop(grant);
    assert_eq!(limiter.at(&1).available(), 2);
}
