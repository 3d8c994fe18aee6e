//! The limiters that the laws are about. Each is a [`Limiter`], whatever it is made of; a [`Subject`] makes one, and
//! does what that trait does not.

use std::fmt::Debug;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{
    AtKey, Cost, Error, Grant, Granted, KeyedRateLimiter, Limiter, ManualClock, Policy, Queue,
    RateLimiter,
};

/// A grant of any kind of limiter.
pub(crate) trait Permits<C> {
    fn cost(&self) -> C;

    fn waited(&self) -> Duration;

    fn settle(&mut self, actual: C) -> Result<(), Error>;

    fn refund(self: Box<Self>);
}

/// A call that was granted or not.
pub(crate) type Answer<'a, C> = Result<Box<dyn Permits<C> + 'a>, Error>;

/// A caller on its way to a grant.
pub(crate) type Waiting<'a, C> = Pin<Box<dyn Future<Output = Answer<'a, C>> + 'a>>;

pub(crate) trait Subject<P: Policy> {
    type Limiter: Limiter<Cost = P::Cost, Owned: Queue<Cost = P::Cost, Grant: 'static>> + 'static;

    fn new(policy: P, clock: &ManualClock) -> Self;

    fn limiter(&self) -> &Self::Limiter;

    /// A call that is decided at once, by a method of its own where there is one.
    fn try_acquire(&self, cost: P::Cost) -> Answer<'_, P::Cost> {
        answer(at_once(tollgate::Limiter::try_acquire(self.limiter(), cost)))
    }

    fn set_policy(&self, policy: P);

    /// Makes the level that the last charge found exact, where a word that decides does not record it.
    fn record(&self) {}

    /// A faulty clock goes back to a time since its origin. Returns whether time does so for the subject.
    fn set_back(&self, clock: &ManualClock, elapsed: Duration) -> bool {
        clock.set(elapsed);
        false
    }
}

/// The output of a future that need not wait: in process, or for a reply that is there at once.
#[track_caller]
pub(crate) fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("answers are there at once"),
    }
}

pub(crate) fn answer<'a, C: Cost, G: Granted<Cost = C> + 'a>(
    answer: Result<G, Error>,
) -> Answer<'a, C> {
    answer.map(|grant| -> Box<dyn Permits<C> + 'a> { Box::new(grant) })
}

pub(crate) fn waiting<'a, C: Cost, G: Granted<Cost = C> + 'a>(
    future: impl Future<Output = Result<G, Error>> + 'a,
) -> Waiting<'a, C> {
    Box::pin(async { answer(future.await) })
}

impl<C: Cost, G: Granted<Cost = C>> Permits<C> for G {
    fn cost(&self) -> C {
        Granted::cost(self)
    }

    fn waited(&self) -> Duration {
        Granted::waited(self)
    }

    fn settle(&mut self, actual: C) -> Result<(), Error> {
        at_once(Granted::settle(self, actual))
    }

    fn refund(self: Box<Self>) {
        Granted::refund(*self);
    }
}

impl<P: Policy + Debug> Subject<P> for RateLimiter<P> {
    type Limiter = Self;

    fn new(policy: P, clock: &ManualClock) -> Self {
        Self::with_clock(policy, clock)
    }

    fn limiter(&self) -> &Self {
        self
    }

    fn try_acquire(&self, cost: P::Cost) -> Answer<'_, P::Cost> {
        answer(self.try_acquire(cost))
    }

    fn set_policy(&self, policy: P) {
        self.set_policy(policy);
    }

    fn record(&self) {
        // It takes the mutex.
        self.pause_for(Duration::ZERO);
    }
}

/// One key of a keyed limiter. It is kept from being forgotten, because a key that comes back is
/// idle, and the laws begin with a new one. `tests/in_process/keyed` tests forgetting.
pub(crate) struct Key<P: Policy> {
    keys: KeyedRateLimiter<String, P>,
    key: AtKey<'static, 'static, str, P>,
    _kept: Grant<'static, P>,
}

const KEY: &str = "key";

impl<P: Policy + Debug> Subject<P> for Key<P> {
    type Limiter = AtKey<'static, 'static, str, P>;

    fn new(policy: P, clock: &ManualClock) -> Self {
        let keys = KeyedRateLimiter::builder(policy).clock(clock).absent_is_new(true).build();
        let nothing = keys.at(KEY).try_acquire(P::Cost::default());
        let kept = nothing.expect("nothing is always there").into_owned();
        Self { key: keys.at(KEY).into_owned(), keys, _kept: kept }
    }

    fn limiter(&self) -> &Self::Limiter {
        &self.key
    }

    fn try_acquire(&self, cost: P::Cost) -> Answer<'_, P::Cost> {
        answer(self.keys.at(KEY).try_acquire(cost))
    }

    fn set_policy(&self, policy: P) {
        self.keys.set_policy(policy);
    }
}
