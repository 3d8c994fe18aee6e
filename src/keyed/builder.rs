//! The options of a keyed limiter.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::Duration;

use super::KeyedRateLimiter;
use super::hash::FastHash;
use super::policy_source::{BoundsOf, PolicySource};
use super::shard::Settings;
use super::table::{MAX_KEYS, Options, Table};
use crate::clock::Clock;
use crate::observe::{Event, Reports};
use crate::policy::Policy;
use crate::wait_queue::Bounds;

/// Makes a [`KeyedRateLimiter`]; see [`KeyedRateLimiter::builder`].
///
/// The default is stated at each method. Options are fixed once the limiter is built, and its clones share
/// them.
///
/// ```
/// use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
///
/// let policy = TokenBucket::new(Rate::per_second(10.0), 20);
/// let limiter: KeyedRateLimiter<String, _> = KeyedRateLimiter::builder(policy)
///     .name("per customer")
///     .clock(ManualClock::new())
///     .max_keys(10_000)
///     .build();
/// assert_eq!((limiter.name(), limiter.max_keys()), (Some("per customer"), 10_000));
/// ```
#[must_use = "call `build` to get the limiter"]
pub struct KeyedRateLimiterBuilder<K, P, S = FastHash> {
    rule: PolicySource<K, P>,
    bounds_of: Option<BoundsOf<K>>,
    clock: Option<Clock>,
    hasher: S,
    options: Options,
}

impl<K: Hash + Eq + Send + 'static, P: Policy> KeyedRateLimiter<K, P> {
    /// Returns a builder that sets the clock, a name and bounds.
    ///
    /// ```
    /// use tollgate::{KeyedRateLimiter, Rate, TokenBucket};
    ///
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 10);
    /// let limiter = KeyedRateLimiter::<u64, _>::builder(policy).max_keys(1_000).build();
    /// assert_eq!(limiter.max_keys(), 1_000);
    /// ```
    pub fn builder(policy: P) -> KeyedRateLimiterBuilder<K, P> {
        KeyedRateLimiterBuilder::one(policy)
    }

    /// As [`builder`](Self::builder), with a policy by key; see
    /// [`with_policies`](Self::with_policies).
    ///
    /// ```
    /// use tollgate::{KeyedRateLimiter, Rate, TokenBucket};
    ///
    /// let policy_of = |&size: &u32| TokenBucket::new(Rate::per_second(5.0), size);
    /// let limiter = KeyedRateLimiter::builder_with_policies(policy_of).max_keys(1_000).build();
    /// assert_eq!((limiter.available(&3), limiter.available(&30)), (3, 30));
    /// ```
    pub fn builder_with_policies(
        policy_of: impl Fn(&K) -> P + Send + Sync + 'static,
    ) -> KeyedRateLimiterBuilder<K, P> {
        KeyedRateLimiterBuilder::each(policy_of)
    }
}

impl<K: Hash + Eq + Send + 'static, P: Policy> KeyedRateLimiterBuilder<K, P> {
    fn one(policy: P) -> Self {
        Self::new(PolicySource::One(policy))
    }

    fn each(policy_of: impl Fn(&K) -> P + Send + Sync + 'static) -> Self {
        Self::new(PolicySource::Each(Arc::new(policy_of)))
    }

    fn new(rule: PolicySource<K, P>) -> Self {
        let settings = Settings { bounds: Bounds::NONE, absent_is_new: false };
        Self {
            rule,
            bounds_of: None,
            clock: None,
            hasher: FastHash::new(),
            options: Options { reports: Reports::default(), max_keys: MAX_KEYS, settings },
        }
    }
}

impl<K, P, S> KeyedRateLimiterBuilder<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn with(mut self, choose: impl FnOnce(&mut Options)) -> Self {
        choose(&mut self.options);
        self
    }

    /// Bounds of the queue by key. They are asked for again when the policies change.
    pub(crate) fn bounds_of(
        self,
        bounds_of: impl Fn(&K) -> Bounds + Send + Sync + 'static,
    ) -> Self {
        Self { bounds_of: Some(Arc::new(bounds_of)), ..self }
    }

    /// The clock that decides and wakes waiters. Default: [`Clock::system`].
    ///
    /// ```
    /// # use tollgate::{KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    /// let policy = SmoothBursty::new(Rate::per_second(5.0));
    /// let limiter = KeyedRateLimiter::builder(policy).clock(ManualClock::auto_advance()).build();
    /// limiter.blocking_acquire(&7, 6)?;
    /// assert_eq!(limiter.blocking_acquire(&7, 1)?.waited().as_millis(), 200);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        Self { clock: Some(clock.into()), ..self }
    }

    /// The hash function of the keys. Default: [`FastHash`], which is fast, and has a random seed of each limiter.
    ///
    /// [`std::hash::RandomState`] is slower and made against attackers who choose the keys and measure the time of calls;
    /// see [`FastHash`]. A function without a seed, as for keys that are random numbers already, is only for keys that
    /// no attacker chooses.
    ///
    /// ```
    /// use std::hash::RandomState;
    /// use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    ///
    /// let policy = TokenBucket::new(Rate::per_second(5.0), 3);
    /// let limiter: KeyedRateLimiter<String, _, RandomState> = KeyedRateLimiter::builder(policy)
    ///     .hasher(RandomState::new())
    ///     .clock(ManualClock::new())
    ///     .build();
    /// limiter.try_acquire("alice", 1)?;
    /// assert_eq!((limiter.available("alice"), limiter.available("bob")), (2, 3));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn hasher<H: BuildHasher + Send + Sync + 'static>(
        self,
        hasher: H,
    ) -> KeyedRateLimiterBuilder<K, P, H> {
        let Self { rule, bounds_of, clock, options, .. } = self;
        KeyedRateLimiterBuilder { rule, bounds_of, clock, hasher, options }
    }

    /// A name for logs and metrics; shown by `Debug`. Default: none.
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let builder = KeyedRateLimiter::<u64, _>::builder(InFlight::new(10));
    /// assert_eq!(builder.name("uploads").build().name(), Some("uploads"));
    /// ```
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        self.with(|options| options.reports.name = Some(name.into()))
    }

    /// A listener for the [events](Event) of all keys; see
    /// [`RateLimiterBuilder::on_event`](crate::RateLimiterBuilder::on_event). Default: none.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let limiter = KeyedRateLimiter::builder(InFlight::new(10))
    ///     .on_event(|event| eprintln!("{event}"))
    ///     .build();
    /// limiter.pause_for("alice", Duration::from_secs(5))?; // paused for 5s
    /// # let _: KeyedRateLimiter<String, _> = limiter;
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn on_event(self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.with(|options| options.reports.listen(listener))
    }

    /// The wait from which a grant makes an [`Event::Waited`]. Default: one second.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let builder = KeyedRateLimiter::builder(InFlight::new(10));
    /// let limiter = builder.slow_wait(Duration::from_millis(100)).build();
    /// # let _: KeyedRateLimiter<String, _> = limiter;
    /// ```
    pub fn slow_wait(self, wait: Duration) -> Self {
        self.with(|options| options.reports.slow_wait = wait)
    }

    /// The maximum number of keys. When the table holds that many and finds no idle one, a call at a
    /// new key gets [`Error::TooManyKeys`](crate::Error::TooManyKeys). Default: 1,048,576.
    ///
    /// ```
    /// use tollgate::{Error, KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    ///
    /// let clock = ManualClock::new();
    /// let policy = SmoothBursty::new(Rate::per_second(1.0));
    /// let limiter = KeyedRateLimiter::builder(policy).clock(&clock).max_keys(2).build();
    /// limiter.try_acquire(&1, 1)?;
    /// limiter.try_acquire(&2, 1)?;
    /// assert!(matches!(limiter.try_acquire(&3, 1), Err(Error::TooManyKeys { max: 2, .. })));
    /// clock.advance(std::time::Duration::from_secs(2)); // now they are idle
    /// assert!(limiter.try_acquire(&3, 1).is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn max_keys(self, keys: usize) -> Self {
        self.with(|options| options.max_keys = keys)
    }

    /// The maximum number of waiters at each key; see
    /// [`RateLimiterBuilder::max_waiters`](crate::RateLimiterBuilder::max_waiters). Default: no
    /// limit.
    ///
    /// ```
    /// # use tollgate::{Error, KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    /// let policy = SmoothBursty::new(Rate::per_second(1.0));
    /// let builder = KeyedRateLimiter::builder(policy).clock(ManualClock::new());
    /// let limiter = builder.max_waiters(0).build();
    /// limiter.try_acquire(&1, 5)?;
    /// assert!(matches!(limiter.reserve(&1, 1), Err(Error::QueueFull { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn max_waiters(self, waiters: usize) -> Self {
        self.with(|options| options.settings.bounds.waiters = waiters)
    }

    /// The maximum number of permits that the waiters of one key together may ask for; see
    /// [`RateLimiterBuilder::max_queued_permits`](crate::RateLimiterBuilder::max_queued_permits).
    /// Default: no limit.
    ///
    /// ```
    /// # use tollgate::{Error, KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    /// let policy = SmoothBursty::new(Rate::per_second(1.0));
    /// let builder = KeyedRateLimiter::builder(policy).clock(ManualClock::new());
    /// let limiter = builder.max_queued_permits(10).build();
    /// limiter.try_acquire(&1, 5)?;
    /// assert!(matches!(limiter.reserve(&1, 11), Err(Error::QueueFull { .. })));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn max_queued_permits(self, permits: u64) -> Self {
        self.with(|options| options.settings.bounds.permits = permits)
    }

    /// An absent key begins as a new limiter ([`Policy::start`]), with nothing stored. A key that
    /// was dropped while idle begins so again. Default: an absent key is idle ([`Policy::idle`]).
    ///
    /// ```
    /// use tollgate::{KeyedRateLimiter, ManualClock, Rate, SmoothBursty};
    ///
    /// let builder = || {
    ///     let policy = SmoothBursty::new(Rate::per_second(5.0));
    ///     KeyedRateLimiter::builder(policy).clock(ManualClock::new())
    /// };
    /// let (idle, new) = (builder().build(), builder().absent_is_new().build());
    /// assert_eq!((idle.available(&1), new.available(&1)), (5, 0));
    /// ```
    pub fn absent_is_new(self) -> Self {
        self.with(|options| options.settings.absent_is_new = true)
    }

    /// The limiter.
    ///
    /// ```
    /// # use tollgate::{InFlight, KeyedRateLimiter};
    /// let limiter = KeyedRateLimiter::builder(InFlight::new(10)).build();
    /// assert_eq!(limiter.available("alice"), 10);
    /// # let _: KeyedRateLimiter<String, _> = limiter;
    /// ```
    #[must_use]
    pub fn build(self) -> KeyedRateLimiter<K, P, S> {
        let clock = self.clock.unwrap_or_else(Clock::system);
        KeyedRateLimiter {
            table: Table::new(
                &self.rule,
                self.bounds_of.as_ref(),
                (clock, self.hasher),
                self.options,
            ),
        }
    }
}

impl<K, P, S> fmt::Debug for KeyedRateLimiterBuilder<K, P, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { reports, max_keys, .. } = &self.options;
        f.debug_struct("KeyedRateLimiterBuilder")
            .field("name", &reports.name)
            .field("max_keys", max_keys)
            .finish_non_exhaustive()
    }
}
