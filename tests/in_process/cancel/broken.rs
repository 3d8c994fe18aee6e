//! A policy that panics once, anywhere: the caller that meets the panic gets it, and all others go on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::state::RuleEvent;
use tollgate::{
    Event, ExceedsCapacity, ManualClock, Nanos, Policy, Rate, RateLimiter, Ready, TokenBucket,
};

use crate::support::{is_waiting, ms, outcome, secs};

/// The n-th call of a method panics, if n is not zero; or all do.
#[derive(Clone, Default)]
struct Countdown(Arc<AtomicUsize>);

const ALL: usize = usize::MAX;

impl Countdown {
    fn set(&self, calls: usize) {
        self.0.store(calls, Ordering::SeqCst);
    }

    fn count(&self) {
        let left = self.0.load(Ordering::SeqCst);
        if left != ALL {
            self.0.store(left.saturating_sub(1), Ordering::SeqCst);
        }
        assert!(left != 1 && left != ALL, "a policy that panics, on purpose");
    }
}

#[derive(Clone)]
struct Broken {
    inner: TokenBucket,
    ready_at: Countdown,
    charge: Countdown,
    refund: Countdown,
    idle_at: Countdown,
}

impl Broken {
    /// One permit, and one more every 200 ms.
    fn new() -> Self {
        let inner = TokenBucket::new(Rate::per_second(5.0), 1);
        let [ready_at, charge, refund, idle_at] = Default::default();
        Self { inner, ready_at, charge, refund, idle_at }
    }
}

impl Policy for Broken {
    type Cost = u32;
    type State = <TokenBucket as Policy>::State;
    type Receipt = <TokenBucket as Policy>::Receipt;

    fn start(&self, now: Nanos) -> Self::State {
        self.inner.start(now)
    }

    fn event(&self, state: &mut Self::State, now: Nanos, event: RuleEvent<u32>) -> Nanos {
        self.inner.event(state, now, event)
    }

    fn idle_at(&self, state: &Self::State) -> Option<Nanos> {
        self.idle_at.count();
        self.inner.idle_at(state)
    }

    fn ready_at(
        &self,
        state: &Self::State,
        now: Nanos,
        cost: u32,
    ) -> Result<Ready, ExceedsCapacity> {
        self.ready_at.count();
        self.inner.ready_at(state, now, cost)
    }

    fn charge(&self, state: &mut Self::State, at: Nanos, cost: u32) -> Self::Receipt {
        self.charge.count();
        self.inner.charge(state, at, cost)
    }

    fn refund(
        &self,
        state: &mut Self::State,
        now: Nanos,
        part: u32,
        receipt: Self::Receipt,
    ) -> Self::Receipt {
        self.refund.count();
        self.inner.refund(state, now, part, receipt)
    }

    fn migrate(&self, old: &Self, state: &mut Self::State, now: Nanos) {
        self.inner.migrate(&old.inner, state, now);
    }

    fn available(&self, state: &Self::State, now: Nanos) -> u32 {
        self.inner.available(state, now)
    }
}

/// A limiter that has nothing left.
fn emptied() -> (ManualClock, RateLimiter<Broken>, Broken) {
    let (clock, policy) = (ManualClock::new(), Broken::new());
    let limiter = RateLimiter::with_clock(policy.clone(), &clock);
    limiter.try_acquire(1).expect("full at first");
    (clock, limiter, policy)
}

fn panics<R>(act: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}

/// It hears of a grant before the caller has it.
#[test]
fn a_listener_that_panics_costs_a_caller_that_blocks_or_waits_no_permits() {
    let refusing = |event: &Event| panic!("a listener that panics, on purpose: {event:?}");
    let policy = TokenBucket::new(Rate::per_second(10.0), 10).initial(0);
    let builder = RateLimiter::builder(policy).clock(ManualClock::auto_advance());
    let limiter = builder.slow_wait(Duration::ZERO).on_event(refusing).build();
    assert!(panics(|| drop(limiter.blocking_acquire(5))));
    assert_eq!(limiter.available(), 5);
    assert!(panics(|| _ = outcome(&mut limiter.acquire(9))));
    assert_eq!(limiter.available(), 9);
    assert!(limiter.try_acquire(9).is_ok());
}

/// The policy panics over the waiters in front while a caller is polled.
#[test]
fn a_future_whose_poll_panicked_removes_no_other_waiter() {
    for at in 1..4 {
        let (clock, limiter, policy) = emptied();
        let mut line: Vec<_> = (0..4).map(|_| limiter.acquire(1)).collect();
        assert!(line.iter_mut().all(is_waiting));
        clock.advance(ms(200));
        assert_eq!(limiter.queue_len(), 3);
        // One that is granted takes its grant, and asks the policy nothing.
        policy.ready_at.set(1);
        assert!(outcome(&mut line.remove(0)).is_ok(), "{at}");
        policy.ready_at.set(at);
        let mut second = line.remove(1);
        assert!(panics(|| is_waiting(&mut second)), "{at}");
        policy.ready_at.set(0);
        drop(second);
        assert_eq!(limiter.queue_len(), 2, "{at}");
        clock.advance(secs(1));
        assert!(line.iter_mut().all(|future| outcome(future).is_ok()), "{at}");
    }
}

/// A second panic while the first one unwinds would end the process.
#[test]
fn a_refund_that_panics_while_another_panic_unwinds_does_not_end_the_process() {
    let (clock, limiter, policy) = emptied();
    clock.advance(ms(200));
    let granted = limiter.reserve(1).expect("a place");
    let (mut waiting, mut second) = (limiter.acquire_owned(1), limiter.acquire_owned(1));
    assert!(is_waiting(&mut waiting) && is_waiting(&mut second));
    clock.advance(ms(200));
    let unwinding = thread::spawn(move || {
        let _dropped = (granted, waiting);
        policy.refund.set(1);
        panic!("on purpose");
    });
    assert!(unwinding.join().is_err());
    clock.advance(secs(10));
    assert!(outcome(&mut second).is_ok());
}
