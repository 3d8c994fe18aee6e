//! The methods that the laws use, so that any type with them can be tested: a limiter, or one key
//! of many.

use std::pin::Pin;
use std::time::Duration;

use crate::turns::Tenant;
use tollgate::{Error, Grant, KeyedRateLimiter, ManualClock, Policy, RateLimiter, Stats};

/// The methods of a grant, from any kind of limiter.
pub(crate) trait Permits {
    fn waited(&self) -> Duration;

    fn refund(self: Box<Self>);
}

/// A call that was granted or not.
pub(crate) type Answer<'a> = Result<Box<dyn Permits + 'a>, Error>;

/// A caller on its way to a grant.
pub(crate) type Waiting<'a> = Pin<Box<dyn Future<Output = Answer<'a>> + 'a>>;

pub(crate) trait Subject<P: Policy> {
    fn new(policy: P, clock: &ManualClock) -> Self;

    fn acquire(&self, cost: P::Cost, ahead: Duration) -> Waiting<'_>;

    /// A reserved place in the queue, taken without a poll. `None` if the subject has no
    /// reservations.
    fn reserve(&self, cost: P::Cost, ahead: Duration) -> Option<Result<Waiting<'_>, Error>>;

    fn try_acquire(&self, cost: P::Cost) -> Answer<'_>;

    fn try_acquire_timeout(&self, cost: P::Cost, timeout: Duration, ahead: Duration)
    -> Waiting<'_>;

    /// A caller of a tenant, which does not wait yet if `reserved`. Only for limiters that tenants share.
    fn acquire_for(
        &self,
        _tenant: Tenant,
        _cost: P::Cost,
        _timeout: Option<Duration>,
        _reserved: bool,
    ) -> Result<Waiting<'_>, Error> {
        unreachable!("a script without tenants")
    }

    fn set_policy(&self, policy: P);

    fn pause_for(&self, duration: Duration);

    fn available(&self) -> P::Cost;

    fn queue_len(&self) -> usize;

    fn stats(&self) -> Stats;

    /// Makes the level that the last charge found exact, where a word that decides does not record it.
    fn record(&self) {}

    /// A faulty clock goes back to a time since its origin. Returns whether time does so for the subject.
    fn set_back(&self, clock: &ManualClock, elapsed: Duration) -> bool {
        clock.set(elapsed);
        false
    }
}

pub(crate) fn answer<'a, G: Permits + 'a>(answer: Result<G, Error>) -> Answer<'a> {
    answer.map(|grant| -> Box<dyn Permits + 'a> { Box::new(grant) })
}

pub(crate) fn waiting<'a, G: Permits + 'a>(
    future: impl Future<Output = Result<G, Error>> + 'a,
) -> Waiting<'a> {
    Box::pin(async { answer(future.await) })
}

impl<P: Policy> Permits for Grant<'_, P> {
    fn waited(&self) -> Duration {
        self.waited()
    }

    fn refund(self: Box<Self>) {
        (*self).refund();
    }
}

impl<P: Policy> Subject<P> for RateLimiter<P> {
    fn new(policy: P, clock: &ManualClock) -> Self {
        Self::with_clock(policy, clock)
    }

    fn acquire(&self, cost: P::Cost, ahead: Duration) -> Waiting<'_> {
        waiting(self.acquire(cost).ahead_by(ahead))
    }

    fn reserve(&self, cost: P::Cost, ahead: Duration) -> Option<Result<Waiting<'_>, Error>> {
        let place = self.acquire(cost).ahead_by(ahead).reserve();
        Some(place.map(|place| waiting(place.wait())))
    }

    fn try_acquire(&self, cost: P::Cost) -> Answer<'_> {
        answer(self.try_acquire(cost))
    }

    fn try_acquire_timeout(
        &self,
        cost: P::Cost,
        timeout: Duration,
        ahead: Duration,
    ) -> Waiting<'_> {
        waiting(self.try_acquire_timeout(cost, timeout).ahead_by(ahead))
    }

    fn acquire_for(
        &self,
        tenant: Tenant,
        cost: P::Cost,
        timeout: Option<Duration>,
        reserved: bool,
    ) -> Result<Waiting<'_>, Error> {
        let acquire = match timeout {
            None => self.acquire_for(&tenant.id, cost),
            Some(timeout) => self.try_acquire_timeout(cost, timeout).for_tenant(&tenant.id),
        };
        let acquire = acquire.weight(tenant.weight);
        Ok(if reserved { waiting(acquire.reserve()?.wait()) } else { waiting(acquire) })
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

    fn record(&self) {
        // It takes the mutex.
        self.pause_for(Duration::ZERO);
    }
}

/// One key of a keyed limiter. It is kept from being forgotten, because a key that comes back is
/// idle, and the laws begin with a new one. `tests/in_process/keyed` tests forgetting.
pub(crate) struct Key<P: Policy> {
    keys: KeyedRateLimiter<&'static str, P>,
    _kept: Grant<'static, P>,
}

const KEY: &str = "key";

impl<P: Policy> Subject<P> for Key<P> {
    fn new(policy: P, clock: &ManualClock) -> Self {
        let keys = KeyedRateLimiter::builder(policy).clock(clock).absent_is_new(true).build();
        let nothing = keys.try_acquire(&KEY, P::Cost::default());
        let kept = nothing.expect("nothing is always there").into_owned();
        Self { keys, _kept: kept }
    }

    fn acquire(&self, cost: P::Cost, ahead: Duration) -> Waiting<'_> {
        waiting(self.keys.acquire(&KEY, cost).ahead_by(ahead))
    }

    fn reserve(&self, cost: P::Cost, ahead: Duration) -> Option<Result<Waiting<'_>, Error>> {
        let place = self.keys.acquire(&KEY, cost).ahead_by(ahead).reserve();
        Some(place.map(|place| waiting(place.wait())))
    }

    fn try_acquire(&self, cost: P::Cost) -> Answer<'_> {
        answer(self.keys.try_acquire(&KEY, cost))
    }

    fn try_acquire_timeout(
        &self,
        cost: P::Cost,
        timeout: Duration,
        ahead: Duration,
    ) -> Waiting<'_> {
        waiting(self.keys.try_acquire_timeout(&KEY, cost, timeout).ahead_by(ahead))
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
