//! The limiters of this crate, by their public interface. The one file to change with it.

use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tollgate::adaptive::{self, Adaptive};
use tollgate::feedback::{self, Feedback};
use tollgate::{OwnedLimiter, Policy, Rate, RateLimiter, SlidingWindowLog, TokenBucket};

use super::{Client, Sent};
use crate::server::{Answer, Request};
use crate::world::World;

/// A limit of the user's own, which the server may lower.
pub(super) fn limited<P: Policy<Cost = u32> + std::fmt::Debug>(
    world: &World,
    limit: P,
    _seed: u64,
) -> Rc<dyn Client> {
    let limiter = Feedback::new(RateLimiter::with_clock(limit, &world.clock));
    Rc::new(Limited { limiter, cost: |_| 1 })
}

/// The same for requests and tokens a minute.
pub(super) fn tokens(world: &World, requests: u32, tokens: u32, _seed: u64) -> Rc<dyn Client> {
    let a_minute = |n: u32| burst(f64::from(n) / 60.0, n);
    let limit = (a_minute(requests), a_minute(tokens));
    let limiter = Feedback::new(RateLimiter::with_clock(limit, &world.clock));
    Rc::new(Limited { limiter, cost: |request: &Request| (1, request.tokens) })
}

/// No limit is known: from `rate` on.
pub(super) fn searching(world: &World, rate: f64, _seed: u64) -> Rc<dyn Client> {
    Rc::new(Searching(Adaptive::new(RateLimiter::with_clock(even(rate), &world.clock))))
}

pub(super) fn even(rate: f64) -> TokenBucket {
    burst(rate, 1)
}

pub(super) fn burst(rate: f64, burst: u32) -> TokenBucket {
    TokenBucket::new(Rate::per_second(rate), burst)
}

pub(super) fn window(n: u32, seconds: f64) -> SlidingWindowLog {
    SlidingWindowLog::new(n, Duration::from_secs_f64(seconds))
}

struct Limited<L: OwnedLimiter> {
    limiter: Feedback<L>,
    cost: fn(&Request) -> L::Cost,
}

impl<L: OwnedLimiter> Client for Limited<L> {
    fn acquire<'a>(&'a self, request: &'a Request) -> LocalBoxFuture<'a, Box<dyn Sent>> {
        let acquire = self.limiter.acquire((self.cost)(request));
        acquire
            .map(|call| Box::new(call.expect("a limiter that waits")) as Box<dyn Sent>)
            .boxed_local()
    }
}

impl<L: OwnedLimiter> Sent for feedback::Call<L> {
    fn answered(mut self: Box<Self>, answer: &Answer) {
        let observed = self.observe(answer.status, &answer.fields).now_or_never();
        observed.expect("in process it takes no time");
    }
}

struct Searching(Adaptive<TokenBucket>);

impl Client for Searching {
    fn acquire<'a>(&'a self, _: &'a Request) -> LocalBoxFuture<'a, Box<dyn Sent>> {
        let acquire = self.0.acquire(1);
        acquire
            .map(|call| Box::new(call.expect("a limiter that waits")) as Box<dyn Sent>)
            .boxed_local()
    }

    fn rate(&self) -> Option<f64> {
        Some(self.0.rate().as_per_second())
    }
}

impl Sent for adaptive::Call<TokenBucket> {
    fn answered(self: Box<Self>, answer: &Answer) {
        self.on_status(answer.status);
    }
}
