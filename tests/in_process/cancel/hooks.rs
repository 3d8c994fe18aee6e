//! A policy of which any method may panic: before its work or after it, at any call. All places are free
//! afterwards, and no more than the limit were ever taken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Error, Grant, InFlight, KeyedRateLimiter, LockOut, ManualClock, Policy, Rate, RateLimiter,
    Reservation, Same, TokenBucket,
};

use crate::support::fused::{Fuse, Fused};
use crate::support::{is_waiting, ms, outcome, poll, secs, shrunk};

type Waiting<P> = Pin<Box<dyn Future<Output = Result<Grant<'static, P>, Error>>>>;

/// A limiter, or one key of many.
trait Subject<P: Policy> {
    fn try_acquire(&self, n: u32) -> Result<Grant<'static, P>, Error>;
    fn acquire(&self, n: u32, ahead: Duration) -> Waiting<P>;
    fn within(&self, n: u32, timeout: Duration) -> Result<Reservation<RateLimiter<P>>, Error>;
    fn set_policy(&self, policy: P);
    fn pause_for(&self, duration: Duration);
    fn resume(&self);
    fn shrink_to(&self, remaining: u32) -> Grant<'static, P>;
    fn available(&self) -> u32;
    fn queue_len(&self) -> usize;
}

impl<P: Policy<Cost = u32>> Subject<P> for RateLimiter<P> {
    fn try_acquire(&self, n: u32) -> Result<Grant<'static, P>, Error> {
        self.try_acquire(n).map(Grant::into_owned)
    }

    fn acquire(&self, n: u32, ahead: Duration) -> Waiting<P> {
        Box::pin(self.acquire_owned(n).ahead_by(ahead))
    }

    fn within(&self, n: u32, timeout: Duration) -> Result<Reservation<RateLimiter<P>>, Error> {
        self.try_acquire_timeout(n, timeout).reserve()
    }

    fn set_policy(&self, policy: P) {
        self.set_policy(policy);
    }

    fn pause_for(&self, duration: Duration) {
        self.pause_for(duration);
    }

    fn resume(&self) {
        self.resume();
    }

    fn shrink_to(&self, remaining: u32) -> Grant<'static, P> {
        shrunk(self, remaining)
    }

    fn available(&self) -> u32 {
        self.available()
    }

    fn queue_len(&self) -> usize {
        self.queue_len()
    }
}

const KEY: u64 = 7;

impl<P: Policy<Cost = u32>> Subject<P> for KeyedRateLimiter<u64, P> {
    fn try_acquire(&self, n: u32) -> Result<Grant<'static, P>, Error> {
        self.try_acquire(&KEY, n).map(Grant::into_owned)
    }

    fn acquire(&self, n: u32, ahead: Duration) -> Waiting<P> {
        Box::pin(self.acquire_owned(KEY, n).ahead_by(ahead))
    }

    fn within(&self, n: u32, timeout: Duration) -> Result<Reservation<RateLimiter<P>>, Error> {
        self.try_acquire_timeout(&KEY, n, timeout).reserve()
    }

    fn set_policy(&self, policy: P) {
        self.set_policy(policy);
    }

    fn pause_for(&self, duration: Duration) {
        self.pause_for(&KEY, duration).expect("room for the key");
    }

    fn resume(&self) {
        self.resume(&KEY).expect("room for the key");
    }

    fn shrink_to(&self, remaining: u32) -> Grant<'static, P> {
        shrunk(&self.at(KEY), remaining)
    }

    fn available(&self) -> u32 {
        self.available(&KEY)
    }

    fn queue_len(&self) -> usize {
        self.queue_len(&KEY)
    }
}

/// The places of each policy here.
const PLACES: u32 = 10;

/// Callers of a subject. Each step may meet the panic.
struct Callers<'a, P: Policy> {
    subject: &'a dyn Subject<P>,
    grants: Vec<Grant<'static, P>>,
    waiting: Vec<Waiting<P>>,
    reserved: Vec<Reservation<RateLimiter<P>>>,
}

impl<P: Policy<Cost = u32>> Callers<'_, P> {
    #[track_caller]
    fn step(&mut self, act: impl FnOnce(&mut Self)) {
        let _ = catch_unwind(AssertUnwindSafe(|| act(self)));
        let taken: u32 = self.grants.iter().map(Grant::cost).sum();
        assert!(taken <= PLACES || !P::HELD, "{taken} places taken");
    }

    /// Keeps the grant of a call that is granted at once.
    fn take(&mut self, grant: Result<Grant<'static, P>, Error>) {
        self.grants.extend(grant);
    }

    fn wait(&mut self, n: u32, ahead: Duration) {
        let mut call = self.subject.acquire(n, ahead);
        if is_waiting(&mut call) {
            self.waiting.push(call);
        }
    }

    /// Polls all that wait, and keeps their grants.
    fn poll(&mut self) {
        let Self { grants, waiting, .. } = self;
        waiting.retain_mut(|call| match poll(call) {
            std::task::Poll::Ready(grant) => {
                grants.extend(grant);
                false
            }
            std::task::Poll::Pending => true,
        });
    }

    /// What callers do to each other: with waiters behind and ahead of each act.
    fn run(&mut self, clock: &ManualClock, renewed: &P) {
        let none = Duration::ZERO;
        self.step(|it| it.take(it.subject.try_acquire(4)));
        self.step(|it| it.take(it.subject.try_acquire(4)));
        // A caller that needs all of them, and others behind it.
        self.step(|it| it.wait(10, none));
        self.step(|it| it.wait(2, none));
        self.step(|it| it.reserved.extend(it.subject.within(1, ms(100))));
        self.step(|it| drop(it.subject.try_acquire(1)));
        self.step(|it| _ = it.grants.get_mut(1).map(|grant| grant.settle(1)));
        self.step(|it| _ = it.grants.get_mut(1).map(|grant| grant.settle(3)));
        self.step(|it| _ = it.grants.pop().map(Grant::refund));
        self.step(|it| it.wait(1, secs(1)));
        self.step(|it| drop(it.subject.within(2, ms(50))));
        self.step(|it| _ = it.reserved.first().map(Reservation::delay));
        self.step(|_| clock.advance(ms(100)));
        self.step(Self::poll);
        // It leaves, and those behind it are granted; one of them does not take it.
        self.step(|it| drop((!it.waiting.is_empty()).then(|| it.waiting.remove(0))));
        self.step(|it| drop(it.waiting.pop()));
        self.step(|it| it.reserved.clear());
        self.step(Self::poll);
        // Places come back in a pause, and others are taken after it.
        self.step(|it| it.subject.pause_for(secs(1)));
        self.step(|it| it.wait(3, none));
        self.step(|_| clock.advance(ms(300)));
        self.step(|it| drop(it.grants.pop()));
        self.step(|it| _ = it.grants.first_mut().map(|grant| grant.settle(2)));
        self.step(|it| it.subject.set_policy(renewed.clone()));
        self.step(|it| it.subject.resume());
        self.step(Self::poll);
        self.step(|it| it.take(it.subject.try_acquire(3)));
        self.step(|it| it.grants.push(it.subject.shrink_to(1)));
        self.step(|it| it.wait(4, none));
        self.step(|it| it.subject.set_policy(renewed.clone()));
        self.step(|it| drop(it.grants.pop().map(|grant| grant.metered().or(1))));
        self.step(|it| _ = it.subject.available());
        self.step(|it| it.subject.pause_for(ms(10)));
        self.step(|_| clock.advance(secs(2)));
        self.step(|it| _ = it.grants.pop().map(Grant::refund));
        self.step(|it| it.grants.clear());
        self.step(Self::poll);
        self.step(|it| it.waiting.clear());
    }
}

/// Runs the callers with a panic at each call in turn, until there is no such call.
#[track_caller]
fn panics_anywhere<P: Policy<Cost = u32>>(
    policy: impl Fn(Arc<Fuse>) -> P,
    subject: impl Fn(P, &ManualClock) -> Box<dyn Subject<P>>,
) {
    let mut met = 0;
    for after in [false, true] {
        for calls in 1.. {
            let (fuse, clock) = (Arc::new(Fuse::default()), ManualClock::new());
            let renewed = policy(Arc::clone(&fuse));
            let subject = subject(policy(Arc::clone(&fuse)), &clock);
            let mut callers = Callers {
                subject: &*subject,
                grants: Vec::new(),
                waiting: Vec::new(),
                reserved: Vec::new(),
            };
            fuse.set(calls, after);
            callers.run(&clock, &renewed);
            let has_blown = fuse.has_blown();
            fuse.set(0, false);
            drop(callers);
            let at = format!("call {calls}, {}", if after { "after" } else { "before" });
            assert_eq!(subject.queue_len(), 0, "{at}");
            clock.advance(secs(100));
            assert_eq!(subject.available(), PLACES, "{at}");
            let mut all: Vec<_> = (0..PLACES).map(|_| subject.try_acquire(1)).collect();
            assert!(all.iter().all(Result::is_ok), "{at}");
            assert!(subject.try_acquire(1).is_err(), "{at}");
            let mut next = subject.acquire(1, Duration::ZERO);
            assert!(is_waiting(&mut next), "{at}");
            all.clear();
            clock.advance(secs(100));
            drop(outcome(&mut next).expect("a place"));
            if !has_blown {
                break;
            }
            met += 1;
        }
    }
    assert!(met > 100, "only {met} calls");
}

fn limiter<P: Policy<Cost = u32>>(policy: P, clock: &ManualClock) -> Box<dyn Subject<P>> {
    Box::new(RateLimiter::with_clock(policy, clock))
}

fn keyed<P: Policy<Cost = u32>>(policy: P, clock: &ManualClock) -> Box<dyn Subject<P>> {
    Box::new(KeyedRateLimiter::with_clock(policy, clock))
}

fn places(fuse: Arc<Fuse>) -> Fused<InFlight> {
    Fused(InFlight::new(PLACES), fuse)
}

fn tokens(fuse: Arc<Fuse>) -> Fused<TokenBucket> {
    Fused(TokenBucket::new(Rate::per_second(100.0), PLACES), fuse)
}

#[test]
fn a_panic_in_any_method_loses_no_place() {
    panics_anywhere(places, limiter);
    panics_anywhere(places, keyed);
}

#[test]
fn a_panic_in_any_method_of_a_part_loses_no_place() {
    let behind = |fuse| Same((InFlight::new(PLACES), tokens(fuse)));
    panics_anywhere(behind, limiter);
    let both = |fuse: Arc<Fuse>| Same((places(Arc::clone(&fuse)), tokens(fuse)));
    panics_anywhere(both, limiter);
    panics_anywhere(|fuse: Arc<Fuse>| [places(Arc::clone(&fuse)), places(fuse)], limiter);
}

#[test]
fn a_panic_in_any_method_of_a_rule_that_locks_out_loses_no_place() {
    panics_anywhere(|fuse| LockOut::new(places(fuse), ms(10)), limiter);
}

/// What time brings back is there again, and no more.
#[test]
fn a_panic_in_any_method_makes_no_token() {
    panics_anywhere(tokens, limiter);
    panics_anywhere(tokens, keyed);
}

/// Runs `act` beside a caller that waits for all places, with a panic at each call in turn. It gets a grant of four
/// places and returns what is left of it; four more are taken.
#[track_caller]
fn beside_a_waiter(act: impl Fn(&mut Option<Grant<'static, Fused<InFlight>>>)) {
    for (calls, after) in (1..30).flat_map(|calls| [(calls, false), (calls, true)]) {
        let fuse = Arc::new(Fuse::default());
        let limiter = RateLimiter::with_clock(places(Arc::clone(&fuse)), ManualClock::new());
        let take = || limiter.try_acquire(4).expect("a place").into_owned();
        let (mut grant, other) = (Some(take()), take());
        let waiter = limiter.reserve(10).expect("a place in the queue");
        fuse.set(calls, after);
        let _ = catch_unwind(AssertUnwindSafe(|| act(&mut grant)));
        fuse.set(0, false);
        drop(waiter);
        let taken = 4 + grant.as_ref().map_or(0, Grant::cost);
        assert_eq!(limiter.available(), PLACES - taken, "call {calls}, after: {after}");
        drop((grant, other));
        assert_eq!(limiter.available(), PLACES, "call {calls}, after: {after}");
    }
}

#[test]
fn a_panic_over_a_waiter_gives_back_what_is_refunded_or_dropped_once() {
    beside_a_waiter(|grant| _ = grant.take().map(Grant::refund));
    beside_a_waiter(|grant| drop(grant.take()));
}

#[test]
fn a_panic_over_a_waiter_loses_no_settlement() {
    for actual in [0, 1, 6] {
        beside_a_waiter(|grant| _ = grant.as_mut().map(|grant| grant.settle(actual)));
        beside_a_waiter(|grant| drop(grant.take().map(|grant| grant.metered().or(actual))));
    }
}

/// A waiter is granted, is not polled, and leaves. The next event may panic as well.
#[test]
fn a_refund_that_panics_gives_the_place_back() {
    let both = |calls, again| [(calls, again, false), (calls, again, true)];
    let panics = (1..10).flat_map(|calls| (0..6).flat_map(move |again| both(calls, again)));
    for (calls, again, after) in panics {
        let fuse = Arc::new(Fuse::default());
        let limiter = RateLimiter::with_clock(places(Arc::clone(&fuse)), ManualClock::new());
        let all = limiter.try_acquire(PLACES).expect("all places");
        let waiter = limiter.reserve(PLACES).expect("a place in the queue");
        drop(all);
        fuse.set(calls, after);
        let _ = catch_unwind(AssertUnwindSafe(|| drop(waiter)));
        fuse.set(again, after);
        let _ = catch_unwind(AssertUnwindSafe(|| drop(limiter.try_acquire(1))));
        fuse.set(0, false);
        assert_eq!(limiter.available(), PLACES, "call {calls}, then {again}, after: {after}");
    }
}
