//! Does a limiter grant what it may, no more and no less?
//!
//! It is asked without a pause, and its grants are counted against its rate times the time that passed. What it
//! grants at once is taken before. Where the rate is high, each call asks for many permits, because no thread asks
//! 300 million times a second.

use std::num::NonZeroU32;
use std::thread;
use std::time::{Duration, Instant};

use governor::Quota;
use tollgate::{Rate, RateLimiter, TokenBucket};

use crate::limiters::{leaky_bucket, ratelimit};
use crate::measure::{median, print, quick, runtime};

/// What is asked: permits a second, permits a call, threads, and the time between two calls of a thread.
#[derive(Clone, Copy)]
struct Ask {
    name: &'static str,
    rate: u32,
    permits: u32,
    threads: usize,
    every: Duration,
}

const ASKS: [Ask; 6] = {
    let every = Duration::ZERO;
    let often = Ask { name: "1,000/s", rate: 1_000, permits: 1, threads: 1, every };
    let each = Duration::from_micros(2);
    [
        often,
        Ask { name: "400,000/s, asked each 2 us", rate: 400_000, every: each, ..often },
        Ask { name: "1,000,000/s", rate: 1_000_000, ..often },
        Ask { name: "1,000,000/s, two threads", rate: 1_000_000, threads: 2, ..often },
        Ask { name: "30,000,000/s", rate: 30_000_000, permits: 10, ..often },
        Ask { name: "300,000,000/s", rate: 300_000_000, permits: 100, ..often },
    ]
};

pub fn run() {
    let runtime = runtime();
    let _context = runtime.enter();
    let names = ["tollgate", "governor", "leaky-bucket", "ratelimit"];
    for ask in ASKS {
        let mut shares = vec![Vec::new(); names.len()];
        for _ in 0..3 {
            for (share, shares) in ask.each().into_iter().zip(&mut shares) {
                shares.push(share);
            }
        }
        for (name, shares) in names.iter().zip(shares) {
            print(&format!("{name}/{}", ask.name), &[("share", median(shares))]);
        }
    }
}

impl Ask {
    /// A tenth of a second, so that nothing is lost if another program runs for a while.
    fn burst(self) -> u32 {
        self.rate / 10
    }

    /// Grants over what may be granted until the last call.
    fn share(self, call: &(dyn Fn() -> bool + Sync)) -> f64 {
        let span = Duration::from_millis(if quick() { 30 } else { 200 });
        while call() {}
        let start = Instant::now();
        let ask = || {
            let (mut granted, mut next, mut last) = (0_u64, Duration::ZERO, Duration::ZERO);
            while last < span {
                last = start.elapsed();
                granted += u64::from(call());
                next += self.every;
                while start.elapsed() < next {}
            }
            (granted, last)
        };
        let ends: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let granted: u64 = ends.iter().map(|(granted, _)| granted).sum();
        let last = ends.iter().map(|(_, last)| last.as_secs_f64()).fold(0.0, f64::max);
        granted as f64 * f64::from(self.permits) / (f64::from(self.rate) * last)
    }

    /// The shares of all limiters.
    fn each(self) -> [f64; 4] {
        let Self { rate, permits, .. } = self;
        let policy = TokenBucket::new(Rate::per_second(f64::from(rate)), self.burst());
        let tollgate = RateLimiter::new(policy);
        let [a_second, at_once, n] =
            [rate, self.burst(), permits].map(|n| NonZeroU32::new(n).expect("not zero"));
        let quota = Quota::per_second(a_second).allow_burst(at_once);
        let governor = governor::RateLimiter::direct(quota);
        let [refill, max, many] = [rate / 1_000, self.burst(), permits].map(|n| n as usize);
        let leaky_bucket = leaky_bucket(refill, Duration::from_millis(1), 0, max);
        let burst = self.burst().into();
        let ratelimit = ratelimit(rate.into(), Duration::from_secs(1), burst, 0);
        [
            self.share(&|| tollgate.try_acquire(permits).is_ok()),
            self.share(&|| matches!(governor.check_n(n), Ok(Ok(())))),
            self.share(&|| leaky_bucket.try_acquire(many)),
            self.share(&|| ratelimit.try_wait_n(permits.into()).is_ok()),
        ]
    }
}
