//! Callers that enter ahead of others.

use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::Limiter as _;
use tollgate::{
    AnyRateLimiter, Error, FixedWindow, InFlight, KeyedRateLimiter, ManualClock, Nanos, Rate,
    RateLimiter, SlidingWindowLog, SmoothBursty, TokenBucket,
};

use crate::support::{
    Limiter, busy, busy_bounded, finishes, is_waiting, ms, outcome, poll, secs, until, waited,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Ten a second without a burst, its first permit taken.
fn ten_a_second() -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::ZERO);
    let limiter = RateLimiter::with_clock(policy, &clock);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    (clock, limiter)
}

#[test]
fn behind_200_batch_tasks_an_interactive_caller_waits_one_interval_at_most() {
    // Callers that come each 730 ms, by how much they enter ahead, and how long the slowest of them waits.
    let slowest = |ahead: Duration| {
        let (clock, limiter) = ten_a_second();
        let mut batch: Vec<_> = (0..200).map(|_| limiter.acquire(1)).collect();
        assert!(batch.iter_mut().all(is_waiting));
        let mut callers = Vec::new();
        for _ in 0..20 {
            clock.advance(ms(730));
            let mut caller = limiter.acquire_owned(1).ahead_by(ahead);
            let _ = poll(&mut caller);
            callers.push(caller);
        }
        clock.advance(MINUTE);
        assert!(batch.iter_mut().all(|task| outcome(task).is_ok()));
        let waits = callers.iter_mut().map(|caller| outcome(caller).expect("a grant").waited());
        waits.max().expect("20 of them")
    };
    assert_eq!(slowest(MINUTE), ms(100));
    assert_eq!(slowest(Duration::ZERO), ms(19_370));
}

#[test]
fn equals_are_in_fifo_order_and_so_are_callers_of_one_arrival() {
    let (clock, limiter) = busy(10.0);
    let mut callers = Vec::new();
    // When each comes, and by how many seconds it enters ahead.
    for (at, ahead) in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (2, 0), (3, 3), (3, 0), (3, 1)] {
        // Nothing is granted before the end: a pause.
        limiter.pause_for(secs(10));
        clock.advance(secs(at).saturating_sub(clock.elapsed()));
        let mut caller = limiter.acquire(1).ahead_by(secs(ahead));
        assert!(is_waiting(&mut caller));
        callers.push(caller);
    }
    clock.advance(MINUTE);
    let grants = callers.iter_mut().map(|caller| outcome(caller).expect("a grant").waited());
    let came = [0, 1, 1, 2, 2, 2, 3, 3, 3].map(secs);
    let mut order: Vec<_> = grants.zip(came).map(|(waited, came)| came + waited).zip(0..).collect();
    order.sort();
    let order: Vec<_> = order.into_iter().map(|(_, caller)| caller).collect();
    // The arrivals: 0, 1, 0, 1, 0, 2, 0, 3, 2.
    assert_eq!(order, [0, 2, 4, 6, 1, 3, 5, 8, 7]);
}

/// Such an arrival is before the clock's start.
#[test]
fn a_caller_goes_ahead_by_more_than_the_age_of_the_clock() {
    let (clock, limiter) = busy(1.0);
    limiter.pause_for(secs(10));
    clock.advance(secs(1));
    let [plain, ahead, far, farther] = [0, 500, 2_000, 3_000]
        .map(|ahead| limiter.acquire(1).ahead_by(ms(ahead)).reserve().expect("a place"));
    clock.advance(MINUTE);
    assert_eq!([farther, far, ahead, plain].map(waited), [9, 10, 11, 12].map(secs));
}

#[test]
fn no_waiter_starves() {
    // How long a batch waiter waits, if `callers` come each 100 ms, five seconds ahead.
    let waits_beside = |callers: usize| {
        let (clock, limiter) = ten_a_second();
        let mut batch = limiter.acquire(1);
        let mut urgent = Vec::new();
        loop {
            if let Poll::Ready(granted) = poll(&mut batch) {
                return granted.expect("a grant").waited();
            }
            assert!(clock.elapsed() < MINUTE, "it starves");
            for _ in 0..callers {
                urgent.push(limiter.acquire(1).ahead_by(secs(5)).reserve().expect("a place"));
            }
            clock.advance(ms(100));
        }
    };
    // In FIFO order, and beside as many callers as the rate allows: 5 s longer.
    assert_eq!((waits_beside(0), waits_beside(1)), (ms(100), ms(5_100)));
    // Beside more: it waits for those of five seconds, and for none that comes later.
    assert_eq!(waits_beside(3), ms(100) * (1 + 3 * 50));
}

#[test]
fn threads_keys_reservations_and_any_limiter_go_ahead_too() {
    finishes(|| {
        let (clock, limiter) = busy(10.0);
        let batch = limiter.reserve(1).expect("a place");
        let other = limiter.clone();
        let thread = thread::spawn(move || {
            other.acquire(1).ahead_by(MINUTE).blocking_wait().expect("a grant").waited()
        });
        until(|| limiter.queue_len() == 2);
        assert_eq!(batch.delay(), ms(200));
        let any: AnyRateLimiter = AnyRateLimiter::new(limiter.clone());
        let mut erased = any.acquire(1).ahead_by(MINUTE);
        assert!(is_waiting(&mut erased));
        let reserved = limiter.try_acquire_timeout(1, secs(1)).ahead_by(MINUTE);
        let reserved = reserved.reserve().expect("it is in time");
        assert_eq!((reserved.delay(), batch.delay()), (ms(300), ms(400)));
        clock.advance(secs(1));
        assert_eq!(thread.join().expect("a grant"), ms(100));
        assert_eq!(outcome(&mut erased).expect("a grant").waited(), ms(200));
        assert_eq!(reserved.blocking_wait().expect("a grant").waited(), ms(300));
        assert_eq!(batch.blocking_wait().expect("a grant").waited(), ms(400));
    });

    let clock = ManualClock::new();
    let policy = TokenBucket::new(Rate::per_second(10.0), 1);
    let limiter = KeyedRateLimiter::with_clock(policy, &clock);
    limiter.try_acquire("alice", 1).expect("a new key grants at once");
    let batch = limiter.reserve("alice", 1).expect("a place");
    let mut urgent = limiter.acquire("alice", 1).ahead_by(MINUTE);
    assert!(is_waiting(&mut urgent));
    let any: AnyRateLimiter = AnyRateLimiter::new(limiter.at("alice".to_owned()));
    let mut erased = any.acquire(1).ahead_by(MINUTE);
    assert!(is_waiting(&mut erased));
    let owned = limiter.acquire_owned("alice".to_owned(), 1).ahead_by(MINUTE).reserve();
    assert_eq!(owned.expect("a place").delay(), ms(300));
    clock.advance(secs(1));
    assert_eq!(outcome(&mut urgent).expect("a grant").waited(), ms(100));
    assert_eq!(outcome(&mut erased).expect("a grant").waited(), ms(200));
    assert_eq!(batch.blocking_wait().expect("a grant").waited(), ms(300));
}

#[test]
fn a_big_request_at_the_head_is_overtaken_and_gets_its_turn() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 50), &clock);
    limiter.try_acquire(50).expect("a full bucket");
    let big = limiter.reserve(50).expect("a place");
    clock.advance(secs(3));
    assert_eq!(big.delay(), secs(2));
    // 30 permits are there: it need not wait, not even with no time to wait.
    let mut urgent = limiter.try_acquire_timeout(10, Duration::ZERO).ahead_by(secs(4));
    assert_eq!(outcome(&mut urgent).expect("ready").waited(), Duration::ZERO);
    assert_eq!(big.delay(), secs(3));
    let mut urgent = limiter.try_acquire_timeout(30, Duration::ZERO).ahead_by(secs(4));
    assert_eq!(outcome(&mut urgent).expect_err("20 are there").retry_after(), Some(secs(1)));
    assert_eq!(big.delay(), secs(3), "a refusal changes nothing");
    // It came three seconds ago.
    assert!(is_waiting(&mut limiter.acquire(1).ahead_by(secs(3))));
    clock.advance(secs(3));
    assert_eq!(big.blocking_wait().expect("a grant").waited(), secs(6));
}

#[test]
fn a_timed_waiter_that_is_overtaken_is_refused_at_the_head_or_at_its_deadline() {
    let (clock, limiter) = ten_a_second();
    let mut first = limiter.try_acquire_timeout(1, ms(150));
    let mut second = limiter.try_acquire_timeout(1, ms(250));
    assert!(is_waiting(&mut first) && is_waiting(&mut second));
    let mut urgent = limiter.try_acquire_timeout(1, ms(100)).ahead_by(MINUTE);
    assert!(is_waiting(&mut urgent));
    clock.advance(ms(100));
    assert!(outcome(&mut urgent).is_ok());
    // It is now at the head, and can be granted at 200 ms.
    let error = outcome(&mut first).expect_err("too late");
    assert_eq!(error.retry_after(), Some(ms(100)));
    clock.advance(ms(100));
    assert_eq!(outcome(&mut second).expect("it moved up").waited(), ms(200));
    assert_eq!(limiter.stats().refused, 1);
}

#[test]
fn the_wait_is_that_of_its_place() {
    let (clock, limiter) = ten_a_second();
    let batch: Vec<_> = (0..100).map(|_| limiter.reserve(1).expect("a place")).collect();
    let wait = |n, ahead| {
        let mut call = limiter.try_acquire_timeout(n, Duration::ZERO).ahead_by(ahead);
        outcome(&mut call).expect_err("it does not wait").retry_after()
    };
    assert_eq!((wait(1, MINUTE), wait(7, MINUTE)), (Some(ms(100)), Some(ms(100))));
    assert_eq!(wait(1, Duration::ZERO), Some(ms(10_100)));
    let urgent: Vec<_> = (0..5).map(|_| limiter.acquire(1).ahead_by(MINUTE).reserve()).collect();
    assert_eq!((wait(1, MINUTE), wait(1, 2 * MINUTE)), (Some(ms(600)), Some(ms(100))));
    // Those whose time is up learn the wait of another try.
    let mut late = limiter.try_acquire_timeout(1, ms(600)).ahead_by(MINUTE);
    assert!(is_waiting(&mut late));
    limiter.pause_for(secs(3));
    clock.advance(ms(600));
    assert_eq!(outcome(&mut late).expect_err("a pause").retry_after(), Some(ms(2_900)));
    drop((batch, urgent));

    // With costs that matter one by one.
    let policy = SlidingWindowLog::new(10, secs(1));
    let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    limiter.try_acquire(10).expect("an empty log");
    let batch: Vec<_> = (0..9).map(|_| limiter.reserve(4).expect("a place")).collect();
    let wait = |n, ahead| {
        let mut call = limiter.try_acquire_timeout(n, Duration::ZERO).ahead_by(ahead);
        outcome(&mut call).expect_err("it does not wait").retry_after()
    };
    // Two of them in a second, and the last alone.
    assert_eq!((wait(4, Duration::ZERO), wait(4, MINUTE)), (Some(secs(5)), Some(secs(1))));
    let urgent = limiter.acquire(4).ahead_by(MINUTE).reserve().expect("a place");
    assert_eq!((wait(4, Duration::ZERO), wait(4, MINUTE)), (Some(secs(6)), Some(secs(1))));
    let other = limiter.acquire(10).ahead_by(2 * MINUTE).reserve().expect("a place");
    assert_eq!((wait(4, Duration::ZERO), wait(4, MINUTE)), (Some(secs(7)), Some(secs(2))));
    assert_eq!((urgent.delay(), batch[0].delay()), (secs(2), secs(2)));
    drop(other);
}

/// What does not fit into a window goes into the next one, and all that are behind it.
#[test]
fn the_wait_behind_all_is_that_of_their_order() {
    for (batch, urgent, windows) in [([6, 6], 4, 2), ([8, 3], 3, 3)] {
        let policy = FixedWindow::new(10, MINUTE);
        let limiter = RateLimiter::with_clock(policy, ManualClock::new());
        limiter.try_acquire(10).expect("a new window");
        let _batch = batch.map(|n| limiter.reserve(n).expect("a place"));
        let wait = || limiter.try_acquire(4).expect_err("others wait").retry_after();
        assert_eq!(wait(), Some(2 * MINUTE));
        let _urgent = limiter.acquire(urgent).ahead_by(MINUTE).reserve().expect("a place");
        assert_eq!(wait(), Some(windows * MINUTE));
    }
}

#[test]
fn a_new_rate_and_a_pause_apply_in_that_order() {
    let (clock, limiter) = ten_a_second();
    let batch: Vec<_> = (0..3).map(|_| limiter.reserve(1).expect("a place")).collect();
    let urgent = limiter.acquire(1).ahead_by(MINUTE).reserve().expect("a place");
    limiter.set_rate(Rate::per_second(1.0));
    // What was taken before has its old price.
    let delays = [&urgent, &batch[0], &batch[2]].map(|place| place.delay().as_millis());
    assert_eq!(delays, [100, 1_100, 3_100]);
    limiter.pause_for(secs(10));
    let another = limiter.acquire(1).ahead_by(2 * MINUTE).reserve().expect("a place");
    assert_eq!((another.delay(), urgent.delay()), (secs(10), secs(11)));
    clock.advance(secs(60));
    assert_eq!(
        batch.into_iter().map(|place| place.blocking_wait()).filter(Result::is_ok).count(),
        3
    );
}

#[test]
fn the_bounds_of_the_queue_count_them() {
    let (_clock, limiter) = busy_bounded(10.0, 2, 100);
    let _batch = (limiter.reserve(1), limiter.reserve(1));
    let error = outcome(&mut limiter.acquire(1).ahead_by(MINUTE)).expect_err("a full queue");
    assert!(matches!(error, Error::QueueFull { .. }), "{error}");
}

#[test]
fn one_that_leaves_leaves_no_trace() {
    let (clock, limiter) = ten_a_second();
    let batch = limiter.reserve(1).expect("a place");
    let mut urgent: Vec<_> = (0..4).map(|n| limiter.acquire(n + 1).ahead_by(MINUTE)).collect();
    assert!(urgent.iter_mut().all(is_waiting));
    assert_eq!(batch.delay(), ms(1_100));
    // From the middle, from the head, and with a grant that was not polled.
    drop(urgent.remove(1));
    assert_eq!(batch.delay(), ms(900));
    drop(urgent.remove(0));
    assert_eq!(batch.delay(), ms(800));
    clock.advance(ms(100));
    assert_eq!(batch.delay(), ms(700));
    drop(urgent);
    assert_eq!(batch.delay(), Duration::ZERO);
    assert_eq!((limiter.queue_len(), limiter.stats().given_up), (0, 4));
}

#[test]
fn a_place_is_found_when_those_before_it_have_left() {
    let (clock, limiter) = ten_a_second();
    let mut first = limiter.acquire(1);
    assert!(is_waiting(&mut first));
    clock.advance(ms(20));
    let mut batch = limiter.acquire(1);
    // Behind the first one.
    let mut left = limiter.acquire(1).ahead_by(ms(10));
    assert!(is_waiting(&mut batch) && is_waiting(&mut left));
    drop(left);
    clock.advance(ms(80));
    assert!(outcome(&mut first).is_ok());
    let mut urgent = limiter.acquire(1).ahead_by(ms(90));
    assert!(is_waiting(&mut urgent));
    clock.advance(ms(100));
    assert!(outcome(&mut urgent).is_ok() && is_waiting(&mut batch));
}

/// The wait behind all was known, and is longer by what it took.
#[test]
fn one_that_is_granted_at_once_delays_those_that_wait() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(SlidingWindowLog::new(5, secs(10)), &clock);
    limiter.try_acquire(3).expect("free");
    let big = limiter.reserve(5).expect("a place");
    let wait = || limiter.would_wait(1).expect("a wait").expect("a known one");
    assert_eq!((big.delay(), wait()), (secs(10), secs(20)));
    clock.advance(secs(1));
    assert!(outcome(&mut limiter.acquire(1).ahead_by(MINUTE)).is_ok());
    assert_eq!((big.delay(), wait()), (secs(10), secs(20)));
}

#[test]
fn places_in_flight_go_to_those_ahead() {
    let limiter = RateLimiter::with_clock(InFlight::new(1), ManualClock::new());
    let held = limiter.try_acquire(1).expect("a free place");
    let mut batch = limiter.acquire(1);
    let mut urgent = limiter.acquire(1).ahead_by(secs(1));
    assert!(is_waiting(&mut batch) && is_waiting(&mut urgent));
    drop(held);
    assert!(is_waiting(&mut batch));
    drop(outcome(&mut urgent).expect("a grant"));
    assert!(outcome(&mut batch).is_ok());
}

/// Permits and the place came back one after the other: the caller ahead took the permits, and the overtaken one was
/// refused as if no place would be free.
#[test]
fn a_refund_gives_back_permits_and_places_at_once() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Rate::per_second(10.0), 4);
    let limiter = RateLimiter::with_clock((bucket, InFlight::new(2)), &clock);
    let first = limiter.try_acquire((4, 1)).expect("a full bucket");
    let mut timed = limiter.try_acquire_timeout((2, 1), ms(200));
    let mut urgent = limiter.acquire((4, 1)).ahead_by(MINUTE);
    assert!(is_waiting(&mut timed) && is_waiting(&mut urgent));
    clock.advance(ms(50));
    first.refund();
    let _urgent = outcome(&mut urgent).expect("a full bucket");
    let error = outcome(&mut timed).expect_err("200 ms from now, 150 ms are left");
    assert_eq!(
        (error.retry_after(), error.part().map(tollgate::Part::index)),
        (Some(ms(200)), Some(0))
    );
    assert_eq!(limiter.available().1, 1);
}

#[test]
fn ahead_by_any_time_at_any_time() {
    let (clock, limiter) = busy(10.0);
    let mut batch = limiter.acquire(1);
    assert!(is_waiting(&mut batch));
    // No effect once it has joined.
    let mut urgent = limiter.acquire(1).ahead_by(Duration::MAX);
    let mut late = limiter.acquire(1);
    assert!(is_waiting(&mut urgent) && is_waiting(&mut late));
    late = late.ahead_by(Duration::MAX);
    assert!(is_waiting(&mut late));
    // More than the horizon is the horizon: one arrival.
    let mut second = limiter.acquire(1).ahead_by(Nanos::HORIZON);
    assert!(is_waiting(&mut second));
    // A clock that goes back makes the newcomer the earliest, but keeps FIFO order.
    clock.set(Duration::ZERO);
    let mut third = limiter.acquire(1);
    assert!(is_waiting(&mut third));
    for due in [&mut urgent, &mut second, &mut batch, &mut late, &mut third] {
        clock.advance(ms(100));
        assert!(matches!(poll(due), Poll::Ready(Ok(_))));
    }
    // Nothing to overtake, and nothing to wait for.
    assert!(outcome(&mut limiter.acquire(0).ahead_by(MINUTE)).is_ok());
    clock.advance(ms(100));
    assert!(outcome(&mut limiter.acquire(1).ahead_by(MINUTE)).is_ok());
}

/// A hundred thousand wait, half of them for longer than the callers enter ahead. To look for the place of each
/// from the front would take a minute.
#[test]
fn a_crowd_of_interactive_callers_finds_its_places_quickly() {
    for ahead in [secs(1), secs(100)] {
        let (clock, limiter) = busy(1.0);
        let mut batch = Vec::new();
        for half in 0..2 {
            clock.advance(ms(900) * half);
            batch.extend((0..50_000).map(|_| limiter.reserve(1).expect("a place")));
        }
        clock.advance(ms(90));
        let started = Instant::now();
        let mut urgent = Vec::new();
        for _ in 0..20_000 {
            clock.advance(Duration::from_nanos(100));
            let mut caller = limiter.acquire(1).ahead_by(ahead);
            assert!(is_waiting(&mut caller));
            urgent.push(caller);
        }
        let timed = limiter.try_acquire_timeout(1, secs(100_000)).ahead_by(ahead).reserve();
        assert!(timed.is_ok());
        drop(urgent);
        assert!(started.elapsed() < secs(20), "{:?}", started.elapsed());
        assert_eq!(limiter.queue_len(), 100_001);
    }
}

#[test]
fn a_caller_that_goes_ahead_at_once_has_not_waited() {
    let policy = TokenBucket::new(Rate::per_second(10.0), 5);
    let limiter = RateLimiter::with_clock(policy, ManualClock::new());
    limiter.try_acquire(2).expect("five are there");
    let mut waiter = limiter.acquire(5);
    assert!(is_waiting(&mut waiter));
    let mut urgent = limiter.acquire_owned(1).ahead_by(secs(1));
    assert_eq!(outcome(&mut urgent).expect("three are there").waited(), ms(0));
    assert_eq!(limiter.waits().count(), 0);
}
