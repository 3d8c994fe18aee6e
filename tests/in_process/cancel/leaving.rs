//! A caller that is dropped before it was granted changes nothing for those ahead and moves up those
//! behind.

use std::time::Instant;

use crate::support::{bursty, busy, finishes, ms, outcome, secs, waited};

#[test]
#[should_panic(expected = "`Acquire` polled after it was ready")]
fn polling_a_future_that_is_over_panics() {
    let (_clock, limiter) = bursty(5.0);
    let mut future = limiter.acquire(1);
    assert!(outcome(&mut future).is_ok());
    let _ = outcome(&mut future);
}

#[test]
fn a_million_waiters_leave_in_linear_time() {
    const MANY: usize = 1_000_000;
    finishes(|| {
        let (clock, limiter) = busy(5.0);
        let start = Instant::now();
        // From the front, the back and the middle.
        for order in 0..3 {
            let last = limiter.reserve(1).expect("a place");
            let count = if order == 0 { MANY } else { MANY / 20 };
            let mut line: Vec<_> =
                (0..count).map(|_| Some(limiter.reserve(1).expect("a place"))).collect();
            assert_eq!(limiter.queue_len(), count + 1);
            for n in 0..count {
                // A stride that is prime to the count visits each place once.
                let place = [n, count - 1 - n, n * 777_777 % count][order];
                assert!(line[place].take().is_some());
            }
            assert_eq!(limiter.queue_len(), 1);
            clock.advance(ms(200));
            assert_eq!(waited(last), ms(200));
        }
        // Quadratic, it would take hours.
        assert!(start.elapsed() < secs(50), "{:?}", start.elapsed());
    });
}
