//! Every rule at the ends of its parameters: nothing, the most, and more than there can be.

use std::panic::{UnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use tollgate::{
    Error, FixedWindow, Gcra, InFlight, KeyedRateLimiter, LeakyBucket, LockOut, ManualClock, Nanos,
    Policy, Rate, RateLimiter, Ready, Same, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};

use crate::support::{finishes, is_waiting, ms, outcome, secs};

const NANOSECOND: Duration = Duration::from_nanos(1);
const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn on_hold<P: Policy>(policy: P) -> (ManualClock, RateLimiter<P>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

/// Something to do with a rule of any kind.
trait Check {
    fn check<P: Policy<Cost = u32> + UnwindSafe>(&self, policy: P, name: &str);
}

/// Runs the check with every policy that has a strict capacity, of `n` permits in ten seconds.
fn each(n: u32, check: &impl Check) {
    // `n` permits in ten seconds, but at least one.
    let rate = Rate::new(u64::from(n.max(1)), secs(10));
    let window = secs(10);
    check.check(TokenBucket::new(rate, n), "TokenBucket");
    check.check(TokenBucket::new(rate, n).refill_every(secs(1)), "TokenBucket in steps");
    if n > 0 {
        check.check(Gcra::new(n - 1, n, window), "Gcra");
    }
    check.check(LeakyBucket::meter(rate, n), "LeakyBucket::meter");
    check.check(LeakyBucket::new(rate, n), "LeakyBucket");
    check.check(FixedWindow::new(n, window), "FixedWindow");
    check.check(FixedWindow::new(n, window).aligned(secs(3)), "FixedWindow aligned");
    check.check(SlidingWindowLog::new(n, window), "SlidingWindowLog");
    check.check(SlidingWindowCounter::new(n, window, 10), "SlidingWindowCounter");
    check.check(InFlight::new(n), "InFlight");
    check.check(LockOut::new(FixedWindow::new(n, window), secs(60)), "LockOut");
    check.check(
        Same((SlidingWindowLog::new(n, window), SlidingWindowLog::new(n, secs(20)))),
        "two logs",
    );
    check.check(Same((TokenBucket::new(rate, n), InFlight::new(n))), "Same");
}

/// The outcome of each method for `n`, in the order of the methods.
fn verbs<P: Policy<Cost = u32>>(limiter: &RateLimiter<P>, n: u32) -> Vec<Error> {
    let results = [
        limiter.try_acquire(n).map(drop),
        outcome(&mut limiter.acquire(n)).map(drop),
        outcome(&mut limiter.acquire_owned(n)).map(drop),
        outcome(&mut limiter.try_acquire_timeout(n, Duration::ZERO)).map(drop),
        outcome(&mut limiter.try_acquire_timeout(n, Duration::MAX)).map(drop),
        limiter.blocking_acquire(n).map(drop),
        limiter.try_acquire_timeout(n, Duration::MAX).blocking_wait().map(drop),
        limiter.reserve(n).map(drop),
    ];
    results.into_iter().map(|result| result.expect_err("too much")).collect()
}

/// Empty, exhausted, with a queue, in a pause.
#[test]
fn more_than_the_capacity_is_an_error_at_once_that_names_the_most() {
    struct TooMuch;
    impl Check for TooMuch {
        fn check<P: Policy<Cost = u32> + UnwindSafe>(&self, policy: P, name: &str) {
            let name = name.to_owned();
            finishes(move || {
                let (_, limiter) = on_hold(policy);
                let refuses = || {
                    for n in [11, 12, u32::MAX] {
                        for (verb, error) in verbs(&limiter, n).into_iter().enumerate() {
                            let Error::ExceedsCapacity(exceeds) = error else {
                                panic!("{name}, verb {verb}: {error}");
                            };
                            assert_eq!(exceeds.max, 10, "{name}, verb {verb}");
                            assert_eq!(Error::from(exceeds).retry_after(), None);
                        }
                    }
                };
                refuses();
                assert!(
                    ["LeakyBucket", ""].contains(&&*name) || limiter.available() == 10,
                    "{name}"
                );
                let _all = limiter.try_acquire(10).expect(&name);
                refuses();
                let _line = limiter.acquire(1);
                limiter.pause_for(secs(1));
                refuses();
            });
        }
    }
    each(10, &TooMuch);
}

#[test]
fn no_capacity_at_all_grants_nothing_ever() {
    struct Nothing;
    impl Check for Nothing {
        fn check<P: Policy<Cost = u32> + UnwindSafe>(&self, policy: P, name: &str) {
            let name = name.to_owned();
            finishes(move || {
                let (clock, limiter) = on_hold(policy);
                for _ in 0..2 {
                    for error in verbs(&limiter, 1) {
                        let Error::ExceedsCapacity(exceeds) = error else {
                            panic!("{name}: {error}");
                        };
                        assert_eq!(exceeds.max, 0, "{name}");
                    }
                    assert_eq!(limiter.available(), 0, "{name}");
                    assert_eq!(limiter.quota().limit, 0, "{name}");
                    assert!(limiter.try_acquire(0).is_ok(), "{name}");
                    clock.advance(YEAR);
                }
            });
        }
    }
    each(0, &Nothing);
}

#[test]
fn the_most_that_a_cost_can_say_is_granted_where_the_capacity_is_that() {
    struct Most;
    impl Check for Most {
        fn check<P: Policy<Cost = u32> + UnwindSafe>(&self, policy: P, name: &str) {
            let (clock, limiter) = on_hold(policy);
            let mut grant = limiter.try_acquire(u32::MAX).expect(name);
            assert_eq!(limiter.available(), 0, "{name}");
            assert!(limiter.try_acquire(1).is_err(), "{name}");
            // More than the most: settled twice over.
            grant.settle(0).expect(name);
            grant.settle(u32::MAX).expect(name);
            grant.settle(0).expect(name);
            grant.settle(u32::MAX).expect(name);
            drop(grant);
            clock.advance(secs(60));
            let grant = limiter.try_acquire(u32::MAX).expect(name);
            grant.refund();
        }
    }
    each(u32::MAX, &Most);
}

#[track_caller]
fn assert_panics<T>(make: impl FnOnce() -> T + UnwindSafe, expected: &str) {
    let panic = catch_unwind(make).err().unwrap_or_else(|| panic!("no panic: {expected}"));
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
    assert_eq!(message.expect("a message"), expected);
}

#[test]
fn spans_of_no_time_and_of_too_much_panic_and_say_so() {
    let rate = Rate::per_second(1.0);
    let zero = Duration::ZERO;
    assert_panics(|| FixedWindow::new(1, zero), "a window must not be zero");
    assert_panics(|| SlidingWindowLog::new(1, zero), "a window must not be zero");
    assert_panics(|| SlidingWindowCounter::new(1, zero, 10), "a window must not be zero");
    let bucket = || TokenBucket::new(rate, 1);
    assert_panics(move || bucket().refill_every(zero), "a refill period must not be zero");
    for long in [Nanos::HORIZON + NANOSECOND, Duration::MAX] {
        let window = "a window must not exceed 146 years";
        assert_panics(move || FixedWindow::new(1, long), window);
        assert_panics(move || SlidingWindowLog::new(1, long), window);
        assert_panics(move || SlidingWindowCounter::new(1, long, 10), window);
        let period = "a refill period must not exceed 146 years";
        assert_panics(move || bucket().refill_every(long), period);
    }
    let buckets = "a window must have at least one bucket";
    assert_panics(|| SlidingWindowCounter::new(1, secs(1), 0), buckets);
    let rate = "a rate must be from 1 per day to 1e9 per second";
    assert_panics(|| Gcra::new(1, 0, secs(1)), rate);
    assert_panics(|| Gcra::new(1, 1, zero), rate);
}

/// The longest and the shortest windows are windows: `limit` in each, and no more.
#[test]
fn windows_of_a_nanosecond_a_year_and_146_years() {
    fn check<P: Policy<Cost = u32>>(policy: P, window: Duration, name: &str) {
        let (clock, limiter) = on_hold(policy);
        // Not at the origin, where all numbers are zero.
        clock.advance(window);
        for turn in 0..3 {
            assert_eq!(limiter.available(), 2, "{name}, turn {turn} of {window:?}");
            limiter.try_acquire(1).expect(name);
            limiter.try_acquire(1).expect(name);
            let wait = limiter.try_acquire(1).expect_err(name).retry_after();
            if clock.elapsed() + window > Nanos::END.since(Nanos::ZERO) {
                break;
            }
            assert_eq!(wait, Some(window), "{name}");
            clock.advance(window - NANOSECOND);
            assert!(limiter.try_acquire(1).is_err(), "{name}");
            clock.advance(NANOSECOND);
        }
    }

    for window in [NANOSECOND, Duration::from_nanos(2), YEAR, Nanos::HORIZON] {
        check(FixedWindow::new(2, window), window, "FixedWindow");
        check(FixedWindow::new(2, window).aligned(window), window, "FixedWindow aligned");
        check(SlidingWindowLog::new(2, window), window, "SlidingWindowLog");
        check(SlidingWindowCounter::new(2, window, 1), window, "SlidingWindowCounter");
        check(
            Same((SlidingWindowLog::new(2, window), SlidingWindowLog::new(3, window))),
            window,
            "two logs",
        );
    }
    // Buckets shorter than a nanosecond are nanoseconds: the window is that much longer.
    let window = Duration::from_nanos(10);
    check(SlidingWindowCounter::new(2, NANOSECOND, 10), window, "SlidingWindowCounter");
    let (most, part) = (u32::MAX, YEAR.as_nanos().div_ceil(u128::from(u32::MAX)));
    let window = Duration::from_nanos(u64::try_from(part).expect("short")) * most;
    check(SlidingWindowCounter::new(2, YEAR, most), window, "SlidingWindowCounter");
}

/// All epochs, and the window that holds the clock's origin.
#[test]
fn windows_on_a_grid_with_any_epoch() {
    let minute = secs(60);
    for epoch in
        [Duration::ZERO, NANOSECOND, secs(59), minute, YEAR * 50, YEAR * 5000, Duration::MAX]
    {
        let (clock, limiter) = on_hold(FixedWindow::new(1, minute).aligned(epoch));
        let into = epoch.as_nanos() % minute.as_nanos();
        let into = Duration::from_nanos(u64::try_from(into).expect("less than a minute"));
        limiter.try_acquire(1).expect("the first");
        let left = minute - into;
        assert_eq!(
            limiter.try_acquire(1).expect_err("taken").retry_after(),
            Some(left),
            "{epoch:?}"
        );
        clock.advance(left);
        limiter.try_acquire(1).expect("the next window");
        assert_eq!(limiter.try_acquire(1).expect_err("taken").retry_after(), Some(minute));
    }
}

/// A million at distinct times in a second.
#[test]
fn a_log_of_a_million_entries_is_quick() {
    let took = finishes(|| {
        let start = Instant::now();
        let (clock, limiter) = on_hold(SlidingWindowLog::new(1_000_000, secs(1)));
        let mut middle = None;
        for n in 0..1_000_000 {
            let grant = limiter.try_acquire(1).expect("a free one");
            if n == 500_000 {
                middle = Some(grant);
            }
            clock.advance(Duration::from_nanos(500));
        }
        assert_eq!(limiter.available(), 0);
        assert_eq!(limiter.try_acquire(1).expect_err("full").retry_after(), Some(ms(500)));
        // All of them: when the last one is a second old.
        let all = limiter.try_acquire(1_000_000).expect_err("full").retry_after();
        assert_eq!(all, Some(secs(1) - Duration::from_nanos(500)));
        middle.expect("one in the middle").refund();
        assert_eq!(limiter.available(), 1);
        limiter.try_acquire(1).expect("the one that was given back");
        assert!(limiter.try_acquire(1).is_err());
        let mut waiting = limiter.acquire(1_000_000);
        assert!(is_waiting(&mut waiting));
        clock.advance(secs(1));
        assert_eq!(outcome(&mut waiting).expect("a grant").waited(), secs(1));
        start.elapsed()
    });
    assert!(took < secs(10), "{took:?}");
}

#[test]
fn the_greatest_capacity_at_the_slowest_rate() {
    fn check<P: Policy<Cost = u32>>(policy: P, name: &str) {
        let (clock, limiter) = on_hold(policy);
        // The permits of 146 years: 53,375.995 days.
        assert_eq!(limiter.quota().limit, 53_375, "{name}");
        let error = limiter.try_acquire(u32::MAX).expect_err(name);
        let Error::ExceedsCapacity(exceeds) = error else { panic!("{name}: {error}") };
        assert_eq!(exceeds.max, 53_375, "{name}");
        limiter.try_acquire(53_375).expect(name);
        clock.advance(DAY * 1000);
        assert_eq!(limiter.available(), 1000, "{name}");
        // Full at last, and for good.
        clock.advance(DAY * 100_000);
        assert_eq!(limiter.available(), 53_375, "{name}");
        clock.advance(Duration::MAX);
        assert_eq!(limiter.available(), 53_375, "{name}");
    }

    let rate = Rate::every(DAY);
    check(TokenBucket::new(rate, u32::MAX), "TokenBucket");
    check(TokenBucket::new(rate, u32::MAX).refill_every(DAY), "TokenBucket in steps");
    check(Gcra::new(u32::MAX, 1, DAY), "Gcra");
    check(LeakyBucket::meter(rate, u32::MAX), "LeakyBucket::meter");
}

/// Those behind move up, those in front stay.
#[test]
fn waiters_for_more_than_a_lowered_capacity_get_an_error_and_do_not_block_the_queue() {
    fn check<P: Policy<Cost = u32>>(old: P, new: P, name: &str) {
        let (clock, limiter) = on_hold(old);
        let held = limiter.try_acquire(10).expect(name);
        let mut first = limiter.acquire(2);
        let mut huge = limiter.acquire(9);
        let mut timed = limiter.try_acquire_timeout(9, Duration::MAX);
        let mut last = limiter.acquire(1);
        assert!(is_waiting(&mut first) && is_waiting(&mut huge));
        assert!(is_waiting(&mut timed) && is_waiting(&mut last));
        limiter.set_policy(new);
        drop(held);
        clock.advance(secs(3600));
        let first = outcome(&mut first).expect(name);
        for error in [outcome(&mut huge), outcome(&mut timed)].map(Result::err) {
            let Some(Error::ExceedsCapacity(exceeds)) = error else { panic!("{name}: {error:?}") };
            assert_eq!(exceeds.max, 5, "{name}");
        }
        assert!(outcome(&mut last).is_ok(), "{name}");
        drop(first);
        assert_eq!(limiter.queue_len(), 0, "{name}");
        assert_eq!(limiter.quota().limit, 5, "{name}");
    }

    let (rate, window) = (Rate::per_second(1.0), secs(10));
    let steps = |n| TokenBucket::new(rate, n).refill_every(secs(3));
    check(TokenBucket::new(rate, 10), TokenBucket::new(rate, 5), "TokenBucket");
    check(steps(10), steps(5), "TokenBucket in steps");
    check(steps(10), TokenBucket::new(rate, 5), "TokenBucket in steps no more");
    check(Gcra::new(9, 1, secs(1)), Gcra::new(4, 1, secs(1)), "Gcra");
    check(LeakyBucket::meter(rate, 10), LeakyBucket::meter(rate, 5), "LeakyBucket::meter");
    check(FixedWindow::new(10, window), FixedWindow::new(5, window), "FixedWindow");
    check(SlidingWindowLog::new(10, window), SlidingWindowLog::new(5, window), "SlidingWindowLog");
    let counter = |n| SlidingWindowCounter::new(n, window, 10);
    check(counter(10), counter(5), "SlidingWindowCounter");
    check(InFlight::new(10), InFlight::new(5), "InFlight");
    let lock = |n| LockOut::new(FixedWindow::new(n, window), secs(1));
    check(lock(10), lock(5), "LockOut");
    let two = |n| Same((FixedWindow::new(10, window), FixedWindow::new(n, window)));
    check(two(10), two(5), "two windows");
    let same = |n| Same((TokenBucket::new(rate, 10), InFlight::new(n)));
    check(same(10), same(5), "Same");
}

#[test]
fn a_lock_of_no_time_is_none() {
    let (clock, limiter) = on_hold(LockOut::new(FixedWindow::new(1, secs(10)), Duration::ZERO));
    limiter.try_acquire(1).expect("the first");
    for _ in 0..3 {
        assert_eq!(limiter.try_acquire(1).expect_err("taken").retry_after(), Some(secs(10)));
    }
    clock.advance(secs(10));
    assert!(limiter.try_acquire(1).is_ok());
}

#[test]
fn a_lock_of_all_time_ends_in_146_years() {
    for duration in [Duration::MAX, Nanos::HORIZON] {
        let (clock, limiter) = on_hold(LockOut::new(FixedWindow::new(1, secs(10)), duration));
        limiter.try_acquire(1).expect("the first");
        clock.advance(secs(1));
        for _ in 0..3 {
            let wait = limiter.try_acquire(1).expect_err("locked").retry_after();
            assert_eq!(wait, Some(Nanos::HORIZON));
        }
        assert_eq!(limiter.quota().reset_after, Some(Nanos::HORIZON));
        clock.advance(Nanos::HORIZON - NANOSECOND);
        assert_eq!(limiter.available(), 0);
        // A refusal in the lock does not extend it.
        assert!(limiter.try_acquire(1).is_err());
        clock.advance(NANOSECOND);
        assert!(limiter.try_acquire(1).is_ok());
        // And again, now that the end of the next lock is the end of the clock.
        let wait = limiter.try_acquire(1).expect_err("locked").retry_after();
        assert_eq!(wait, Some(Nanos::HORIZON));
        clock.advance(Duration::MAX);
        assert!(limiter.try_acquire(1).is_err());
    }
}

/// By any rule, what was stored is still there, and nothing comes before the clock shows a later time than before.
#[test]
fn for_a_limiter_no_time_passes_while_the_clock_is_set_back() {
    struct Stands;
    impl Check for Stands {
        fn check<P: Policy<Cost = u32> + UnwindSafe>(&self, policy: P, name: &str) {
            for back in [NANOSECOND, secs(1), secs(3600)] {
                let (clock, limiter) = on_hold(policy.clone());
                let keyed =
                    KeyedRateLimiter::<u32, _>::builder(policy.clone()).clock(&clock).build();
                clock.set(secs(3600));
                let held = (limiter.try_acquire(1), keyed.at(&7).try_acquire(1));
                assert!(held.0.is_ok() && held.1.is_ok(), "{name}");
                clock.set(secs(3600) + ms(500));
                let available = limiter.available();
                for elapsed in [secs(3600) + ms(500) - back, secs(3600), secs(3600) + ms(500)] {
                    clock.set(elapsed);
                    assert_eq!(limiter.available(), available, "{back:?} back, {name}");
                    assert_eq!(keyed.at(&7).available(), available, "{back:?} back, {name}");
                    assert_eq!(limiter.quota().remaining, available, "{back:?} back, {name}");
                }
                clock.set(secs(3600) + ms(500) - back);
                let granted: Vec<_> = std::iter::from_fn(|| limiter.try_acquire(1).ok()).collect();
                assert_eq!(granted.len(), available as usize, "{back:?} back, {name}");
                let of_key: Vec<_> =
                    std::iter::from_fn(|| keyed.at(&7).try_acquire(1).ok()).collect();
                assert_eq!(of_key.len(), available as usize, "{back:?} back, {name}");
            }
        }
    }
    each(10, &Stands);
}

/// A queue never charges before its last grant; a policy that is called directly must be as safe.
#[test]
fn a_rule_that_is_charged_at_an_earlier_time_forgets_nothing() {
    struct Direct;
    impl Check for Direct {
        fn check<P: Policy<Cost = u32> + UnwindSafe>(&self, policy: P, name: &str) {
            let at = |seconds| Nanos::ZERO.saturating_add(secs(seconds));
            for back in [1004, 996, 900, 1] {
                let mut state = policy.start(at(0));
                policy.charge(&mut state, at(1005), 5);
                policy.charge(&mut state, at(back), 5);
                let ready = policy.ready_at(&state, at(1005), 1).expect(name);
                let now = matches!(ready, Ready::At(time) if time <= at(1005));
                assert!(!now, "{ready:?} after {back} s, {name}");
                let forget = policy.idle_at(&state);
                assert!(forget.is_none_or(|time| time > at(1005)), "{forget:?}, {name}");
            }
        }
    }
    each(10, &Direct);
}
