//! Limiters that are closed, at once or when their queue is served. What all of them do is in `tests/faces/laws/ends.rs`.

use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use tollgate::{
    Error, FixedWindow, InFlight, KeyedRateLimiter, Limiter, LockOut, ManualClock, Rate,
    RateLimiter, TokenBucket, Unlimited,
};

use crate::support::wakers::Count;
use crate::support::{bursty, busy, is_waiting, ms, outcome, secs};

fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_second(10.0), 10)
}

#[track_caller]
fn closed<T>(answer: Result<T, Error>) {
    assert_eq!(answer.err(), Some(Error::Closed));
}

fn is_ready<F: Future>(future: &mut Pin<&mut F>, waker: &Waker) -> bool {
    future.as_mut().poll(&mut Context::from_waker(waker)).is_ready()
}

#[test]
fn a_drain_is_woken_by_the_last_grant_whether_it_is_taken_or_not() {
    let (clock, limiter) = busy(10.0);
    let places = [1, 1].map(|n| limiter.reserve(n).expect("a place"));
    let [(first, first_waker), (second, second_waker)] = [Count::new(), Count::new()];
    let (mut drain, mut other) = (pin!(limiter.drain()), pin!(limiter.drain()));
    for _ in 0..3 {
        assert!(!is_ready(&mut drain, &first_waker) && !is_ready(&mut other, &second_waker));
    }
    clock.advance(ms(100));
    assert_eq!((first.get(), second.get()), (0, 0));
    clock.advance(ms(100));
    assert_eq!((first.get(), second.get()), (1, 1));
    assert!(is_ready(&mut drain, &first_waker) && is_ready(&mut other, &second_waker));
    for place in places {
        outcome(&mut place.wait()).expect("granted before");
    }
}

#[test]
fn waiters_are_served_when_the_last_handle_of_a_drained_limiter_goes() {
    let (clock, limiter) = busy(10.0);
    let (served, refused) = (limiter.reserve(1).expect("a place"), limiter.clone());
    {
        let (_, waker) = Count::new();
        assert!(!is_ready(&mut pin!(limiter.drain()), &waker));
    }
    drop((limiter, refused));
    clock.advance(ms(100));
    assert_eq!(outcome(&mut served.wait()).expect("granted").waited(), ms(100));

    let (_clock, limiter) = busy(10.0);
    let place = limiter.reserve(1).expect("a place");
    limiter.close();
    drop(limiter);
    closed(place.blocking_wait());
}

#[test]
fn nothing_opens_a_closed_limiter() {
    let (clock, limiter) = bursty(10.0);
    limiter.close();
    limiter.set_rate(Rate::per_second(1_000.0));
    limiter.resume();
    closed(limiter.try_acquire(1));
    limiter.set_policy(limiter.policy());
    clock.advance(secs(60));
    closed(limiter.try_acquire(1));
    closed(limiter.try_acquire(0));
    // Nothing can be taken from it, so nothing is there.
    assert_eq!(limiter.available(), 0);
    closed(limiter.try_acquire(1));
    assert_eq!(limiter.stats().granted, 0);
    // A rule whose state is no word.
    let composed = RateLimiter::with_clock((bucket(), InFlight::new(3)), &clock);
    let held = composed.try_acquire((1, 1)).expect("free");
    composed.close();
    drop(held);
    closed(composed.try_acquire((1, 1)));
    let window = RateLimiter::with_clock(FixedWindow::new(3, secs(1)), &clock);
    window.close();
    window.pause_for(secs(1));
    clock.advance(secs(3));
    closed(window.try_acquire(1));
}

#[test]
fn grants_of_a_closed_limiter_settle() {
    let (clock, limiter) = bursty(10.0);
    let mut grant = limiter.try_acquire(3).expect("ready");
    let other = limiter.try_acquire(1).expect_err("on credit");
    assert_eq!(other.retry_after(), Some(ms(300)));
    limiter.close();
    grant.settle(1).expect("less");
    grant.settle(2).expect("more");
    grant.refund();
    clock.advance(secs(1));
    assert_eq!((limiter.stats().granted, limiter.queue_len()), (1, 0));
}

#[test]
fn a_policy_around_another_one_is_drained_with_its_places() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(LockOut::new(InFlight::new(1), secs(9)), &clock);
    let held = limiter.try_acquire(1).expect("free");
    assert!(limiter.try_acquire(1).is_err());
    let (count, waker) = Count::new();
    let mut drain = pin!(limiter.drain());
    assert!(!is_ready(&mut drain, &waker));
    drop(held);
    assert_eq!(count.get(), 1);
    assert!(is_ready(&mut drain, &waker));
}

#[test]
fn a_map_is_closed_at_all_keys_and_stays_so() {
    let clock = ManualClock::new();
    let limiter = KeyedRateLimiter::with_clock(bucket(), &clock);
    let kept = limiter.at(&1).try_acquire(3).expect("ready");
    limiter.at(&2).try_acquire(1).expect("ready");
    limiter.at(&3).try_acquire(10).expect("ready");
    let mut waiting = limiter.at(&3).acquire(1);
    let place = limiter.at(&3).reserve(1).expect("a place");
    assert!(is_waiting(&mut waiting) && !limiter.is_closed());
    let clone = limiter.clone();
    limiter.close();
    closed(outcome(&mut waiting));
    closed(place.blocking_wait());
    let is_closed = || {
        for key in 1..=5 {
            for n in [0, 1] {
                // More calls than there are between two sweeps.
                (0..40).for_each(|_| closed(clone.at(&key).try_acquire(n)));
                closed(clone.at(&key).blocking_acquire(n));
                closed(clone.at(&key).try_acquire_timeout(n, secs(1)).blocking_wait());
                closed(clone.at(&key).reserve(n));
            }
            assert!(clone.is_closed() && clone.at(&key).is_closed());
        }
        closed(clone.at(&1).pause_for(secs(1)));
    };
    is_closed();
    kept.refund();
    clock.advance(secs(60));
    limiter.set_policy(bucket());
    limiter.remove_idle();
    limiter.close();
    limiter.at(&4).close();
    is_closed();
    let stats = limiter.stats();
    assert_eq!(stats.granted, 3);
    closed(limiter.at(&2).try_acquire(1));
    assert_eq!(limiter.stats().refused, stats.refused + 1);
}

#[test]
fn a_map_is_drained_when_no_key_has_waiters_or_places() {
    let clock = ManualClock::new();
    let limiter = KeyedRateLimiter::with_clock(InFlight::new(1), &clock);
    let held = [1, 2].map(|key| limiter.at(&key).try_acquire(1).expect("free"));
    let mut waiting = limiter.at(&2).acquire(1);
    assert!(is_waiting(&mut waiting));
    let (count, waker) = Count::new();
    let mut drain = pin!(limiter.drain());
    assert!(!is_ready(&mut drain, &waker));
    closed(limiter.at(&1).try_acquire(1));
    closed(limiter.at(&3).try_acquire(1));
    drop(held);
    assert!(!is_ready(&mut drain, &waker));
    let before = count.get();
    drop(outcome(&mut waiting).expect("served"));
    assert!(count.get() > before && is_ready(&mut drain, &waker));
    closed(limiter.at(&2).try_acquire(1));
}

#[test]
fn a_key_is_closed_alone_even_if_there_is_no_room_for_it() {
    let clock = ManualClock::new();
    let limiter = KeyedRateLimiter::builder(bucket()).max_keys(1).clock(&clock).build();
    limiter.at(&1).try_acquire(10).expect("ready");
    let bob = limiter.at(&2);
    bob.close();
    bob.close();
    clock.advance(secs(60));
    // It is not idle, and what it is stays.
    limiter.remove_idle();
    closed(limiter.at(&2).try_acquire(1));
    closed(limiter.at(&2).try_acquire(0));
    closed(limiter.at(&2).blocking_acquire(1));
    assert!(bob.is_closed() && !limiter.is_closed() && !limiter.at(&1).is_closed());
    assert_eq!((limiter.len(), limiter.at(&2).available()), (1, 0));
}

#[test]
fn two_limiters_close_the_first_and_the_second_serves_whom_it_has_granted() {
    let clock = ManualClock::new();
    let first = RateLimiter::with_clock(Unlimited, &clock);
    let second = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 1), &clock);
    let both = first.and(&second);
    drop(outcome(&mut both.acquire(1)).expect("ready"));
    let mut waiting = both.acquire(1);
    assert!(is_waiting(&mut waiting));
    both.close();
    closed(first.try_acquire(1));
    let mut refused = both.acquire(1);
    closed(outcome(&mut refused));
    clock.advance(ms(100));
    drop(outcome(&mut waiting).expect("served"));
    clock.advance(ms(100));
    second.try_acquire(1).expect("open");
    // Closed by another: its callers are refused all the same, and give back what the first has granted.
    let places = RateLimiter::with_clock(InFlight::new(1), &clock);
    let both = places.and(&second);
    let mut waiting = both.acquire(1);
    assert!(is_waiting(&mut waiting) && places.available() == 0);
    second.close();
    closed(outcome(&mut waiting));
    assert!(both.is_closed() && places.available() == 1);
}

#[test]
fn a_feedback_waits_for_its_calls_and_closes_its_limiter_then() {
    use tollgate::feedback::Feedback;

    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 1), &clock);
    let feedback = Feedback::new(limiter.clone());
    let call = outcome(&mut feedback.acquire(1)).expect("ready");
    let mut waiting = feedback.acquire(1);
    assert!(is_waiting(&mut waiting));
    let (count, waker) = Count::new();
    let mut drain = pin!(feedback.drain());
    assert!(!is_ready(&mut drain, &waker));
    closed(outcome(&mut feedback.acquire(1)));
    clock.advance(ms(100));
    drop(call);
    let call = outcome(&mut waiting).expect("served");
    assert!(!is_ready(&mut drain, &waker) && !limiter.is_closed());
    drop(call);
    assert!(count.get() > 0 && is_ready(&mut drain, &waker) && limiter.is_closed());

    // At once: those that wait for the server, and those that wait for the limiter.
    let limiter = RateLimiter::with_clock(Unlimited, &clock);
    let feedback = Feedback::new(limiter.clone());
    let mut call = outcome(&mut feedback.acquire(1)).expect("ready");
    assert!(outcome(&mut Box::pin(call.observe(429u16, &[("retry-after", "7")]))).is_refused());
    let mut waiting = feedback.acquire(1);
    assert!(is_waiting(&mut waiting));
    feedback.close();
    closed(outcome(&mut waiting));
    closed(outcome(&mut feedback.acquire(1)));
    assert!(limiter.is_closed());
}
