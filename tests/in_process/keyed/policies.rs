//! A policy for all keys, a policy for each, and changes of both.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tollgate::{Error, InFlight, KeyedRateLimiter, ManualClock, Rate, TokenBucket};

use crate::support::wakers::{Count, OnWake};
use crate::support::{finishes, is_waiting, outcome, poll_with, secs};

fn bucket(per_second: f64, capacity: u32) -> TokenBucket {
    TokenBucket::new(Rate::per_second(per_second), capacity)
}

/// Ten seconds were idle at one a second; a bucket that credited them at the new rate would hold a
/// thousand.
#[test]
fn a_change_settles_the_past_of_each_key_at_the_old_rate() {
    let clock = ManualClock::new();
    let limiter = KeyedRateLimiter::with_clock(bucket(1.0, 5000), &clock);
    for key in 0..500 {
        limiter.at(&key).try_acquire(5000).expect("a full bucket");
    }
    clock.advance(secs(10));
    limiter.set_policy(bucket(100.0, 5000));
    for key in 0..500 {
        assert_eq!(limiter.at(&key).available(), 10);
    }
    clock.advance(secs(1));
    assert_eq!(limiter.at(&7).available(), 110);
}

/// Also for keys used later.
#[test]
fn a_change_holds_for_keys_that_are_not_there() {
    let limiter = KeyedRateLimiter::with_clock(bucket(1.0, 10), ManualClock::new());
    limiter.set_policy(bucket(1.0, 20));
    assert_eq!(limiter.at(&1).available(), 20);
    assert!(limiter.at(&1).try_acquire(20).is_ok());
}

struct Plans(Arc<Mutex<HashMap<&'static str, u32>>>);

impl Plans {
    fn limiter(clock: &ManualClock) -> (Self, KeyedRateLimiter<String, TokenBucket>) {
        Self::bounded(clock, usize::MAX)
    }

    fn bounded(
        clock: &ManualClock,
        max_keys: usize,
    ) -> (Self, KeyedRateLimiter<String, TokenBucket>) {
        let plans = Arc::new(Mutex::new(HashMap::from([("big", 100), ("small", 5)])));
        let lookup = Arc::clone(&plans);
        let policy_of = move |key: &String| match lookup.lock().get(key.as_str()) {
            Some(&capacity) => bucket(1.0, capacity),
            None => panic!("unknown key {key}"),
        };
        (Self(plans), {
            let builder = KeyedRateLimiter::builder_with_policies(policy_of).clock(clock);
            builder.max_keys(max_keys).build()
        })
    }

    fn set(&self, key: &'static str, capacity: u32) {
        self.0.lock().insert(key, capacity);
    }
}

#[test]
fn each_key_has_its_own_policy() {
    let clock = ManualClock::new();
    let (plans, limiter) = Plans::limiter(&clock);
    assert!(limiter.at("big").try_acquire(100).is_ok());
    assert!(matches!(limiter.at("small").try_acquire(6), Err(Error::ExceedsCapacity(_))));
    assert!(limiter.at("small").try_acquire(5).is_ok());
    // The function is called again only on `refresh`.
    plans.set("small", 50);
    clock.advance(secs(2));
    assert_eq!(limiter.at("small").quota().limit, 5);
    limiter.at("small").refresh();
    assert_eq!((limiter.at("small").quota().limit, limiter.at("small").available()), (50, 2));
    // Refreshing an absent key does nothing.
    limiter.at("unknown").refresh();
}

#[test]
fn the_function_runs_again_for_a_key_that_comes_back() {
    let clock = ManualClock::new();
    let (plans, limiter) = Plans::bounded(&clock, 1);
    assert!(limiter.at("big").try_acquire(100).is_ok());
    plans.set("big", 200);
    plans.set("other", 1);
    clock.advance(secs(1000));
    assert!(limiter.at("other").try_acquire(1).is_ok());
    assert_eq!(limiter.at("big").quota().limit, 200);
}

#[test]
fn a_function_of_the_key_that_panics_hurts_its_caller_only() {
    let clock = ManualClock::new();
    let (plans, limiter) = Plans::limiter(&clock);
    limiter.at("small").try_acquire(1).expect("a full bucket");
    for _ in 0..3 {
        let call = || limiter.at("unknown").try_acquire(1).map(drop);
        catch_unwind(AssertUnwindSafe(call)).expect_err("no policy for this key");
    }
    assert_eq!(limiter.len(), 1);
    assert!(limiter.at("small").try_acquire(1).is_ok());
    plans.set("unknown", 3);
    assert!(limiter.at("unknown").try_acquire(3).is_ok());
    plans.0.lock().remove("unknown");
    catch_unwind(AssertUnwindSafe(|| limiter.at("unknown").refresh()))
        .expect_err("no policy again");
    assert_eq!(limiter.at("unknown").quota().limit, 3);
}

/// Their wakers were dropped with the panic.
#[test]
fn callers_that_a_change_grants_are_woken_if_the_function_panics_at_a_later_key() {
    let limiter = KeyedRateLimiter::with_clock(InFlight::new(0), ManualClock::new());
    limiter.set_policies(|_| InFlight::new(1));
    let keys: Vec<_> = (0..200).collect();
    let _grants: Vec<_> = keys.iter().map(|key| limiter.at(key).try_acquire(1)).collect();
    let waiter = |key| (Box::pin(limiter.at(key).acquire(1)), Count::new());
    let mut waiters: Vec<_> = keys.iter().map(waiter).collect();
    for (waiter, (_, waker)) in &mut waiters {
        assert!(poll_with(waiter, waker).is_pending());
    }
    let calls = AtomicU32::new(0);
    let change = || {
        limiter.set_policies(move |_| {
            assert!(calls.fetch_add(1, Ordering::Relaxed) < 199, "the last key");
            InFlight::new(2)
        });
    };
    catch_unwind(AssertUnwindSafe(change)).expect_err("the last key");
    let granted = waiters.iter_mut().filter_map(|(waiter, (count, _))| {
        let is_granted = !is_waiting(waiter);
        assert_eq!(is_granted, count.get() == 1);
        is_granted.then_some(())
    });
    assert!(granted.count() > 0);
}

#[test]
fn a_function_can_take_the_place_of_a_policy_and_the_other_way_round() {
    let clock = ManualClock::new();
    let limiter = KeyedRateLimiter::with_clock(bucket(1.0, 10), &clock);
    limiter.at(&3).try_acquire(10).expect("a full bucket");
    let mut waits = Box::pin(limiter.at(&3).acquire(3));
    assert!(is_waiting(&mut waits));
    limiter.set_policies(|&key: &u32| bucket(f64::from(key), key));
    assert_eq!((limiter.at(&3).quota().limit, limiter.at(&30).quota().limit), (3, 30));
    clock.advance(secs(1));
    assert_eq!(outcome(&mut waits).expect("a grant").waited(), secs(1));
    limiter.set_policy(bucket(1.0, 10));
    assert_eq!((limiter.at(&3).quota().limit, limiter.at(&30).quota().limit), (10, 10));
}

/// A waker that is called by the first change makes a second one: in the end all keys are under that.
#[test]
fn of_two_changes_at_once_the_last_holds_for_all_keys() {
    let clock = ManualClock::new();
    let limiter = KeyedRateLimiter::with_clock(InFlight::new(1), &clock);
    let grants: Vec<_> = (0..500).map(|key| limiter.at(&key).try_acquire(1)).collect();
    let mut waits = Box::pin(limiter.at(&250).acquire(1));
    let waker = OnWake::waker({
        let limiter = limiter.clone();
        move || limiter.set_policy(InFlight::new(20))
    });
    assert!(poll_with(&mut waits, &waker).is_pending());
    limiter.set_policy(InFlight::new(10));
    assert!((0..500).all(|key| limiter.at(&key).quota().limit == 20));
    drop(grants);
}

/// Dropped with no lock held: a key can do anything then.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Nosy(u32);

thread_local! {
    static LOOKS: std::cell::RefCell<Option<Box<dyn Fn()>>> = std::cell::RefCell::default();
}

impl Drop for Nosy {
    fn drop(&mut self) {
        // Not again while it looks.
        let look = LOOKS.take();
        if let Some(look) = look {
            look();
            LOOKS.set(Some(look));
        }
    }
}

#[test]
fn a_key_may_use_the_limiter_when_it_is_dropped() {
    finishes(|| {
        let clock = ManualClock::new();
        let limiter = KeyedRateLimiter::builder(bucket(1.0, 1)).clock(&clock).max_keys(2).build();
        LOOKS.set(Some({
            let limiter = limiter.clone();
            Box::new(move || _ = (limiter.len(), limiter.stats(), limiter.keys()))
        }));
        for key in 0..100 {
            let _ = limiter.at(&Nosy(key)).available();
            let _ = limiter.at(&Nosy(key)).try_acquire(2);
            let _ = limiter.at(&Nosy(key)).try_acquire(1);
            clock.advance(secs(1));
        }
        LOOKS.take();
    });
}
