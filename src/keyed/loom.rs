//! A key that may go while callers come to it: it is neither lost with what it remembers, nor there twice.

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use loom::thread;

use super::KeyedRateLimiter;
use crate::clock::Clock;
use crate::policy::Policy;
use crate::policy::in_flight::InFlight;
use crate::policy::sliding_window::SlidingWindowLog;
use crate::policy::token_bucket::TokenBucket;
use crate::units::{Nanos, Rate};

type Keyed<P> = KeyedRateLimiter<u8, P>;

const KEY: u8 = 7;
const HOUR: Duration = Duration::from_secs(3_600);

fn keyed<P: Policy>(policy: P) -> Keyed<P> {
    let clock = Clock::read_by(|| Nanos::new(1_000));
    KeyedRateLimiter::builder(policy).clock(clock).build()
}

/// One permit, and the next one in an hour.
fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::every(HOUR), 1)
}

fn check<P: Policy>(policy: fn() -> P, model: impl Fn(&Keyed<P>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || model(&keyed(policy())));
}

/// Runs on another thread.
fn aside<P: Policy, R: 'static>(
    limiter: &Keyed<P>,
    act: impl FnOnce(&Keyed<P>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let limiter = limiter.clone();
    thread::spawn(move || act(&limiter))
}

fn take<P: Policy<Cost = u32>>(limiter: &Keyed<P>) -> u32 {
    u32::from(limiter.at(&KEY).try_acquire(1).is_ok())
}

/// Two callers and a sweep come to an idle key that has one permit.
fn an_idle_key_is_charged_once<P: Policy<Cost = u32>>(policy: fn() -> P) {
    check(policy, |limiter| {
        limiter.at(&KEY).try_acquire(1).expect("it is new").refund();
        let (sweeps, takes) = (aside(limiter, Keyed::remove_idle), aside(limiter, take));
        let taken = take(limiter) + takes.join().expect("no panic");
        sweeps.join().expect("no panic");
        assert_eq!((taken, take(limiter), limiter.len()), (1, 0, 1));
    });
}

#[test]
fn an_idle_key_that_goes_is_charged_once() {
    an_idle_key_is_charged_once(bucket);
}

/// By a record.
#[test]
fn an_idle_key_with_a_record_is_charged_once() {
    an_idle_key_is_charged_once(|| SlidingWindowLog::new(1, HOUR));
}

#[test]
fn a_grant_is_given_back_although_its_key_may_go() {
    check(bucket, |limiter| {
        let sweeps = aside(limiter, Keyed::remove_idle);
        let refunds = aside(limiter, |limiter| {
            if let Ok(grant) = limiter.at(&KEY).try_acquire(1) {
                grant.refund();
            }
        });
        let taken = take(limiter);
        sweeps.join().expect("no panic");
        refunds.join().expect("no panic");
        assert_eq!(limiter.at(&KEY).available(), 1 - taken);
    });
}

#[test]
fn a_caller_that_waits_and_leaves_keeps_the_debt_of_its_key() {
    check(bucket, |limiter| {
        assert_eq!(take(limiter), 1);
        let sweeps = aside(limiter, Keyed::remove_idle);
        let waits = aside(limiter, |limiter| {
            let acquire = pin!(limiter.at(&KEY).acquire(1));
            assert!(acquire.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        });
        assert_eq!(take(limiter), 0);
        sweeps.join().expect("no panic");
        waits.join().expect("no panic");
        assert_eq!((limiter.remove_idle(), limiter.at(&KEY).available(), limiter.len()), (0, 0, 1));
    });
}

#[test]
fn a_place_of_a_key_that_may_go_is_held_once_and_comes_back() {
    check(
        || InFlight::new(1),
        |limiter| {
            let sweeps = aside(limiter, Keyed::remove_idle);
            let holds = aside(limiter, |limiter| {
                limiter.at(&KEY).try_acquire(1).map(|grant| grant.into_owned())
            });
            let mut acquire = pin!(limiter.at(&KEY).acquire(1));
            let context = &mut Context::from_waker(Waker::noop());
            let mut mine = acquire.as_mut().poll(context);
            sweeps.join().expect("no panic");
            let other = holds.join().expect("no panic");
            assert!(mine.is_ready() != other.is_ok(), "one of the two holds the place");
            drop(other);
            if mine.is_pending() {
                mine = acquire.as_mut().poll(context);
            }
            assert!(mine.is_ready(), "the place has not come back");
            assert_eq!(limiter.remove_idle(), 0);
            drop(mine);
            assert_eq!(
                (limiter.at(&KEY).available(), limiter.remove_idle(), limiter.len()),
                (1, 1, 0)
            );
        },
    );
}
