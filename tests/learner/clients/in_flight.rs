//! Clients that bound their calls in flight: by a fixed number, by one that AIMD finds, and by one that this crate finds.

use std::cell::RefCell;
use std::rc::Rc;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use tollgate::feedback::{Dialect, Dialects, Feedback};
use tollgate::{Grant, InFlight, RateLimiter, Unlimited};

use super::{Client, Sent};
use crate::server::{Answer, Request};
use crate::world::World;

pub(crate) struct Fixed(RateLimiter<InFlight>);

impl Fixed {
    pub(crate) fn new(world: &World, n: u32) -> Self {
        Self(RateLimiter::with_clock(InFlight::new(n), &world.clock))
    }
}

impl Client for Fixed {
    fn acquire<'a>(&'a self, _: &'a Request) -> LocalBoxFuture<'a, Box<dyn Sent>> {
        async move {
            let grant = self.0.acquire(1).await.expect("a limiter that waits");
            Box::new(grant.into_owned()) as Box<dyn Sent>
        }
        .boxed_local()
    }
}

impl Sent for Grant<'static, InFlight> {
    fn answered(self: Box<Self>, _: &Answer) {}
}

/// One more each round of answers, and a tenth less after a refusal or an answer that took longer than a second.
pub(crate) struct Aimd {
    world: Rc<World>,
    limiter: RateLimiter<InFlight>,
    state: Rc<RefCell<(f64, f64)>>,
}

impl Aimd {
    pub(crate) fn new(world: &Rc<World>, start: u32) -> Self {
        let limiter = RateLimiter::with_clock(InFlight::new(start), &world.clock);
        let state = Rc::new(RefCell::new((f64::from(start), 0.0)));
        Self { world: Rc::clone(world), limiter, state }
    }
}

struct AimdCall {
    world: Rc<World>,
    limiter: RateLimiter<InFlight>,
    state: Rc<RefCell<(f64, f64)>>,
    grant: Grant<'static, InFlight>,
    sent: f64,
}

impl Client for Aimd {
    fn acquire<'a>(&'a self, _: &'a Request) -> LocalBoxFuture<'a, Box<dyn Sent>> {
        async move {
            let grant = self.limiter.acquire(1).await.expect("a limiter that waits").into_owned();
            let (world, limiter) = (Rc::clone(&self.world), self.limiter.clone());
            let (state, sent) = (Rc::clone(&self.state), self.world.now());
            Box::new(AimdCall { world, limiter, state, grant, sent }) as Box<dyn Sent>
        }
        .boxed_local()
    }
}

impl Sent for AimdCall {
    fn answered(self: Box<Self>, answer: &Answer) {
        let now = self.world.now();
        let (n, cut) = &mut *self.state.borrow_mut();
        if answer.is_good() && now - self.sent < 1.0 {
            *n += 1.0 / *n;
        } else if self.sent > *cut {
            (*n, *cut) = ((*n * 0.9).max(1.0), now);
        }
        self.limiter.set_policy(InFlight::new(*n as u32));
        drop(self.grant);
    }
}

/// This crate's, to which a 503 is a refusal.
pub(crate) fn learned(world: &World, start: u32) -> Feedback<RateLimiter<Unlimited>> {
    let limiter = RateLimiter::with_clock(Unlimited, &world.clock);
    let busy = Dialect { refused: &[503], ..Dialect::new("busy", &[]) };
    let builder = Feedback::builder(limiter).dialects(Dialects::default().with(busy)).seed(1);
    builder.learn_in_flight(start).build()
}
