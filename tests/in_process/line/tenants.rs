//! Callers of many tenants that share one quota.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Error, FixedWindow, InFlight, KeyedRateLimiter, Limiter as _, ManualClock, Policy, QueueLimit,
    Rate, RateLimiter, Reservation, SlidingWindowLog, SmoothBursty, TokenBucket,
};

use crate::support::{Limiter, busy, finishes, is_waiting, ms, outcome, secs, until, waited};

type Places = Vec<Reservation<tollgate::RateLimiter<SmoothBursty>>>;

/// Callers of a tenant, each for `n` permits.
fn join(limiter: &Limiter, tenant: u32, n: u32, callers: usize) -> Places {
    let place = |_| limiter.acquire_for(&tenant, n).reserve().expect("a place");
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
    let other = limiter.acquire_for(&1, 1).reserve().expect("a place");
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
fn tenants_that_wait_share_by_permits_and_not_by_calls() {
    let (clock, limiter) = busy(100.0);
    let small = join(&limiter, 0, 1, 1_000);
    let large = join(&limiter, 1, 20, 50);
    clock.advance(secs(10));
    // A large call that is begun counts.
    let granted = [granted(&limiter, 0, &small), 20 * granted(&limiter, 1, &large)];
    assert_eq!(granted, [500, 500]);
}

#[test]
fn weights_share_in_proportion() {
    let (clock, limiter) = busy(100.0);
    let mut places = Vec::new();
    for _ in 0..1_000 {
        for weight in 1..=4 {
            let call = limiter.acquire_for(&weight, 1).weight(weight);
            places.push(call.reserve().expect("a place"));
        }
    }
    clock.advance(secs(20));
    let shares = [1, 2, 3, 4].map(|tenant| 1_000 - limiter.queue_len_for(&tenant));
    assert_eq!(shares, [200, 400, 600, 800]);
}

#[test]
#[should_panic(expected = "a weight must not be zero")]
fn a_weight_of_zero_is_a_mistake() {
    let (_clock, limiter) = busy(1.0);
    drop(limiter.acquire_for("ann", 1).weight(0));
}

#[test]
fn a_lone_tenant_gets_the_whole_rate_and_pays_nothing_for_it_later() {
    let (clock, limiter) = busy(10.0);
    let alone = join(&limiter, 0, 1, 1_000);
    clock.advance(secs(50));
    assert_eq!(granted(&limiter, 0, &alone), 500);
    // It does not owe what it took while no other tenant was there.
    let other = join(&limiter, 1, 1, 1_000);
    clock.advance(secs(20));
    assert_eq!((granted(&limiter, 0, &alone), granted(&limiter, 1, &other)), (600, 100));
}

#[test]
fn callers_that_leave_cost_their_tenant_nothing() {
    let (clock, limiter) = busy(10.0);
    let _flood = join(&limiter, 0, 1, 100);
    let leave = join(&limiter, 1, 1, 1_000);
    let last = limiter.acquire_for(&1, 1).reserve().expect("a place");
    assert_eq!(last.delay(), ms(110_100));
    drop(leave);
    assert_eq!(last.delay(), ms(200));
    clock.advance(secs(1));
    assert_eq!(waited(last), ms(200));
}

#[test]
fn tenants_that_come_once_do_not_starve_one_that_comes_twice() {
    let (clock, limiter) = busy(10.0);
    let twice = join(&limiter, 0, 1, 2);
    // Twice the calls that can be served.
    let mut once = Vec::new();
    for tenant in 1..200 {
        once.extend(join(&limiter, tenant, 1, 1));
        clock.advance(ms(50));
    }
    // In FIFO order it would have been granted at 200 ms.
    let [first, second] = <[_; 2]>::try_from(twice).expect("two");
    assert_eq!((waited(first), waited(second)), (ms(100), ms(400)));
}

#[test]
fn a_big_call_is_granted_in_its_turn_and_paid_for_afterwards() {
    let (clock, limiter) = busy(10.0);
    let small = join(&limiter, 0, 1, 300);
    clock.advance(ms(150));
    let big = join(&limiter, 1, 50, 2);
    clock.advance(ms(100));
    // In the second round, and its permits take five seconds.
    assert_eq!((granted(&limiter, 0, &small), granted(&limiter, 1, &big)), (2, 0));
    clock.advance(ms(100));
    assert_eq!((granted(&limiter, 0, &small), granted(&limiter, 1, &big)), (2, 1));
    // Then the other one gets as many.
    clock.advance(ms(9_900));
    assert_eq!((granted(&limiter, 0, &small), granted(&limiter, 1, &big)), (52, 1));
    clock.advance(ms(100));
    assert_eq!(granted(&limiter, 1, &big), 2);
}

#[test]
fn a_timeout_is_judged_by_the_turns_of_all_that_wait() {
    let (clock, limiter) = busy(10.0);
    let _floods: Vec<_> = (0..10).map(|tenant| join(&limiter, tenant, 1, 1_000)).collect();
    let with =
        |tenant: u32, wait| limiter.try_acquire_timeout(1, wait).for_tenant(&tenant).reserve();
    // Behind one call of each.
    let error = with(10, ms(1_099)).expect_err("too early");
    assert_eq!(error.retry_after(), Some(ms(1_100)));
    let in_time = with(10, ms(1_100)).expect("in time");
    // One of the flood is behind its own, and as many of each other.
    let error = with(0, secs(60)).expect_err("too early");
    assert_eq!(error.retry_after(), Some(ms(10_001 * 100 + 100)));
    // A caller without time gets the time at which no caller waits.
    let error = limiter.try_acquire(1).expect_err("callers wait");
    assert_eq!(error.retry_after(), Some(ms(10_002 * 100)));
    clock.advance(secs(2));
    assert_eq!(waited(in_time), ms(1_100));
}

/// Not all of them are counted for a caller that is late in any case.
#[test]
fn a_caller_behind_a_crowd_of_tenants_is_refused_if_the_crowd_makes_it_late() {
    let (clock, limiter) = busy(10.0);
    let crowd: Vec<_> = (0..300).flat_map(|tenant| join(&limiter, tenant, 1, 1)).collect();
    let with = |wait| limiter.try_acquire_timeout(1, wait).for_tenant(&300).reserve();
    // Some of these are enough for all that were counted for the one before.
    for wait in [ms(1), ms(12_900), ms(20_000), ms(25_700), ms(30_099)] {
        let error = with(wait).expect_err("too early");
        // As much as shows that it is late, so perhaps less than it would take.
        let needed = error.retry_after().expect("a known wait");
        assert!((wait..=ms(30_100)).contains(&needed) && needed > wait, "{wait:?} {needed:?}");
    }
    let in_time = with(ms(30_100)).expect("in time");
    clock.advance(secs(31));
    assert_eq!((crowd.len(), waited(in_time)), (300, ms(30_100)));
}

#[test]
fn callers_without_a_tenant_are_one_tenant_also_those_that_came_first() {
    let (clock, limiter) = busy(10.0);
    let plain: Vec<_> = (0..100).map(|_| limiter.reserve(1).expect("a place")).collect();
    clock.advance(secs(2));
    let tenant = join(&limiter, 0, 1, 100);
    let urgent = limiter.acquire(1).ahead_by(secs(60)).reserve().expect("a place");
    clock.advance(ms(200));
    assert_eq!((limiter.queue_len(), granted(&limiter, 0, &tenant)), (179, 1));
    assert_eq!(waited(urgent), ms(100));
    clock.advance(secs(4));
    assert_eq!((limiter.queue_len(), granted(&limiter, 0, &tenant)), (139, 21));
    // The plain ones are in order.
    assert!(plain[39].delay().is_zero() && !plain[40].delay().is_zero());
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
    let refused = full(limiter.acquire_for(&0, 1).reserve());
    assert_eq!(refused, (QueueLimit::WaitersPerTenant(100), Some(ms(100))));
    // Callers without a tenant have the bound of all.
    let _plain: Vec<_> = (0..49).map(|_| limiter.reserve(1).expect("a place")).collect();
    let _other = join(&limiter, 1, 1, 1);
    assert_eq!(full(limiter.acquire_for(&2, 1).reserve()).0, QueueLimit::Waiters(150));
    flood.pop();
    let _other = join(&limiter, 2, 1, 1);
}

#[test]
fn turns_outlive_pauses_and_changes_of_the_rate() {
    let (clock, limiter) = busy(10.0);
    let floods: Vec<_> = (0..4).map(|tenant| join(&limiter, tenant, 1, 100)).collect();
    clock.advance(secs(2));
    limiter.pause_for(secs(10));
    clock.advance(secs(10));
    limiter.set_rate(Rate::per_second(100.0));
    clock.advance(secs(1));
    // The first one after the pause is charged at the old rate.
    let shares: Vec<_> =
        (0..4).map(|tenant| granted(&limiter, tenant, &floods[tenant as usize])).collect();
    assert_eq!(shares.iter().sum::<usize>(), 20 + 1 + 90);
    assert!(shares.iter().all(|share| (27..=28).contains(share)), "{shares:?}");
}

/// The order in which callers of tenants are granted.
fn order<P: Policy>(policy: P, cost: P::Cost, tenants: &[u32]) -> Vec<u32> {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(policy, &clock);
    let mut first = Vec::new();
    while let Ok(grant) = limiter.try_acquire(cost) {
        first.push(grant);
    }
    let mut callers: Vec<_> = Vec::new();
    for &tenant in tenants {
        let mut caller = limiter.acquire_for(&tenant, cost);
        assert!(is_waiting(&mut caller));
        callers.push((tenant, caller));
    }
    first.clear();
    let mut order = Vec::new();
    for _ in 0..200 {
        clock.advance(ms(50));
        callers.retain_mut(|(tenant, caller)| {
            let waits = is_waiting(caller);
            if !waits {
                order.push(*tenant);
            }
            waits
        });
    }
    assert!(callers.is_empty());
    order
}

#[test]
fn every_kind_of_rule_has_turns() {
    let tenants = [1, 1, 1, 1, 2, 2, 3];
    let rounds = [1, 2, 3, 1, 2, 1, 1];
    let second = secs(1);
    assert_eq!(order(TokenBucket::new(Rate::per_second(5.0), 1), 1, &tenants), rounds);
    assert_eq!(order(FixedWindow::new(1, second), 1, &tenants), rounds);
    assert_eq!(order(SlidingWindowLog::new(1, second), 1, &tenants), rounds);
    assert_eq!(order(InFlight::new(1), 1, &tenants), rounds);
    let together = (InFlight::new(1), SlidingWindowLog::new(1, second));
    assert_eq!(order(together, (1, 1), &tenants), rounds);
}

#[test]
fn a_strict_big_cost_is_not_passed_over_for_ever() {
    // A bucket of ten at one a second: a call for ten needs all of it.
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(1.0), 10), &clock);
    limiter.try_acquire(10).expect("a full bucket");
    let mut big = limiter.acquire_for("big", 10);
    assert!(is_waiting(&mut big));
    let mut small = Vec::new();
    for _ in 0..40 {
        small.push(limiter.acquire_for("small", 1).reserve().expect("a place"));
        clock.advance(ms(500));
    }
    // It was first; then the other one gets ten.
    assert_eq!(outcome(&mut big).expect("a grant").waited(), secs(10));
    assert_eq!(limiter.queue_len_for("small"), 30);
}

#[test]
fn forms_of_one_string_are_one_tenant() {
    let (_clock, limiter) = busy(1.0);
    let name = String::from("ann");
    let shared: Arc<str> = name.as_str().into();
    let _waiting = [
        limiter.acquire_for("ann", 1).reserve(),
        limiter.acquire_for(&name, 1).reserve(),
        limiter.acquire_for(&shared, 1).reserve(),
        limiter.acquire_owned(1).for_tenant(&*shared).reserve(),
    ];
    assert_eq!(limiter.queue_len_for("ann"), 4);
}

#[test]
fn threads_wait_in_turn_too() {
    finishes(|| {
        let (clock, limiter) = busy(10.0);
        let _flood = join(&limiter, 0, 1, 100);
        let thread = std::thread::spawn({
            let limiter = limiter.clone();
            move || limiter.acquire_for(&1, 1).blocking_wait().expect("a grant").waited()
        });
        until(|| limiter.queue_len_for(&1) == 1);
        clock.advance(ms(200));
        assert_eq!(thread.join().expect("no panic"), ms(200));
    });
}

#[test]
fn a_queue_that_was_empty_forgets_all_shares() {
    let (clock, limiter) = busy(10.0);
    let big = join(&limiter, 0, 500, 1);
    clock.advance(secs(1));
    assert_eq!(granted(&limiter, 0, &big), 1);
    // Both wait for the debt of the big call, and none is ahead.
    let first = join(&limiter, 0, 1, 2);
    let second = join(&limiter, 1, 1, 2);
    clock.advance(ms(49_150));
    assert_eq!((granted(&limiter, 0, &first), granted(&limiter, 1, &second)), (1, 0));
}

/// At a key in use, whose calls all come to its queue.
#[test]
fn a_call_that_is_granted_while_no_caller_waits_takes_no_turn() {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let limiter = KeyedRateLimiter::<u8, _>::with_clock(policy, &clock);
    limiter.try_acquire(&7, 1).expect("a new key grants at once");
    let used = limiter.reserve(&7, 1).expect("a place");
    clock.advance(ms(200));
    let key = limiter.at(7);
    let join = |tenant, n| key.acquire_for(&tenant, n).reserve().expect("a place");
    let big = join(0, 500);
    assert_eq!((big.delay(), limiter.queue_len(&7)), (ms(0), 0));
    let [first, second] = [0, 1].map(|tenant| join(tenant, 1));
    assert_eq!((first.delay(), second.delay()), (secs(50), ms(50_100)));
    drop(used);
}
