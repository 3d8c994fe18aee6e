//! What headroom is for: calls that are delayed on the way, each by another time, are not refused by a server that
//! enforces the limit in its strictest reading. The server's counts are written as plainly as possible.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{
    AllOf, AnyPolicy, FixedWindow, Gcra, Headroom, LeakyBucket, LockOut, ManualClock, Rate,
    RateLimiter, SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};

use crate::oracle::{Time, nanos, prove};

const MILLION: Time = 1_000_000;

/// The limit of a server. `limit` permits in each `window` are also the rate of the rule.
#[derive(Clone, Debug)]
enum Server {
    /// At most `limit` in any half-open time of this length.
    AnyWindow { limit: u32, counts: Time },
    /// At most `limit` in each window of a grid, which began `epoch` before the clock's origin.
    Grid { limit: u32, window: Time, epoch: Time },
    /// At most `size`, and in any time `t` what a rate of `limit` in a `window` yields in `t + more`.
    Bucket { size: u32, more: Time, limit: u32, window: Time },
}

impl Server {
    /// The first call that exceeds the limit. Of each call: the time of its arrival, and its permits.
    fn first_refused(&self, arrivals: &[(Time, u32)]) -> Option<usize> {
        (0..arrivals.len()).find(|&last| {
            let (at, mut permits) = (arrivals[last].0, 0);
            arrivals[..=last].iter().rev().any(|&(since, n)| {
                permits += Time::from(n);
                match *self {
                    Self::AnyWindow { limit, counts } => {
                        at - since < counts && permits > limit.into()
                    }
                    Self::Grid { limit, window, epoch } => {
                        (at + epoch) / window == (since + epoch) / window && permits > limit.into()
                    }
                    Self::Bucket { size, more, limit, window } => {
                        (permits - Time::from(size)) * window
                            > Time::from(limit) * (at - since + more)
                    }
                }
            })
        })
    }
}

/// How the callers come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Demand {
    /// Whenever they like.
    Any,
    /// All at the start of a window.
    Crowd,
    /// One permit after another, as fast as the quota.
    Even,
}

#[derive(Clone, Debug)]
struct Case {
    policy: AnyPolicy,
    server: Server,
    demand: Demand,
    limit: u32,
    window: Time,
    /// The time of which the share is the longest delay.
    slack: Time,
}

/// One rule by its number, with `limit` permits in `window`, and `other` for what else it has.
fn case(rule: u32, limit: u32, window: Time, other: u32) -> Case {
    let (span, rate) = (nanos(window), Rate::new(limit.into(), nanos(window)));
    let interval = window / Time::from(limit);
    let bucket = |size, more| Server::Bucket { size, more, limit, window };
    let fills = |size: u32| Time::from(size) * window / Time::from(limit);
    let any = |policy: AnyPolicy, server, slack| Case {
        policy,
        server,
        demand: Demand::Any,
        limit,
        window,
        slack,
    };
    let capacity = 1 + other % 50;
    match rule {
        0 => {
            let evenly = any(SmoothBursty::evenly_spaced(rate).into(), bucket(1, 0), interval);
            // Single permits are within any window, which is longer.
            let counts = Server::AnyWindow { limit, counts: window };
            match other % 2 {
                0 => evenly,
                _ => Case { server: counts, slack: window, ..evenly },
            }
        }
        1 => {
            let stored = Time::from(other) * window / 1_000;
            let policy = SmoothBursty::new(rate).max_burst(nanos(stored));
            any(policy.into(), bucket(1, stored), stored.max(interval))
        }
        2 => {
            let warm_up = nanos(1 + Time::from(other) * window / 1_000);
            any(SmoothWarmingUp::new(rate, warm_up).into(), bucket(1, 0), interval)
        }
        3 => any(TokenBucket::new(rate, capacity).into(), bucket(capacity, 0), fills(capacity)),
        4 => {
            // A bucket in which a step finds no room would not give its rate.
            let (period, capacity) = (1 + Time::from(other) * interval / 1_000, 3 + capacity);
            let policy = TokenBucket::new(rate, capacity).refill_every(nanos(period));
            any(policy.into(), bucket(capacity, period), fills(capacity))
        }
        5 => any(Gcra::new(capacity - 1, limit, span).into(), bucket(capacity, 0), fills(capacity)),
        6 => any(LeakyBucket::new(rate, 8 + capacity).into(), bucket(1, 0), interval),
        7 => any(LeakyBucket::meter(rate, capacity).into(), bucket(capacity, 0), fills(capacity)),
        8 => any(
            SlidingWindowLog::new(limit, span).into(),
            Server::AnyWindow { limit, counts: window },
            window,
        ),
        9 => {
            let parts = 2 + other % 10;
            let counts = window / Time::from(parts) * Time::from(parts - 1);
            let policy = SlidingWindowCounter::new(limit, span, parts);
            any(policy.into(), Server::AnyWindow { limit, counts }, counts)
        }
        10 => {
            let log = SlidingWindowLog::new(limit, span);
            let locked = LockOut::new(log, span);
            any(locked.into(), Server::AnyWindow { limit, counts: window }, window)
        }
        11 => Case {
            demand: Demand::Crowd,
            ..any(
                FixedWindow::new(limit, span).into(),
                Server::AnyWindow { limit, counts: window },
                window,
            )
        },
        _ => {
            let epoch = Time::from(other) * window / 1_000;
            let policy = FixedWindow::new(limit, span).aligned(nanos(epoch));
            let grid = Server::Grid { limit, window, epoch };
            let demand = if other.is_multiple_of(2) { Demand::Crowd } else { Demand::Even };
            Case { demand, ..any(policy.into(), grid, window) }
        }
    }
}

const RULES: u32 = 13;

fn cases(limits: std::ops::Range<u32>) -> impl Strategy<Value = Case> {
    // From 10 us to 2.8 hours.
    #[allow(clippy::cast_possible_truncation)] // far below the largest
    let windows = (4.0f64..13.0).prop_map(|exponent| 10f64.powf(exponent) as Time);
    (0..RULES, limits, windows, 0u32..1_000)
        .prop_map(|(rule, limit, window, other)| case(rule, limit, window, other))
}

/// When the calls leave, each with its permits. A call that asks for more than its rule has ever is none.
fn departures(policy: AllOf, case: &Case, calls: &[(u32, u32, u32)]) -> Vec<(Time, u32)> {
    let clock = ManualClock::auto_advance();
    let limiter = RateLimiter::with_clock(policy, &clock);
    let (mut left, mut comes) = (Vec::new(), 0);
    if let (Demand::Crowd, Server::Grid { window, epoch, .. }) = (case.demand, &case.server) {
        clock.advance(nanos((-epoch).rem_euclid(*window)));
    }
    for &(idle, n, _) in calls {
        let interval = case.window / Time::from(case.limit) + 1;
        let (later, n) = match case.demand {
            Demand::Any => (interval * Time::from(idle) / 100, n),
            Demand::Crowd => (0, n),
            Demand::Even => (interval, 1),
        };
        // Even callers come whether the last one has left or not; others when it has.
        let now = Time::try_from(clock.elapsed().as_nanos()).expect("a time");
        comes = if case.demand == Demand::Even { comes + later } else { now + later };
        clock.advance(nanos((comes - now).max(0)));
        let Ok(grant) = limiter.blocking_acquire(n) else { continue };
        drop(grant);
        left.push((Time::try_from(clock.elapsed().as_nanos()).expect("a time"), n));
    }
    left
}

/// The first refused call, as text.
fn refused(case: &Case, millionths: u32, calls: &[(u32, u32, u32)]) -> Option<String> {
    let share = f64::from(millionths) / 1e6;
    let policy = case.policy.clone().headroom(share).expect("a share");
    let longest = case.slack * Time::from(millionths) / MILLION;
    let left = departures(AllOf::new([policy.clone()]), case, calls);
    // A rule that grants on credit grants one request of any size.
    let largest = left.iter().map(|&(_, n)| n).max().unwrap_or(1);
    let delays = calls.iter().map(|&(_, _, delay)| longest * Time::from(delay) / 1_000);
    let mut arrivals: Vec<_> =
        left.iter().zip(delays).map(|(&(at, n), delay)| (at + delay, n)).collect();
    arrivals.sort_unstable_by_key(|&(at, _)| at);
    let server = match case.server {
        Server::Bucket { size: 1, more, limit, window } if is_prepaid(&case.policy) => {
            Server::Bucket { size: largest, more, limit, window }
        }
        ref server => server.clone(),
    };
    let first = server.first_refused(&arrivals)?;
    Some(format!("{policy}: {server:?} refuses call {first} of {arrivals:?}"))
}

fn is_prepaid(policy: &AnyPolicy) -> bool {
    match policy {
        AnyPolicy::LeakyBucket(_) => policy.to_string().contains("queue"),
        _ => matches!(policy, AnyPolicy::SmoothBursty(_) | AnyPolicy::SmoothWarmingUp(_)),
    }
}

/// The idle time before a call in hundredths of an interval, its permits, and its delay in thousandths of the longest.
fn calls() -> impl Strategy<Value = Vec<(u32, u32, u32)>> {
    let idle = prop_oneof![6 => Just(0u32), 2 => 0u32..300, 1 => 0u32..10_000];
    let permits = prop_oneof![4 => Just(1u32), 1 => 1u32..6];
    let delay = prop_oneof![2 => Just(0u32), 2 => Just(1_000), 1 => 0u32..=1_000];
    prop::collection::vec((idle, permits, delay), 1..80)
}

#[test]
fn a_server_refuses_no_call_that_is_delayed_by_less_than_the_share() {
    let shares = prop_oneof![3 => Just(50_000u32), 1 => 1u32..900_000];
    prove(1_500, &(cases(1..41), shares, calls()), |(case, millionths, mut calls)| {
        // Of one permit on a grid nothing can be left.
        if case.demand == Demand::Even {
            let left = u64::from(case.limit) * u64::from(1_000_000 - millionths);
            prop_assume!(left >= 1_000_000);
        }
        // What an evenly spaced rate keeps in any window, it keeps for single permits.
        if matches!(
            (&case.policy, &case.server),
            (AnyPolicy::SmoothBursty(_), Server::AnyWindow { .. })
        ) {
            calls.iter_mut().for_each(|(_, permits, _)| *permits = 1);
        }
        prop_assert_eq!(refused(&case, millionths, &calls), None);
        Ok(())
    });
}

/// In fifty windows, by callers that always wait.
#[test]
fn at_five_per_cent_nine_tenths_of_the_quota_are_used() {
    prove(200, &cases(10..41), |case| {
        let policy = case.policy.clone().headroom(0.05).expect("a share");
        let clock = ManualClock::auto_advance();
        let limiter = RateLimiter::with_clock(policy.clone(), &clock);
        let (end, mut granted) = (nanos(50 * case.window), 0);
        while limiter.blocking_acquire(1).is_ok() && clock.elapsed() < end {
            granted += 1;
        }
        let quota = 50 * case.limit;
        prop_assert!(granted * 10 >= quota * 9, "{policy}: {granted} of {quota}");
        Ok(())
    });
}

/// 20 calls in any second, each 0 to 40 ms on the way, from callers that wait or not.
#[test]
fn a_burst_that_is_moved_as_a_whole_stays_within_the_window() {
    let second = Duration::from_secs(1);
    let case = case(8, 20, 1_000_000_000, 0);
    assert_eq!(case.policy, SlidingWindowLog::new(20, second).into());
    // All of one burst are late, and those of the next are not.
    let calls: Vec<_> =
        (0..400).map(|call| (0, 1, if call / 20 % 2 == 0 { 800 } else { 0 })).collect();
    assert_eq!(refused(&case, 50_000, &calls), None);
}
