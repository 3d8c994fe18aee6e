//! What a limiter reports about itself, and what its clones share.

use std::time::Duration;

use tollgate::{FixedWindow, ManualClock, Rate, RateLimiter, TokenBucket, Unlimited};

use crate::support::{busy, ms, secs};

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
fn a_limiter_shows_for_how_long_its_first_waiters_have_waited() {
    let (clock, limiter) = busy(1.0);
    let mut places = Vec::new();
    for (waiting, text) in [
        (0, ""),
        (1, "; 1 wait, for 0ns"),
        (2, "; 2 wait, for 100ms, 0ns"),
        (20, "; 20 wait, for 200ms, 100ms, 0ns, 0ns, .."),
    ] {
        while places.len() < waiting {
            places.push(limiter.reserve(1).expect("a place"));
        }
        let shown = format!("{limiter:?}");
        assert!(shown.ends_with(&format!("; 1/s{text} }}")), "{shown}");
        clock.advance(ms(100));
    }
}

#[test]
fn a_limiter_shows_its_quota_and_its_pause() {
    let clock = ManualClock::new();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 10);
    let limiter = RateLimiter::with_clock(bucket, &clock);
    let shows = |text: &str| {
        let (shown, quota) = (format!("{limiter:?}"), limiter.quota());
        assert!(shown.ends_with(&format!("now: {quota}; 1/s{text} }}")), "{shown}");
        quota.remaining
    };
    limiter.try_acquire(8).expect("full");
    assert_eq!(shows(""), 2);
    // Two are there, for the one that waits.
    let place = limiter.reserve(5).expect("a place");
    assert_eq!(shows("; 1 wait, for 0ns"), 0);
    drop(place);
    limiter.pause_for(Duration::from_secs(3));
    clock.advance(Duration::from_secs(1));
    assert_eq!(shows("; paused for 2s"), 0);
    limiter.resume();
    shows("");
}

#[test]
fn a_reservation_tells_its_delay_as_things_stand() {
    let (clock, limiter) = busy(5.0);
    let first = limiter.reserve(2).expect("a place");
    let second = limiter.reserve(3).expect("a place");
    let third = limiter.reserve(4).expect("a place");
    let delays = || [&first, &second, &third].map(|reservation| reservation.delay());
    assert_eq!(delays(), [ms(200), ms(600), ms(1200)]);
    clock.advance(ms(150));
    assert_eq!(delays(), [ms(50), ms(450), ms(1050)]);
    limiter.pause_for(ms(100));
    assert_eq!(delays(), [ms(100), ms(500), ms(1100)]);
    clock.advance(ms(100));
    assert_eq!(delays(), [ms(0), ms(400), ms(1000)]);
    assert_eq!(format!("{third:?}"), "Reservation { delay: 1s }");
}

#[test]
fn a_limiter_shows_its_policy_its_clock_and_its_queue() {
    let (_clock, limiter) = busy(5.0);
    let _waiting = limiter.reserve(1).expect("a place");
    let text = format!("{limiter:?}");
    for part in
        ["SmoothBursty", "ManualClock", "now: 0 of 5 left, all in 1.2s; 5/s; 1 wait, for 0ns"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn only_a_limit_that_nothing_reaches_is_shown_as_none() {
    let show = |policy: TokenBucket, taken: u32| {
        let limiter = RateLimiter::with_clock(policy, ManualClock::new());
        limiter.try_acquire(taken).expect("a full bucket");
        limiter.quota().to_string()
    };
    let bucket = |capacity| TokenBucket::new(Rate::per_second(1.0), capacity);
    assert_eq!(RateLimiter::new(Unlimited).quota().to_string(), "no limit");
    assert_eq!(show(bucket(10), 0), "10 of 10 left");
    let text = show(bucket(u32::MAX), 1);
    assert!(text.starts_with("4294967294 of 4294967295 left"), "{text}");
}
