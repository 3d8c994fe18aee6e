//! Many keys, and threads at the same ones.

use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::{Error, FixedWindow, KeyedRateLimiter, ManualClock, Rate, TokenBucket};

use crate::support::{ms, secs};

/// A million keys, each seen once: they never exceed the bound, and no call is refused for lack
/// of room, because most keys are idle.
#[test]
fn a_million_keys_stay_within_the_bound() {
    const KEYS: u64 = 1_000_000;
    const BOUND: usize = 100_000;
    let clock = ManualClock::new();
    let policy = FixedWindow::new(1, ms(1));
    let limiter = KeyedRateLimiter::builder(policy).clock(&clock).max_keys(BOUND).build();
    let mut most = 0;
    for key in 0..KEYS {
        limiter.at(&key).try_acquire(1).expect("some are idle");
        if key % 10_000 == 0 {
            clock.advance(ms(1));
            most = most.max(limiter.len());
        }
    }
    assert!((10_000..=BOUND).contains(&most), "{most}");
    assert_eq!(limiter.stats().granted, KEYS);
    clock.advance(ms(1));
    assert_eq!((limiter.remove_idle() > 0, limiter.len()), (true, 0));
}

#[test]
fn an_attack_by_keys_that_are_never_idle_is_turned_away() {
    const BOUND: usize = 1_000;
    let clock = ManualClock::new();
    let policy = TokenBucket::new(Rate::every(secs(86_400)), 1);
    let limiter = KeyedRateLimiter::builder(policy).clock(&clock).max_keys(BOUND).build();
    let mut refused = 0;
    for key in 0..3_000u64 {
        if let Err(error) = limiter.at(&key).try_acquire(1) {
            assert!(matches!(error, Error::TooManyKeys { max: BOUND, .. }), "{error}");
            refused += 1;
        }
    }
    assert_eq!((limiter.len(), refused), (BOUND, 2_000));
}

/// Threads at the same few keys, each forgotten again and again: nothing is lost and no bound is broken.
#[test]
fn threads_at_the_same_keys_get_all_permits_and_no_more() {
    const THREADS: u64 = 4;
    const CALLS: u64 = 20_000;
    let clock = ManualClock::new();
    let policy = TokenBucket::new(Rate::every(secs(3600)), 1000);
    let limiter = KeyedRateLimiter::builder(policy).clock(&clock).max_keys(8).build();
    let granted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (limiter, granted) = (&limiter, &granted);
            scope.spawn(move || {
                for call in 0..CALLS {
                    if limiter.at(&((call + thread) % 8)).try_acquire(1).is_ok() {
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(granted.load(Ordering::Relaxed), 8 * 1000);
    assert_eq!(limiter.stats().granted, 8 * 1000);
    assert_eq!(limiter.stats().refused, THREADS * CALLS - 8 * 1000);
}
