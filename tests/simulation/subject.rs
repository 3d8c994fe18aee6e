//! Any limiter behind one object.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use futures::FutureExt;
use tollgate::feedback::Call;
use tollgate::{
    Acquire, AnyRateLimiter, Error, Granted, Limiter, Queue, Quota, RateLimiter, Reservation,
    Stats, Unlimited,
};

pub(crate) type Pinned<T> = Pin<Box<dyn Future<Output = T>>>;

pub(crate) type Answer = Result<Box<dyn Held>, Error>;

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) n: u32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) ahead: Duration,
    /// A tenant and its weight.
    pub(crate) tenant: Option<(u8, u32)>,
}

impl Ask {
    fn of<L: Limiter<Cost = u32>>(&self, limiter: &L) -> Acquire<L> {
        let acquire = match self.timeout {
            None => Limiter::acquire(limiter, self.n),
            Some(Duration::ZERO) => Limiter::try_acquire(limiter, self.n),
            Some(timeout) => Limiter::try_acquire_timeout(limiter, self.n, timeout),
        };
        let acquire = if self.ahead.is_zero() { acquire } else { acquire.ahead_by(self.ahead) };
        match self.tenant {
            Some((tenant, weight)) => acquire.for_tenant(&tenant).weight(weight),
            None => acquire,
        }
    }
}

pub(crate) trait Subject {
    fn ask(&self, ask: &Ask) -> Pinned<Answer>;
    fn enter(&self, ask: &Ask) -> Result<Box<dyn Place>, Error>;
    /// Runs `work`, and settles the cost by its output.
    fn run(
        &self,
        n: u32,
        work: Pin<Box<dyn Future<Output = u32> + Send>>,
    ) -> Pinned<Result<u32, Error>>;
    fn pause_for(&self, duration: Duration);
    fn resume(&self);
    fn reset(&self);
    fn close(&self);
    fn drain(&self) -> Pinned<()>;
    fn is_closed(&self) -> bool;
    fn quota(&self) -> Quota<u32>;
    /// All other questions.
    fn look(&self, n: u32);
    fn queue_len(&self) -> usize;
    fn stats(&self) -> Stats;
}

/// The output of a future that need not wait.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a limiter in process answers at once")
}

fn held<G: Granted<Cost = u32> + 'static>(grant: G) -> Box<dyn Held> {
    Box::new(grant)
}

impl<L: Limiter<Cost = u32, Owned: Queue<Grant: 'static>> + 'static> Subject for L {
    fn ask(&self, ask: &Ask) -> Pinned<Answer> {
        Box::pin(ask.of(self).map(|answer| answer.map(held)))
    }

    fn enter(&self, ask: &Ask) -> Result<Box<dyn Place>, Error> {
        Ok(Box::new(at_once(ask.of(self).reserve())?))
    }

    fn run(
        &self,
        n: u32,
        work: Pin<Box<dyn Future<Output = u32> + Send>>,
    ) -> Pinned<Result<u32, Error>> {
        let limiter = self.clone();
        Box::pin(async move { Limiter::run_metered(&limiter, n, work, |&actual| actual).await })
    }

    fn pause_for(&self, duration: Duration) {
        at_once(Limiter::pause_for(self, duration)).expect("room for the key");
    }

    fn resume(&self) {
        at_once(Limiter::resume(self)).expect("room for the key");
    }

    fn reset(&self) {
        at_once(Limiter::reset(self)).expect("room for the key");
    }

    fn close(&self) {
        Limiter::close(self);
    }

    fn drain(&self) -> Pinned<()> {
        let limiter = self.clone();
        Box::pin(async move { Limiter::drain(&limiter).await })
    }

    fn is_closed(&self) -> bool {
        Limiter::is_closed(self)
    }

    fn quota(&self) -> Quota<u32> {
        at_once(Limiter::quota(self)).expect("in process")
    }

    fn look(&self, n: u32) {
        let _ = at_once(Limiter::would_wait(self, n));
        let _ = (self.queued_permits(), format!("{self:?}"));
    }

    fn queue_len(&self) -> usize {
        Limiter::queue_len(self)
    }

    fn stats(&self) -> Stats {
        Limiter::stats(self)
    }
}

/// A place in a queue.
pub(crate) trait Place {
    fn delay(&self) -> Duration;
    fn wait(self: Box<Self>) -> Pinned<Answer>;
}

impl<L> Place for Reservation<L>
where
    L: Queue<Cost = u32, Grant: 'static> + Send + 'static,
{
    fn delay(&self) -> Duration {
        Reservation::delay(self)
    }

    fn wait(self: Box<Self>) -> Pinned<Answer> {
        Box::pin((*self).wait().map(|answer| answer.map(held)))
    }
}

/// A grant.
pub(crate) trait Held: Any {
    fn cost(&self) -> u32;
    fn waited(&self) -> Duration;
    fn settle(&mut self, actual: u32) -> Result<(), Error>;
    fn refund(self: Box<Self>);
    /// Drops it with its cost reported.
    fn meter(self: Box<Self>, actual: u32);
}

impl<G: Granted<Cost = u32> + 'static> Held for G {
    fn cost(&self) -> u32 {
        Granted::cost(self)
    }

    fn waited(&self) -> Duration {
        Granted::waited(self)
    }

    fn settle(&mut self, actual: u32) -> Result<(), Error> {
        at_once(Granted::settle(self, actual))
    }

    fn refund(self: Box<Self>) {
        Granted::refund(*self);
    }

    fn meter(self: Box<Self>, actual: u32) {
        Granted::metered(*self).set(actual);
    }
}

impl dyn Held {
    /// A simulated server answers.
    pub(crate) fn hear(&mut self, answer: Said) {
        let any = self as &mut dyn Any;
        if let Some(call) = any.downcast_mut::<Call<AnyRateLimiter<u32>>>() {
            answer.to(call);
        } else if let Some(call) = any.downcast_mut::<Call<RateLimiter<Unlimited>>>() {
            answer.to(call);
        }
    }
}

/// What a server says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Said {
    Accepted,
    Refused(Option<Duration>),
    Failed,
    /// How much remains, and for how many seconds.
    Remaining(u32, u32),
}

impl Said {
    fn to<L: Limiter + 'static>(self, call: &mut Call<L>) {
        match self {
            Self::Accepted => call.accepted(),
            Self::Refused(after) => at_once(call.refused(after)),
            Self::Failed => call.failed(),
            Self::Remaining(remaining, seconds) => {
                let headers = [
                    ("x-ratelimit-remaining", remaining.to_string()),
                    ("x-ratelimit-reset", seconds.to_string()),
                ];
                at_once(call.observe(200u16, &headers));
            }
        }
    }
}
