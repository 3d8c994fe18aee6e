use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::{Error, Granted, InFlight, Limiter, ManualClock, Part, Rate, RateLimiter, TokenBucket};

const TENTH: Duration = Duration::from_millis(100);

fn first_part() -> Option<Part> {
    Some(Part::new(0, 2))
}

fn second_part() -> Option<Part> {
    Some(Part::new(1, 2))
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[track_caller]
fn granted<T>(future: impl Future<Output = Result<T, Error>>) -> T {
    outcome(future).expect("granted")
}

#[track_caller]
fn outcome<T>(future: impl Future<Output = T>) -> T {
    match poll(&mut Box::pin(future)) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits"),
    }
}

/// One permit at once, and ten a second.
fn bucket(clock: &ManualClock) -> RateLimiter<TokenBucket> {
    RateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 1), clock)
}

fn places(max: u32, clock: &ManualClock) -> RateLimiter<InFlight> {
    RateLimiter::with_clock(InFlight::new(max), clock)
}

#[test]
fn nothing_of_the_second_is_held_while_a_caller_waits_for_the_first() {
    let clock = ManualClock::new();
    let (first, second) = (places(1, &clock), places(1, &clock));
    let both = first.and(&second);
    let held = first.try_acquire(1).expect("free");
    let mut waiting = both.acquire(1);
    assert!(poll(&mut waiting).is_pending());
    assert_eq!((first.queue_len(), second.queue_len()), (1, 0));
    // Another caller takes and gives back the place of the second meanwhile.
    drop(second.try_acquire(1).expect("free"));
    drop(held);
    let grant = granted(waiting);
    assert_eq!((first.available(), second.available()), (0, 0));
    drop(grant);
    assert_eq!((first.available(), second.available()), (1, 1));
}

#[test]
fn a_caller_joins_the_second_queue_when_it_is_polled() {
    let clock = ManualClock::new();
    let (first, second) = (bucket(&clock), places(1, &clock));
    first.try_acquire(1).expect("full");
    let held = second.try_acquire(1).expect("free");
    let mut both = first.and(&second).acquire(1);
    assert!(poll(&mut both).is_pending());
    clock.advance(TENTH);
    assert_eq!((first.queue_len(), second.queue_len()), (0, 0));
    assert!(poll(&mut both).is_pending());
    assert_eq!(second.queue_len(), 1);
    clock.advance(TENTH);
    drop(held);
    let grant = granted(both);
    assert_eq!(grant.waited(), 2 * TENTH);
}

#[test]
fn a_caller_that_leaves_the_second_queue_gives_the_first_back_at_once() {
    let clock = ManualClock::new();
    let (first, second) = (bucket(&clock), places(1, &clock));
    let _held = second.try_acquire(1).expect("free");
    let both = first.and(&second);
    let mut leaving = both.acquire(1);
    assert!(poll(&mut leaving).is_pending());
    let reserved = outcome(both.reserve(1)).expect("a place");
    assert_eq!((first.available(), first.queue_len()), (0, 1));
    drop(leaving);
    // To the next one.
    assert_eq!((first.available(), first.queue_len(), second.queue_len()), (0, 0, 0));
    drop(reserved);
    assert_eq!(first.available(), 1);
    assert_eq!((both.stats().given_up, both.stats().granted), (2, 1));
}

#[test]
fn a_caller_that_the_second_refuses_gives_the_first_back_before_it_learns_of_it() {
    let clock = ManualClock::new();
    let (first, second) = (bucket(&clock), places(2, &clock));
    let both = first.and(&second);
    let held = second.try_acquire(2).expect("free");
    // At once.
    let error = outcome(both.try_acquire(1)).expect_err("no place");
    assert_eq!((error.part(), first.available()), (second_part(), 1));
    let error = outcome(both.acquire(2)).expect_err("more than the bucket");
    assert!(matches!(error, Error::ExceedsCapacity(_)) && error.part() == first_part(), "{error}");
    // At its deadline.
    let mut timed = both.try_acquire_timeout(1, TENTH);
    assert!(poll(&mut timed).is_pending());
    assert_eq!(first.available(), 0);
    clock.advance(TENTH);
    let error = outcome(timed).expect_err("too late");
    assert!(matches!(error, Error::Denied { .. }) && error.part() == second_part(), "{error}");
    assert_eq!(first.available(), 1);
    // A reservation, by a new policy.
    let reserved = outcome(both.reserve(1)).expect("a place");
    assert_eq!(first.available(), 0);
    second.set_policy(InFlight::new(0));
    let error = outcome(reserved.wait()).expect_err("none at all");
    assert!(matches!(error, Error::ExceedsCapacity(_)) && error.part() == second_part(), "{error}");
    assert_eq!(first.available(), 1);
    drop(held);
}

#[test]
fn a_timeout_covers_both_waits() {
    let clock = ManualClock::new();
    let slow = TokenBucket::new(Rate::per_second(5.0), 1).initial(0);
    let second = RateLimiter::with_clock(slow, &clock);
    let first = bucket(&clock);
    let both = first.and(&second);
    first.try_acquire(1).expect("full");
    let mut wide = both.try_acquire_timeout(1, 2 * TENTH);
    assert!(poll(&mut wide).is_pending());
    let mut narrow = both.try_acquire_timeout(1, 3 * TENTH);
    assert!(poll(&mut narrow).is_pending());
    clock.advance(TENTH);
    assert!(poll(&mut wide).is_pending());
    assert_eq!(second.queue_len(), 1);
    clock.advance(TENTH);
    let wide = granted(wide);
    assert_eq!((wide.waited(), wide.limited_by()), (2 * TENTH, second_part()));
    // It comes to the second after 0.2 s, which has a permit in 0.4 s.
    let error = outcome(narrow).expect_err("0.1 s are left");
    assert_eq!((error.part(), error.retry_after()), (second_part(), Some(2 * TENTH)));
    assert_eq!(first.available(), 1);
}

#[test]
fn a_reservation_does_not_move_a_clock_that_skips_waits() {
    let clock = ManualClock::auto_advance();
    let both = bucket(&clock).and(&places(1, &clock));
    granted(both.acquire(1));
    let reserved = outcome(both.reserve(1)).expect("a place");
    assert_eq!((clock.elapsed(), reserved.delay()), (Duration::ZERO, TENTH));
    assert_eq!(reserved.blocking_wait().expect("granted").waited(), TENTH);
}

#[test]
fn a_grant_says_at_which_limiter_it_waited_last() {
    let clock = ManualClock::new();
    let of = |per_second| {
        let empty = TokenBucket::new(Rate::per_second(per_second), 1).initial(0);
        RateLimiter::with_clock(empty, &clock)
    };
    let (first, second) = (of(10.0), of(5.0));
    let mut waiting = first.and(&second).acquire(1);
    assert!(poll(&mut waiting).is_pending());
    clock.advance(TENTH);
    assert!(poll(&mut waiting).is_pending());
    clock.advance(TENTH);
    let grant = granted(waiting);
    assert_eq!((grant.waited(), grant.limited_by()), (2 * TENTH, second_part()));
}

/// Threads that wait, give up and are granted, with nothing but the limiters between them.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn threads_pass_both_queues_and_all_that_they_held_comes_back() {
    let clock = ManualClock::new();
    let (first, second) = (places(3, &clock), places(2, &clock));
    let both = first.and(&second);
    let running = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..6_u32 {
            let (both, running) = (&both, &running);
            scope.spawn(move || {
                for call in 0..200 {
                    if (thread + call) % 3 == 0 {
                        // It leaves, at whichever limiter it stands.
                        let mut leaving = both.acquire(1);
                        drop(poll(&mut leaving));
                        thread::yield_now();
                        continue;
                    }
                    let grant = both.blocking_acquire(1).expect("room");
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 2);
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(grant);
                }
            });
        }
    });
    assert_eq!((first.available(), second.available(), both.queue_len()), (3, 2, 0));
    let stats = both.stats();
    // A grant that no caller took counts as both.
    assert!(stats.granted >= 800 && stats.given_up <= 400 && stats.refused == 0, "{stats:?}");
}

/// The first one that is granted is refused by the second limiter, and gives back what lets the third one in.
#[test]
fn callers_that_the_first_grants_together_are_in_order_at_the_second() {
    let clock = ManualClock::new();
    let (first, second) = (places(2, &clock), bucket(&clock));
    let both = first.and(&second);
    let held = first.try_acquire(2).expect("free");
    drop(second.try_acquire(1).expect("there"));
    let mut refused = both.try_acquire_timeout(1, TENTH / 2);
    let mut callers = [(); 2].map(|()| both.acquire(1));
    assert!(poll(&mut refused).is_pending());
    callers.iter_mut().for_each(|caller| assert!(poll(caller).is_pending()));
    drop(held);
    outcome(refused).expect_err("too late at the second");
    callers.iter_mut().for_each(|caller| assert!(poll(caller).is_pending()));
    assert_eq!((first.queue_len(), second.queue_len()), (0, 2));
    clock.advance(TENTH);
    let [next, mut last] = callers;
    granted(next);
    assert!(poll(&mut last).is_pending());
}

/// Each clock counts from its own start.
#[test]
fn a_timeout_is_measured_by_one_clock() {
    let (early, late) = (ManualClock::new(), ManualClock::new());
    late.advance(Duration::from_secs(10));
    let limiter = |clock| RateLimiter::with_clock(InFlight::new(1), clock);
    let [early, late] = [&early, &late].map(limiter);
    for (first, second) in [(&late, &early), (&early, &late)] {
        let _taken = second.try_acquire(1).expect("free");
        let both = first.and(second);
        let refused = poll(&mut both.try_acquire(1));
        assert!(matches!(refused, Poll::Ready(Err(Error::Denied { .. }))), "{refused:?}");
        let waits = poll(&mut both.try_acquire_timeout(1, Duration::from_secs(5)));
        assert!(waits.is_pending(), "{waits:?}");
    }
}
