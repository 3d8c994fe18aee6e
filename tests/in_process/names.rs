//! What rules tell of themselves, and what a program imports.

use std::time::Duration;

use tollgate::prelude::*;

#[test]
fn a_rule_tells_what_it_was_made_with() {
    let (rate, second) = (Rate::per_second(5.0), Duration::from_secs(1));
    assert_eq!(SmoothBursty::new(rate).max_burst(3 * second).burst(), 3 * second);
    assert_eq!(SmoothWarmingUp::new(rate, 4 * second).period(), 4 * second);
    let bucket = TokenBucket::new(rate, 7);
    assert_eq!((bucket.capacity(), bucket.period()), (7, Duration::ZERO));
    assert_eq!(bucket.refill_every(second).period(), second);
    assert_eq!(Gcra::new(6, 5, second).max_burst(), 6);
    let (queue, meter) = (LeakyBucket::new(rate, 8), LeakyBucket::meter(rate, 8));
    assert_eq!((queue.capacity(), queue.is_meter(), meter.is_meter()), (8, false, true));
    let window = FixedWindow::new(9, 60 * second);
    assert_eq!((window.limit(), window.period()), (9, 60 * second));
    assert!(!window.is_aligned() && window.aligned(Duration::ZERO).is_aligned());
    let log = SlidingWindowLog::new(10, 60 * second);
    assert_eq!((log.limit(), log.period()), (10, 60 * second));
    let counter = SlidingWindowCounter::new(11, 60 * second, 12);
    assert_eq!((counter.limit(), counter.period(), counter.buckets()), (11, 60 * second, 12));
    assert_eq!(InFlight::new(13).limit(), 13);
    let lock_out = LockOut::new(InFlight::new(14), second);
    assert_eq!((lock_out.policy().limit(), lock_out.period()), (14, second));
}

#[test]
fn the_prelude_hides_no_crate() {
    assert!(redis::Client::open("redis://127.0.0.1").is_ok());
    let _client = reqwest::Client::new();
    metrics::counter!("calls").increment(1);
    let _service = tower::service_fn(|()| async { Ok::<_, std::convert::Infallible>(()) });
    assert!(RateLimiter::new(InFlight::new(1)).try_acquire(1).is_ok());
}
