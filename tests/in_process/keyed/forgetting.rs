//! Idle keys go when new ones come, and only they; the number of keys is bounded.

use std::time::Duration;

use tollgate::{
    Error, FixedWindow, InFlight, KeyedRateLimiter, ManualClock, Policy, Rate, Same, SmoothBursty,
    TokenBucket,
};

use crate::support::bucket::Bucket;
use crate::support::{ms, secs};

type Bursty = KeyedRateLimiter<u64, SmoothBursty>;

/// A second of burst, one permit a second: a key is idle a second after one permit from a full store.
fn limiter(max_keys: usize) -> (ManualClock, Bursty) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(1.0));
    (clock.clone(), KeyedRateLimiter::builder(policy).clock(clock).max_keys(max_keys).build())
}

fn too_many<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::TooManyKeys { .. }))
}

/// The table does not grow while it has idle keys.
#[test]
fn new_keys_take_the_room_of_idle_ones() {
    let (clock, limiter) = limiter(1_000_000);
    for round in 0..20 {
        for key in 0..10_000 {
            limiter.at(&(10_000 * round + key)).try_acquire(1).expect("a full store");
        }
        clock.advance(ms(1_001));
        assert!(limiter.len() <= 20_000, "{} keys", limiter.len());
    }
}

#[test]
fn a_key_that_owes_something_stays() {
    let (clock, limiter) = limiter(1);
    limiter.at(&1).try_acquire(61).expect("prepaid");
    clock.advance(secs(59));
    assert!(too_many(limiter.at(&2).try_acquire(1)));
    assert_eq!(limiter.at(&1).try_acquire(1).expect_err("refused").retry_after(), Some(secs(1)));
    clock.advance(secs(2));
    assert!(limiter.at(&2).try_acquire(1).is_ok());
    assert_eq!(limiter.keys(), [2]);
}

#[test]
fn at_the_bound_existing_keys_keep_working() {
    let (clock, limiter) = limiter(100);
    for key in 0..100 {
        limiter.at(&key).try_acquire(1).expect("a full store");
    }
    for key in 100..1_000 {
        assert!(too_many(limiter.at(&key).try_acquire(1)));
        assert!(too_many(limiter.at(&key).reserve(1)));
        assert!(too_many(limiter.at(&key).pause_for(secs(1))));
        assert!(too_many(limiter.at(&key).blocking_acquire(1)));
    }
    assert_eq!(limiter.len(), 100);
    for key in 0..100 {
        limiter.at(&key).try_acquire(1).expect("one on credit");
    }
    clock.advance(secs(3));
    for key in 100..200 {
        limiter.at(&key).try_acquire(1).expect("the others are idle by now");
    }
    assert_eq!(limiter.len(), 100);
}

#[test]
fn the_error_says_how_many() {
    let (_, limiter) = limiter(0);
    let error = limiter.at(&1).try_acquire(1).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "the limit of 0 keys is reached and no key is idle; raise `max_keys` or use fewer keys"
    );
    assert_eq!((error.retry_after(), error.part().map(tollgate::Part::index)), (None, None));
    assert_eq!(limiter.stats().refused, 1);
}

/// A key that is only read takes no room, and one whose call can never be granted is idle.
#[test]
fn a_refused_key_can_go_at_once() {
    let clock = ManualClock::new();
    let policy = TokenBucket::new(Rate::per_second(1.0), 5);
    let limiter = KeyedRateLimiter::builder(policy).clock(&clock).max_keys(10).build();
    assert_eq!(
        (limiter.at(&1).available(), limiter.at(&1).queue_len(), limiter.at(&1).quota().limit),
        (5, 0, 5)
    );
    assert!(limiter.is_empty());
    for key in 0..1000 {
        assert!(matches!(limiter.at(&key).try_acquire(6), Err(Error::ExceedsCapacity(_))));
    }
    assert_eq!((limiter.len() <= 10, limiter.stats().refused), (true, 1_000));
    assert_eq!((limiter.remove_idle() > 0, limiter.len()), (true, 0));
    assert!(limiter.at(&1).try_acquire(5).is_ok() && !limiter.is_empty());
}

/// Forgotten at the very moment, and not a nanosecond before.
#[test]
fn a_key_is_forgotten_when_it_is_idle_and_not_before() {
    fn check<P: Policy<Cost = u32>>(policy: P, idle_after: Duration) {
        let clock = ManualClock::new();
        clock.advance(secs(100));
        let limiter = KeyedRateLimiter::builder(policy).clock(&clock).max_keys(1).build();
        limiter.at(&1).try_acquire(1).expect("ready");
        clock.advance(idle_after - Duration::from_nanos(1));
        assert!(too_many(limiter.at(&2).try_acquire(1)));
        clock.advance(Duration::from_nanos(1));
        assert!(limiter.at(&2).try_acquire(1).is_ok());
    }
    check(TokenBucket::new(Rate::per_second(5.0), 10), ms(200));
    check(FixedWindow::new(5, secs(7)), secs(7));
    check(FixedWindow::new(5, secs(7)).aligned(Duration::ZERO), secs(5));
    check(
        Same((FixedWindow::new(5, secs(7)), TokenBucket::new(Rate::per_second(5.0), 3))),
        secs(7),
    );
    check(TokenBucket::new(Rate::every(secs(2)), 3).refill_every(secs(3)), secs(2));
}

#[test]
fn a_key_with_a_place_in_flight_stays_until_it_is_given_back() {
    let clock = ManualClock::new();
    let limiter = KeyedRateLimiter::builder(InFlight::new(1)).clock(&clock).max_keys(1).build();
    let grant = limiter.at(&1).try_acquire(1).expect("nothing is in flight");
    clock.advance(secs(1_000_000));
    assert!(too_many(limiter.at(&2).try_acquire(1)));
    assert!(limiter.at(&1).try_acquire(1).is_err());
    drop(grant);
    assert!(limiter.at(&2).try_acquire(1).is_ok());
}

/// With each call it began anew, and never had what the one before was to wait for.
#[test]
fn a_new_key_fills_while_its_calls_are_refused() {
    let clock = ManualClock::new();
    let policy = TokenBucket::new(Rate::per_second(1.0), 5).initial(3);
    let builder = KeyedRateLimiter::<u64, _>::builder(policy).absent_is_new(true);
    let limiter = builder.clock(&clock).build();
    assert!(limiter.at(&7).try_acquire(6).is_err(), "never");
    let wait = limiter.at(&7).try_acquire(4).expect_err("not yet").retry_after().expect("known");
    assert_eq!((wait, limiter.len()), (secs(1), 1));
    clock.advance(wait);
    assert!(limiter.at(&7).try_acquire(4).is_ok());
}

#[test]
fn a_key_in_a_pause_stays() {
    let (clock, limiter) = limiter(1);
    limiter.at(&1).pause_for(secs(60)).expect("room");
    clock.advance(secs(30));
    assert!(too_many(limiter.at(&2).try_acquire(1)));
    assert_eq!(limiter.at(&1).try_acquire(1).expect_err("refused").retry_after(), Some(secs(30)));
    clock.advance(secs(32));
    assert!(limiter.at(&2).try_acquire(1).is_ok());
}

#[test]
fn a_key_with_a_waiter_stays() {
    let (clock, limiter) = limiter(1);
    limiter.at(&1).try_acquire(10).expect("prepaid");
    let place = limiter.at(&1).reserve(1).expect("a place");
    clock.advance(secs(1000));
    // Granted, but the reservation has not been polled.
    assert!(too_many(limiter.at(&2).try_acquire(1)));
    drop(place);
    assert!(limiter.at(&2).try_acquire(1).is_ok());
}

/// Absent keys can be chosen to start as new ones, without the permits stored for an idle key.
#[test]
fn absent_keys_can_be_new_ones() {
    let clock = ManualClock::new();
    let builder = KeyedRateLimiter::builder(SmoothBursty::new(Rate::per_second(1.0)));
    let limiter = builder.clock(&clock).max_keys(1).absent_is_new(true).build();
    clock.advance(secs(60));
    limiter.at(&1).try_acquire(1).expect("on credit");
    assert!(limiter.at(&1).try_acquire(1).is_err());
    clock.advance(secs(60));
    assert!(limiter.at(&2).try_acquire(1).is_ok(), "the first is still forgotten");
    assert!(limiter.at(&2).try_acquire(1).is_err());
}

/// Also while the table holds it in a word.
#[test]
fn the_steps_of_a_new_key_begin_with_it() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Rate::every(secs(2)), 3).refill_every(secs(2));
    let limiter = KeyedRateLimiter::builder(bucket).clock(&clock).absent_is_new(true).build();
    clock.advance(secs(1));
    for key in 0..100 {
        limiter.at(&key).try_acquire(3).expect("full");
    }
    clock.advance(ms(1_999));
    assert!((0..100).all(|key| limiter.at(&key).available() == 0));
    clock.advance(ms(1));
    assert!((0..100).all(|key| limiter.at(&key).available() == 1));
}

/// A reservation that is dropped leaves no key behind either.
#[test]
fn keys_of_reservations_are_forgotten_as_well() {
    let (clock, limiter) = limiter(1_000_000);
    for key in 0..20_000 {
        drop(limiter.at(&key).reserve(1).expect("room"));
        clock.advance(ms(1));
    }
    assert!(limiter.len() < 10_000, "{} keys", limiter.len());
}

#[test]
fn a_key_goes_after_its_last_grant_was_dropped_or_given_back() {
    let (clock, limiter) = limiter(1_000_000);
    let [kept, mut settled] = [1, 2].map(|key| limiter.at(&key).try_acquire(1).expect("stored"));
    clock.advance(secs(3600));
    assert_eq!(limiter.remove_idle(), 0);
    settled.settle(31).expect("owed");
    drop((kept, settled));
    assert_eq!(limiter.remove_idle(), 1);
    assert_eq!(limiter.keys(), [2]);
    clock.advance(secs(30));
    assert_eq!(limiter.remove_idle(), 1);
    // A refund makes it idle long before.
    limiter.at(&3).try_acquire(1_000_000).expect("prepaid").refund();
    clock.advance(secs(2));
    assert_eq!(limiter.remove_idle(), 1);
}

/// A key whose hash is that of all others.
#[derive(Clone, PartialEq, Eq)]
struct Colliding(u64);

impl std::hash::Hash for Colliding {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

#[test]
fn keys_may_collide() {
    let clock = ManualClock::new();
    let policy = TokenBucket::new(Rate::per_second(1.0), 5);
    let limiter = KeyedRateLimiter::with_clock(policy, &clock);
    let held: Vec<_> =
        (0..50).map(|key| limiter.at(&Colliding(key)).try_acquire(3).expect("full")).collect();
    for key in 50..1_000 {
        limiter.at(&Colliding(key)).try_acquire(2).expect("full");
    }
    held.into_iter().for_each(|mut grant| grant.settle(1).expect("less"));
    let available = [0, 49, 50, 999, 1_000].map(|key| limiter.at(&Colliding(key)).available());
    assert_eq!(available, [4, 4, 3, 3, 5]);
    clock.advance(secs(2));
    assert_eq!((limiter.remove_idle(), limiter.len()), (1_000, 0));
}

/// Only a policy knows from when on a key is as good as a new one.
#[test]
fn a_key_of_a_policy_that_does_not_say_when_it_is_idle_stays() {
    let clock = ManualClock::new();
    let policy = Bucket { interval: ms(100), capacity: 5 };
    let limiter = KeyedRateLimiter::<u64, _>::with_clock(policy, &clock);
    let waiting = limiter.at(&7).reserve(1).expect("a place");
    clock.advance(secs(3_600));
    drop(waiting);
    clock.advance(secs(3_600));
    assert_eq!((limiter.remove_idle(), limiter.len()), (0, 1));
}

#[test]
fn bounds_hold_for_each_key() {
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let builder = KeyedRateLimiter::<String, _>::builder(policy).clock(ManualClock::new());
    let limiter = builder.max_waiters(1).max_queued_permits(7).build();
    for key in ["a", "b"] {
        limiter.at(key).try_acquire(1).expect("prepaid");
        assert!(matches!(limiter.at(key).reserve(8), Err(Error::QueueFull { .. })));
        let _waits = limiter.at(key).reserve(7).expect("a place");
        let full = limiter.at(key).reserve(1).expect_err("the place is taken");
        assert_eq!(full.retry_after(), Some(ms(100)));
    }
}
