//! The worked examples by which books and manuals explain each rule, with their numbers.

use std::time::Duration;

use tollgate::{
    Error, FixedWindow, Gcra, LeakyBucket, ManualClock, Policy, Rate, RateLimiter,
    SlidingWindowCounter, SlidingWindowLog, TokenBucket,
};

use crate::support::{ms, outcome, secs};

const NANOSECOND: Duration = Duration::from_nanos(1);

fn on_hold<P: Policy>(policy: P) -> (ManualClock, RateLimiter<P>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

/// How many of `asked` pass one by one now.
fn granted<P: Policy<Cost = u32>>(limiter: &RateLimiter<P>, asked: usize) -> usize {
    (0..asked).filter(|_| limiter.try_acquire(1).is_ok()).count()
}

/// The waits of successive calls.
fn waits<P: Policy<Cost = u32>>(policy: P, calls: &[u32]) -> Vec<Duration> {
    let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
    let wait = |&n| limiter.blocking_acquire(n).expect("a grant").waited();
    calls.iter().map(wait).collect()
}

/// After a burst of a hundred at `first`, nothing passes before `second`, and then a whole burst.
#[track_caller]
fn assert_second_burst<P: Policy<Cost = u32>>(policy: P, first: Duration, second: Duration) {
    let (clock, limiter) = on_hold(policy);
    clock.set(first);
    assert_eq!(granted(&limiter, 200), 100);
    clock.set(second - NANOSECOND);
    assert_eq!(granted(&limiter, 200), 0);
    clock.set(second);
    assert_eq!(granted(&limiter, 200), 100);
}

/// "100 a minute": a hundred in the last second of one minute, a hundred in the first of the next.
#[test]
fn the_double_burst_at_the_edge_of_a_fixed_window() {
    let minute = secs(60);
    let by_the_clock = FixedWindow::new(100, minute).aligned(Duration::ZERO);
    assert_second_burst(by_the_clock, minute - NANOSECOND, minute);
    // A window that starts with its first request shows it too, if one comes early.
    let (clock, limiter) = on_hold(FixedWindow::new(100, minute));
    limiter.try_acquire(1).expect("the first");
    clock.set(secs(59));
    assert_eq!(granted(&limiter, 200), 99);
    clock.set(minute);
    assert_eq!(granted(&limiter, 200), 100);
}

#[test]
fn the_double_burst_never_passes_a_sliding_log() {
    let (first, minute) = (ms(59_999), secs(60));
    assert_second_burst(SlidingWindowLog::new(100, minute), first, first + minute);
}

/// Ten buckets of 6 s. A burst in the last nanosecond of the first bucket counts from that bucket's
/// start, and is gone after 60 s: 54 s and a nanosecond later. In nine tenths of a window never more
/// than the limit.
#[test]
fn the_double_burst_passes_a_sliding_counter_only_after_nine_tenths_of_its_window() {
    let minute = secs(60);
    let policy = SlidingWindowCounter::new(100, minute, 10);
    assert_second_burst(policy.clone(), secs(6) - NANOSECOND, minute);
    // In the first nanosecond of a bucket: a whole window.
    assert_second_burst(policy.clone(), secs(6), secs(66));
    // Wherever the first one falls, the second comes at the start of a bucket, 54 s to 60 s later.
    for step in 1..60 {
        let first = ms(step * 997);
        let bucket = u64::try_from(first.as_millis() / 6000).expect("small");
        let second = secs(6 * bucket) + minute;
        assert!(second - first > secs(54) && second - first <= minute);
        assert_second_burst(policy.clone(), first, second);
    }
}

/// A funnel of 60 drops that leaks 360 an hour: 60 at once, then one each 10 s.
#[test]
fn the_funnel_of_sixty_drops_at_360_an_hour() {
    let (clock, limiter) = on_hold(LeakyBucket::meter(Rate::per_hour(360.0), 60));
    assert_eq!(granted(&limiter, 100), 60);
    assert_eq!(limiter.try_acquire(1).expect_err("full").retry_after(), Some(secs(10)));
    for _ in 0..30 {
        clock.advance(secs(10) - NANOSECOND);
        assert_eq!(granted(&limiter, 10), 0);
        clock.advance(NANOSECOND);
        assert_eq!(granted(&limiter, 10), 1);
    }
    // Empty after ten minutes, and no emptier after an hour.
    assert_eq!(limiter.quota().reset_after, Some(secs(600)));
    clock.advance(secs(3600));
    assert_eq!(granted(&limiter, 100), 60);
}

/// The same as a queue: 60 are taken in and served one each 10 s, the 61st is turned away.
#[test]
fn the_queue_of_sixty_at_360_an_hour() {
    let (clock, limiter) = on_hold(LeakyBucket::new(Rate::per_hour(360.0), 60));
    let line: Vec<_> = (0..60).map(|_| limiter.reserve(1).expect("room")).collect();
    let error = limiter.reserve(1).expect_err("no room");
    assert!(matches!(error, Error::QueueFull { .. }), "{error:?}");
    assert_eq!(error.retry_after(), Some(secs(10)));
    let mut waits_too = limiter.acquire(1);
    assert!(matches!(outcome(&mut waits_too), Err(Error::QueueFull { .. })));
    // Three at once fit when three have leaked.
    assert_eq!(limiter.reserve(3).expect_err("no room").retry_after(), Some(secs(30)));

    clock.advance(secs(10) - NANOSECOND);
    assert_eq!((limiter.queue_len(), limiter.reserve(1).is_ok()), (59, false));
    clock.advance(NANOSECOND);
    assert_eq!(limiter.queue_len(), 58);
    let last = limiter.reserve(1).expect("room for one");
    assert!(limiter.reserve(1).is_err());
    clock.advance(secs(600));
    for (place, one) in (0..).zip(line) {
        assert_eq!(outcome(&mut one.wait()).expect("a grant").waited(), secs(10) * place);
    }
    // It came at 10 s and was the 61st, at 600 s.
    assert_eq!(outcome(&mut last.wait()).expect("a grant").waited(), secs(590));
}

/// Three tokens, one more every two seconds: the grant times of a caller that always asks.
#[test]
fn a_bucket_of_three_with_one_token_each_two_seconds() {
    let policy = TokenBucket::new(Rate::every(secs(2)), 3);
    let expected = [0, 0, 0, 2, 2, 2, 4].map(secs);
    assert_eq!(waits(policy.clone(), &[1, 1, 1, 1, 1, 1, 2]), expected);
    assert_eq!(waits(policy.clone().refill_every(secs(2)), &[1, 1, 1, 1, 1, 1, 2]), expected);

    // They differ for a caller that takes its tokens between two steps.
    let (clock, continuous) = on_hold(policy.clone());
    let stepwise = RateLimiter::with_clock(policy.refill_every(secs(2)), clock.clone());
    clock.set(secs(5));
    assert_eq!([granted(&continuous, 9), granted(&stepwise, 9)], [3, 3]);
    // The bucket was full: a step at 6 s, against a whole interval from 5 s on.
    let retry = stepwise.try_acquire(1).expect_err("empty").retry_after();
    assert_eq!(retry, Some(secs(1)));
    let retry = continuous.try_acquire(1).expect_err("empty").retry_after();
    assert_eq!(retry, Some(secs(2)));
    clock.set(secs(6));
    assert_eq!([granted(&continuous, 9), granted(&stepwise, 9)], [0, 1]);
    clock.set(secs(7));
    assert_eq!([granted(&continuous, 9), granted(&stepwise, 9)], [1, 0]);
}

/// Five tokens each ten seconds, all five at one time.
#[test]
fn a_bucket_with_five_tokens_each_ten_seconds() {
    let policy = TokenBucket::new(Rate::new(5, secs(10)), 20).refill_every(secs(10)).initial(0);
    let (clock, limiter) = on_hold(policy);
    for (at, there) in [(0, 0), (9_999, 0), (10_000, 5), (19_999, 5), (20_000, 10), (40_000, 20)] {
        clock.set(ms(at));
        assert_eq!(limiter.available(), there, "at {at} ms");
    }
    // Full: the step at 50 s has no room.
    clock.set(secs(55));
    assert_eq!(granted(&limiter, 100), 20);
    assert_eq!(limiter.try_acquire(5).expect_err("empty").retry_after(), Some(secs(5)));
    assert_eq!(limiter.try_acquire(6).expect_err("empty").retry_after(), Some(secs(15)));
}

/// One each four seconds in steps of ten: two and a half a step. And one each three: three and a third.
#[test]
fn fractions_of_a_token_are_carried_to_the_next_step() {
    for (interval, expected) in [(4, [2, 5, 7, 10, 12, 15]), (3, [3, 6, 10, 13, 16, 20])] {
        let policy = TokenBucket::new(Rate::every(secs(interval)), 100);
        let (clock, limiter) = on_hold(policy.refill_every(secs(10)).initial(0));
        // Tokens are taken as they come, so that the fraction carried is not in the bucket.
        let mut taken = 0;
        for expected in expected {
            clock.advance(secs(10) - NANOSECOND);
            assert_eq!(granted(&limiter, 100), 0);
            clock.advance(NANOSECOND);
            taken += granted(&limiter, 100);
            assert_eq!(taken, expected, "at {:?}", clock.elapsed());
        }
    }
}

/// The five answers of `CL.THROTTLE k 15 30 60 n`: limited, limit, remaining, retry after, reset after;
/// here in seconds, with `None` for redis-cell's -1.
type Answers = (bool, u32, u32, Option<u64>, u64);

fn throttle(limiter: &RateLimiter<Gcra>, n: u32) -> Answers {
    let result = limiter.try_acquire(n).map(drop);
    let quota = limiter.quota();
    let retry_after = result.as_ref().err().and_then(Error::retry_after);
    let reset_after = quota.reset_after.expect("a time").as_secs();
    let retry_after = retry_after.map(|wait| wait.as_secs());
    (result.is_err(), quota.limit, quota.remaining, retry_after, reset_after)
}

/// redis-cell's rule, by hand. A permit is 60 s / 30 = 2 s, the tolerance (15 + 1) x 2 s = 32 s. With
/// `tat` the theoretical arrival time, and `new = max(tat, now) + 2 n`: limited if
/// `now < new - 32`; then retry after `new - 32 - now`, but -1 if `2 n > 32`. Reset after is `tat - now`
/// of what is kept, remaining `(32 - reset after) / 2`, cut to whole ones.
#[test]
fn the_five_answers_of_redis_cell() {
    let (clock, limiter) = on_hold(Gcra::new(15, 30, secs(60)));
    let table = [
        // now, n, answers                            new  new - 32  tat
        (0, 1, (false, 16, 15, None, 2)), //           2     -30      2
        (0, 10, (false, 16, 5, None, 22)), //         22     -10     22
        (1, 5, (false, 16, 0, None, 31)), //          32       0     32
        (1, 1, (true, 16, 0, Some(1), 31)), //        34       2     32
        (1, 3, (true, 16, 0, Some(5), 31)), //        38       6     32
        (2, 1, (false, 16, 0, None, 32)), //          34       2     34
        (2, 16, (true, 16, 0, Some(32), 32)), //      66      34     34
        (2, 17, (true, 16, 0, None, 32)), //          68: 2 n > 32   34
        (9, 4, (true, 16, 3, Some(1), 25)), //        42      10     34
        (9, 3, (false, 16, 0, None, 31)), //          40       8     40
        (39, 16, (true, 16, 15, Some(1), 1)), //      72      40     40
        (39, 15, (false, 16, 0, None, 31)), //        70      38     70
        (100, 16, (false, 16, 0, None, 32)), //      132     100    132
        (500, 17, (true, 16, 16, None, 0)), //       534: 2 n > 32  132
    ];
    for (now, n, answers) in table {
        clock.set(secs(now));
        assert_eq!(throttle(&limiter, n), answers, "{n} at {now} s");
    }
}

/// Two a minute: 1:00:01 and 1:00:30 pass, 1:00:50 does not, 1:01:40 does.
#[test]
fn the_sliding_log_of_two_a_minute() {
    let (clock, limiter) = on_hold(SlidingWindowLog::new(2, secs(60)));
    let one_o_clock = secs(3600);
    let at = |minutes: u64, seconds: u64| {
        clock.set(one_o_clock + secs(60 * minutes + seconds));
        limiter.try_acquire(1).map(drop)
    };
    assert!(at(0, 1).is_ok());
    assert!(at(0, 30).is_ok());
    // Until 1:01:01, when the first one is a minute old.
    assert_eq!(at(0, 50).expect_err("two already").retry_after(), Some(secs(11)));
    assert!(at(1, 40).is_ok());
    // A request that was refused leaves no time in the log, as some books' do: only 1:01:40 is there.
    assert_eq!(limiter.available(), 1);
}

/// Ten a minute in six buckets of 10 s.
#[test]
fn the_sliding_counter_of_ten_a_minute() {
    let (clock, limiter) = on_hold(SlidingWindowCounter::new(10, secs(60), 6));
    // Asked for n at a second: how many are left, or how long until they would pass.
    let table = [
        (5, 4, Ok(6)),      // 4 . . . . .
        (15, 3, Ok(3)),     // 4 3 . . . .
        (25, 2, Ok(1)),     // 4 3 2 . . .
        (31, 2, Err(29)),   // until the 4 go at 60
        (45, 1, Ok(0)),     // 4 3 2 . 1 .
        (59, 4, Err(1)),    // the 4 go at 60
        (59, 5, Err(11)),   // and the 3 at 70
        (60, 3, Ok(1)),     //   3 2 . 1 . 3
        (69, 4, Err(1)),    // the 3 go at 70
        (70, 4, Ok(0)),     //     2 . 1 . 3 4
        (79, 3, Err(21)),   // the 2 go at 80, the 1 at 100
        (100, 3, Ok(0)),    //           . 3 4 . . 3
        (129, 10, Err(31)), // the last 3 go at 160
        (160, 10, Ok(0)),
    ];
    for (at, n, expected) in table {
        clock.set(secs(at));
        let answer = match limiter.try_acquire(n) {
            Ok(grant) => Ok(grant.quota().remaining),
            Err(error) => Err(error.retry_after().expect("a time").as_secs()),
        };
        assert_eq!(answer, expected, "{n} at {at} s");
    }
}
