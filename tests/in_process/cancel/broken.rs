//! A policy that panics once, anywhere: the caller that meets the panic gets it, and all others go on.

use std::hash::{BuildHasherDefault, DefaultHasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::{
    Event, ExceedsCapacity, KeyedRateLimiter, ManualClock, Nanos, Policy, Rate, RateLimiter, Ready,
    TokenBucket,
};

use crate::support::wakers::Count;
use crate::support::{is_waiting, ms, outcome, poll_with, secs};

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

    fn idle(&self, now: Nanos) -> Self::State {
        self.inner.idle(now)
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
    for at in 1..3 {
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
        let panicked = panics(|| is_waiting(&mut second));
        assert_eq!(panicked, at < 2, "{at}");
        policy.ready_at.set(0);
        drop(second);
        assert_eq!(limiter.queue_len(), 2, "{at}");
        clock.advance(secs(1));
        assert!(line.iter_mut().all(|future| outcome(future).is_ok()), "{at}");
    }
}

#[test]
fn a_panic_while_a_caller_joins_leaves_no_place_without_an_owner() {
    // One that joins ahead of the first is asked for as the next one, too.
    for (ahead, asked, at) in [(0, 1, 1), (0, 1, 2), (1, 2, 1), (1, 2, 2), (1, 2, 3)] {
        let (clock, limiter, policy) = emptied();
        let mut first = limiter.acquire(1);
        assert!(is_waiting(&mut first));
        policy.ready_at.set(at);
        let mut second = limiter.acquire(1).ahead_by(secs(ahead));
        let panicked = panics(|| is_waiting(&mut second));
        policy.ready_at.set(0);
        drop(second);
        assert_eq!(limiter.queue_len(), 1, "{at}");
        assert_eq!(panicked, at <= asked, "{ahead} {at}");
        policy.ready_at.set(at);
        let reservation = panics(|| drop(limiter.reserve(1)));
        policy.ready_at.set(0);
        assert_eq!(limiter.queue_len(), 1, "{at} {reservation}");
        clock.advance(ms(200));
        assert!(outcome(&mut first).is_ok(), "{at}");
    }
}

/// The panic is on the thread of its caller, and the alarm fires for the next waiter.
#[test]
fn waiters_granted_before_a_panic_are_woken_and_the_others_are_granted_in_their_turn() {
    let (clock, limiter, policy) = emptied();
    let (calls, waker) = Count::new();
    let mut line: Vec<_> = (0..3).map(|_| limiter.acquire(1)).collect();
    for future in &mut line {
        assert!(poll_with(future, &waker).is_pending());
    }
    // Over the first, then over the second.
    policy.ready_at.set(2);
    assert!(panics(|| clock.advance(ms(200))));
    assert_eq!(calls.get(), 1);
    // From here on only the clock touches the limiter.
    clock.advance(secs(10));
    assert_eq!(calls.get(), 3);
    assert!(line.iter_mut().all(|future| outcome(future).is_ok()));
}

#[test]
fn a_charge_that_panics_loses_no_waiter() {
    let (clock, limiter, policy) = emptied();
    let mut line: Vec<_> = (0..3).map(|_| limiter.acquire(1)).collect();
    assert!(line.iter_mut().all(is_waiting));
    policy.charge.set(1);
    assert!(panics(|| clock.advance(ms(200))));
    assert_eq!(limiter.queue_len(), 2);
    clock.advance(secs(10));
    assert!(line.iter_mut().all(|future| outcome(future).is_ok()));
    assert_eq!((limiter.queue_len(), limiter.stats().granted), (0, 4));
}

/// When the queue moves next is not known then.
#[test]
fn a_queue_over_which_the_policy_panicked_is_looked_at_again_a_second_later() {
    let (clock, limiter, policy) = emptied();
    let (calls, waker) = Count::new();
    let mut waiting = limiter.acquire(1);
    assert!(poll_with(&mut waiting, &waker).is_pending());
    policy.ready_at.set(ALL);
    assert!(panics(|| clock.advance(ms(200))));
    policy.ready_at.set(0);
    clock.advance(ms(999));
    assert_eq!(calls.get(), 0);
    clock.advance(ms(1));
    assert_eq!(calls.get(), 1);
    assert_eq!(outcome(&mut waiting).expect("a grant").waited(), ms(1_200));
}

#[test]
fn what_a_panic_kept_from_coming_back_comes_with_the_next_call_or_never() {
    let (_clock, limiter, policy) = emptied();
    for (again, left) in [(0, 1), (1, 0)] {
        limiter.reset();
        let grant = limiter.try_acquire(1).expect("full");
        policy.refund.set(1);
        assert!(panics(|| grant.refund()), "its caller meets the panic");
        // Over the next call, which is not its caller's: it is not tried a third time.
        policy.refund.set(again);
        assert_eq!(limiter.would_wait(0), Ok(Some(ms(0))));
        policy.refund.set(0);
        assert_eq!(limiter.available(), left);
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

#[test]
fn a_panic_over_an_idle_key_costs_no_room_for_others() {
    const KEYS: u64 = 3_000;
    let (clock, policy) = (ManualClock::new(), Broken::new());
    let limiter = KeyedRateLimiter::<u64, _>::builder(policy.clone())
        .clock(&clock)
        .max_keys(usize::try_from(KEYS).expect("small"))
        .build();
    for round in 0..4 {
        for key in 0..KEYS {
            // Now and then the policy panics over a key that a call for another key looks at.
            policy.idle_at.set(usize::from(round < 3) * 7);
            let _ = panics(|| limiter.try_acquire(&(round * KEYS + key), 1).is_ok());
        }
        assert_eq!(limiter.len(), limiter.keys().len(), "{round}");
        // Or while the alarm of the table looks for idle keys.
        let _ = panics(|| clock.advance(secs(10)));
    }
    policy.idle_at.set(0);
    for key in 0..KEYS {
        // Each call looks at some of the keys for an idle one.
        let granted = (0..9).any(|_| limiter.try_acquire(&(9 * KEYS + key), 1).is_ok());
        assert!(granted, "{key}");
    }
    assert_eq!(limiter.len(), usize::try_from(KEYS).expect("small"));
}

#[test]
fn a_panic_over_one_idle_key_keeps_the_alarm_from_no_other() {
    let clock = ManualClock::new();
    let broken = Broken::new();
    let idle_at = broken.idle_at.clone();
    let policy_of = move |&key: &u64| if key == 0 { broken.clone() } else { Broken::new() };
    let limiter = KeyedRateLimiter::builder_with_policies(policy_of)
        .clock(&clock)
        // The same shards each time. The key is neither in the first nor in the last one.
        .hasher(BuildHasherDefault::<DefaultHasher>::default())
        .build();
    for key in 0..3_000 {
        limiter.try_acquire(&key, 1).expect("a full bucket");
    }
    idle_at.set(1);
    assert!(panics(|| clock.advance(secs(10))));
    assert!(limiter.len() > 200, "{} keys: of the last shards", limiter.len());
    clock.advance(secs(10));
    assert!((1..40).contains(&limiter.len()), "{} keys: of one shard", limiter.len());
    clock.advance(secs(20));
    assert_eq!(limiter.len(), 0);
}
