//! Back-off: each call for itself, with full jitter, as most programs do it.

use futures::FutureExt;
use futures::future::{LocalBoxFuture, ready};

use super::{Client, Sent};
use crate::random::Random;
use crate::server::{Answer, Request};

pub(super) struct Backoff {
    /// Whether the time that an answer names is waited besides.
    pub(super) obeys: bool,
}

struct Call;

impl Client for Backoff {
    fn acquire<'a>(&'a self, _: &'a Request) -> LocalBoxFuture<'a, Box<dyn Sent>> {
        ready(Box::new(Call) as Box<dyn Sent>).boxed_local()
    }

    fn before_retry(&self, tries: u32, answer: &Answer, random: &mut Random) -> f64 {
        let named = if self.obeys { answer.retry_after().unwrap_or_default() } else { 0.0 };
        // From one second on, and a minute at most.
        named + random.share() * f64::from(1u32 << tries.min(6))
    }
}

impl Sent for Call {
    fn answered(self: Box<Self>, _: &Answer) {}
}
