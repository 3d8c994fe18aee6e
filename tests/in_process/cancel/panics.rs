//! Panics in the middle of the limiter's work: other waiters are not affected. Most use the
//! system's clock, whose thread must survive.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Instant;

use tollgate::state::RuleEvent;
use tollgate::{ExceedsCapacity, Nanos, Policy, Rate, RateLimiter, Ready, SmoothBursty};

use crate::support::wakers::{Count, OnWake};
use crate::support::{block_on, bursty, finishes, ms, poll_with, secs, until};

/// A bursty policy that panics when it is asked on a thread that is not its home.
#[derive(Clone)]
struct Panics {
    inner: SmoothBursty,
    home: Option<ThreadId>,
    armed: Arc<AtomicBool>,
    /// Calls that are answered before the panic.
    patience: Arc<AtomicUsize>,
    panics: Arc<AtomicUsize>,
}

impl Panics {
    fn away_from(home: Option<ThreadId>) -> Self {
        let inner = SmoothBursty::new(Rate::every(ms(20)));
        let (armed, patience, panics) = Default::default();
        Self { inner, home, armed, patience, panics }
    }

    fn look(&self) {
        if self.armed.load(Ordering::SeqCst) && self.home != Some(thread::current().id()) {
            let patience = self.patience.load(Ordering::SeqCst);
            if patience > 0 {
                self.patience.store(patience - 1, Ordering::SeqCst);
                return;
            }
            self.panics.fetch_add(1, Ordering::SeqCst);
            panic!("a policy that panics, on purpose");
        }
    }
}

impl Policy for Panics {
    type Cost = u32;
    type State = <SmoothBursty as Policy>::State;
    type Receipt = <SmoothBursty as Policy>::Receipt;

    fn start(&self, now: Nanos) -> Self::State {
        self.inner.start(now)
    }

    fn ready_at(
        &self,
        state: &Self::State,
        now: Nanos,
        cost: u32,
    ) -> Result<Ready, ExceedsCapacity> {
        self.look();
        self.inner.ready_at(state, now, cost)
    }

    fn charge(&self, state: &mut Self::State, at: Nanos, cost: u32) -> Self::Receipt {
        self.inner.charge(state, at, cost)
    }

    fn refund(
        &self,
        state: &mut Self::State,
        now: Nanos,
        part: u32,
        receipt: Self::Receipt,
    ) -> Self::Receipt {
        self.inner.refund(state, now, part, receipt)
    }

    fn event(&self, state: &mut Self::State, now: Nanos, event: RuleEvent<u32>) -> Nanos {
        self.inner.event(state, now, event)
    }

    fn migrate(&self, old: &Self, state: &mut Self::State, now: Nanos) {
        self.inner.migrate(&old.inner, state, now);
    }

    fn available(&self, state: &Self::State, now: Nanos) -> u32 {
        self.inner.available(state, now)
    }
}

/// Another limiter by the same clock still ends its waits.
#[track_caller]
fn assert_the_clock_still_runs() {
    let start = Instant::now();
    let other = RateLimiter::new(SmoothBursty::new(Rate::every(ms(10))));
    for _ in 0..3 {
        other.blocking_acquire(1).expect("a grant");
    }
    assert!(start.elapsed() >= ms(20));
}

#[test]
fn a_policy_that_panics_on_the_clocks_thread_leaves_other_limiters_working() {
    finishes(|| {
        let policy = Panics::away_from(Some(thread::current().id()));
        policy.armed.store(true, Ordering::SeqCst);
        let limiter = RateLimiter::new(policy.clone());
        limiter.try_acquire(5).expect("a new limiter grants at once");
        let (calls, waker) = Count::new();
        let mut future = limiter.acquire(1);
        assert!(poll_with(&mut future, &waker).is_pending());
        // From here on only the clock's thread touches the limiter. It wakes the waiter, which then
        // pumps the queue itself: on this thread the policy does not panic.
        until(|| calls.get() > 0);
        assert!(policy.panics.load(Ordering::SeqCst) > 0);
        assert!(block_on(future).expect("a grant").waited() > ms(0));
        assert_the_clock_still_runs();
    });
}

/// Whether a waiter on another thread, run by `wait`, met the panic: if that thread was held up, it
/// may have been granted before.
fn meets_the_panic(wait: impl FnOnce(RateLimiter<Panics>) -> bool) -> bool {
    let policy = Panics::away_from(None);
    let limiter = RateLimiter::new(policy.clone());
    limiter.try_acquire(1).expect("a new limiter grants at once");
    thread::spawn({
        let (limiter, armed) = (limiter.clone(), Arc::clone(&policy.armed));
        move || {
            until(|| limiter.queue_len() == 1 || limiter.stats().granted == 2);
            armed.store(true, Ordering::SeqCst);
        }
    });
    wait(limiter)
}

#[test]
fn a_thread_that_waits_meets_the_panic_of_its_policy() {
    finishes(|| {
        until(|| {
            meets_the_panic(|limiter| {
                catch_unwind(AssertUnwindSafe(|| limiter.blocking_acquire(1).is_ok())).is_err()
            })
        });
        assert_the_clock_still_runs();
    });
}

#[test]
fn a_task_that_waits_meets_the_panic_of_its_policy() {
    finishes(|| {
        until(|| {
            meets_the_panic(|limiter| {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                let task = runtime.spawn(async move { limiter.acquire(1).await.is_ok() });
                runtime.block_on(task).is_err()
            })
        });
        assert_the_clock_still_runs();
    });
}

#[test]
fn a_waker_that_panics_on_the_clocks_thread_leaves_other_limiters_working() {
    finishes(|| {
        let limiter = RateLimiter::new(SmoothBursty::new(Rate::every(ms(20))));
        limiter.try_acquire(5).expect("a new limiter grants at once");
        let mut future = limiter.acquire(1);
        let called = Arc::new(AtomicBool::new(false));
        let waker = OnWake::waker({
            let called = Arc::clone(&called);
            move || {
                called.store(true, Ordering::SeqCst);
                panic!("a waker that panics, on purpose");
            }
        });
        assert!(poll_with(&mut future, &waker).is_pending());
        // Not by asking the limiter, which would grant and wake on this thread.
        until(|| called.load(Ordering::SeqCst));
        assert_the_clock_still_runs();
        assert!(block_on(future).is_ok());
    });
}

/// All three are granted in one go when the fifty come back.
#[test]
fn a_waker_that_panics_does_not_keep_others_from_being_woken() {
    let (clock, limiter) = bursty(5.0);
    clock.advance(secs(1));
    let big = limiter.reserve(50).expect("a grant");
    let (calls, waker) = Count::new();
    let panics = OnWake::waker(|| panic!("a waker that panics, on purpose"));
    let mut line: Vec<_> = (0..3).map(|_| limiter.acquire(1)).collect();
    for (future, waker) in line.iter_mut().zip([&waker, &panics, &waker]) {
        assert!(poll_with(future, waker).is_pending());
    }
    drop(big);
    assert_eq!((limiter.queue_len(), calls.get()), (0, 2));
}
