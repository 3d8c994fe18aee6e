//! The worked examples by which books and manuals explain each rule, with their numbers.

use std::time::Duration;

use tollgate::{Error, FixedWindow, Gcra, ManualClock, Policy, RateLimiter, SlidingWindowCounter};

use crate::support::secs;

const NANOSECOND: Duration = Duration::from_nanos(1);

fn on_hold<P: Policy>(policy: P) -> (ManualClock, RateLimiter<P>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

/// How many of `asked` pass one by one now.
fn granted<P: Policy<Cost = u32>>(limiter: &RateLimiter<P>, asked: usize) -> usize {
    (0..asked).filter(|_| limiter.try_acquire(1).is_ok()).count()
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
