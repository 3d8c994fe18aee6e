//! "60 requests and 90,000 tokens a minute, 10 in flight", as a provider of a model says it.

use std::time::Duration;

use tollgate::{
    AllOf, AnyPolicy, FixedWindow, Gcra, Grant, InFlight, LeakyBucket, LockOut, ManualClock,
    Policy, Rate, RateLimiter, Same, SlidingWindowCounter, SlidingWindowLog, SmoothBursty,
    SmoothWarmingUp, TokenBucket,
};

use super::on_hold;
use crate::support::{outcome, secs};

type Quota = (SlidingWindowLog, TokenBucket, InFlight);

fn quota() -> (ManualClock, RateLimiter<Quota>) {
    let requests = SlidingWindowLog::new(60, secs(60));
    let tokens = TokenBucket::new(Rate::per_minute(90_000.0), 90_000);
    on_hold((requests, tokens, InFlight::new(10)))
}

/// A call that has begun.
struct Call<'a> {
    ends: Duration,
    grant: Grant<'a, Quota>,
}

/// When each of `calls` begins and which part it waited for, if each takes `tokens` and `time`; all come
/// at once.
fn begin(calls: usize, tokens: u32, time: Duration) -> Vec<(u64, Option<usize>)> {
    let (clock, limiter) = quota();
    let mut line: Vec<_> = (0..calls).map(|_| limiter.acquire((1, tokens, 1))).collect();
    let (mut running, mut begun): (Vec<Call<'_>>, Vec<_>) = (Vec::new(), Vec::new());
    while begun.len() < calls {
        running.retain(|call| call.ends > clock.elapsed());
        line.retain_mut(|waiting| match crate::support::poll(waiting) {
            std::task::Poll::Ready(grant) => {
                let grant = grant.expect("a grant");
                begun.push((
                    clock.elapsed().as_secs(),
                    grant.limited_by().map(tollgate::Part::index),
                ));
                running.push(Call { ends: clock.elapsed() + time, grant });
                false
            }
            std::task::Poll::Pending => true,
        });
        assert!(running.len() <= 10);
        clock.advance(secs(1));
    }
    assert!(running.iter().all(|call| call.grant.cost() == (1, tokens, 1)));
    begun
}

/// 100 tokens in 20 s: ten at a time.
#[test]
fn long_calls_wait_for_a_place() {
    let begun = begin(45, 100, secs(20));
    for (number, begun) in begun.into_iter().enumerate() {
        let round = u64::try_from(number / 10).expect("small");
        assert_eq!(begun, (20 * round, (round > 0).then_some(2)), "number {number}");
    }
}

/// 100 tokens in a second: ten a second, and the 61st when the first is a minute old.
#[test]
fn short_calls_wait_for_the_minute() {
    let begun = begin(125, 100, secs(1));
    for (number, begun) in begun.into_iter().enumerate() {
        let (minute, rest) = (number / 60, number % 60);
        let at = u64::try_from(60 * minute + rest / 10).expect("small");
        // At 60 s the first ten are a minute old; the places have been free for long.
        let part = if number < 10 {
            None
        } else if rest < 10 || minute > 0 {
            Some(0)
        } else {
            Some(2)
        };
        assert_eq!(begun.0, at, "number {number}");
        if rest < 10 || minute == 0 {
            assert_eq!(begun.1, part, "number {number}");
        }
    }
}

/// 9,000 tokens in a second: ten at once, and then one each 6 s, as 1,500 come in a second.
#[test]
fn large_calls_wait_for_their_tokens() {
    let begun = begin(20, 9_000, secs(1));
    assert!(begun[..10].iter().all(|&begun| begun == (0, None)));
    for (number, &begun) in (1..).zip(&begun[10..]) {
        assert_eq!(begun, (6 * number, Some(1)));
    }
}

/// The true cost of a call is known at its end: 8,000 were estimated, and 2,000 were used. The rest
/// is refunded and lets the next call begin.
#[test]
fn calls_that_were_thought_larger_let_others_begin_sooner() {
    let (clock, limiter) = quota();
    clock.advance(secs(60));
    // 11 x 8,000 = 88,000; but ten in flight.
    let mut running: Vec<_> =
        (0..10).map(|_| limiter.try_acquire((1, 8_000, 1)).expect("there")).collect();
    assert_eq!(limiter.available(), (50, 10_000, 0));
    let mut next = limiter.acquire((1, 20_000, 1));
    assert!(crate::support::is_waiting(&mut next));
    clock.advance(secs(2));
    // Of 8,000 tokens 6,000 were too much, and come back. 3,000 have come by themselves.
    let mut first = running.remove(0);
    first.settle((1, 2_000, 1)).expect("less");
    drop(first);
    // 10,000 + 3,000 + 6,000 are not enough; 1,000 more take two thirds of a second.
    assert!(crate::support::is_waiting(&mut next));
    clock.advance(secs(2));
    let grant = outcome(&mut next).expect("a grant");
    let expected = secs(2) + Duration::from_secs(2) / 3;
    assert!(grant.waited().abs_diff(expected) < Duration::from_micros(1), "{:?}", grant.waited());
    assert_eq!((limiter.available().0, limiter.available().2), (49, 0));
    // A call that used more than estimated owes the rest: 20,000 at 1,500 a second.
    let mut grant = grant;
    grant.settle((1, 40_000, 1)).expect("owed");
    drop(running);
    let error = limiter.try_acquire((1, 1_500, 1)).expect_err("owed");
    assert_eq!(error.part().map(tollgate::Part::index), Some(1));
    let wait = error.retry_after().expect("a time");
    assert!(wait > secs(12) && wait < secs(15), "{wait:?}");
}

/// The limit and its window in milliseconds, of an unused limiter.
fn window<P: Policy<Cost = u32>>(policy: P) -> (u32, Option<u128>) {
    let quota = on_hold(policy).1.quota();
    (quota.limit, quota.window.map(|window| window.as_millis()))
}

#[test]
fn each_rule_tells_the_window_of_its_limit() {
    let rate = Rate::per_minute(100.0);
    let short = SmoothBursty::new(Rate::per_second(50.0)).max_burst(Duration::from_millis(20));
    assert_eq!(window(TokenBucket::new(rate, 20)), (20, Some(12_000)));
    assert_eq!(window(TokenBucket::new(rate, 20).refill_every(secs(6))), (20, Some(12_000)));
    assert_eq!(window(Gcra::new(19, 100, secs(60))), (20, Some(12_000)));
    assert_eq!(window(LeakyBucket::meter(rate, 20)), (20, Some(12_000)));
    assert_eq!(window(SmoothBursty::new(Rate::per_second(50.0))), (50, Some(1_000)));
    assert_eq!(window(short), (1, Some(20)));
    // A cold limiter has stored what it yields in six seconds, at the stable rate.
    let warming = SmoothWarmingUp::new(Rate::per_second(5.0), secs(6));
    assert_eq!(window(warming), (30, Some(6_000)));
    assert_eq!(window(FixedWindow::new(7, secs(2))), (7, Some(2_000)));
    assert_eq!(window(SlidingWindowLog::new(7, secs(2))), (7, Some(2_000)));
    assert_eq!(window(SlidingWindowCounter::new(7, secs(2), 4)), (7, Some(2_000)));
    assert_eq!(window(LockOut::new(FixedWindow::new(7, secs(2)), secs(9))), (7, Some(2_000)));
    // One permit's, if no number can be taken at once.
    assert_eq!(window(LeakyBucket::new(Rate::per_second(5.0), 3)), (0, Some(200)));
    // No window: a place comes back when its grant is dropped, and of nothing none comes.
    assert_eq!(window(InFlight::new(7)), (7, None));
    assert_eq!(window(FixedWindow::new(0, secs(2))), (0, None));
    // A bucket holds at most what its rate yields in 146 years.
    let years = secs(53_375 * 86_400).as_millis();
    assert_eq!(
        window(TokenBucket::new(Rate::every(secs(86_400)), u32::MAX)),
        (53_375, Some(years))
    );
}

#[test]
fn a_limiter_that_warms_up_has_its_whole_quota_again_when_it_is_cold() {
    let (clock, limiter) = on_hold(SmoothWarmingUp::new(Rate::per_second(5.0), secs(6)));
    let reset = || limiter.quota().reset_after.expect("a known time");
    assert_eq!(reset(), Duration::ZERO);
    limiter.try_acquire(10).expect("a grant");
    let (last, nanosecond) = (reset(), Duration::from_nanos(1));
    assert!(limiter.quota().remaining < 30 && last > secs(2), "{last:?}");
    clock.advance(last - nanosecond);
    assert_eq!((limiter.quota().remaining, reset()), (29, nanosecond));
    clock.advance(nanosecond);
    assert_eq!((limiter.quota().remaining, reset()), (30, Duration::ZERO));
}

#[test]
fn rules_together_tell_the_slowest_window() {
    let minute = TokenBucket::new(Rate::per_minute(100.0), 20);
    let hour = TokenBucket::new(Rate::per_hour(1000.0), 1000);
    let together = Same((minute.clone(), hour.clone(), InFlight::new(50)));
    assert_eq!(window(together), (20, Some(72_000)));
    assert_eq!(window([minute.clone(), hour.clone()]), (20, Some(72_000)));
    let rules =
        [AnyPolicy::from(minute), AnyPolicy::from(hour), AnyPolicy::from(InFlight::new(50))];
    assert_eq!(window(AllOf::new(rules)), (20, Some(72_000)));
    let quota = quota().1.quota();
    assert_eq!((quota.limit, quota.window), ((60, 90_000, 10), Some(secs(60))));
}

/// What [`tollgate::Quota::window`] promises.
#[test]
fn a_client_that_keeps_to_limit_and_window_is_not_refused_by_buckets() {
    let minute = TokenBucket::new(Rate::per_minute(100.0), 20);
    let hour = TokenBucket::new(Rate::per_hour(1000.0), 900);
    let (clock, limiter) = on_hold(Same((minute, hour)));
    let quota = limiter.quota();
    let window = quota.window.expect("both have a rate");
    for round in 0..200 {
        assert!(limiter.try_acquire(quota.limit).is_ok(), "round {round}");
        clock.advance(window);
    }
    // Nothing is left over either: in the long run it is the rate of the hour.
    assert_eq!(window * 50, secs(3600));
}
