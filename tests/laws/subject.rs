//! The verbs that the laws are about, so that whatever has them can be held to the laws: a limiter,
//! or one key of many.

use std::pin::Pin;
use std::time::Duration;

use tollgate::{Error, Grant, KeyedRateLimiter, ManualClock, Policy, RateLimiter, Stats};

/// A caller on its way to a grant.
pub(crate) type Waiting<'a, P> = Pin<Box<dyn Future<Output = Result<Grant<'a, P>, Error>> + 'a>>;

pub(crate) trait Subject<P: Policy> {
    fn new(policy: P, clock: &ManualClock) -> Self;

    fn acquire(&self, cost: P::Cost) -> Waiting<'_, P>;

    /// A place in line that is taken without being polled. `None` where there is no such thing.
    fn reserve(&self, cost: P::Cost) -> Option<Result<Waiting<'_, P>, Error>>;

    fn try_acquire(&self, cost: P::Cost) -> Result<Grant<'_, P>, Error>;

    fn try_acquire_timeout(&self, cost: P::Cost, timeout: Duration) -> Waiting<'_, P>;

    fn set_policy(&self, policy: P);

    fn pause_for(&self, duration: Duration);

    fn available(&self) -> P::Cost;

    fn queue_len(&self) -> usize;

    fn stats(&self) -> Stats;
}

impl<P: Policy> Subject<P> for RateLimiter<P> {
    fn new(policy: P, clock: &ManualClock) -> Self {
        Self::with_clock(policy, clock)
    }

    fn acquire(&self, cost: P::Cost) -> Waiting<'_, P> {
        Box::pin(self.acquire(cost))
    }

    fn reserve(&self, cost: P::Cost) -> Option<Result<Waiting<'_, P>, Error>> {
        Some(self.reserve(cost).map(|place| -> Waiting<'_, P> { Box::pin(place.wait()) }))
    }

    fn try_acquire(&self, cost: P::Cost) -> Result<Grant<'_, P>, Error> {
        self.try_acquire(cost)
    }

    fn try_acquire_timeout(&self, cost: P::Cost, timeout: Duration) -> Waiting<'_, P> {
        Box::pin(self.try_acquire_timeout(cost, timeout))
    }

    fn set_policy(&self, policy: P) {
        self.set_policy(policy);
    }

    fn pause_for(&self, duration: Duration) {
        self.pause_for(duration);
    }

    fn available(&self) -> P::Cost {
        self.available()
    }

    fn queue_len(&self) -> usize {
        self.queue_len()
    }

    fn stats(&self) -> Stats {
        self.stats()
    }
}

/// One key of a keyed limiter. It is kept from being forgotten, because a key that comes back is an
/// idle one, and the laws begin with a new one; what forgetting does is shown by `tests/keyed`.
pub(crate) struct Key<P: Policy> {
    keys: KeyedRateLimiter<&'static str, P>,
    _kept: Grant<'static, P>,
}

const KEY: &str = "key";

impl<P: Policy> Subject<P> for Key<P> {
    fn new(policy: P, clock: &ManualClock) -> Self {
        let keys = KeyedRateLimiter::with_clock(policy, clock).absent_is_new();
        let nothing = keys.try_acquire(&KEY, P::Cost::default());
        let kept = nothing.expect("nothing is always there").into_owned();
        Self { keys, _kept: kept }
    }

    fn acquire(&self, cost: P::Cost) -> Waiting<'_, P> {
        Box::pin(self.keys.acquire(&KEY, cost))
    }

    fn reserve(&self, cost: P::Cost) -> Option<Result<Waiting<'_, P>, Error>> {
        let place = self.keys.reserve(&KEY, cost);
        Some(place.map(|place| -> Waiting<'_, P> { Box::pin(place.wait()) }))
    }

    fn try_acquire(&self, cost: P::Cost) -> Result<Grant<'_, P>, Error> {
        self.keys.try_acquire(&KEY, cost)
    }

    fn try_acquire_timeout(&self, cost: P::Cost, timeout: Duration) -> Waiting<'_, P> {
        Box::pin(self.keys.try_acquire_timeout(&KEY, cost, timeout))
    }

    fn set_policy(&self, policy: P) {
        self.keys.set_policy(policy);
    }

    fn pause_for(&self, duration: Duration) {
        self.keys.pause_for(&KEY, duration).expect("room for one key");
    }

    fn available(&self) -> P::Cost {
        self.keys.available(&KEY)
    }

    fn queue_len(&self) -> usize {
        self.keys.queue_len(&KEY)
    }

    fn stats(&self) -> Stats {
        self.keys.stats()
    }
}
