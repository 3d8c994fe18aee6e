//! Callers that enter ahead of others, and what else happens meanwhile: changes, pauses, departures, crowds.

use std::time::Duration;

use tollgate::{
    Error, KeyedRateLimiter, ManualClock, Rate, RateLimiter, SmoothBursty, TokenBucket, block_on,
};

use crate::support::{is_waiting, ms, outcome, poll, secs};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn callers_ahead_keep_their_order_in_a_pause_that_ends_early() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(TokenBucket::new(Rate::per_second(10.0), 10), &clock);
    limiter.try_acquire(10).expect("a full bucket");
    limiter.pause_for(MINUTE);
    let mut batch = limiter.acquire(1);
    let mut timed = limiter.try_acquire_timeout(1, 2 * MINUTE);
    assert!(is_waiting(&mut batch) && is_waiting(&mut timed));
    let mut urgent = limiter.acquire(1).ahead_by(secs(1));
    let mut first = limiter.acquire(3).ahead_by(secs(2));
    assert!(is_waiting(&mut urgent) && is_waiting(&mut first));
    let now = limiter.try_acquire_timeout(1, Duration::ZERO).ahead_by(MINUTE);
    assert!(now.blocking_wait().is_err(), "a pause");
    limiter.resume();
    clock.advance(ms(600));
    let calls = [&mut first, &mut urgent, &mut batch, &mut timed];
    let waits = calls.map(|call| outcome(call).expect("a grant").waited());
    assert_eq!(waits, [ms(300), ms(400), ms(500), ms(600)]);
}

/// A key that no caller waits for is a state without a line.
#[test]
fn a_key_that_becomes_idle_and_busy_again_keeps_no_trace_of_callers_ahead() {
    let clock = ManualClock::new();
    let policy = TokenBucket::new(Rate::per_second(10.0), 1);
    let limiter = KeyedRateLimiter::<String, _>::with_clock(policy, &clock);
    for _ in 0..3 {
        limiter.at("alice").try_acquire(1).expect("a full bucket");
        let mut batch = limiter.at("alice").acquire(1);
        assert!(is_waiting(&mut batch));
        let urgent =
            block_on(limiter.at("alice").acquire(1).ahead_by(MINUTE).reserve()).expect("a place");
        let mut another = limiter.at("alice").acquire(1).ahead_by(Duration::MAX);
        assert!(is_waiting(&mut another));
        drop(urgent);
        clock.advance(ms(200));
        assert_eq!(outcome(&mut another).expect("a grant").waited(), ms(100));
        assert_eq!(outcome(&mut batch).expect("a grant").waited(), ms(200));
        clock.advance(MINUTE);
        limiter.remove_idle();
        assert_eq!(limiter.len(), 0);
    }
}

/// Each caller that is overtaken waits at most as long as a FIFO queue lets one wait that comes `d` later, whatever
/// the callers ahead do: they leave, come in crowds and with larger requests.
#[test]
fn no_waiter_is_granted_later_than_fifo_grants_one_that_comes_later_by_d() {
    let d = secs(2);
    for seed in 0..200_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let (clock, limiter) = evenly(10.0);
        let (twin_clock, twin) = evenly(10.0);
        let mut overtaken = limiter.acquire(1);
        assert!(is_waiting(&mut overtaken));
        let mut kept = Vec::new();
        let mut kept_twin = Vec::new();
        // In the twin the same callers come, all in FIFO order, and this one at last.
        for _ in 0..20 {
            for _ in 0..next(4) {
                let n = u32::try_from(next(3)).expect("small") + 1;
                let ahead = ms(next(2_000));
                let mut caller = limiter.acquire_owned(n).ahead_by(ahead);
                let _ = poll(&mut caller);
                let mut other = twin.acquire_owned(n);
                let _ = poll(&mut other);
                if next(4) > 0 {
                    kept.push(caller);
                    kept_twin.push(other);
                }
            }
            clock.advance(ms(100));
            twin_clock.advance(ms(100));
        }
        let mut last = twin.acquire(1);
        let _ = poll(&mut last);
        clock.advance(MINUTE);
        twin_clock.advance(MINUTE);
        let waited = outcome(&mut overtaken).expect("a grant").waited();
        let bound = d + outcome(&mut last).expect("a grant").waited();
        assert!(waited <= bound, "seed {seed}: {waited:?} > {bound:?}");
        assert_eq!(limiter.queue_len(), 0);
    }
}

#[test]
fn a_full_queue_of_large_requests_does_not_refuse_a_caller_ahead_that_need_not_wait() {
    let clock = ManualClock::new();
    let builder = RateLimiter::builder(TokenBucket::new(Rate::per_second(10.0), 50));
    let limiter = builder.clock(&clock).max_waiters(1).build();
    limiter.try_acquire(50).expect("a full bucket");
    let big = limiter.reserve(50).expect("a place");
    clock.advance(secs(1));
    assert!(matches!(limiter.reserve(1), Err(Error::QueueFull { .. })));
    let mut urgent = limiter.acquire(4).ahead_by(MINUTE);
    assert_eq!(outcome(&mut urgent).expect("10 are there").waited(), Duration::ZERO);
    // With 6 there, 7 would have to wait: there is no place.
    let mut urgent = limiter.acquire(7).ahead_by(MINUTE);
    assert!(matches!(outcome(&mut urgent), Err(Error::QueueFull { .. })));
    assert_eq!(big.delay(), ms(4_400));
}

fn evenly(per_second: f64) -> (ManualClock, RateLimiter<SmoothBursty>) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::evenly_spaced(Rate::per_second(per_second));
    let limiter = RateLimiter::with_clock(policy, &clock);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    (clock, limiter)
}
