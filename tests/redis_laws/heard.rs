//! What another process or an operator changes is heard within a second, however long the wait was that
//! Redis named before.

use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::{RedisGrant, RedisRateLimiter};
use tollgate::{Error, ManualClock, Rate, TokenBucket};

use crate::manual::{Manual, new_key};

type Limiter = RedisRateLimiter<TokenBucket, Manual>;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);

/// Two processes at one key, which has one permit an hour and has given it to the other process.
struct Exhausted {
    clock: ManualClock,
    server: Manual,
    ours: Limiter,
    theirs: Limiter,
    grant: RedisGrant<TokenBucket, Manual>,
}

fn now<F: Future + Unpin>(future: &mut F) -> F::Output {
    future.now_or_never().expect("it has its answer")
}

impl Exhausted {
    fn new(refresh: Option<Duration>) -> Self {
        let clock = ManualClock::new();
        clock.advance(HOUR);
        let (server, key) = (Manual::new(&clock), new_key());
        let limiter = || {
            let policy = TokenBucket::new(Rate::new(1, HOUR), 1);
            let builder = RedisRateLimiter::builder(policy, server.clone(), &*key).clock(&clock);
            match refresh {
                Some(refresh) => builder.refresh(refresh).build(),
                None => builder.build(),
            }
        };
        let (ours, theirs) = (limiter(), limiter());
        let grant = now(&mut theirs.try_acquire(1)).expect("it is full");
        Self { clock, server, ours, theirs, grant }
    }

    /// Another process or an operator makes a permit available.
    fn change(self, what: &str) -> (ManualClock, Limiter) {
        let Self { clock, server, ours, theirs, grant } = self;
        match what {
            "rate" => now(&mut Box::pin(theirs.set_rate(Rate::per_second(10.0)))).expect("set"),
            "refund" => grant.refund(),
            _ => server.lose(ours.key()),
        }
        (clock, ours)
    }
}

const CHANGES: [&str; 3] = ["rate", "refund", "key deleted"];

/// The refusal says how long the whole wait is, and counts for a second only.
#[test]
fn a_change_by_another_process_is_heard_by_callers_within_a_second() {
    for what in CHANGES {
        let exhausted = Exhausted::new(None);
        let error = now(&mut exhausted.ours.try_acquire(1)).expect_err("there is none");
        assert_eq!(error.retry_after(), Some(HOUR));
        let (clock, ours) = exhausted.change(what);
        clock.advance(SECOND);
        assert!(now(&mut ours.try_acquire(1)).is_ok(), "{what}");
    }
}

#[test]
fn a_change_by_another_process_is_heard_by_waiters_within_a_second() {
    for what in CHANGES {
        let exhausted = Exhausted::new(None);
        let mut waiter = exhausted.ours.acquire(1);
        assert!((&mut waiter).now_or_never().is_none());
        let (clock, _ours) = exhausted.change(what);
        clock.advance(SECOND);
        assert!(waiter.now_or_never().is_some_and(|answer| answer.is_ok()), "{what}");
    }
}

/// From half a second to one between two requests, and no caller loses its place by them.
#[test]
fn hearing_of_changes_costs_a_request_a_second() {
    for waits in [false, true] {
        let Exhausted { clock, ours, .. } = Exhausted::new(None);
        let mut waiter = waits.then(|| ours.acquire(1));
        for _ in 0..6_000 {
            match &mut waiter {
                Some(waiter) => assert!(waiter.now_or_never().is_none()),
                None => assert!(matches!(now(&mut ours.try_acquire(1)), Err(Error::Denied { .. }))),
            }
            clock.advance(Duration::from_millis(10));
        }
        let requests = ours.counters().requests;
        assert!((60..=120).contains(&requests), "{requests} in a minute");
    }
}

/// For programs with very many keys.
#[test]
fn refusals_are_kept_for_as_long_as_the_builder_says() {
    let exhausted = Exhausted::new(Some(100 * SECOND));
    now(&mut exhausted.ours.try_acquire(1)).expect_err("there is none");
    let (clock, ours) = exhausted.change("refund");
    clock.advance(49 * SECOND);
    now(&mut ours.try_acquire(1)).expect_err("it has not heard of it");
    clock.advance(51 * SECOND);
    assert!(now(&mut ours.try_acquire(1)).is_ok());
}
