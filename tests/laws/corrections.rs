//! Law 10 for limiters and keys in process.

use tollgate::{Grant, KeyedRateLimiter, ManualClock, Policy, RateLimiter};

use crate::oracle::CASES;
use crate::suite::corrections::{Correct, Limiter, hold, policies};

impl<P: Policy<Cost = u32>> Correct for Grant<'_, P> {
    fn cost(&self) -> u32 {
        self.cost()
    }

    fn settle(&mut self, actual: u32) {
        self.settle(actual).expect("small");
    }

    fn refund(self: Box<Self>) {
        (*self).refund();
    }
}

impl<P: Policy<Cost = u32>> Limiter for RateLimiter<P> {
    fn ask(&self, n: u32) -> Option<Box<dyn Correct + '_>> {
        Some(Box::new(self.try_acquire(n).ok()?))
    }

    fn available(&self) -> u32 {
        self.available()
    }
}

impl<P: Policy<Cost = u32>> Limiter for KeyedRateLimiter<u8, P> {
    fn ask(&self, n: u32) -> Option<Box<dyn Correct + '_>> {
        Some(Box::new(self.try_acquire(&1, n).ok()?))
    }

    fn available(&self) -> u32 {
        self.available(&1)
    }
}

fn in_process<P: Policy<Cost = u32>>(policy: &P) {
    let limiter = |clock: &ManualClock| -> Box<dyn Limiter> {
        Box::new(RateLimiter::with_clock(policy.clone(), clock))
    };
    hold(4 * CASES, limiter);
    let keys = |clock: &ManualClock| -> Box<dyn Limiter> {
        Box::new(KeyedRateLimiter::<u8, P>::with_clock(policy.clone(), clock))
    };
    hold(4 * CASES, keys);
}

#[test]
fn law_10_the_true_costs_keep_the_limit_and_little_is_lost() {
    let (bucket, gcra, meter) = policies();
    in_process(&bucket);
    in_process(&gcra);
    in_process(&meter);
}
