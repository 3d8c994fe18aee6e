//! What a limiter reports about itself, and what its clones share.

use tollgate::{FixedWindow, ManualClock, RateLimiter};

use crate::support::{busy, secs};

/// Its calls are decided under a lock, without the queue.
#[test]
fn a_refusal_of_a_window_is_counted_once() {
    let limiter = RateLimiter::with_clock(FixedWindow::new(1, secs(60)), ManualClock::new());
    for refused in 0..3 {
        assert_eq!(limiter.try_acquire(1).is_err(), refused > 0);
        assert_eq!((limiter.stats().granted, limiter.stats().refused), (1, refused));
    }
}

#[test]
fn a_limiter_shows_its_policy_its_clock_and_its_queue() {
    let (_clock, limiter) = busy(5.0);
    let _waiting = limiter.reserve(1).expect("a place");
    let text = format!("{limiter:?}");
    for part in [
        "SmoothBursty",
        "ManualClock",
        "limit: 5, remaining: 0, reset_after: Some(1.2s)",
        "waiting: 1",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}
