//! The options of a keyed limiter.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use super::KeyedRateLimiter;
use super::shard::{Options, Rule};
use super::table::Table;
use crate::clock::Clock;
use crate::observe::{Event, Reports};
use crate::policy::Policy;
use crate::wait_queue::Bounds;

const MAX_KEYS: usize = 1 << 20;

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
/// assert_eq!(limiter.name(), Some("per customer"));
/// ```
#[must_use = "call `build` to get the limiter"]
pub struct KeyedRateLimiterBuilder<K, P> {
    rule: Rule<K, P>,
    clock: Option<Clock>,
    options: Options,
}

impl<K: Hash + Eq + Send + 'static, P: Policy> KeyedRateLimiter<K, P> {
    /// Returns a builder that sets the clock, a name and bounds.
    pub fn builder(policy: P) -> KeyedRateLimiterBuilder<K, P> {
        KeyedRateLimiterBuilder::new(Rule::One(policy))
    }

    /// As [`builder`](Self::builder), with a policy by key. `policy_of` is called for a key that is new or returns after it
    /// was dropped, by [`refresh`](crate::AtKey::refresh), and by getters and refused calls at an absent key.
    ///
    /// It runs under a lock that other keys need, so it should only look up data and must not wait. It must not
    /// use this limiter, nor take a lock that is held during calls of this limiter: change the data, unlock, and
    /// then call `refresh`. If `policy_of` panics, so does the call that needed it. After a panic in
    /// [`set_policies`](Self::set_policies) some keys already have their new policy.
    ///
    /// ```
    /// use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
    ///
    /// let policy_of = |customer: &String| match customer.as_str() {
    ///     "alice" => TokenBucket::new(Rate::per_second(100.0), 100),
    ///     _ => TokenBucket::new(Rate::per_second(5.0), 5),
    /// };
    /// let builder = KeyedRateLimiter::builder_with_policies(policy_of);
    /// let limiter = builder.clock(ManualClock::new()).build();
    /// assert_eq!((limiter.at("alice").available(), limiter.at("bob").available()), (100, 5));
    /// ```
    pub fn builder_with_policies(
        policy_of: impl Fn(&K) -> P + Send + Sync + 'static,
    ) -> KeyedRateLimiterBuilder<K, P> {
        KeyedRateLimiterBuilder::new(Rule::Each(Box::new(policy_of)))
    }
}

impl<K: Hash + Eq + Send + 'static, P: Policy> KeyedRateLimiterBuilder<K, P> {
    fn new(rule: Rule<K, P>) -> Self {
        let (reports, bounds) = (Reports::default(), Bounds::NONE);
        let options = Options { reports, max_keys: MAX_KEYS, bounds, absent_is_new: false };
        Self { rule, clock: None, options }
    }

    fn with(mut self, choose: impl FnOnce(&mut Options)) -> Self {
        choose(&mut self.options);
        self
    }

    /// The clock that decides and wakes waiters. Default: [`Clock::system`].
    pub fn clock(self, clock: impl Into<Clock>) -> Self {
        Self { clock: Some(clock.into()), ..self }
    }

    /// A name for logs and metrics; shown by `Debug`. Default: none.
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        self.with(|options| options.reports.name = Some(name.into()))
    }

    /// A listener for the [events](Event) of all keys; see
    /// [`RateLimiterBuilder::on_event`](crate::RateLimiterBuilder::on_event). Default: none.
    pub fn on_event(self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.with(|options| options.reports.listen(listener))
    }

    /// The wait from which a grant makes an [`Event::Waited`]. Default: one second.
    pub fn slow_wait(self, wait: Duration) -> Self {
        self.with(|options| options.reports.slow_wait = wait)
    }

    /// The maximum number of keys. When the table holds that many and finds no idle one, a call at a
    /// new key gets [`Error::TooManyKeys`](crate::Error::TooManyKeys). Default: 1,048,576.
    pub fn max_keys(self, keys: usize) -> Self {
        self.with(|options| options.max_keys = keys)
    }

    /// The maximum number of waiters at each key; see
    /// [`RateLimiterBuilder::max_waiters`](crate::RateLimiterBuilder::max_waiters). Default: no
    /// limit.
    pub fn max_waiters(self, waiters: usize) -> Self {
        self.with(|options| options.bounds.waiters = waiters)
    }

    /// The maximum number of permits that the waiters of one key together may ask for; see
    /// [`RateLimiterBuilder::max_queued_permits`](crate::RateLimiterBuilder::max_queued_permits).
    /// Default: no limit.
    pub fn max_queued_permits(self, permits: u64) -> Self {
        self.with(|options| options.bounds.permits = permits)
    }

    /// Whether an absent key begins as a new limiter ([`Policy::start`]), with nothing stored; so does an idle key that has
    /// made room for another. Default: no; an absent key is idle ([`PolicyExt::idle`](crate::state::PolicyExt::idle)). A refused
    /// call keeps its new key, which then fills until it is full and idle. So a key that is used less often than it fills is
    /// new each time: a bucket with no [initial](crate::TokenBucket::initial) tokens always refuses its `try_acquire`.
    pub fn absent_is_new(self, is_new: bool) -> Self {
        self.with(|options| options.absent_is_new = is_new)
    }

    /// The limiter.
    #[must_use]
    pub fn build(self) -> KeyedRateLimiter<K, P> {
        let clock = self.clock.unwrap_or_else(Clock::system);
        KeyedRateLimiter { table: Table::new(self.rule, clock, self.options) }
    }
}

impl<K, P> fmt::Debug for KeyedRateLimiterBuilder<K, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { reports, max_keys, .. } = &self.options;
        f.debug_struct("KeyedRateLimiterBuilder")
            .field("name", &reports.name)
            .field("max_keys", max_keys)
            .finish_non_exhaustive()
    }
}
