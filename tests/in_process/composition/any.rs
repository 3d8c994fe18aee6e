//! Twins: a rule chosen at run time beside the same rule by its own type, through all that a limiter
//! can be asked. Neither is an oracle for the other but by being another way through the code.

use std::fmt::Debug;
use std::time::Duration;

use tollgate::state::{PolicyExt, RuleEvent};
use tollgate::{
    AllOf, AnyPolicy, Error, FixedWindow, Gcra, Grant, InFlight, LeakyBucket, LockOut, ManualClock,
    Nanos, Part, Policy, Rate, RateLimiter, Reservation, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket, Unlimited,
};

use crate::support::ms;

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % most
    }

    fn small(&mut self) -> u32 {
        u32::try_from(self.below(7)).expect("small")
    }
}

/// One of a pair of limiters, with what it has granted.
struct Twin<P: Policy<Cost = u32>> {
    limiter: RateLimiter<P>,
    grants: Vec<Grant<'static, P>>,
    places: Vec<Reservation<RateLimiter<P>>>,
}

/// What a step shows.
type Seen = (Result<(u32, Duration, Option<usize>), Error>, Vec<Duration>, [u64; 6]);

impl<P: Policy<Cost = u32>> Twin<P> {
    fn new(policy: P, clock: &ManualClock) -> Self {
        let limiter = RateLimiter::with_clock(policy, clock);
        Self { limiter, grants: Vec::new(), places: Vec::new() }
    }

    fn keep(&mut self, grant: Result<Grant<'static, P>, Error>) -> Seen {
        // A visit to the mutex: the word does not record levels, and a late refund would return less.
        self.limiter.pause_for(Duration::ZERO);
        let shown = grant.map(|grant| {
            let shown = (grant.cost(), grant.waited(), grant.limited_by().map(Part::index));
            self.grants.push(grant);
            shown
        });
        let delays = self.places.iter().map(Reservation::delay).collect();
        let (quota, stats) = (self.limiter.quota(), self.limiter.stats());
        let reset = quota.reset_after.map_or(0, |reset| reset.as_nanos() + 1);
        let numbers = [
            u64::from(quota.limit),
            u64::from(quota.remaining),
            u64::try_from(reset).expect("decades"),
            self.limiter.queue_len() as u64,
            stats.granted,
            stats.refused,
        ];
        (shown, delays, numbers)
    }

    fn step(&mut self, step: u64, n: u32, other: u64, policies: &[P]) -> Seen {
        let index = |all: usize| usize::try_from(other).expect("small") % all;
        let nothing = Ok((0, Duration::ZERO, None));
        let outcome = match step {
            0..=3 => {
                let grant = self.limiter.try_acquire(n).map(Grant::into_owned);
                return self.keep(grant);
            }
            4 | 5 => {
                let place = self.limiter.reserve(n);
                place.map(|place| self.places.push(place)).and(nothing)
            }
            6 if !self.places.is_empty() => {
                drop(self.places.remove(index(self.places.len())));
                nothing
            }
            7 | 8 if self.places.first().is_some_and(|place| place.delay().is_zero()) => {
                // It may wait for a release, in which case its delay is unknown: then it is left.
                let mut wait = self.places.remove(0).wait();
                let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
                match std::pin::Pin::new(&mut wait).poll(context) {
                    std::task::Poll::Ready(grant) => return self.keep(grant),
                    std::task::Poll::Pending => nothing,
                }
            }
            9..=11 if !self.grants.is_empty() => {
                let at = index(self.grants.len());
                match step {
                    9 => self.grants[at].settle(n).and(nothing),
                    10 => {
                        self.grants.remove(at).refund();
                        nothing
                    }
                    _ => {
                        drop(self.grants.remove(at));
                        nothing
                    }
                }
            }
            12 if other.is_multiple_of(4) => {
                self.limiter.pause_for(ms(10 * other));
                nothing
            }
            13 if other.is_multiple_of(4) => {
                self.limiter.set_policy(policies[index(policies.len())].clone());
                nothing
            }
            _ => nothing,
        };
        let mut seen = self.keep(Err(Error::Closed));
        seen.0 = outcome;
        seen
    }
}

fn twins<A, B>(ones: &[A], others: &[B])
where
    A: Policy<Cost = u32> + Debug,
    B: Policy<Cost = u32> + Debug,
{
    for seed in 0..20 {
        let mut random = Random(seed);
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(1_000));
        let mut one = Twin::new(ones[0].clone(), &clock);
        let mut other = Twin::new(others[0].clone(), &clock);
        for number in 0..250 {
            let (step, n, with) = (random.below(16), random.small(), random.below(20));
            if step >= 14 {
                clock.advance(Duration::from_nanos(random.below(700_000_000)));
            }
            let seen = one.step(step, n, with, ones);
            let twin = other.step(step, n, with, others);
            assert_eq!(seen, twin, "seed {seed}, step {number}: {step} {n} {with}, {ones:?}");
        }
    }
}

fn twin_of<P: Policy<Cost = u32> + Debug + Into<AnyPolicy>>(policies: &[P]) {
    let any: Vec<AnyPolicy> = policies.iter().cloned().map(Into::into).collect();
    twins(policies, &any);
    // And as a part of several.
    let free = || InFlight::new(u32::MAX);
    let tuples: Vec<_> = policies.iter().map(|policy| Same((policy.clone(), free()))).collect();
    let all = |policy: &AnyPolicy| AllOf::new([policy.clone(), free().into()]);
    twins(&tuples, &any.iter().map(all).collect::<Vec<_>>());
}

fn rate(per_second: f64) -> Rate {
    Rate::per_second(per_second)
}

/// A test for each rule.
macro_rules! answers_as_by_its_own_type {
    ($($rule:ident: $policies:expr;)+) => {
        mod answers_as_by_its_own_type {
            use super::*;

            $(
                #[test]
                fn $rule() {
                    twin_of(&$policies);
                }
            )+
        }
    };
}

answers_as_by_its_own_type! {
    smooth_bursty: [SmoothBursty::new(rate(5.0)), SmoothBursty::new(rate(9.0)).max_burst(ms(100))];
    smooth_warming_up: [
        SmoothWarmingUp::new(rate(5.0), ms(2_000)),
        SmoothWarmingUp::new(rate(7.0), ms(900)).cold_factor(2.0),
    ];
    token_bucket: [
        TokenBucket::new(rate(5.0), 5),
        TokenBucket::new(rate(2.0), 9).refill_every(ms(700)),
    ];
    gcra: [Gcra::new(5, 10, ms(2_000)), Gcra::new(2, 10, ms(1_000))];
    leaky_bucket: [LeakyBucket::new(rate(5.0), 6), LeakyBucket::meter(rate(4.0), 8)];
    fixed_window: [FixedWindow::new(6, ms(1_000)), FixedWindow::new(9, ms(700))];
    sliding_window_log: [SlidingWindowLog::new(6, ms(1_000)), SlidingWindowLog::new(9, ms(700))];
    sliding_window_counter: [
        SlidingWindowCounter::new(6, ms(1_000), 4),
        SlidingWindowCounter::new(9, ms(600), 3),
    ];
    in_flight: [InFlight::new(6), InFlight::new(9)];
    lock_out: [
        LockOut::new(FixedWindow::new(6, ms(1_000)), ms(1_500)),
        LockOut::new(FixedWindow::new(9, ms(700)), ms(300)),
    ];
}

#[test]
fn several_rules_answer_as_their_tuple() {
    let bucket = |n| TokenBucket::new(rate(5.0), n);
    let log = |n| SlidingWindowLog::new(n, ms(3_000));
    let (one, two) = ((6, 9), (8, 7));
    let tuple = |(a, b)| Same((bucket(a), log(b), InFlight::new(6)));
    let all = |(a, b)| AllOf::new([bucket(a).into(), log(b).into(), InFlight::new(6).into()]);
    twins(&[tuple(one), tuple(two)], &[all(one), all(two)]);
    let buckets = |(a, b)| Same((bucket(a), bucket(b)));
    let all = |(a, b)| AllOf::new([bucket(a).into(), bucket(b).into()]);
    twins(&[buckets(one), buckets(two)], &[all(one), all(two)]);
}

#[test]
fn a_new_kind_starts_with_no_more_than_the_old_one_had_and_not_before_it() {
    let clock = ManualClock::new();
    let policy = AnyPolicy::from(SmoothBursty::new(rate(5.0)));
    let limiter = RateLimiter::with_clock(policy.clone(), &clock);
    let prepaid = limiter.try_acquire(10).expect("prepaid");
    limiter.set_policy(TokenBucket::new(rate(5.0), 100).into());
    // Two seconds of debt, and then a token must come.
    assert_eq!(limiter.try_acquire(1).expect_err("owed").retry_after(), Some(ms(2_200)));
    // What was charged to the old kind does not come back, and not to a later state of that kind.
    limiter.set_policy(policy);
    prepaid.refund();
    assert!(limiter.try_acquire(1).expect_err("owed").retry_after() >= Some(ms(2_000)));

    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(AnyPolicy::from(TokenBucket::new(rate(1.0), 10)), &clock);
    limiter.try_acquire(7).expect("full");
    limiter.set_policy(FixedWindow::new(100, ms(60_000)).into());
    assert_eq!(limiter.available(), 3);
}

#[test]
fn what_was_charged_to_an_earlier_state_of_a_kind_does_not_come_back_to_a_later_one() {
    let clock = ManualClock::new();
    let bucket = || AnyPolicy::from(TokenBucket::new(rate(1.0), 10));
    let window = || AnyPolicy::from(FixedWindow::new(5, ms(60_000)));
    // Inside a lock-out.
    let lock = |policy: AnyPolicy| AnyPolicy::from(LockOut::new(policy, ms(1)));
    let limiter = RateLimiter::with_clock(lock(bucket()), &clock);
    let taken = limiter.try_acquire(7).expect("full");
    for policy in [window(), bucket()] {
        limiter.set_policy(lock(policy));
    }
    assert_eq!(limiter.available(), 3);
    taken.refund();
    assert_eq!(limiter.available(), 3);
    // What was charged since does.
    limiter.set_policy(bucket());
    limiter.set_policy(lock(bucket()));
    limiter.try_acquire(2).expect("free").refund();
    assert_eq!(limiter.available(), 3);

    // As a part that went and came again.
    let limiter = RateLimiter::with_clock(AllOf::new([bucket()]), &clock);
    limiter.set_policy(AllOf::new([bucket(), window()]));
    let earlier = limiter.try_acquire(2).expect("free");
    limiter.set_policy(AllOf::new([bucket()]));
    limiter.set_policy(AllOf::new([bucket(), window()]));
    limiter.try_acquire(3).expect("free");
    earlier.refund();
    assert_eq!(limiter.available(), 2);
}

#[test]
fn permits_in_flight_are_counted_across_kinds_and_parts() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(AnyPolicy::from(TokenBucket::new(rate(1.0), 10)), &clock);
    let held = limiter.try_acquire(3).expect("full");
    limiter.set_policy(InFlight::new(4).into());
    assert_eq!(limiter.available(), 1);
    drop(held);
    assert_eq!(limiter.available(), 4);

    let bucket = AnyPolicy::from(TokenBucket::new(rate(1.0), 10));
    let limiter = RateLimiter::with_clock(AllOf::new([bucket.clone()]), &clock);
    let held = limiter.try_acquire(3).expect("full");
    limiter.set_policy(AllOf::new([bucket.clone(), InFlight::new(4).into()]));
    assert_eq!(limiter.available(), 1);
    drop(held);
    assert_eq!(limiter.available(), 4);
    // A part that goes takes its receipts along.
    let kept = limiter.try_acquire(2).expect("free");
    limiter.set_policy(AllOf::new([bucket.clone()]));
    limiter.set_policy(AllOf::new([bucket, FixedWindow::new(5, ms(60_000)).into()]));
    kept.refund();
    assert_eq!(limiter.available(), 5);
}

#[test]
fn a_rule_catches_up_as_by_its_own_type() {
    let bucket = TokenBucket::new(rate(5.0), 3).with_catch_up(ms(7));
    let window = FixedWindow::new(3, ms(100));
    assert_eq!([AnyPolicy::from(bucket), window.into()].map(|any| any.catch_up()), [ms(7), ms(0)]);
}

#[test]
fn a_policy_has_one_to_eight_parts() {
    let parts = |n: usize| vec![AnyPolicy::from(InFlight::new(1)); n];
    let is_made = |n| std::panic::catch_unwind(|| AllOf::new(parts(n))).is_ok();
    assert_eq!([0, 1, 8, 9].map(is_made), [false, true, true, false]);
}

#[test]
fn the_grant_of_eight_rules_is_no_larger_than_that_of_one() {
    let grant_of = |bytes: usize| assert!(bytes <= 128, "{bytes}");
    grant_of(size_of::<Grant<'static, SmoothBursty>>());
    grant_of(size_of::<Grant<'static, AllOf>>());
}

/// Also behind a lock.
#[test]
fn a_part_has_the_kind_of_its_rule() {
    fn rule_of<P: Policy>(policy: &P, index: usize) -> Option<&'static str> {
        policy.part(index)?.rule()
    }
    let both = (Unlimited, InFlight::new(3));
    assert_eq!(rule_of(&both, 0), Some("unlimited"));
    let locked = LockOut::new(both, ms(7));
    assert_eq!(rule_of(&locked, 1), Some("in-flight"));
    assert_eq!(rule_of(&locked, 2), None);
}

/// A reset gives back no place.
#[test]
fn places_in_flight_outlast_a_reset_of_the_rules_around_them() {
    fn left<P: Policy<Cost = u32>>(policy: &P) -> u32 {
        let now = Nanos::new(1);
        let mut state = policy.start(now);
        policy.charge(&mut state, now, 2);
        policy.tell(&mut state, now, RuleEvent::Reset);
        policy.available(&state, now)
    }
    let places = InFlight::new(5);
    assert_eq!(left(&places), 3);
    assert_eq!(left(&Same((places.clone(), places.clone()))), 3);
    assert_eq!(left(&LockOut::new(places.clone(), ms(7))), 3);
    assert_eq!(left(&AnyPolicy::from(places.clone())), 3);
    assert_eq!(left(&AllOf::new([places.clone().into(), places.into()])), 3);
}

/// The lowest of several that hold at once, and the first one's of a tuple with several numbers.
#[test]
fn a_rate_shows_through_what_is_around_its_rule() {
    fn rate_of<P: Policy>(policy: &P) -> Option<Rate> {
        policy.steady_rate()
    }
    let bucket = |per_second| TokenBucket::new(rate(per_second), 3);
    let (slow, fast) = (bucket(5.0), bucket(7.0));
    assert_eq!(rate_of(&slow), Some(rate(5.0)));
    assert_eq!(rate_of(&SmoothWarmingUp::new(rate(5.0), ms(7))), Some(rate(5.0)));
    assert_eq!(rate_of(&FixedWindow::new(10, ms(2_000))), Some(rate(5.0)));
    assert_eq!(rate_of(&SlidingWindowLog::new(10, ms(2_000))), Some(rate(5.0)));
    assert_eq!(rate_of(&AnyPolicy::from(slow.clone())), Some(rate(5.0)));
    assert_eq!(rate_of(&AnyPolicy::from(InFlight::new(3))), None);
    assert_eq!(rate_of(&LockOut::new(slow.clone(), ms(7))), Some(rate(5.0)));
    assert_eq!(rate_of(&Same((fast.clone(), slow.clone()))), Some(rate(5.0)));
    assert_eq!(rate_of(&Same((fast.clone(), slow.clone()))), Some(rate(5.0)));
    assert_eq!(rate_of(&(fast.clone(), slow.clone())), Some(rate(7.0)));
    assert_eq!(rate_of(&(InFlight::new(3), slow.clone())), Some(rate(5.0)));
    let parts = [InFlight::new(3).into(), fast.into(), AnyPolicy::from(slow)];
    assert_eq!(rate_of(&AllOf::new(parts)), Some(rate(5.0)));
}
