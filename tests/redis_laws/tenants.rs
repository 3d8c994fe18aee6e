//! Callers of many tenants that share one quota: the tenants of one process take turns.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::RedisRateLimiter;
use tollgate::{Acquire, Error, ManualClock, Rate, SmoothBursty};

use crate::manual::{Manual, new_key};

type Limiter = RedisRateLimiter<SmoothBursty, Manual>;
type Caller = Acquire<RedisRateLimiter<SmoothBursty, Manual>>;

const MINUTE: Duration = Duration::from_secs(60);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Ten a second without a burst, its first permit taken.
fn ten_a_second(horizon: u64) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    clock.advance(MINUTE);
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let builder = RedisRateLimiter::builder(policy, Manual::new(&clock), new_key());
    let limiter = builder.clock(&clock).horizon(ms(horizon)).build();
    assert!(limiter.try_acquire(1).now_or_never().expect("an answer").is_ok());
    (clock, limiter)
}

fn joins(mut caller: Caller) -> Caller {
    assert!((&mut caller).now_or_never().is_none());
    caller
}

/// Callers of a tenant, each for `n` permits.
fn join(limiter: &Limiter, tenant: &str, n: u32, callers: usize) -> Vec<Caller> {
    (0..callers).map(|_| joins(limiter.acquire_for(tenant, n))).collect()
}

fn waited(caller: Caller) -> Duration {
    caller.now_or_never().expect("an answer").expect("a grant").waited()
}

fn waits(callers: Vec<Caller>) -> Vec<u64> {
    let millis = |wait: Duration| u64::try_from(wait.as_millis()).expect("a short wait");
    callers.into_iter().map(|caller| millis(waited(caller))).collect()
}

/// How many of them are granted; they are kept.
fn granted(callers: &mut Vec<Caller>) -> usize {
    let before = callers.len();
    callers.retain_mut(|caller| caller.now_or_never().is_none());
    before - callers.len()
}

/// With a horizon those that are booked come first.
#[test]
fn one_call_beside_a_flood_of_100_waits_for_one_call_of_the_flood() {
    for (horizon, wait) in [(0, 150), (250, 350)] {
        let (clock, limiter) = ten_a_second(horizon);
        let mut flood = join(&limiter, "ann", 1, 100);
        clock.advance(ms(1_050));
        assert_eq!(granted(&mut flood), 10);
        let other = joins(limiter.acquire_for("bob", 1));
        clock.advance(MINUTE);
        assert_eq!(waited(other), ms(wait), "with a horizon of {horizon} ms");
        // The last of the flood waits for one call more.
        assert_eq!(waits(flood).pop(), Some(10_100));
    }
}

#[test]
fn tenants_get_their_turns_in_rounds_by_weight() {
    let (clock, limiter) = ten_a_second(0);
    let mut callers = [1, 2, 3].map(|weight| {
        let call = |_| joins(limiter.acquire_for(&weight, 1).weight(weight));
        (0..100).map(call).collect::<Vec<_>>()
    });
    clock.advance(ms(12_000));
    let shares = callers.each_mut().map(granted);
    assert_eq!(shares, [20, 40, 60]);
}

#[test]
fn tenants_share_by_permits_and_not_by_calls() {
    let (clock, limiter) = ten_a_second(0);
    let (mut small, mut large) = (join(&limiter, "ann", 1, 200), join(&limiter, "bob", 10, 20));
    clock.advance(ms(10_000));
    assert_eq!((granted(&mut small), granted(&mut large)), (50, 5));
}

/// Also those that were there before.
#[test]
fn callers_without_a_tenant_are_a_tenant() {
    let (clock, limiter) = ten_a_second(0);
    let call = |_| joins(limiter.acquire(1));
    let mut others: Vec<_> = (0..50).map(call).collect();
    let mut tenant = join(&limiter, "ann", 1, 100);
    others.extend((0..50).map(call));
    clock.advance(ms(8_000));
    assert_eq!((granted(&mut others), granted(&mut tenant)), (40, 40));
    // In the order of their arrival.
    clock.advance(MINUTE);
    assert!(waits(others).is_sorted());
    assert!(waits(tenant).is_sorted());
}

#[test]
fn a_lone_tenant_gets_the_whole_rate_and_pays_nothing_for_it_later() {
    let (clock, limiter) = ten_a_second(0);
    let mut alone = join(&limiter, "ann", 1, 200);
    clock.advance(ms(5_000));
    assert_eq!(granted(&mut alone), 50);
    let mut other = join(&limiter, "bob", 1, 200);
    clock.advance(ms(4_000));
    assert_eq!((granted(&mut alone), granted(&mut other)), (20, 20));
}

#[test]
fn a_tenant_that_asks_again_as_it_is_served_has_the_same_share() {
    let (clock, limiter) = ten_a_second(0);
    let mut flood = join(&limiter, "ann", 1, 100);
    let mut again = join(&limiter, "bob", 1, 2);
    for _ in 0..80 {
        clock.advance(ms(100));
        let served = granted(&mut again);
        again.extend(join(&limiter, "bob", 1, served));
    }
    assert_eq!(granted(&mut flood), 40);
}

/// They took the turn of one caller again and again, and no tenant got any. Where no tenant waits they are ahead of it.
#[test]
fn callers_that_keep_coming_ahead_of_one_do_not_starve_a_tenant() {
    for (tenants, share, is_served) in [(100, 40, true), (1, 1, false)] {
        let (clock, limiter) = ten_a_second(0);
        let mut tenant = join(&limiter, "ann", 1, tenants);
        let plain = joins(limiter.acquire(1));
        let ahead = || joins(limiter.acquire(1).ahead_by(MINUTE));
        let mut urgent = vec![ahead(), ahead()];
        for _ in 0..80 {
            clock.advance(ms(100));
            let served = granted(&mut urgent);
            urgent.extend((0..served).map(|_| ahead()));
        }
        assert_eq!((granted(&mut tenant), plain.now_or_never().is_some()), (share, is_served));
    }
}

/// Nor does its tenant lose anything by the last that leave.
#[test]
fn a_caller_that_leaves_delays_no_other() {
    let run = |leaves: bool| {
        let (clock, limiter) = ten_a_second(0);
        let mut ann = join(&limiter, "ann", 1, 10);
        let bob = join(&limiter, "bob", 1, 10);
        if leaves {
            drop(ann.drain(2..5));
        }
        clock.advance(MINUTE);
        [waits(ann), waits(bob)].concat()
    };
    let mut stays = run(false);
    stays.drain(2..5);
    let leaves = run(true);
    assert!(leaves.iter().zip(&stays).all(|(leaves, stays)| leaves <= stays), "{leaves:?}");
    assert_eq!(leaves.iter().max(), Some(&1_700));

    let (clock, limiter) = ten_a_second(0);
    let _flood = join(&limiter, "ann", 1, 100);
    drop(join(&limiter, "bob", 1, 100));
    let again = joins(limiter.acquire_for("bob", 1));
    clock.advance(MINUTE);
    assert_eq!(waited(again), ms(200));
}

/// A tenant that has had its turn cannot hide it behind callers that leave.
#[test]
fn a_turn_is_not_forgotten_when_the_callers_behind_it_leave() {
    let (clock, limiter) = ten_a_second(0);
    let large = joins(limiter.acquire_for("ann", 20));
    let mut small = join(&limiter, "bob", 1, 100);
    let behind = joins(limiter.acquire_for("ann", 1));
    clock.advance(ms(100));
    assert_eq!(waited(large), ms(100));
    drop(behind);
    let again = joins(limiter.acquire_for("ann", 1));
    clock.advance(ms(2_000 + 1_900));
    assert_eq!(granted(&mut small), 20);
    // Of equal turns the first that came is first.
    clock.advance(ms(100));
    assert_eq!(granted(&mut small), 1);
    clock.advance(ms(100));
    assert_eq!((granted(&mut small), again.now_or_never().is_some()), (0, true));
}

#[test]
fn tenants_that_come_once_do_not_starve_one_that_comes_twice() {
    let (clock, limiter) = ten_a_second(0);
    let mut twice = join(&limiter, "ann", 1, 2);
    // Twice the calls that can be served.
    let mut once = Vec::new();
    for tenant in 1..200 {
        once.push(joins(limiter.acquire_for(&tenant, 1)));
        clock.advance(ms(50));
    }
    let second = waited(twice.remove(1));
    assert_eq!((waited(twice.remove(0)), second), (ms(100), ms(400)));
}

#[test]
fn waiters_with_a_booking_are_not_overtaken() {
    let (clock, limiter) = ten_a_second(1_000);
    let mut flood = join(&limiter, "ann", 1, 20);
    let others = join(&limiter, "bob", 1, 20);
    // Three quarters of the horizon are booked.
    clock.advance(MINUTE);
    let booked = waits(flood.drain(..7).collect());
    assert_eq!(booked, [100, 200, 300, 400, 500, 600, 700]);
    assert_eq!(waits(others)[..3], [900, 1_100, 1_300]);
}

/// A booking that is left goes to the next turn, whatever the tenant.
#[test]
fn a_booking_that_is_left_is_for_the_next_turn() {
    let (clock, limiter) = ten_a_second(250);
    let mut flood = join(&limiter, "ann", 1, 10);
    let other = joins(limiter.acquire_for("bob", 1));
    clock.advance(ms(1));
    drop(flood.remove(0));
    clock.advance(MINUTE);
    let (other, flood) = (waited(other), waits(flood));
    assert!(other <= ms(200), "{other:?}");
    assert_eq!(flood.iter().max(), Some(&1_000));
}

#[test]
fn beside_tenants_a_caller_ahead_goes_ahead_of_those_without_a_tenant_only() {
    let (clock, limiter) = ten_a_second(0);
    let tenant = join(&limiter, "ann", 1, 5);
    let others: Vec<_> = (0..5).map(|_| joins(limiter.acquire(1))).collect();
    let urgent = [1, 2, 1].map(|minutes| joins(limiter.acquire(1).ahead_by(minutes * MINUTE)));
    let late: Vec<_> = (0..5).map(|_| joins(limiter.acquire(1))).collect();
    clock.advance(2 * MINUTE);
    assert_eq!(waits(urgent.into()), [300, 200, 400]);
    assert_eq!(waits(tenant)[..2], [100, 600]);
    assert_eq!(waits(others)[..2], [500, 700]);
    assert!(waits(late).iter().all(|&wait| wait > 1_300));
}

#[test]
fn a_timeout_is_judged_by_the_turn_of_its_caller() {
    let (clock, limiter) = ten_a_second(0);
    let flood = join(&limiter, "ann", 1, 100);
    let within = |tenant: &str, millis| {
        limiter.try_acquire_timeout(1, ms(millis)).for_tenant(tenant).now_or_never()
    };
    let refused = |answer: Option<Result<_, Error>>| {
        answer.expect("an answer").map(drop).expect_err("it is late").retry_after()
    };
    assert_eq!(refused(within("ann", 5_000)), Some(ms(10_100)));
    assert_eq!(refused(within("bob", 199)), Some(ms(200)));
    let bob = joins(limiter.try_acquire_timeout(1, ms(200)).for_tenant("bob"));
    let place = limiter.acquire_for("cid", 1).reserve().now_or_never();
    let place = place.expect("an answer").expect("a place");
    assert_eq!(place.delay(), ms(300));
    clock.advance(MINUTE);
    assert_eq!((waited(bob), waited(place.wait())), (ms(200), ms(300)));
    drop(flood);
}

/// An empty queue forgets all shares.
#[test]
fn without_tenants_callers_queue_in_order_of_arrival_again() {
    let (clock, limiter) = ten_a_second(0);
    let mut tenants = join(&limiter, "ann", 1, 5);
    tenants.extend(join(&limiter, "bob", 1, 5));
    clock.advance(MINUTE);
    assert_eq!(waits(tenants).into_iter().max(), Some(1_000));
    drop(limiter.try_acquire(1).now_or_never());
    let callers: Vec<_> = (0..5).map(|_| joins(limiter.acquire(1))).collect();
    let urgent = joins(limiter.acquire(1).ahead_by(MINUTE));
    clock.advance(MINUTE);
    assert_eq!(waited(urgent), ms(100));
    assert_eq!(waits(callers), [200, 300, 400, 500, 600]);
}
