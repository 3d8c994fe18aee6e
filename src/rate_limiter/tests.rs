//! Ownership of a limiter and its lifetime, checked by reference counts.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::grant_owner::{GrantOwner, KeyGuard, Keys};
use super::open_grant::{GrantId, OpenGrant};
use super::{Acquire, Grant, RateLimiter};
use crate::clock::ManualClock;
use crate::error::Error;
use crate::line::{Change, Charge, Line};
use crate::policy::in_flight::InFlight;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::policy::{Policy, Quota};
use crate::units::{Nanos, Rate};

const SECOND: Duration = Duration::from_secs(1);

/// One permit a second, and a clock that stands still.
fn bursty() -> (ManualClock, RateLimiter<SmoothBursty>) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(1.0));
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

/// A policy that needs the mutex, with grants that are held.
fn in_flight(max: u32) -> RateLimiter<InFlight> {
    RateLimiter::with_clock(InFlight::new(max), ManualClock::new())
}

/// The number of strong references.
fn shares<P: Policy>(limiter: &RateLimiter<P>) -> usize {
    Arc::strong_count(&limiter.line)
}

/// The number of weak references: of its own line, and of its alarm if a caller has waited.
fn ways<P: Policy>(limiter: &RateLimiter<P>) -> usize {
    Arc::weak_count(&limiter.line)
}

fn poll<P: Policy>(
    acquire: &mut Acquire<RateLimiter<P>>,
) -> Poll<Result<Grant<'static, P>, Error>> {
    Pin::new(acquire).poll(&mut Context::from_waker(Waker::noop()))
}

fn ready<P: Policy>(acquire: &mut Acquire<RateLimiter<P>>) -> Grant<'static, P> {
    match poll(acquire) {
        Poll::Ready(grant) => grant.expect("granted"),
        Poll::Pending => panic!("it should be ready"),
    }
}

#[test]
fn a_borrowed_grant_counts_no_reference() {
    fn check<P: Policy<Cost = u32>>(limiter: &RateLimiter<P>) {
        let grant = limiter.try_acquire(1).expect("ready");
        assert_eq!(shares(limiter), 1);
        drop(grant);
        let grant = limiter.blocking_acquire(1).expect("ready");
        assert_eq!(shares(limiter), 1);
        grant.refund();
        let mut grant = limiter.try_acquire(1).expect("given back");
        grant.settle(2).expect("small");
        assert_eq!(grant.quota().remaining, 0);
        assert_eq!(shares(limiter), 1);
        drop(grant);
        let nothing = limiter.try_acquire(0).expect("nothing");
        assert_eq!(shares(limiter), 1);
        drop(nothing);
        let mut future = limiter.acquire(1);
        assert_eq!(shares(limiter), 1);
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!((shares(limiter), ways(limiter)), (1, 1));
        drop((polled, future));
        assert_eq!(shares(limiter), 1);
    }
    let (clock, limiter) = bursty();
    clock.advance(SECOND);
    // Stored permits cover each call here, so that no alarm is created.
    let grants = [(); 2].map(|()| limiter.try_acquire(1).expect("stored"));
    assert_eq!((shares(&limiter), ways(&limiter)), (1, 1));
    drop(grants);
    assert!(limiter.try_acquire(1).is_err());
    assert_eq!((shares(&limiter), ways(&limiter)), (1, 1));
    check(&in_flight(2));
}

#[test]
fn an_owned_future_has_a_share_until_it_is_dropped() {
    let (clock, limiter) = bursty();
    let unpolled = limiter.acquire_owned(1);
    assert_eq!(shares(&limiter), 2);
    drop(unpolled);
    assert_eq!(shares(&limiter), 1);
    // Granted and kept: the share moves to the grant, and is not counted twice.
    let mut future = limiter.acquire_owned(1);
    let grant = ready(&mut future);
    assert_eq!(shares(&limiter), 2);
    drop(future);
    assert_eq!(shares(&limiter), 2);
    drop(grant);
    assert_eq!(shares(&limiter), 1);
    // Waiting.
    let mut first = limiter.acquire_owned(1);
    let mut second = limiter.acquire_owned(1);
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    assert_eq!((shares(&limiter), limiter.queue_len()), (3, 2));
    drop(second);
    assert_eq!((shares(&limiter), limiter.queue_len()), (2, 1));
    // Granted, and dropped before it is polled.
    clock.advance(SECOND);
    drop(first);
    assert_eq!((shares(&limiter), limiter.queue_len()), (1, 0));
    // Granted after a wait, and the grant dropped before the future.
    let mut future = limiter.acquire_owned(1);
    drop(limiter.acquire_owned(1));
    clock.advance(SECOND);
    drop(ready(&mut future));
    assert_eq!(shares(&limiter), 1);
    drop(future);
    assert_eq!(shares(&limiter), 1);
    // There is a single alarm, whatever the number of waits.
    assert!(ways(&limiter) <= 3, "{}", ways(&limiter));
}

#[test]
fn a_caller_that_is_granted_as_soon_as_it_joins_has_not_waited() {
    let limiter = in_flight(1);
    let place = limiter.try_acquire(1).expect("free");
    let mut future = limiter.acquire_owned(1);
    assert!(poll(&mut future).is_pending());
    drop(place);
    assert_eq!(ready(&mut future).waited(), Duration::ZERO);
    assert_eq!(limiter.waits().count(), 0);
}

#[test]
fn a_future_that_is_refused_gives_its_share_back() {
    let limiter = in_flight(1);
    let mut future = limiter.acquire_owned(2);
    assert!(matches!(poll(&mut future), Poll::Ready(Err(Error::ExceedsCapacity(_)))));
    assert_eq!(shares(&limiter), 2);
    drop(future);
    assert_eq!(shares(&limiter), 1);
    let mut future = limiter.acquire_owned(1);
    let grant = ready(&mut future);
    let panicked = catch_unwind(AssertUnwindSafe(|| poll(&mut future)));
    assert!(panicked.is_err(), "polled after it was ready");
    drop(future);
    assert_eq!((shares(&limiter), limiter.available()), (2, 0));
    drop(grant);
    assert_eq!((shares(&limiter), limiter.available()), (1, 1));
}

#[test]
fn an_owned_grant_takes_one_share() {
    let limiter = in_flight(3);
    let borrowed = limiter.try_acquire(1).expect("free");
    let owned = borrowed.into_owned();
    assert_eq!((shares(&limiter), limiter.available()), (2, 2));
    // Converted again: still one share and one place.
    let owned = owned.into_owned();
    assert_eq!((shares(&limiter), limiter.available()), (2, 2));
    let of_a_future = ready(&mut limiter.acquire_owned(1)).into_owned();
    assert_eq!((shares(&limiter), limiter.available()), (3, 1));
    let nothing = limiter.try_acquire(0).expect("nothing").into_owned();
    assert_eq!((shares(&limiter), limiter.available()), (4, 1));
    drop(nothing);
    drop(owned);
    assert_eq!((shares(&limiter), limiter.available()), (2, 2));
    of_a_future.refund();
    assert_eq!((shares(&limiter), limiter.available()), (1, 3));
}

#[test]
fn a_reservation_has_a_share_until_it_is_served_or_dropped() {
    let (clock, limiter) = bursty();
    // Granted at once, and in the queue.
    let first = limiter.reserve(1).expect("a place");
    let second = limiter.reserve(1).expect("a place");
    let third = limiter.reserve(1).expect("a place");
    assert_eq!((shares(&limiter), limiter.queue_len()), (4, 2));
    drop(third);
    assert_eq!((shares(&limiter), limiter.queue_len()), (3, 1));
    let grant = first.blocking_wait().expect("served");
    assert_eq!(shares(&limiter), 3);
    drop(grant);
    assert_eq!(shares(&limiter), 2);
    let mut second = second.wait();
    assert!(poll(&mut second).is_pending());
    clock.advance(SECOND);
    let grant = ready(&mut second);
    assert_eq!(shares(&limiter), 2);
    drop((second, grant));
    assert_eq!(shares(&limiter), 1);
    // Granted without a poll, and given back.
    clock.advance(SECOND);
    drop(limiter.reserve(1).expect("a place"));
    assert_eq!(shares(&limiter), 1);
    let limiter = in_flight(1);
    assert!(matches!(limiter.reserve(2), Err(Error::ExceedsCapacity(_))));
    assert_eq!(shares(&limiter), 1);
}

#[test]
fn a_grant_may_be_dropped_on_another_thread() {
    let limiter = in_flight(4);
    let (send, receive) = mpsc::channel();
    let dropper = thread::spawn(move || receive.iter().for_each(|grant: Grant<'_, _>| drop(grant)));
    for _ in 0..1000 {
        let grant = match limiter.try_acquire(1) {
            Ok(grant) => grant.into_owned(),
            Err(_) => limiter.blocking_acquire(1).expect("freed by the other").into_owned(),
        };
        send.send(grant).expect("received");
    }
    drop(send);
    dropper.join().expect("no panic");
    assert_eq!((shares(&limiter), limiter.available()), (1, 4));
    let clones = [limiter.clone(), limiter.clone()];
    thread::scope(|scope| {
        for clone in &clones {
            scope.spawn(move || {
                for _ in 0..1000 {
                    let mut future = clone.acquire_owned(1);
                    drop(poll(&mut future));
                    drop(ready(&mut clone.acquire_owned(1)).into_owned());
                }
            });
        }
    });
    drop(clones);
    assert_eq!((shares(&limiter), limiter.available()), (1, 4));
}

/// The grant keeps its source alive.
#[test]
fn a_grant_may_outlive_its_limiter() {
    let limiter = in_flight(2);
    let line = Arc::downgrade(&limiter.line);
    let grant = limiter.try_acquire(1).expect("free").into_owned();
    let waits = limiter.acquire_owned(1);
    drop(limiter);
    assert_eq!(line.strong_count(), 2);
    drop(waits);
    assert_eq!((line.strong_count(), grant.quota().remaining), (1, 1));
    let grant = grant.into_owned();
    assert_eq!(line.strong_count(), 1);
    drop(grant);
    assert_eq!(line.strong_count(), 0);

    // A waiter holds the only share; then its grant holds it.
    let (clock, limiter) = bursty();
    let line = Arc::downgrade(&limiter.line);
    drop(limiter.try_acquire(1).expect("on credit"));
    let mut waits = limiter.acquire_owned(1);
    assert!(poll(&mut waits).is_pending());
    drop(limiter);
    assert_eq!(line.strong_count(), 1);
    clock.advance(SECOND);
    let mut grant = ready(&mut waits);
    drop(waits);
    grant.settle(3).expect("small");
    assert_eq!(line.strong_count(), 1);
    grant.refund();
    assert_eq!(line.strong_count(), 0);
}

#[test]
fn a_panic_gives_each_share_back_once() {
    let limiter = in_flight(3);
    let clone = limiter.clone();
    let panicked = thread::spawn(move || {
        let _owned = ready(&mut clone.acquire_owned(1));
        let borrowed = clone.try_acquire(1).expect("free");
        let _again = borrowed.into_owned();
        let _borrowed = clone.try_acquire(1).expect("free");
        let mut waits = clone.acquire_owned(1);
        assert!(poll(&mut waits).is_pending());
        assert_eq!((shares(&clone), clone.queue_len()), (5, 1));
        let _reserved = clone.reserve(1).expect("a place");
        panic!("with grants, a waiter and a reservation");
    });
    assert!(panicked.join().is_err());
    assert_eq!((shares(&limiter), limiter.available(), limiter.queue_len()), (1, 3, 0));

    let (_, limiter) = bursty();
    let clone = limiter.clone();
    let panicked = thread::spawn(move || {
        let _grant = clone.try_acquire(1).expect("on credit").into_owned();
        let _reserved = clone.reserve(1).expect("a place");
        panic!("with a grant and a reservation");
    });
    assert!(panicked.join().is_err());
    assert_eq!((shares(&limiter), limiter.queue_len()), (1, 0));
}

/// A table that only counts pins.
struct Counted {
    pins: AtomicI64,
    changes: AtomicU64,
    open: OpenGrant,
    this: Weak<Self>,
}

impl Counted {
    fn new() -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            pins: AtomicI64::new(0),
            changes: AtomicU64::new(0),
            open: OpenGrant::none(),
            this: this.clone(),
        })
    }

    /// A grant at a key, as the table makes it.
    fn grant(&self) -> Grant<'_, SmoothBursty> {
        self.pins.fetch_add(1, Ordering::Relaxed);
        let mut ticket = policy().start(Nanos::ZERO);
        let receipt = Some(policy().charge(&mut ticket, Nanos::ZERO, 1));
        let charge = Charge { waited: 0, receipt, limited_by: None };
        Grant::new(GrantOwner::key(KeyGuard::new(self, &self.open, id_of_all())), 1, charge)
    }

    fn pins(&self) -> i64 {
        self.pins.load(Ordering::Relaxed)
    }
}

fn policy() -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(1.0))
}

/// That of a grant that has been recorded.
fn id_of_all() -> GrantId {
    GrantId::new(7, 3, 256)
}

impl Keys<SmoothBursty> for Counted {
    fn change(
        &self,
        id: GrantId,
        change: Change<SmoothBursty>,
        changed: &mut dyn FnMut(Option<<SmoothBursty as Policy>::Receipt>),
    ) -> Result<(), Error> {
        assert_eq!(id, id_of_all());
        assert!(self.pins() > 0, "a key that is settled is pinned");
        self.changes.fetch_add(1, Ordering::Relaxed);
        let (Change::Settle { receipt, .. } | Change::Refund { receipt, .. }) = change;
        changed(receipt);
        Ok(())
    }

    fn give_back(&self, id: GrantId, change: Change<SmoothBursty>) {
        self.change(id, change, &mut |_| ()).expect("nothing is charged");
    }

    fn quota(&self, _: GrantId) -> Option<Quota<u32>> {
        let policy = policy();
        Some(Quota::of(&policy, &policy.start(Nanos::ZERO), Nanos::ZERO))
    }

    fn close(&self, id: GrantId) {
        assert_eq!(id, id_of_all());
        assert!(self.pins.fetch_sub(1, Ordering::Relaxed) > 0, "closed once too often");
    }

    fn share(&self) -> Arc<dyn Keys<SmoothBursty>> {
        self.this.upgrade().expect("borrowed from its owner")
    }
}

#[test]
fn each_grant_of_a_key_is_closed_once() {
    let keys = Counted::new();
    drop(keys.grant());
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (0, 1));
    let borrowed = [keys.grant(), keys.grant()];
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (2, 1));
    let [one, other] = borrowed.map(Grant::into_owned);
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (2, 3));
    let mut one = one.into_owned();
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (2, 3));
    one.settle(2).expect("small");
    drop(one);
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (1, 2));
    other.refund();
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (0, 1));
    keys.grant().refund();
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (0, 1));
    assert_eq!(keys.changes.load(Ordering::Relaxed), 3);
}

#[test]
fn a_panic_and_another_thread_close_a_grant_once() {
    let keys = Counted::new();
    let grant = keys.grant().into_owned();
    thread::spawn(move || drop(grant)).join().expect("no panic");
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (0, 1));
    let grant = keys.grant().into_owned();
    let panicked = thread::spawn(move || {
        let _again = grant.into_owned();
        panic!("with a grant");
    });
    assert!(panicked.join().is_err());
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (0, 1));
    // The grant holds the last share of its table.
    let grant = keys.grant().into_owned();
    let table = Arc::downgrade(&keys);
    drop(keys);
    assert_eq!(table.strong_count(), 1);
    assert_eq!(grant.quota().limit, 1);
    drop(grant);
    assert_eq!(table.strong_count(), 0);
}

/// After `take`, only the new owner gives the share back.
#[test]
fn a_source_has_nothing_to_give_back_after_take() {
    let (_, limiter) = bursty();
    let mut source = GrantOwner::owned(Arc::clone(&limiter.line));
    let taken = source.take();
    assert_eq!(shares(&limiter), 2);
    assert!(source.line().is_none() && taken.line().is_some());
    // A source that was taken yields no share, even if it is taken again.
    drop((source.take(), source.into_owned()));
    assert_eq!(shares(&limiter), 2);
    drop(taken);
    assert_eq!(shares(&limiter), 1);

    let mut source = GrantOwner::borrowed(&limiter.line);
    let taken = source.take();
    assert!(source.line().is_none() && taken.line().is_some());
    let owned = taken.into_owned();
    drop(source);
    assert_eq!(shares(&limiter), 2);
    drop(owned);
    assert_eq!(shares(&limiter), 1);

    let keys = Counted::new();
    keys.pins.fetch_add(1, Ordering::Relaxed);
    let guard = KeyGuard::new(&*keys, &keys.open, id_of_all());
    let mut source: GrantOwner<'_, SmoothBursty> = GrantOwner::key(guard);
    let taken = source.take();
    drop(source);
    assert_eq!(keys.pins(), 1);
    let owned = taken.into_owned();
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (1, 2));
    drop(owned);
    assert_eq!((keys.pins(), Arc::strong_count(&keys)), (0, 1));
}

#[test]
fn a_limiter_takes_no_more_than_512_bytes() {
    use crate::{FixedWindow, Gcra, LeakyBucket, SlidingWindowLog, SmoothWarmingUp, TokenBucket};

    let bytes = [
        Line::<SmoothBursty>::bytes(),
        Line::<TokenBucket>::bytes(),
        Line::<Gcra>::bytes(),
        Line::<LeakyBucket>::bytes(),
        Line::<SmoothWarmingUp>::bytes(),
        Line::<FixedWindow>::bytes(),
        Line::<SlidingWindowLog>::bytes(),
        Line::<InFlight>::bytes(),
        Line::<(FixedWindow, TokenBucket, InFlight)>::bytes(),
    ];
    assert!(bytes.iter().all(|&bytes| bytes <= 512), "{bytes:?}");
    assert_eq!(bytes[0], 496);
}
