//! The policies, each with its mix of calls.

use std::fmt::Debug;
use std::time::Duration;

use tollgate::{
    FixedWindow, Gcra, InFlight, Policy, Rate, RateLimiter, Rated, SlidingWindowLog, SmoothBursty,
    SmoothWarmingUp, TokenBucket,
};

use crate::law::Law;
use crate::mix::{ALL, CORRECTED, GrantUse, KEPT, Mix, ONLY_LESS, REFUNDED, TRIES, Verb, WAITS};
use crate::places::Places;
use crate::scenario::{Run, Scenario};

const NANOSECOND: Duration = Duration::from_nanos(1);
const MICROSECOND: Duration = Duration::from_micros(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// The interval of a permit in scenarios with waiters.
const INTERVAL: Duration = Duration::from_micros(50);

/// The largest request there.
const MOST: u32 = 4;

const CAPACITY: u32 = 100;

pub(crate) fn scenarios() -> Vec<Box<dyn Run>> {
    let mut all = words();
    all.extend(locks());
    all
}

fn bursty(interval: Duration, burst: Duration) -> SmoothBursty {
    SmoothBursty::new(Rate::every(interval)).max_burst(burst)
}

fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::every(INTERVAL), CAPACITY)
}

fn gcra() -> Gcra {
    Gcra::new(CAPACITY - 1, 20, MILLISECOND)
}

fn warming_up() -> SmoothWarmingUp {
    SmoothWarmingUp::new(Rate::every(INTERVAL), 20 * MILLISECOND)
}

/// The rate of the scenario, or a slower one.
fn other_rate<P: Rated>(limiter: &RateLimiter<P>, draw: u64) {
    let slower = 1 + u32::try_from(draw % 4).expect("small");
    limiter.set_rate(Rate::every(INTERVAL * slower));
    assert!(limiter.rate().as_per_second() <= Rate::every(INTERVAL).as_per_second());
}

/// A policy whose cost is a number of permits, with callers that ask for `most` of them at most.
fn of<P: Policy<Cost = u32> + Debug>(
    name: &'static str,
    policy: P,
    most: u32,
    (verbs, uses): Calls,
) -> Scenario<P> {
    Scenario::new(name, policy, |n| n, most, verbs, uses)
}

type Calls = (&'static Mix<Verb>, &'static Mix<GrantUse>);

const KEEP: Calls = (WAITS, KEPT);
const CORRECT: Calls = (ALL, CORRECTED);
const REDUCE: Calls = (ALL, ONLY_LESS);
const TRY: Calls = (TRIES, KEPT);
const TRY_AND_REFUND: Calls = (TRIES, REFUNDED);

/// Policies with lock-free state in one word.
fn words() -> Vec<Box<dyn Run>> {
    let (us, ms) = (MICROSECOND, MILLISECOND);
    let smooth = Law::smooth(INTERVAL, ms, MOST);
    let strict = Law::bucket(INTERVAL, CAPACITY);
    let quick = TokenBucket::new(Rate::every(us), CAPACITY);
    let few = bursty(us, 10 * us);
    vec![
        Box::new(
            of("SmoothBursty, 1e6/s, tries", bursty(us, ms), MOST, TRY)
                .law(Law::smooth(us, ms, MOST)),
        ),
        Box::new(
            of("SmoothBursty, 1e9/s, tries", bursty(NANOSECOND, ms), 20_000, TRY)
                .law(Law::smooth(NANOSECOND, ms, 20_000)),
        ),
        Box::new(
            of("SmoothBursty, nothing lost", bursty(INTERVAL, HOUR), MOST, KEEP)
                .conserves(INTERVAL),
        ),
        Box::new(
            of("SmoothBursty, 1e6/s, nothing lost by tries", bursty(us, HOUR), MOST, TRY)
                .conserves(us),
        ),
        Box::new(
            of("SmoothBursty, 1e6/s, tries and refunds", few, CAPACITY, TRY_AND_REFUND)
                .law(Law::smooth(us, 10 * us, CAPACITY)),
        ),
        Box::new(
            of("TokenBucket, 1e6/s, tries and refunds", quick, CAPACITY, TRY_AND_REFUND)
                .law(Law::bucket(us, CAPACITY)),
        ),
        Box::new(of("SmoothBursty, waits", bursty(INTERVAL, ms), MOST, KEEP).law(smooth)),
        Box::new(
            of("SmoothBursty, all verbs", bursty(INTERVAL, ms), MOST, CORRECT)
                .law(smooth)
                .change(other_rate)
                .max_waiters(8),
        ),
        Box::new(of("TokenBucket, waits", bucket(), MOST, KEEP).law(strict).strict()),
        Box::new(
            of("TokenBucket, all verbs", bucket(), MOST, CORRECT)
                .law(strict)
                .change(other_rate)
                .strict(),
        ),
        Box::new(of("Gcra, waits", gcra(), MOST, KEEP).law(strict).strict()),
        Box::new(
            of("Gcra, all verbs", gcra(), MOST, CORRECT).law(strict).change(other_rate).strict(),
        ),
    ]
}

/// Policies under a mutex.
fn locks() -> Vec<Box<dyn Run>> {
    let unstored = Law::smooth(INTERVAL, Duration::ZERO, MOST);
    let window = Law::window(CAPACITY, WINDOW);
    let places = || Places::new(PLACES, |n| n, |n| n);
    vec![
        Box::new(of("SmoothWarmingUp, waits", warming_up(), MOST, KEEP).law(unstored)),
        Box::new(
            of("SmoothWarmingUp, all verbs", warming_up(), MOST, CORRECT)
                .law(unstored)
                .change(other_rate)
                .max_waiters(8),
        ),
        Box::new(two("SmoothBursty and TokenBucket, waits", KEEP)),
        Box::new(two("SmoothBursty and TokenBucket, all verbs", CORRECT).change(
            |limiter, draw| {
                let slower = 1 + u32::try_from(draw % 4).expect("small");
                let rate = Rate::every(INTERVAL * slower);
                limiter.set_policy((
                    bursty(INTERVAL, MILLISECOND).with_rate(rate),
                    bucket().with_rate(rate),
                ));
            },
        )),
        Box::new(three("FixedWindow, TokenBucket and InFlight, waits", KEEP)),
        Box::new(
            three("FixedWindow, TokenBucket and InFlight, all verbs", REDUCE)
                .change(|limiter, draw| {
                    let less = u32::try_from(draw % 4).expect("small");
                    limiter.set_policy(rules(less));
                })
                .max_waiters(8),
        ),
        Box::new(of("SlidingWindowLog, waits", log(0), MOST, KEEP).law(window).strict()),
        Box::new(
            of("SlidingWindowLog, all verbs", log(0), MOST, CORRECT)
                .law(window)
                .change(|limiter, draw| {
                    limiter.set_policy(log(u32::try_from(draw % 50).expect("small")));
                })
                .strict(),
        ),
        Box::new(
            of("InFlight, waits", InFlight::new(PLACES), MOST, KEEP).places(places()).strict(),
        ),
        Box::new(
            of("InFlight, all verbs", InFlight::new(PLACES), MOST, REDUCE)
                .places(places())
                .change(|limiter, draw| {
                    let less = u32::try_from(draw % 4).expect("small");
                    limiter.set_policy(InFlight::new(PLACES - less));
                })
                .strict(),
        ),
    ]
}

const WINDOW: Duration = Duration::from_millis(5);

const PLACES: u32 = 8;

fn log(less: u32) -> SlidingWindowLog {
    SlidingWindowLog::new(CAPACITY - less, WINDOW)
}

/// The bucket is asked for twice as much and filled at the same rate: it is the one that holds.
fn two(name: &'static str, (verbs, uses): Calls) -> Scenario<(SmoothBursty, TokenBucket)> {
    let policy = (bursty(INTERVAL, MILLISECOND), bucket());
    Scenario::new(name, policy, |n| (n, n.saturating_mul(2)), MOST, verbs, uses)
        .law(Law::smooth(INTERVAL, MILLISECOND, MOST))
        .law(Law::bucket(INTERVAL, CAPACITY).with_share(|n| 2 * n))
        .strict()
}

fn rules(less: u32) -> (FixedWindow, TokenBucket, InFlight) {
    (FixedWindow::new(CAPACITY - less, WINDOW), bucket(), InFlight::new(PLACES - less))
}

/// Each call is one in its window, one in flight, and some permits.
fn three(
    name: &'static str,
    (verbs, uses): Calls,
) -> Scenario<(FixedWindow, TokenBucket, InFlight)> {
    // Two windows meet at an edge.
    let windows = Law::bucket(WINDOW / CAPACITY, 2 * CAPACITY).with_share(|_| 1);
    Scenario::new(name, rules(0), |n| (1, n, 1), MOST, verbs, uses)
        .law(windows)
        .law(Law::bucket(INTERVAL, CAPACITY))
        .places(Places::new(PLACES, |_| 1, |(_, _, places)| places))
        .strict()
}
