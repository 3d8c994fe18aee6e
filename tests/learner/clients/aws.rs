//! The adaptive mode of the AWS SDKs, by its description: a token bucket in the client, whose rate CUBIC sets, over
//! back-off with full jitter. It limits nothing before the first refusal, and takes a bare 5xx for no refusal.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::{Client, Sent};
use crate::random::Random;
use crate::server::{Answer, Request};
use crate::world::World;

/// The part of the rate that a refusal leaves, and the steepness of the curve.
const BETA: f64 = 0.7;
const SCALE: f64 = 0.4;
/// How the rate is measured: in slots of half a second, each worth four fifths of all before.
const SLOT: f64 = 0.5;
const SMOOTH: f64 = 0.8;
const LEAST: f64 = 0.5;
const LONGEST: f64 = 20.0;

pub(super) struct Aws {
    world: Rc<World>,
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    is_on: bool,
    rate: f64,
    most: f64,
    level: f64,
    at: f64,
    /// The rate of the last refusal, its time, and how long the curve takes to come back to it.
    peak: f64,
    refused: f64,
    back_after: f64,
    /// Calls a second, the calls of this slot, and its start.
    measured: f64,
    calls: f64,
    slot: f64,
    /// The calls that wait, in order. Only the first looks at the bucket.
    queue: VecDeque<(u64, Option<Waker>)>,
    came: u64,
}

impl State {
    fn refill(&mut self, now: f64) {
        self.level = (self.level + (now - self.at) * self.rate).min(self.most);
        self.at = now;
    }

    fn measure(&mut self, now: f64) {
        self.calls += 1.0;
        let slot = (now / SLOT).floor() * SLOT;
        if slot > self.slot {
            self.measured =
                self.calls / (slot - self.slot) * SMOOTH + self.measured * (1.0 - SMOOTH);
            (self.calls, self.slot) = (0.0, slot);
        }
    }

    fn answered(&mut self, now: f64, is_refused: bool) {
        self.measure(now);
        let rate = if !is_refused {
            SCALE * (now - self.refused - self.back_after).powi(3) + self.peak
        } else {
            let used = if self.is_on { self.measured.min(self.rate) } else { self.measured };
            if !self.is_on {
                (self.is_on, self.at) = (true, now);
            }
            (self.peak, self.refused) = (used, now);
            self.back_after = (used * (1.0 - BETA) / SCALE).cbrt();
            used * BETA
        };
        if self.is_on {
            self.refill(now);
            self.rate = rate.min(2.0 * self.measured).max(LEAST);
            self.most = self.rate.max(1.0);
            self.level = self.level.min(self.most);
        }
    }
}

impl Aws {
    pub(super) fn new(world: &Rc<World>) -> Self {
        Self { world: Rc::clone(world), state: Rc::default() }
    }

    /// How long until the first of the queue may go; takes its permit if it may go now.
    fn take(&self) -> f64 {
        let mut state = self.state.borrow_mut();
        if state.is_on {
            state.refill(self.world.now());
            if state.level < 1.0 - 1e-6 {
                return ((1.0 - state.level) / state.rate).max(1e-6);
            }
            state.level -= 1.0;
        }
        state.queue.pop_front();
        if let Some(waker) = state.queue.front_mut().and_then(|(_, waker)| waker.take()) {
            waker.wake();
        }
        0.0
    }
}

struct Call {
    world: Rc<World>,
    state: Rc<RefCell<State>>,
}

impl Client for Aws {
    fn acquire<'a>(&'a self, _: &'a Request) -> LocalBoxFuture<'a, Box<dyn Sent>> {
        async move {
            let ticket = {
                let mut state = self.state.borrow_mut();
                state.came += 1;
                let ticket = state.came;
                state.queue.push_back((ticket, None));
                ticket
            };
            poll_fn(|context| {
                let mut state = self.state.borrow_mut();
                let first = state.queue.front().map(|&(first, _)| first).unwrap_or_default();
                if first == ticket {
                    return Poll::Ready(());
                }
                let index = (ticket - first) as usize;
                state.queue[index].1 = Some(context.waker().clone());
                Poll::Pending
            })
            .await;
            loop {
                let wait = self.take();
                if wait == 0.0 {
                    break;
                }
                self.world.sleep(wait).await;
            }
            let call = Call { world: Rc::clone(&self.world), state: Rc::clone(&self.state) };
            Box::new(call) as Box<dyn Sent>
        }
        .boxed_local()
    }

    fn before_retry(&self, tries: u32, _: &Answer, random: &mut Random) -> f64 {
        random.share() * f64::from(1u32 << tries.min(5)).min(LONGEST)
    }

    fn rate(&self) -> Option<f64> {
        let state = self.state.borrow();
        state.is_on.then_some(state.rate)
    }
}

impl Sent for Call {
    fn answered(self: Box<Self>, answer: &Answer) {
        self.state.borrow_mut().answered(self.world.now(), answer.is_refused());
    }
}
