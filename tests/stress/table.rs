//! The policies, each with its mix of calls.

use std::time::Duration;

use tollgate::{
    FixedWindow, Gcra, InFlight, Rate, RateLimiter, Rated, SlidingWindowLog, SmoothBursty,
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

/// Policies with lock-free state in one word.
fn words() -> Vec<Box<dyn Run>> {
    let one = |n| n;
    let smooth = Law::smooth(INTERVAL, MILLISECOND, MOST);
    let strict = Law::bucket(INTERVAL, CAPACITY);
    vec![
        Box::new(
            Scenario::new(
                "SmoothBursty, 1e6/s, tries",
                bursty(MICROSECOND, MILLISECOND),
                one,
                MOST,
                TRIES,
                KEPT,
            )
            .law(Law::smooth(MICROSECOND, MILLISECOND, MOST)),
        ),
        Box::new(
            Scenario::new(
                "SmoothBursty, 1e9/s, tries",
                bursty(NANOSECOND, MILLISECOND),
                one,
                20_000,
                TRIES,
                KEPT,
            )
            .law(Law::smooth(NANOSECOND, MILLISECOND, 20_000)),
        ),
        Box::new(
            Scenario::new(
                "SmoothBursty, nothing lost",
                bursty(INTERVAL, HOUR),
                one,
                MOST,
                WAITS,
                KEPT,
            )
            .conserves(INTERVAL),
        ),
        Box::new(
            Scenario::new(
                "SmoothBursty, 1e6/s, nothing lost by tries",
                bursty(MICROSECOND, HOUR),
                one,
                MOST,
                TRIES,
                KEPT,
            )
            .conserves(MICROSECOND),
        ),
        Box::new(
            Scenario::new(
                "SmoothBursty, 1e6/s, tries and refunds",
                bursty(MICROSECOND, 10 * MICROSECOND),
                one,
                CAPACITY,
                TRIES,
                REFUNDED,
            )
            .law(Law::smooth(MICROSECOND, 10 * MICROSECOND, CAPACITY)),
        ),
        Box::new(
            Scenario::new(
                "TokenBucket, 1e6/s, tries and refunds",
                TokenBucket::new(Rate::every(MICROSECOND), CAPACITY),
                one,
                CAPACITY,
                TRIES,
                REFUNDED,
            )
            .law(Law::bucket(MICROSECOND, CAPACITY)),
        ),
        Box::new(
            Scenario::new(
                "SmoothBursty, waits",
                bursty(INTERVAL, MILLISECOND),
                one,
                MOST,
                WAITS,
                KEPT,
            )
            .law(smooth),
        ),
        Box::new(
            Scenario::new(
                "SmoothBursty, all verbs",
                bursty(INTERVAL, MILLISECOND),
                one,
                MOST,
                ALL,
                CORRECTED,
            )
            .law(smooth)
            .change(other_rate)
            .max_waiters(8),
        ),
        Box::new(
            Scenario::new("TokenBucket, waits", bucket(), one, MOST, WAITS, KEPT)
                .law(strict)
                .strict(),
        ),
        Box::new(
            Scenario::new("TokenBucket, all verbs", bucket(), one, MOST, ALL, CORRECTED)
                .law(strict)
                .change(other_rate)
                .strict(),
        ),
        Box::new(Scenario::new("Gcra, waits", gcra(), one, MOST, WAITS, KEPT).law(strict).strict()),
        Box::new(
            Scenario::new("Gcra, all verbs", gcra(), one, MOST, ALL, CORRECTED)
                .law(strict)
                .change(other_rate)
                .strict(),
        ),
    ]
}

/// Policies under a mutex.
fn locks() -> Vec<Box<dyn Run>> {
    let one = |n| n;
    let unstored = Law::smooth(INTERVAL, Duration::ZERO, MOST);
    vec![
        Box::new(
            Scenario::new("SmoothWarmingUp, waits", warming_up(), one, MOST, WAITS, KEPT)
                .law(unstored),
        ),
        Box::new(
            Scenario::new("SmoothWarmingUp, all verbs", warming_up(), one, MOST, ALL, CORRECTED)
                .law(unstored)
                .change(other_rate)
                .max_waiters(8),
        ),
        Box::new(two("SmoothBursty and TokenBucket, waits", WAITS, KEPT)),
        Box::new(two("SmoothBursty and TokenBucket, all verbs", ALL, CORRECTED).change(
            |limiter, draw| {
                let slower = 1 + u32::try_from(draw % 4).expect("small");
                let rate = Rate::every(INTERVAL * slower);
                limiter.set_policy((
                    bursty(INTERVAL, MILLISECOND).with_rate(rate),
                    bucket().with_rate(rate),
                ));
            },
        )),
        Box::new(three("FixedWindow, TokenBucket and InFlight, waits", WAITS, KEPT)),
        Box::new(
            three("FixedWindow, TokenBucket and InFlight, all verbs", ALL, ONLY_LESS)
                .change(|limiter, draw| {
                    let less = u32::try_from(draw % 4).expect("small");
                    limiter.set_policy(rules(less));
                })
                .max_waiters(8),
        ),
        Box::new(
            Scenario::new("SlidingWindowLog, waits", log(0), one, MOST, WAITS, KEPT)
                .law(Law::window(CAPACITY, WINDOW))
                .strict(),
        ),
        Box::new(
            Scenario::new("SlidingWindowLog, all verbs", log(0), one, MOST, ALL, CORRECTED)
                .law(Law::window(CAPACITY, WINDOW))
                .change(|limiter, draw| {
                    limiter.set_policy(log(u32::try_from(draw % 50).expect("small")));
                })
                .strict(),
        ),
        Box::new(
            Scenario::new("InFlight, waits", InFlight::new(PLACES), one, MOST, WAITS, KEPT)
                .places(Places::new(PLACES, |n| n, |n| n))
                .strict(),
        ),
        Box::new(
            Scenario::new("InFlight, all verbs", InFlight::new(PLACES), one, MOST, ALL, ONLY_LESS)
                .places(Places::new(PLACES, |n| n, |n| n))
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
fn two(
    name: &'static str,
    verbs: &'static Mix<Verb>,
    uses: &'static Mix<GrantUse>,
) -> Scenario<(SmoothBursty, TokenBucket)> {
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
    verbs: &'static Mix<Verb>,
    uses: &'static Mix<GrantUse>,
) -> Scenario<(FixedWindow, TokenBucket, InFlight)> {
    // Two windows meet at an edge.
    let windows = Law::bucket(WINDOW / CAPACITY, 2 * CAPACITY).with_share(|_| 1);
    Scenario::new(name, rules(0), |n| (1, n, 1), MOST, verbs, uses)
        .law(windows)
        .law(Law::bucket(INTERVAL, CAPACITY))
        .places(Places::new(PLACES, |_| 1, |(_, _, places)| places))
        .strict()
}
