//! Places in flight: what callers that wait for one are told, and when one comes back. The ways in which a call ends are in
//! `tests/faces/laws/grants.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::state::RuleEvent;
use tollgate::{
    Error, ExceedsCapacity, InFlight, ManualClock, Nanos, Policy, Rate, RateLimiter, Ready, Same,
    TokenBucket,
};

use crate::support::{finishes, is_waiting, ms, outcome, secs};

fn at_most(max: u32) -> (ManualClock, RateLimiter<InFlight>) {
    let clock = ManualClock::new();
    (clock.clone(), RateLimiter::with_clock(InFlight::new(max), clock))
}

const NANOSECOND: Duration = Duration::from_nanos(1);

#[track_caller]
fn assert_wait_is_unknown<T>(result: Result<T, Error>) {
    let error = result.err().expect("a refusal");
    assert!(matches!(error, Error::Denied { retry_after: None, part: None, .. }), "{error:?}");
}

/// The one ahead takes the next token, however late it gets its place.
#[test]
fn a_timed_call_is_refused_at_once_if_the_token_behind_the_one_that_waits_comes_too_late() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 1);
    let limiter = RateLimiter::with_clock(Same((InFlight::new(1), bucket)), &clock);
    let _place = limiter.try_acquire(1).expect("free");
    let _ahead = limiter.reserve(1).expect("a place in the queue");
    for _ in 0..3 {
        clock.advance(secs(10));
        let mut late = limiter.try_acquire_timeout(1, secs(1) - NANOSECOND);
        assert!(outcome(&mut late).is_err());
    }
    assert!(is_waiting(&mut limiter.try_acquire_timeout(1, secs(1))));
}

#[test]
fn by_a_clock_that_moves_itself_a_timed_call_ends_at_its_deadline() {
    finishes(|| {
        let clock = ManualClock::auto_advance();
        let limiter = RateLimiter::with_clock(InFlight::new(1), clock.clone());
        let place = limiter.blocking_acquire(1).expect("free");
        assert_wait_is_unknown(limiter.try_acquire_timeout(1, secs(5)).blocking_wait());
        assert_eq!(clock.elapsed(), secs(5));
        assert_wait_is_unknown(outcome(&mut limiter.try_acquire_timeout(1, ms(1))));
        assert_eq!(clock.elapsed(), secs(5) + ms(1));
        // A waiter without a deadline gives the clock no time to move to.
        let mut patient = limiter.acquire(1);
        assert!(is_waiting(&mut patient));
        assert_eq!(clock.elapsed(), secs(5) + ms(1));
        drop(place);
        assert!(outcome(&mut patient).is_ok());
    });
}

#[test]
fn a_delay_is_at_least_the_known_wait() {
    let (_, limiter) = at_most(1);
    let place = limiter.try_acquire(1).expect("free");
    let waiting = limiter.reserve(1).expect("a place in the queue");
    assert_eq!(waiting.delay(), Duration::ZERO);
    limiter.pause_for(secs(10));
    assert_eq!(waiting.delay(), secs(10));
    drop(place);
    assert_eq!(waiting.delay(), secs(10));
}

#[test]
fn a_place_never_comes_back_by_a_grant_that_is_forgotten() {
    let (clock, limiter) = at_most(3);
    std::mem::forget(limiter.try_acquire(2).expect("free"));
    clock.advance(secs(1_000_000));
    assert_eq!((limiter.available(), limiter.quota().reset_after), (1, None));
    let mut waiting = limiter.acquire(1);
    drop(outcome(&mut waiting).expect("the one that is left"));
    assert!(limiter.try_acquire(2).is_err());
}

/// A place of which a rule remembers when it came back.
#[derive(Clone, Debug)]
struct Remembers(Arc<AtomicU64>);

impl Policy for Remembers {
    type Cost = u32;
    type State = u32;
    type Receipt = ();
    const HELD: bool = true;

    fn start(&self, _: Nanos) -> u32 {
        0
    }

    fn idle_at(&self, out: &u32) -> Option<Nanos> {
        (*out == 0).then_some(Nanos::ZERO)
    }

    fn ready_at(&self, out: &u32, now: Nanos, _: u32) -> Result<Ready, ExceedsCapacity> {
        Ok(if *out == 0 { Ready::At(Nanos::ZERO) } else { Ready::NotBefore(now) })
    }

    fn charge(&self, out: &mut u32, _: Nanos, _: u32) {
        *out = 1;
    }

    fn event(&self, out: &mut u32, now: Nanos, event: RuleEvent<u32>) -> Nanos {
        if let RuleEvent::Released(_) = event {
            *out = 0;
            self.0.store(now.get(), Ordering::SeqCst);
        }
        now
    }

    fn migrate(&self, _: &Self, _: &mut u32, _: Nanos) {}

    fn available(&self, out: &u32, _: Nanos) -> u32 {
        1 - out
    }
}

#[test]
fn a_place_comes_back_at_the_time_at_which_its_grant_is_dropped() {
    let (clock, last) = (ManualClock::new(), Arc::<AtomicU64>::default());
    let limiter = RateLimiter::with_clock(Remembers(Arc::clone(&last)), &clock);
    for second in 1..4 {
        let place = limiter.try_acquire(1).expect("free");
        clock.advance(secs(1));
        drop(place);
        assert_eq!(last.load(Ordering::SeqCst), second * 1_000_000_000);
    }
}
