//! Ownership of the table and of its keys, checked by reference counts.

use std::hash::Hash;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use super::KeyedRateLimiter;
use crate::clock::ManualClock;
use crate::error::Error;
use crate::policy::Policy;
use crate::policy::in_flight::InFlight;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::rate_limiter::Grant;
use crate::units::Rate;

/// Longer than a key of [`bursty`] needs to become idle after a few permits.
const LATER: Duration = Duration::from_secs(60);

/// A table with room for one key. A second key fits as soon as the first one may be removed.
fn limiter<P: Policy>(policy: P) -> (ManualClock, KeyedRateLimiter<u64, P>) {
    let clock = ManualClock::new();
    (clock.clone(), KeyedRateLimiter::builder(policy).clock(clock).max_keys(1).build())
}

fn bursty() -> (ManualClock, KeyedRateLimiter<u64, SmoothBursty>) {
    limiter(SmoothBursty::new(Rate::per_second(1.0)))
}

fn shares<P: Policy>(limiter: &KeyedRateLimiter<u64, P>) -> usize {
    Arc::strong_count(&limiter.table)
}

/// Whether the only key stays in the table although it is idle. If not, this call removes it.
fn is_kept<P: Policy<Cost = u32>>(limiter: &KeyedRateLimiter<u64, P>, other: u64) -> bool {
    let asked = limiter.at(&other).try_acquire(1).map(drop);
    match asked {
        Ok(()) => false,
        Err(Error::TooManyKeys { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_key_is_forgotten_after_all_its_grants_are_gone() {
    let (clock, limiter) = bursty();
    let borrowed = limiter.at(&1).try_acquire(1).expect("stored");
    assert_eq!(shares(&limiter), 1);
    clock.advance(LATER);
    assert!(is_kept(&limiter, 2));
    let owned = borrowed.into_owned();
    assert_eq!(shares(&limiter), 2);
    assert!(is_kept(&limiter, 2));
    let owned = owned.into_owned();
    let second = limiter.at(&1).try_acquire(1).expect("stored").into_owned();
    // The key is a limiter by now, of which the second one has a share.
    assert_eq!(shares(&limiter), 2);
    clock.advance(LATER);
    drop(owned);
    assert_eq!(shares(&limiter), 1);
    assert!(is_kept(&limiter, 2));
    drop(second);
    assert_eq!(shares(&limiter), 1);
    assert!(!is_kept(&limiter, 2));
    assert_eq!(limiter.keys(), [2]);
}

#[test]
fn a_grant_of_a_key_is_dropped_on_another_thread_or_in_a_panic() {
    let (clock, limiter) = bursty();
    for key in (0..10).step_by(2) {
        let grant = limiter.at(&key).try_acquire(1).expect("room").into_owned();
        clock.advance(LATER);
        assert!(is_kept(&limiter, key + 1));
        let ended = thread::spawn(move || {
            let _grant = grant;
            assert!(!key.is_multiple_of(4), "with a grant");
        });
        assert_eq!(ended.join().is_err(), key.is_multiple_of(4));
        assert_eq!(shares(&limiter), 1);
        assert!(!is_kept(&limiter, key + 1));
        clock.advance(LATER);
    }
}

#[test]
fn a_future_of_a_key_has_a_share_of_the_table() {
    let (clock, limiter) = bursty();
    drop(limiter.at(&1).into_owned().acquire(1));
    assert_eq!((shares(&limiter), limiter.len()), (1, 0));
    let mut context = Context::from_waker(Waker::noop());
    let mut future = Box::pin(limiter.at(&1).into_owned().acquire(5));
    assert_eq!(shares(&limiter), 2);
    let Poll::Ready(grant) = future.as_mut().poll(&mut context) else { panic!("on credit") };
    drop(future);
    assert_eq!(shares(&limiter), 2, "that of the grant");
    drop(grant);
    assert_eq!(shares(&limiter), 1);
    // The grant of a caller that waited holds a share of the key's line only.
    let [mut first, second] = [1, 1].map(|n| Box::pin(limiter.at(&1).into_owned().acquire(n)));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert_eq!((shares(&limiter), limiter.at(&1).queue_len()), (3, 1));
    drop(second);
    clock.advance(LATER);
    let Poll::Ready(grant) = first.as_mut().poll(&mut context) else { panic!("it is due") };
    drop(first);
    assert_eq!(shares(&limiter), 1);
    clock.advance(LATER);
    assert!(is_kept(&limiter, 2));
    drop(grant);
    assert!(!is_kept(&limiter, 2));
}

#[test]
fn a_place_in_flight_at_a_key_outlives_the_limiter() {
    let (_, limiter) = limiter(InFlight::new(2));
    let grants = [(); 2].map(|()| limiter.at(&1).try_acquire(1).map(Grant::into_owned));
    let [first, second] = grants.map(|grant| grant.expect("free"));
    assert_eq!((shares(&limiter), limiter.at(&1).available()), (1, 0));
    drop(first);
    assert_eq!(limiter.at(&1).available(), 1);
    assert!(is_kept(&limiter, 2));
    let table = Arc::downgrade(&limiter.table);
    drop(limiter);
    assert_eq!(table.strong_count(), 0);
    assert_eq!(second.quota().remaining, 1);
    drop(second);

    let (_, limiter) = bursty();
    let table = Arc::downgrade(&limiter.table);
    let grant = limiter.at(&1).try_acquire(1).expect("stored").into_owned();
    drop(limiter);
    assert_eq!(table.strong_count(), 1);
    grant.refund();
    assert_eq!(table.strong_count(), 0);
}

/// The first call creates the key, the second one finds it.
#[track_caller]
fn is_asked_by<Q>(key: &Q, of: impl FnOnce(&KeyedRateLimiter<Q::Owned, InFlight>))
where
    Q: ToOwned<Owned: Hash + Eq + Send + Sync + 'static> + Hash + Eq + Sync + ?Sized,
{
    let limiter = KeyedRateLimiter::with_clock(InFlight::new(2), ManualClock::new());
    let _grant = limiter.at(key).try_acquire(1).expect("two places");
    let _second = limiter.at(key).blocking_acquire(1).expect("two places");
    assert!(limiter.at(key).try_acquire(1).is_err());
    assert_eq!(limiter.len(), 1);
    of(&limiter);
}

#[test]
fn keys_are_named_by_their_borrowed_forms() {
    use std::path::Path;

    is_asked_by("key", |limiter| assert_eq!(limiter.at(&"key".to_owned()).available(), 0));
    is_asked_by::<Arc<str>>(&Arc::from("key"), |_| {});
    is_asked_by(&"key", |limiter| assert_eq!(limiter.at(&"key").available(), 0));
    is_asked_by(&7, |limiter| assert_eq!(limiter.at(&7).available(), 0));
    is_asked_by(&(7, "key".to_owned()), |_| {});
    is_asked_by::<[u8]>(b"key", |_| {});
    is_asked_by(Path::new("key"), |_| {});
}
