//! A limiter without its type.

mod observe;
#[cfg(all(test, not(tollgate_loom)))]
mod tests;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::{Acquire, Around, Ask, Granted, Limiter, Metered, Stages, forward, sealed::Sealed};
use crate::clock::Clock;
use crate::error::Error;
#[cfg(feature = "metrics")]
use crate::observe::Observe;
use crate::part::Part;
use crate::policy::{Cost, Limit, Quota};
use crate::stats::Stats;
use crate::wait_queue::End;

/// Any [`Limiter`], without its type: for a struct field, a table of limits, or middleware.
///
/// `C` is the cost of a call: permits, unless the policy is a tuple, whose limiter is an
/// `AnyRateLimiter<(u32, u32)>`. It is a handle: clones share the limiter.
///
/// Each call allocates its future, and its grant; a program that knows its policy calls the limiter itself.
///
/// A policy cannot be set here, as its type is not known: keep the limiter itself for that.
///
/// ```
/// use std::collections::HashMap;
/// use std::time::Duration;
/// use tollgate::{AnyRateLimiter, InFlight, Limiter, ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::auto_advance();
/// let search = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), &clock);
/// let uploads = RateLimiter::with_clock(InFlight::new(2), &clock);
/// let mut limits: HashMap<&str, AnyRateLimiter> = HashMap::new();
/// limits.insert("search", AnyRateLimiter::new(search));
/// limits.insert("uploads", AnyRateLimiter::new(uploads));
///
/// limits["search"].acquire(1).await?;
/// assert_eq!(limits["search"].acquire(1).await?.waited(), Duration::from_millis(200));
/// let both = [limits["uploads"].acquire(1).await?, limits["uploads"].acquire(1).await?];
/// assert!(limits["uploads"].try_acquire(1).await.is_err());
/// drop(both); // no longer in flight
/// assert!(limits["uploads"].try_acquire(1).await.is_ok());
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AnyRateLimiter<C: Cost = u32>(Arc<dyn Erased<C>>, Option<observe::Over>);

impl<C: Cost> AnyRateLimiter<C> {
    /// The limiter without its type. Of an `AnyRateLimiter` this is a clone.
    #[must_use]
    pub fn new(limiter: impl Limiter<Cost = C> + 'static) -> Self {
        match (&limiter as &dyn Any).downcast_ref::<Self>() {
            Some(any) => any.clone(),
            None => Self(Arc::new(limiter), None),
        }
    }
}

impl<C: Cost> fmt::Debug for AnyRateLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The methods of [`Limiter`] that each limiter has of its own, in three forms: without a type, for each limiter, and
/// for an [`AnyRateLimiter`]. Those of `asks` are async.
macro_rules! without_a_type {
    (
        asks { $($ask:ident($($what:ident: $of:ty)?) -> $answer:ty;)* }
        tells { $($(#[$only:meta])* $tell:ident($($with:ident: $kind:ty)?) -> $told:ty;)* }
    ) => {
        /// What is asked of a limiter without its type.
        trait Erased<C: Cost>: fmt::Debug + Send + Sync {
            fn caller(&self, ask: &Ask<C>) -> Box<dyn Stages<AnyGrant<C>>>;
            $(fn $ask(&self, $($what: $of)?) -> Answer<'_, $answer>;)*
            $($(#[$only])* fn $tell(&self, $($with: $kind)?) -> $told;)*
        }

        impl<C: Cost, L: Limiter<Cost = C> + 'static> Erased<C> for L {
            fn caller(&self, ask: &Ask<C>) -> Box<dyn Stages<AnyGrant<C>>> {
                Box::new(Acquire::new(self.clone(), *ask))
            }

            $(fn $ask(&self, $($what: $of)?) -> Answer<'_, $answer> {
                Box::pin(Limiter::$ask(self, $($what)?))
            })*

            $($(#[$only])* fn $tell(&self, $($with: $kind)?) -> $told {
                Limiter::$tell(self, $($with)?)
            })*
        }

        impl<C: Cost> Limiter for AnyRateLimiter<C> {
            $(async fn $ask(&self, $($what: $of)?) -> Result<$answer, Error> {
                self.0.$ask($($what)?).await
            })*

            $($(#[$only])* fn $tell(&self, $($with: $kind)?) -> $told {
                self.0.$tell($($with)?)
            })*
        }
    };
}

without_a_type! {
    asks {
        pause_for(duration: Duration) -> ();
        resume() -> ();
        reset() -> ();
        would_wait(n: C) -> Option<Duration>;
        quota() -> Quota<C>;
        limits(cost: C) -> Vec<Limit<C>>;
    }
    tells {
        end(end: End<'_>) -> bool;
        queue_len() -> usize;
        queued_permits() -> u64;
        stats() -> Stats;
        clock() -> &Clock;
        name() -> Option<&str>;
        #[cfg(feature = "metrics")]
        observe() -> Observe;
    }
}

impl<L: Limiter + 'static> Stages<AnyGrant<L::Cost>> for Acquire<L> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<AnyGrant<L::Cost>, Error>> {
        Pin::new(self).poll(context).map_ok(AnyGrant::new)
    }

    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll_enter(context)
    }

    fn delay(&self) -> Duration {
        self.delay()
    }
}

/// A caller of a limiter without its type.
#[allow(missing_debug_implementations)] // no program holds one
pub struct AnyCaller<C: Cost> {
    caller: Box<dyn Stages<AnyGrant<C>>>,
    /// In shadow mode: its cost, and what hears of its refusal.
    shadow: Option<(C, observe::Over)>,
}

impl<C: Cost> Stages<AnyGrant<C>> for AnyCaller<C> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<AnyGrant<C>, Error>> {
        Poll::Ready(match (ready!(self.caller.poll(context)), &self.shadow) {
            (Err(error), Some((cost, over))) if error != Error::Closed => {
                over(&error);
                Ok(AnyGrant::new(observe::LetThrough(*cost)))
            }
            (decided, _) => decided,
        })
    }

    fn poll_enter(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // Nobody waits in shadow mode.
        if self.shadow.is_some() { Poll::Ready(Ok(())) } else { self.caller.poll_enter(context) }
    }

    fn delay(&self) -> Duration {
        self.caller.delay()
    }
}

impl<C: Cost> Sealed for AnyRateLimiter<C> {}

impl<C: Cost> Around for AnyRateLimiter<C> {
    type Cost = C;
    type Grant = AnyGrant<C>;
    type Caller = AnyCaller<C>;

    fn caller(&self, ask: &Ask<C>) -> AnyCaller<C> {
        let shadow = self.1.as_ref().map(|over| (ask.cost, Arc::clone(over)));
        let max_wait = if shadow.is_some() { Some(Duration::ZERO) } else { ask.max_wait };
        AnyCaller { caller: self.0.caller(&Ask { max_wait, ..*ask }), shadow }
    }
}

/// Permits granted by an [`AnyRateLimiter`]. It does not borrow the limiter.
///
/// Dropping it gives back places in flight ([`InFlight`](crate::InFlight)) and nothing else: keep it
/// as long as the call takes.
///
/// ```
/// use tollgate::{AnyRateLimiter, InFlight, Limiter, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let limiter = AnyRateLimiter::new(RateLimiter::new(InFlight::new(2)));
/// let grant = limiter.acquire(2).await?;
/// assert_eq!((grant.cost(), grant.waited().as_millis()), (2, 0));
/// assert!(limiter.try_acquire(1).await.is_err());
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct AnyGrant<C: Cost = u32>(Box<dyn Granted<Cost = C>>);

impl<C: Cost> AnyGrant<C> {
    forward! {
        in Granted {
            /// The permits that were granted; after [`settle`](Self::settle) the corrected number.
            #[must_use]
            cost() -> C;
            /// How long the call waited; see [`Grant::waited`](crate::Grant::waited).
            #[must_use]
            waited() -> Duration;
            /// The rule that made the call wait; see [`Grant::limited_by`](crate::Grant::limited_by).
            #[must_use]
            limited_by() -> Option<Part>;
        }
    }

    /// Corrects the cost once the true one is known; see [`Granted::settle`].
    pub fn settle(&mut self, actual: C) -> impl Future<Output = Result<(), Error>> + Send {
        Granted::settle(self, actual)
    }

    /// Gives the permits back; see [`Grant::refund`](crate::Grant::refund).
    pub fn refund(self) {
        Granted::refund(self);
    }

    /// The grant, settled when it is dropped; see [`Grant::metered`](crate::Grant::metered).
    #[must_use]
    pub fn metered(self) -> Metered<Self> {
        Granted::metered(self)
    }

    pub(crate) fn new(grant: impl Granted<Cost = C> + 'static) -> Self {
        Self(Box::new(grant))
    }
}

impl<C: Cost> Sealed for AnyGrant<C> {}

impl<C: Cost> Granted for AnyGrant<C> {
    type Cost = C;

    fn cost(&self) -> C {
        self.0.cost()
    }

    fn waited(&self) -> Duration {
        self.0.waited()
    }

    fn limited_by(&self) -> Option<Part> {
        self.0.limited_by()
    }

    fn send_settlement(&mut self, actual: C) -> Result<(), Error> {
        self.0.send_settlement(actual)
    }

    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.0.poll_settled(context)
    }

    fn settle_on_drop(&mut self, actual: C) {
        self.0.settle_on_drop(actual);
    }

    fn give_back(&mut self) {
        self.0.give_back();
    }

    fn holds_places(&self) -> bool {
        self.0.holds_places()
    }

    #[cfg(any(feature = "feedback", feature = "tower"))]
    fn receive(&mut self, reply: super::Reply<'_>) -> super::Hearing {
        self.0.receive(reply)
    }

    #[cfg(feature = "reqwest")]
    fn wants_body(&self, status: http::StatusCode, headers: &http::HeaderMap) -> bool {
        self.0.wants_body(status, headers)
    }
}
