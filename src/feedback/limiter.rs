//! The limiters that can be taught.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::answer::Unit;
use crate::any::{AnyGrant, AnyRateLimiter, acquire_within};
use crate::clock::Clock;
use crate::error::Error;
use crate::keyed::at_key::AtKey;
use crate::limiter::{Grant, RateLimiter};
use crate::policy::{Cost, Policy};

/// A limiter that a [`Feedback`](super::Feedback) can teach: a [`RateLimiter`], one [key](AtKey) of a
/// [`KeyedRateLimiter`](crate::KeyedRateLimiter), a `RedisRateLimiter`, or any of them as
/// `Arc<dyn AnyRateLimiter>`. The trait is sealed.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::feedback::Feedback;
/// use tollgate::{AnyRateLimiter, InFlight, KeyedRateLimiter, RateLimiter};
///
/// let one = Feedback::new(RateLimiter::new(InFlight::new(10)));
/// let key = Feedback::new(KeyedRateLimiter::new(InFlight::new(10)).at("api.example.com"));
/// let any: Arc<dyn AnyRateLimiter> = Arc::new(RateLimiter::new(InFlight::new(10)));
/// let any = Feedback::new(any);
/// ```
pub trait Limiter: sealed::Sealed + Send + Sync + 'static {
    /// The cost of a call: a number, or a tuple of numbers.
    type Cost: Cost;
    /// What was granted.
    type Grant: Send + 'static;

    #[doc(hidden)]
    fn acquire(
        &self,
        n: Self::Cost,
        max_wait: Option<Duration>,
    ) -> impl Future<Output = Result<Self::Grant, Error>> + Send;
    #[doc(hidden)]
    fn pause_for(&self, duration: Duration) -> impl Future<Output = Result<(), Error>> + Send;
    #[doc(hidden)]
    fn resume(&self) -> impl Future<Output = Result<(), Error>> + Send;
    #[doc(hidden)]
    fn shrink_to(
        &self,
        remaining: Self::Cost,
    ) -> impl Future<Output = Result<Self::Grant, Error>> + Send;
    #[doc(hidden)]
    fn refund(grant: Self::Grant);
    #[doc(hidden)]
    fn cost(grant: &Self::Grant) -> Self::Cost;
    #[doc(hidden)]
    fn clock(&self) -> &Clock;
    /// Whether each of these is a request to a server.
    #[doc(hidden)]
    const IS_REMOTE: bool = false;
}

mod sealed {
    /// Keeps [`Limiter`](super::Limiter) to this crate.
    pub trait Sealed {}
}

/// What each number of a cost counts.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) of: Vec<Option<Unit>>,
    /// Whether the program has said so. Else a call is one request, whatever its first number is.
    is_said: bool,
}

impl Default for Counts {
    fn default() -> Self {
        Self { of: vec![Some(Unit::Requests), Some(Unit::Tokens)], is_said: false }
    }
}

impl FromIterator<Option<Unit>> for Counts {
    fn from_iter<I: IntoIterator<Item = Option<Unit>>>(units: I) -> Self {
        Self { of: units.into_iter().collect(), is_said: true }
    }
}

impl Counts {
    /// How much of each unit a cost is. If no number counts requests, a call is one.
    pub(super) fn units<C: Cost>(&self, cost: C) -> [u32; 4] {
        let mut units = [0; 4];
        let numbers = self.of.iter().enumerate().take(C::NUMBERS);
        for (index, unit) in numbers.clone().filter_map(|(index, unit)| Some((index, (*unit)?))) {
            let sum = &mut units[unit.index()];
            *sum = u32::saturating_add(*sum, cost.number(index));
        }
        let requests = &mut units[Unit::Requests.index()];
        if !numbers.into_iter().any(|(_, &unit)| unit == Some(Unit::Requests)) {
            *requests = 1;
        } else if !self.is_said {
            *requests = 1.min(*requests);
        }
        units
    }

    /// Whether a call of this cost shows that the first number does not count requests: a call is one.
    pub(super) fn differs<C: Cost>(&self, cost: C) -> bool {
        !self.is_said && cost.number(0) > 1
    }
}

impl<P: Policy> sealed::Sealed for RateLimiter<P> {}

impl<P: Policy> Limiter for RateLimiter<P> {
    type Cost = P::Cost;
    type Grant = Grant<'static, P>;

    async fn acquire(&self, n: P::Cost, max_wait: Option<Duration>) -> Result<Self::Grant, Error> {
        match max_wait {
            None => self.acquire_owned(n).await,
            Some(max_wait) => self.acquire_owned_within(n, max_wait).await,
        }
    }

    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.pause_for(duration);
        Ok(())
    }

    async fn resume(&self) -> Result<(), Error> {
        self.resume();
        Ok(())
    }

    async fn shrink_to(&self, remaining: P::Cost) -> Result<Self::Grant, Error> {
        Ok(self.shrink_to(remaining).into_owned())
    }

    fn refund(grant: Self::Grant) {
        grant.refund();
    }

    fn cost(grant: &Self::Grant) -> P::Cost {
        grant.cost()
    }

    fn clock(&self) -> &Clock {
        self.clock()
    }
}

impl<K, P: Policy, S> sealed::Sealed for AtKey<K, P, S> {}

impl<K, P, S> Limiter for AtKey<K, P, S>
where
    K: Clone + fmt::Debug + Hash + Eq + Send + Sync + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    type Cost = P::Cost;
    type Grant = Grant<'static, P>;

    async fn acquire(&self, n: P::Cost, max_wait: Option<Duration>) -> Result<Self::Grant, Error> {
        self.limiter().acquire_within(self.key().clone(), n, max_wait).await
    }

    async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
        self.limiter().pause_for(self.key(), duration)
    }

    async fn resume(&self) -> Result<(), Error> {
        self.limiter().resume(self.key())
    }

    async fn shrink_to(&self, remaining: P::Cost) -> Result<Self::Grant, Error> {
        self.limiter().shrink_to(self.key(), remaining)
    }

    fn refund(grant: Self::Grant) {
        grant.refund();
    }

    fn cost(grant: &Self::Grant) -> P::Cost {
        grant.cost()
    }

    fn clock(&self) -> &Clock {
        self.limiter().clock()
    }
}

macro_rules! any {
    ($any:ty) => {
        impl<C: Cost> sealed::Sealed for $any {}

        impl<C: Cost> Limiter for $any {
            type Cost = C;
            type Grant = AnyGrant<C>;

            async fn acquire(
                &self,
                n: C,
                max_wait: Option<Duration>,
            ) -> Result<AnyGrant<C>, Error> {
                acquire_within(&**self, n, max_wait).await
            }

            async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
                (**self).pause_for(duration).await
            }

            async fn resume(&self) -> Result<(), Error> {
                (**self).resume().await
            }

            async fn shrink_to(&self, remaining: C) -> Result<AnyGrant<C>, Error> {
                (**self).shrink_to(remaining).await
            }

            fn refund(grant: AnyGrant<C>) {
                grant.refund();
            }

            fn cost(grant: &AnyGrant<C>) -> C {
                grant.cost()
            }

            fn clock(&self) -> &Clock {
                (**self).clock()
            }

            const IS_REMOTE: bool = true;
        }
    };
}

any!(Arc<dyn AnyRateLimiter<C>>);
any!(Box<dyn AnyRateLimiter<C>>);
any!(AnyLimiter<C>);

/// An `Arc<dyn AnyRateLimiter<C>>`, as the layers and middleware of this crate have it.
///
/// ```
/// use std::sync::Arc;
/// use tollgate::feedback::{AnyLimiter, Feedback};
/// use tollgate::{AnyRateLimiter, InFlight, RateLimiter};
///
/// let any: Arc<dyn AnyRateLimiter> = Arc::new(RateLimiter::new(InFlight::new(10)));
/// let feedback = Feedback::new(AnyLimiter::from(any));
/// ```
// A type without a lifetime: async code that is generic in `C` does not compile with one.
#[derive(Clone, Debug)]
pub struct AnyLimiter<C: Cost = u32>(Arc<dyn AnyRateLimiter<C>>);

impl<C: Cost> From<Arc<dyn AnyRateLimiter<C>>> for AnyLimiter<C> {
    fn from(limiter: Arc<dyn AnyRateLimiter<C>>) -> Self {
        Self(limiter)
    }
}

impl<C: Cost> Deref for AnyLimiter<C> {
    type Target = dyn AnyRateLimiter<C>;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

#[cfg(feature = "redis")]
mod redis {
    use std::time::Duration;

    use super::{Limiter, sealed};
    use crate::clock::Clock;
    use crate::error::Error;
    use crate::redis::{Connection, RedisGrant, RedisRateLimiter, Scripted};

    impl<P: Scripted, C: Connection> sealed::Sealed for RedisRateLimiter<P, C> {}

    impl<P: Scripted, C: Connection> Limiter for RedisRateLimiter<P, C> {
        type Cost = P::Cost;
        type Grant = RedisGrant<P, C>;

        async fn acquire(
            &self,
            n: P::Cost,
            max_wait: Option<Duration>,
        ) -> Result<Self::Grant, Error> {
            self.acquire_within(n, max_wait).await
        }

        async fn pause_for(&self, duration: Duration) -> Result<(), Error> {
            self.pause_for(duration).await
        }

        async fn resume(&self) -> Result<(), Error> {
            self.resume().await
        }

        async fn shrink_to(&self, remaining: P::Cost) -> Result<Self::Grant, Error> {
            self.shrink_to(remaining).await
        }

        fn refund(grant: Self::Grant) {
            grant.refund();
        }

        fn cost(grant: &Self::Grant) -> P::Cost {
            grant.cost()
        }

        fn clock(&self) -> &Clock {
            self.clock()
        }

        const IS_REMOTE: bool = true;
    }
}
