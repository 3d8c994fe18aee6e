//! Callers of many tenants that share one quota.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Error, KeyedRateLimiter, ManualClock, Rate, RateLimiter, Reservation, SmoothBursty,
    TokenBucket, block_on,
};

use crate::support::{Limiter, busy, ms, secs, waited};

type Places = Vec<Reservation<tollgate::RateLimiter<SmoothBursty>>>;

/// Callers of a tenant, each for `n` permits.
fn join(limiter: &Limiter, tenant: u32, n: u32, callers: usize) -> Places {
    let place = |_| block_on(limiter.acquire_for(&tenant, n).reserve()).expect("a place");
    (0..callers).map(place).collect()
}

/// How many of them are granted.
fn granted(limiter: &Limiter, tenant: u32, of: &Places) -> usize {
    of.len() - limiter.queue_len_for(&tenant)
}

#[test]
fn one_call_beside_a_flood_of_10_000_waits_for_one_call_of_the_flood() {
    let (clock, limiter) = busy(10.0);
    let flood = join(&limiter, 0, 1, 10_000);
    clock.advance(ms(1_050));
    assert_eq!(granted(&limiter, 0, &flood), 10);
    let other = block_on(limiter.acquire_for(&1, 1).reserve()).expect("a place");
    assert_eq!(other.delay(), ms(150));
    // The last of the flood waits for one call more, as it was there before.
    assert_eq!(flood[9_999].delay(), ms(999_050));
    clock.advance(secs(60));
    assert_eq!(waited(other), ms(150));
}

#[test]
fn ten_thousand_tenants_get_their_turns_in_rounds() {
    let (clock, limiter) = busy(1_000.0);
    let mut places: Vec<_> = (0..10_000).map(|tenant| join(&limiter, tenant, 1, 3)).collect();
    for round in 1..=3 {
        clock.advance(secs(10));
        let left = |tenant: &u32| limiter.queue_len_for(tenant) == 3 - round;
        assert!((0..10_000).all(|tenant| left(&tenant)), "round {round}");
    }
    assert_eq!(limiter.queue_len(), 0);
    // In each round the order is that in which they began to wait.
    let third = places[7_000].remove(2);
    assert_eq!(waited(third), ms(27_001));
}

#[test]
#[should_panic(expected = "a weight must not be zero")]
fn a_weight_of_zero_is_a_mistake() {
    let (_clock, limiter) = busy(1.0);
    drop(limiter.acquire_for("ann", 1).weight(0));
}

#[test]
fn a_flood_cannot_fill_the_queue_of_others() {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(10.0));
    let limiter = RateLimiter::builder(policy).clock(&clock);
    let limiter = limiter.max_waiters(150).max_waiters_per_tenant(100).build();
    limiter.try_acquire(1).expect("a new limiter grants at once");
    let mut flood = join(&limiter, 0, 1, 100);
    let full = |result: Result<_, Error>| match result.expect_err("full") {
        Error::QueueFull { limit, retry_after, .. } => (limit, retry_after),
        error => panic!("{error}"),
    };
    let refused = full(block_on(limiter.acquire_for(&0, 1).reserve()));
    assert_eq!(refused, ("max_waiters_per_tenant", Some(ms(100))));
    // Callers without a tenant have the bound of all.
    let _plain: Vec<_> = (0..49).map(|_| limiter.reserve(1).expect("a place")).collect();
    let _other = join(&limiter, 1, 1, 1);
    assert_eq!(full(block_on(limiter.acquire_for(&2, 1).reserve())).0, "max_waiters");
    flood.pop();
    let _other = join(&limiter, 2, 1, 1);
}

#[test]
fn a_flood_at_a_key_is_bounded_too() {
    let builder = KeyedRateLimiter::builder(SmoothBursty::new(Rate::per_second(10.0)));
    let keys = builder.clock(ManualClock::new()).max_waiters_per_tenant(1).build();
    let reserve = |tenant| block_on(keys.at("key").acquire(1).for_tenant(tenant).reserve());
    keys.at("key").try_acquire(20).expect("an idle key grants at once");
    let _waits = reserve("ann").expect("a place");
    let error = reserve("ann").expect_err("full");
    assert!(matches!(error, Error::QueueFull { limit: "max_waiters_per_tenant", .. }));
    assert!(reserve("bob").is_ok());
}

#[test]
fn forms_of_one_string_are_one_tenant() {
    let (_clock, limiter) = busy(1.0);
    let name = String::from("ann");
    let shared: Arc<str> = name.as_str().into();
    let _waiting = [
        block_on(limiter.acquire_for("ann", 1).reserve()),
        block_on(limiter.acquire_for(&name, 1).reserve()),
        block_on(limiter.acquire_for(&shared, 1).reserve()),
        block_on(limiter.acquire_owned(1).for_tenant(&*shared).reserve()),
    ];
    assert_eq!(limiter.queue_len_for("ann"), 4);
}

/// At a key in use, whose calls all come to its queue.
#[test]
fn a_call_that_is_granted_while_no_caller_waits_takes_no_turn() {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let limiter = KeyedRateLimiter::<u8, _>::with_clock(policy, &clock);
    limiter.at(&7).try_acquire(1).expect("a new key grants at once");
    let used = limiter.at(&7).reserve(1).expect("a place");
    clock.advance(ms(200));
    let key = limiter.at(&7);
    let join = |tenant, n| block_on(key.acquire(n).for_tenant(&tenant).reserve()).expect("a place");
    let big = join(0, 500);
    assert_eq!((big.delay(), limiter.at(&7).queue_len()), (ms(0), 0));
    let [first, second] = [0, 1].map(|tenant| join(tenant, 1));
    assert_eq!((first.delay(), second.delay()), (secs(50), ms(50_100)));
    drop(used);
}

/// It did, and a call that was granted at once afterwards counted as a turn. A bucket in steps grants all under its mutex.
#[test]
fn a_refused_call_of_a_tenant_begins_no_turns() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 1).refill_every(secs(1));
    let limiter = RateLimiter::with_clock(bucket, &clock);
    limiter.pause_for(secs(9));
    let refused = block_on(limiter.try_acquire_timeout(1, secs(1)).for_tenant(&1).reserve());
    assert!(matches!(refused, Err(Error::Denied { .. })));
    clock.advance(secs(10));
    limiter.try_acquire(1).expect("a permit after the pause");
    let first = limiter.reserve(1).expect("a place");
    let second = block_on(limiter.acquire_for(&1, 1).weight(2).reserve()).expect("a place");
    assert!(first.delay() < second.delay());
}
