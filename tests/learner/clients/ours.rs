//! The limiters of this crate, by their public interface. The one file to change with it.

use std::fmt::Debug;
use std::rc::Rc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tollgate::feedback::{Call, Feedback, FeedbackBuilder, Servers};
use tollgate::{Limiter, Policy, Rate, RateLimiter, SlidingWindowLog, TokenBucket, Unlimited};

use super::{Client, Sent};
use crate::server::{Answer, Request};
use crate::world::World;

/// A limit of the user's own, which a server may lower for its calls.
pub(super) fn limited<P: Policy<Cost = u32> + Debug>(
    world: &World,
    limit: P,
    seed: u64,
) -> Rc<dyn Client> {
    let limiter = RateLimiter::with_clock(limit, &world.clock);
    let servers =
        Servers::with(limiter, move |feedback: FeedbackBuilder<_>| feedback.seed(seed + 1));
    Rc::new(Limited { servers, cost: |_| 1 })
}

/// The same for requests and tokens a minute.
pub(super) fn tokens(world: &World, requests: u32, tokens: u32, seed: u64) -> Rc<dyn Client> {
    let a_minute = |n: u32| burst(f64::from(n) / 60.0, n);
    let limiter = RateLimiter::with_clock((a_minute(requests), a_minute(tokens)), &world.clock);
    let servers =
        Servers::with(limiter, move |feedback: FeedbackBuilder<_>| feedback.seed(seed + 1));
    Rc::new(Limited { servers, cost: |request: &Request| (1, request.tokens) })
}

/// No limit is known: from `rate` on.
pub(super) fn searching(world: &World, rate: f64, seed: u64) -> Rc<dyn Client> {
    let limiter = RateLimiter::with_clock(Unlimited, &world.clock);
    let builder = Feedback::builder(limiter).start(Rate::per_second(rate)).seed(seed + 1);
    Rc::new(builder.build())
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

struct Limited<L: Limiter + 'static> {
    servers: Servers<L>,
    cost: fn(&Request) -> L::Cost,
}

impl<L: Limiter + 'static> Client for Limited<L> {
    fn acquire<'a>(&'a self, request: &'a Request) -> LocalBoxFuture<'a, Box<dyn Sent>> {
        async move {
            let server = self.servers.at(["one", "other"][request.host], request.route);
            let call = server.acquire((self.cost)(request)).await;
            Box::new(call.expect("a limiter that waits")) as Box<dyn Sent>
        }
        .boxed_local()
    }
}

impl Client for Feedback<RateLimiter<Unlimited>> {
    fn acquire<'a>(&'a self, _: &'a Request) -> LocalBoxFuture<'a, Box<dyn Sent>> {
        let acquire = self.acquire(1);
        acquire
            .map(|call| Box::new(call.expect("a limiter that waits")) as Box<dyn Sent>)
            .boxed_local()
    }

    fn rate(&self) -> Option<f64> {
        self.rate().map(Rate::as_per_second)
    }
}

impl<L: Limiter + 'static> Sent for Call<L> {
    fn answered(mut self: Box<Self>, answer: &Answer) {
        let observed = self.observe(answer.status, &answer.fields).now_or_never();
        observed.expect("in process it takes no time");
    }
}
