//! A caller that is dropped before it was granted changes nothing for those ahead and moves up those
//! behind.

use std::time::{Duration, Instant};

use tollgate::{
    FixedWindow, ManualClock, Rate, RateLimiter, Reservation, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};

use crate::support::bucket::Bucket;
use crate::support::wakers::Count;
use crate::support::{bursty, busy, finishes, is_waiting, ms, outcome, poll_with, secs, waited};

#[test]
fn before_the_first_poll_there_is_nothing_to_leave() {
    let (clock, limiter) = bursty(5.0);
    drop(limiter.acquire(1_000_000));
    drop(limiter.acquire_owned(1_000_000));
    drop(limiter.try_acquire_timeout(1_000_000, secs(1)));
    assert_eq!((limiter.queue_len(), limiter.stats().given_up), (0, 0));
    assert!(limiter.try_acquire(1).is_ok());
    clock.advance(ms(200));
    assert!(limiter.try_acquire(1).is_ok());
}

/// It could have had its permit before, had the other not been there. So that it may catch up after a late
/// alarm does not count here.
#[test]
fn the_waiter_behind_a_head_that_leaves_has_waited_until_then() {
    let clock = ManualClock::new();
    let policy = TokenBucket::new(Rate::per_second(10_000.0), 100);
    let limiter = RateLimiter::with_clock(policy, clock.clone());
    limiter.try_acquire(100).expect("a full bucket");
    let head = limiter.reserve(100).expect("a place");
    let next = limiter.reserve(1).expect("a place");
    clock.advance(ms(5));
    drop(head);
    assert_eq!(waited(next), ms(5));
}

/// It was overtaken, and cannot be granted in time any more: at the head it learns that, and not at its deadline. The
/// head asks for the same, and so leaves the queue with the next grant due as before.
#[test]
fn the_waiter_behind_a_head_that_leaves_is_refused_at_once_if_it_is_late() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 100), &clock);
    limiter.try_acquire(100).expect("a full bucket");
    let mut timed = limiter.try_acquire_timeout(1, ms(150));
    assert!(is_waiting(&mut timed));
    let head = limiter.acquire(1).ahead_by(secs(1)).reserve().expect("a place");
    limiter.pause_for(ms(200));
    drop(head);
    assert!(outcome(&mut timed).is_err());
}

/// Six callers with different costs, one of which leaves after 100 ms: the waits of the others.
fn waits_without(
    place: usize,
    leave: fn(Reservation<tollgate::RateLimiter<tollgate::SmoothBursty>>),
) -> Vec<Duration> {
    let (clock, limiter) = busy(5.0);
    let mut line: Vec<_> = (1..=6).map(|cost| limiter.reserve(cost).expect("a place")).collect();
    clock.advance(ms(100));
    leave(line.remove(place));
    clock.advance(secs(60));
    line.into_iter().map(waited).collect()
}

/// The waits as if the caller that left had never joined.
fn expected_without(place: usize) -> Vec<Duration> {
    let mut due = ms(200);
    let mut waits = Vec::new();
    for cost in (1..=6).enumerate().filter(|&(other, _)| other != place).map(|(_, cost)| cost) {
        waits.push(due);
        due += ms(200) * cost;
    }
    waits
}

#[test]
fn leaving_at_any_place_moves_up_those_behind_by_the_permits_asked_for() {
    for place in 0..6 {
        assert_eq!(waits_without(place, drop), expected_without(place), "place {place}");
    }
}

#[test]
fn the_future_of_a_reservation_leaves_as_the_reservation_does() {
    for place in 0..6 {
        let waits = waits_without(place, |reservation| {
            let mut future = reservation.wait();
            assert!(is_waiting(&mut future));
            drop(future);
        });
        assert_eq!(waits, expected_without(place), "place {place}");
    }
}

#[test]
fn when_a_big_head_leaves_the_small_one_behind_it_is_granted_at_once_if_it_is_ready() {
    let clock = ManualClock::new();
    let limiter =
        RateLimiter::with_clock(Bucket { interval: ms(100), capacity: 50 }, clock.clone());
    let big = limiter.reserve(50).expect("a place");
    let (calls, waker) = Count::new();
    let mut small = limiter.acquire(3);
    assert!(poll_with(&mut small, &waker).is_pending());
    clock.advance(secs(1));
    assert_eq!(calls.get(), 0);
    drop(big);
    assert_eq!(calls.get(), 1);
    assert_eq!(outcome(&mut small).expect("a grant").waited(), secs(1));
}

/// The alarm was set for the old head, and only the clock touches the queue.
#[test]
fn when_a_head_leaves_the_next_one_is_granted_in_time_without_being_polled() {
    let clock = ManualClock::new();
    let limiter =
        RateLimiter::with_clock(Bucket { interval: ms(100), capacity: 50 }, clock.clone());
    let neglected = limiter.reserve(10).expect("a place");
    let big = limiter.reserve(50).expect("a place");
    let third = limiter.reserve(1).expect("a place");
    drop(big);
    clock.advance(secs(60));
    assert_eq!([waited(neglected), waited(third)], [ms(1000), ms(1100)]);
}

/// As above, but now the alarm was set for much later.
#[test]
fn when_a_head_leaves_the_alarm_moves_forward() {
    let clock = ManualClock::new();
    let limiter =
        RateLimiter::with_clock(Bucket { interval: ms(100), capacity: 50 }, clock.clone());
    let big = limiter.reserve(50).expect("a place");
    let neglected = limiter.reserve(2).expect("a place");
    clock.advance(ms(10));
    drop(big);
    clock.advance(secs(60));
    assert_eq!(waited(neglected), ms(200));
}

#[test]
fn those_behind_are_never_later_while_warming_up() {
    let waits = |leavers: &[usize]| -> Vec<Option<Duration>> {
        let clock = ManualClock::new();
        let policy = SmoothWarmingUp::new(Rate::per_second(5.0), secs(3));
        let limiter = RateLimiter::with_clock(policy, clock.clone());
        let mut line: Vec<_> =
            (0..20).map(|n| Some(limiter.reserve(1 + n % 3).expect("a place"))).collect();
        for leaver in leavers {
            clock.advance(ms(150));
            line[*leaver] = None;
        }
        clock.advance(secs(60));
        line.into_iter().map(|place| place.map(waited)).collect()
    };
    let all = waits(&[]);
    let fewer = waits(&[19, 7, 8, 12]);
    assert_eq!(fewer.iter().flatten().count(), 16);
    for (place, (without, with)) in fewer.into_iter().zip(all).enumerate() {
        let (Some(without), Some(with)) = (without, with) else { continue };
        assert!(without <= with, "place {place}: {without:?} and {with:?}");
        assert_eq!(without < with, place > 7, "place {place}: {without:?} and {with:?}");
    }
}

/// The one that is let through begins no new window, and delays the one that does.
#[test]
fn a_caller_that_is_let_through_may_shift_the_window_behind_it() {
    let waits = |leaves: bool| -> Vec<u128> {
        let clock = ManualClock::new();
        let spaced = SmoothBursty::evenly_spaced(Rate::per_second(1000.0));
        let policy = (FixedWindow::new(5, secs(1)), spaced);
        let limiter = RateLimiter::with_clock(policy, clock.clone());
        limiter.try_acquire((3, 0)).expect("a grant");
        let mut head = limiter.reserve((3, 1)).ok();
        let costs = [(1, 150), (1, 1), (5, 1)];
        let behind = costs.map(|cost| limiter.reserve(cost).expect("a place"));
        clock.advance(ms(950));
        head.take_if(|_| leaves);
        clock.advance(secs(60));
        behind.map(|place| waited(place).as_millis()).into()
    };
    assert_eq!(waits(false), [1001, 1151, 2000]);
    assert_eq!(waits(true), [950, 1100, 2100]);
}

#[test]
fn a_refused_caller_leaves_nothing_behind() {
    let (clock, limiter) = busy(5.0);
    let mut hopeless = limiter.try_acquire_timeout(1, ms(199));
    assert!(outcome(&mut hopeless).is_err());
    drop(hopeless);
    let mut expired = limiter.try_acquire_timeout(1, ms(200));
    assert!(is_waiting(&mut expired));
    limiter.pause_for(ms(300));
    // Its error was never looked at.
    drop(expired);
    assert_eq!((limiter.stats().given_up, limiter.stats().refused), (0, 2));
    clock.advance(ms(300));
    assert!(limiter.try_acquire(1).is_ok());
}

#[test]
#[should_panic(expected = "`Acquire` polled after it was ready")]
fn polling_a_future_that_is_over_panics() {
    let (_clock, limiter) = bursty(5.0);
    let mut future = limiter.acquire(1);
    assert!(outcome(&mut future).is_ok());
    let _ = outcome(&mut future);
}

#[test]
fn a_million_waiters_leave_in_linear_time() {
    const MANY: usize = 1_000_000;
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let start = Instant::now();
        // From the front, the back and the middle.
        for order in 0..3 {
            let last = limiter.reserve(1).expect("a place");
            let count = if order == 0 { MANY } else { MANY / 20 };
            let mut line: Vec<_> =
                (0..count).map(|_| Some(limiter.reserve(1).expect("a place"))).collect();
            assert_eq!(limiter.queue_len(), count + 1);
            for n in 0..count {
                // A stride that is prime to the count visits each place once.
                let place = [n, count - 1 - n, n * 777_777 % count][order];
                assert!(line[place].take().is_some());
            }
            assert_eq!(limiter.queue_len(), 1);
            clock.advance(ms(200));
            assert_eq!(waited(last), ms(200));
        }
        // Quadratic, it would take hours.
        assert!(start.elapsed() < secs(50), "{:?}", start.elapsed());
    });
}
