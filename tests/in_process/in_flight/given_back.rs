//! All the ways in which a call ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use futures::future::{Either, pending, select};
use futures::poll;
use tollgate::state::RuleEvent;
use tollgate::{ExceedsCapacity, InFlight, ManualClock, Nanos, Policy, RateLimiter, Ready};

use super::at_most;
use crate::support::{finishes, is_waiting, ms, outcome, paused, secs};

#[test]
fn after_an_await_during_which_it_is_held() {
    finishes(|| {
        paused().block_on(async {
            let (_, limiter) = at_most(1);
            let call = async {
                let _place = limiter.acquire(1).await.expect("free");
                tokio::time::sleep(secs(5)).await;
            };
            let mut call = std::pin::pin!(call);
            assert!(poll!(call.as_mut()).is_pending());
            assert_eq!(limiter.available(), 0);
            call.await;
            assert_eq!(limiter.available(), 1);
        });
    });
}

#[test]
fn when_a_panic_unwinds() {
    let (_, limiter) = at_most(2);
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _place = limiter.try_acquire(2).expect("free");
        panic!("a call that panics, on purpose");
    }));
    assert!(result.is_err());
    assert_eq!(limiter.available(), 2);
}

#[test]
fn when_a_panic_unwinds_to_waiters() {
    let (_, limiter) = at_most(1);
    let place = limiter.try_acquire(1).expect("free");
    let mut next = limiter.acquire(1);
    assert!(is_waiting(&mut next));
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _place = place;
        panic!("a call that panics, on purpose");
    }));
    assert!(result.is_err());
    assert!(outcome(&mut next).is_ok());
}

#[test]
fn when_a_task_panics() {
    finishes(|| {
        paused().block_on(async {
            let (_, limiter) = at_most(2);
            let held = limiter.acquire_owned(1).await.expect("free");
            let inside = limiter.clone();
            let task = tokio::spawn(async move {
                let _held = held;
                let _place = inside.acquire(1).await.expect("free");
                assert_eq!(inside.available(), 0);
                panic!("a call that panics, on purpose");
            });
            assert!(task.await.expect_err("a panic").is_panic());
            assert_eq!(limiter.available(), 2);
        });
    });
}

/// By `select`, a timeout, and an abort: first while the place is held, then while it is awaited.
#[test]
fn when_the_future_that_holds_it_is_cancelled() {
    finishes(|| {
        paused().block_on(async {
            let (_, limiter) = at_most(1);
            let call = |limiter: RateLimiter<InFlight>| async move {
                let _place = limiter.acquire(1).await.expect("free");
                pending::<()>().await;
            };

            let timeout = tokio::time::timeout(ms(100), call(limiter.clone()));
            assert!(timeout.await.is_err());
            assert_eq!(limiter.available(), 1);

            let sleep = Box::pin(tokio::time::sleep(ms(100)));
            let calling = Box::pin(call(limiter.clone()));
            let Either::Right(((), calling)) = select(calling, sleep).await else {
                panic!("it never ends");
            };
            assert_eq!(limiter.available(), 0);
            drop(calling);
            assert_eq!(limiter.available(), 1);

            let task = tokio::spawn(call(limiter.clone()));
            tokio::task::yield_now().await;
            assert_eq!(limiter.available(), 0);
            let waiting = tokio::spawn(call(limiter.clone()));
            tokio::task::yield_now().await;
            assert_eq!(limiter.queue_len(), 1);
            waiting.abort();
            assert!(waiting.await.expect_err("aborted").is_cancelled());
            assert_eq!((limiter.queue_len(), limiter.available()), (0, 0));
            task.abort();
            assert!(task.await.expect_err("aborted").is_cancelled());
            assert_eq!(limiter.available(), 1);
        });
    });
}

#[test]
fn by_a_task_and_by_a_thread_of_its_own() {
    finishes(|| {
        paused().block_on(async {
            let (_, limiter) = at_most(3);
            let owned = limiter.acquire_owned(1).await.expect("free");
            let borrowed = limiter.acquire(2).await.expect("free").into_owned();
            assert_eq!(limiter.available(), 0);
            tokio::spawn(async move { drop(owned) }).await.expect("no panic");
            assert_eq!(limiter.available(), 1);
            thread::spawn(move || drop(borrowed)).join().expect("no panic");
            assert_eq!(limiter.available(), 3);
        });
    });
}

#[test]
fn after_its_limiter_has_gone() {
    let (_, limiter) = at_most(1);
    let owned = limiter.try_acquire(1).expect("free").into_owned();
    drop(limiter);
    assert_eq!(owned.quota().remaining, 0);
    drop(owned);
}

#[test]
fn never_by_one_that_is_forgotten() {
    let (clock, limiter) = at_most(3);
    std::mem::forget(limiter.try_acquire(2).expect("free"));
    clock.advance(secs(1_000_000));
    assert_eq!((limiter.available(), limiter.quota().reset_after), (1, None));
    let mut waiting = limiter.acquire(1);
    drop(outcome(&mut waiting).expect("the one that is left"));
    assert!(limiter.try_acquire(2).is_err());
}

/// A place of which a rule remembers when it came back.
#[derive(Clone)]
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
fn at_the_time_at_which_it_is_dropped() {
    let (clock, last) = (ManualClock::new(), Arc::<AtomicU64>::default());
    let limiter = RateLimiter::with_clock(Remembers(Arc::clone(&last)), &clock);
    for second in 1..4 {
        let place = limiter.try_acquire(1).expect("free");
        clock.advance(secs(1));
        drop(place);
        assert_eq!(last.load(Ordering::SeqCst), second * 1_000_000_000);
    }
}
