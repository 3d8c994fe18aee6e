//! The clients that are compared.

mod aws;
mod backoff;
mod in_flight;
mod ours;

pub(crate) use in_flight::{Aimd, Fixed, learned};

use std::rc::Rc;

use futures::future::LocalBoxFuture;

use crate::random::Random;
use crate::server::{Answer, Request};
use crate::world::World;

/// One process, with a limiter or none.
pub(crate) trait Client {
    /// Waits until a call may go.
    fn acquire<'a>(&'a self, request: &'a Request) -> LocalBoxFuture<'a, Box<dyn Sent>>;

    /// How long a call that was refused or failed waits until it asks again, the first time with 0 tries.
    fn before_retry(&self, _tries: u32, _answer: &Answer, _random: &mut Random) -> f64 {
        0.0
    }

    /// Calls a second, if it has learned some.
    fn rate(&self) -> Option<f64> {
        None
    }
}

/// A call under way.
pub(crate) trait Sent {
    fn answered(self: Box<Self>, answer: &Answer);
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// Back-off with full jitter.
    Backoff,
    /// The same after the time that a refusal names.
    Obeying,
    /// As the adaptive mode of the AWS SDKs.
    Aws,
    /// A limiter of this crate.
    Ours,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Backoff, Self::Obeying, Self::Aws, Self::Ours];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Backoff => "back-off",
            Self::Obeying => "obeying back-off",
            Self::Aws => "AWS's adaptive mode",
            Self::Ours => "tollgate",
        }
    }

    /// `knows`: what a limiter of this crate is told; the others are told nothing.
    pub(crate) fn client(self, world: &Rc<World>, knows: Knows, seed: u64) -> Rc<dyn Client> {
        match self {
            Self::Backoff => Rc::new(backoff::Backoff { obeys: false }),
            Self::Obeying => Rc::new(backoff::Backoff { obeys: true }),
            Self::Aws => Rc::new(aws::Aws::new(world)),
            Self::Ours => match knows {
                Knows::Start(rate) => ours::searching(world, rate, seed),
                Knows::Even(rate) => ours::limited(world, ours::even(rate), seed),
                Knows::Burst(rate, burst) => ours::limited(world, ours::burst(rate, burst), seed),
                Knows::Window(n, seconds) => ours::limited(world, ours::window(n, seconds), seed),
                Knows::Tokens(requests, tokens) => ours::tokens(world, requests, tokens, seed),
            },
        }
    }
}

/// What the user of a limiter says about the quota. Rates are in calls a second.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Knows {
    /// Nothing: where to begin.
    Start(f64),
    /// A rate, evenly spaced.
    Even(f64),
    /// A rate, and how many at once.
    Burst(f64, u32),
    /// Calls in any span of this length in seconds.
    Window(u32, f64),
    /// Requests and tokens a minute.
    Tokens(u32, u32),
}
