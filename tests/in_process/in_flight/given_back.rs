//! All the ways in which a call ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use futures::future::{Either, pending, select};
use futures::poll;
use tollgate::state::RuleEvent;
use tollgate::{
    ExceedsCapacity, InFlight, LockOut, ManualClock, Nanos, Policy, RateLimiter, Ready, Same,
};

use super::at_most;
use crate::support::{block_on, finishes, is_waiting, ms, outcome, paused, secs};

#[test]
fn when_it_is_dropped_and_not_before() {
    let (clock, limiter) = at_most(3);
    let one = limiter.try_acquire(1).expect("free");
    let two = limiter.try_acquire(2).expect("free");
    clock.advance(secs(1_000_000));
    assert_eq!(limiter.available(), 0);
    assert!(limiter.try_acquire(1).is_err());
    drop(two);
    assert_eq!(limiter.available(), 2);
    drop(one);
    assert_eq!(limiter.available(), 3);
}

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

/// The borrowed half of it has nothing left to give back.
#[test]
fn once_by_a_grant_that_was_made_an_owned_one() {
    let (_, limiter) = at_most(5);
    let other = limiter.try_acquire(2).expect("free");
    let owned = limiter.try_acquire(3).expect("free").into_owned().into_owned();
    assert_eq!((limiter.available(), owned.cost()), (0, 3));
    drop(owned);
    assert_eq!(limiter.available(), 3);
    drop(other);
    assert_eq!(limiter.available(), 5);
}

#[test]
fn after_its_limiter_has_gone() {
    let (_, limiter) = at_most(1);
    let owned = limiter.try_acquire(1).expect("free").into_owned();
    drop(limiter);
    assert_eq!(owned.quota().remaining, 0);
    drop(owned);
}

/// With others out all the time: twice given back would show as one place too many.
#[test]
fn once_by_a_refund_and_a_settled_grant() {
    let (_, limiter) = at_most(10);
    let _others = limiter.try_acquire(5).expect("free");
    let take = |n| limiter.try_acquire(n).expect("free");

    take(4).refund();
    assert_eq!(limiter.available(), 5);
    take(4).into_owned().refund();
    assert_eq!(limiter.available(), 5);
    drop(take(4));
    assert_eq!(limiter.available(), 5);

    let mut grant = take(4);
    for (actual, left) in [(1, 4), (3, 2), (0, 5), (5, 0), (9, 0), (2, 3), (4, 1)] {
        grant.settle(actual).expect("a count");
        assert_eq!((limiter.available(), grant.cost()), (left, actual));
    }
    drop(grant);
    assert_eq!(limiter.available(), 5);

    for actual in [0, 1, 4, 5, 50] {
        let mut grant = take(4);
        grant.settle(actual).expect("a count");
        grant.refund();
        assert_eq!(limiter.available(), 5, "settled to {actual}");
        let mut grant = take(4).into_owned();
        grant.settle(actual).expect("a count");
        drop(grant);
        assert_eq!(limiter.available(), 5, "settled to {actual}");
    }
}

#[test]
fn by_a_future_that_was_granted_and_never_polled_again() {
    let (_, limiter) = at_most(2);
    let place = limiter.try_acquire(2).expect("free");
    let mut future = limiter.acquire(2);
    assert!(is_waiting(&mut future));
    drop(place);
    // The future has been granted its permits but has not been polled.
    assert_eq!((limiter.queue_len(), limiter.available()), (0, 0));
    let mut next = limiter.acquire(1);
    assert!(is_waiting(&mut next));
    drop(future);
    drop(outcome(&mut next).expect("given back"));
    assert_eq!(limiter.available(), 2);
}

#[test]
fn by_a_reservation_that_is_not_used() {
    let (_, limiter) = at_most(2);
    let granted = limiter.reserve(2).expect("free");
    let waiting = limiter.reserve(1).expect("a place in the queue");
    drop(waiting);
    assert_eq!((limiter.queue_len(), limiter.available()), (0, 0));
    drop(granted);
    assert_eq!(limiter.available(), 2);
    // And by one that is.
    drop(limiter.reserve(2).expect("free").blocking_wait().expect("a grant"));
    assert_eq!(limiter.available(), 2);
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

/// A cost of nothing has no place to give back.
#[test]
fn nothing_by_nothing() {
    let (_, limiter) = at_most(1);
    let _place = limiter.try_acquire(1).expect("free");
    drop(limiter.try_acquire(0).expect("nothing"));
    limiter.try_acquire(0).expect("nothing").refund();
    drop(limiter.try_acquire(0).expect("nothing").into_owned());
    assert_eq!(limiter.available(), 0);
}

#[test]
fn inside_other_rules_too() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(LockOut::new(InFlight::new(2), secs(1)), clock.clone());
    drop(limiter.try_acquire(2).expect("free").into_owned());
    limiter.try_acquire(2).expect("free").refund();
    assert_eq!(limiter.available(), 2);
    let limiter = RateLimiter::with_clock([InFlight::new(2), InFlight::new(3)], clock.clone());
    drop(limiter.try_acquire(2).expect("free").into_owned());
    limiter.try_acquire(2).expect("free").refund();
    assert_eq!(limiter.available(), 2);
    let limiter = RateLimiter::with_clock(Same((InFlight::new(3), InFlight::new(2))), clock);
    drop(limiter.try_acquire(2).expect("free").into_owned());
    limiter.try_acquire(2).expect("free").refund();
    assert_eq!(limiter.available(), 2);
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

/// By the system's clock, a thousand calls on each of eight threads; half of them wait as futures.
#[test]
fn eight_threads_are_never_more_than_three_at_once() {
    finishes(|| {
        let limiter = RateLimiter::new(InFlight::new(3));
        let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for number in 0..8 {
                let (limiter, at_once, most) = (limiter.clone(), &at_once, &most);
                scope.spawn(move || {
                    for _ in 0..1000 {
                        let place = if number % 2 == 0 {
                            limiter.blocking_acquire(1)
                        } else {
                            block_on(limiter.acquire(1))
                        };
                        let place = place.expect("a grant");
                        most.fetch_max(
                            1 + at_once.fetch_add(1, Ordering::SeqCst),
                            Ordering::SeqCst,
                        );
                        thread::yield_now();
                        at_once.fetch_sub(1, Ordering::SeqCst);
                        drop(place);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 3, "{most:?}");
        assert_eq!((limiter.available(), limiter.queue_len()), (3, 0));
        assert_eq!(limiter.stats().granted, 8000);
    });
}
