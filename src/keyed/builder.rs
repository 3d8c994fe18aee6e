//! The options of a keyed limiter.

use std::hash::Hash;

use super::KeyedRateLimiter;
use super::shard::{Options, Rule};
use super::table::Table;
use crate::clock::Clock;
use crate::policy::Policy;
use crate::rate_limiter::builder::{Built, RateLimiterBuilder};
use crate::wait_queue::Bounds;

const MAX_KEYS: usize = 1 << 20;

/// The rule of each key, and what may be in the table.
#[allow(missing_debug_implementations)] // the builder has it
pub struct Keyed<K, P> {
    rule: Rule<K, P>,
    max_keys: usize,
    absent_is_new: bool,
}

impl<K, P: Policy> Built for KeyedRateLimiter<K, P> {
    type Own = Keyed<K, P>;
}

fn builder<K, P: Policy>(rule: Rule<K, P>) -> RateLimiterBuilder<KeyedRateLimiter<K, P>> {
    let own = Keyed { rule, max_keys: MAX_KEYS, absent_is_new: false };
    RateLimiterBuilder::new(own, Bounds::NONE)
}

impl<K: Hash + Eq + Send + 'static, P: Policy> KeyedRateLimiter<K, P> {
    /// Returns a builder that sets the clock, a name and bounds.
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
    pub fn builder(policy: P) -> RateLimiterBuilder<KeyedRateLimiter<K, P>> {
        builder(Rule::One(policy))
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
    ) -> RateLimiterBuilder<KeyedRateLimiter<K, P>> {
        builder(Rule::Each(Box::new(policy_of)))
    }
}

impl<K: Hash + Eq + Send + 'static, P: Policy> RateLimiterBuilder<KeyedRateLimiter<K, P>> {
    /// The maximum number of keys. When the table holds that many and finds no idle one, a call at a
    /// new key gets [`Error::TooManyKeys`](crate::Error::TooManyKeys). Default: 1,048,576.
    pub fn max_keys(self, keys: usize) -> Self {
        Self { own: Keyed { max_keys: keys, ..self.own }, ..self }
    }

    /// Whether an absent key begins as a new limiter ([`Policy::start`]), with nothing stored; so does an idle key that has
    /// made room for another. Default: no; an absent key is idle ([`PolicyExt::idle`](crate::state::PolicyExt::idle)). A refused
    /// call keeps its new key, which then fills until it is full and idle. So a key that is used less often than it fills is
    /// new each time: a bucket with no [initial](crate::TokenBucket::initial) tokens always refuses its `try_acquire`.
    pub fn absent_is_new(self, is_new: bool) -> Self {
        Self { own: Keyed { absent_is_new: is_new, ..self.own }, ..self }
    }

    /// The maximum number of waiters of each tenant at a key; see [one limit](RateLimiterBuilder::max_waiters_per_tenant).
    pub fn max_waiters_per_tenant(self, waiters: usize) -> Self {
        Self { bounds: Bounds { waiters_per_tenant: waiters, ..self.bounds }, ..self }
    }

    /// The limiter.
    #[must_use]
    pub fn build(self) -> KeyedRateLimiter<K, P> {
        let Self { own: Keyed { rule, max_keys, absent_is_new }, clock, reports, bounds } = self;
        let options = Options { reports, max_keys, bounds, absent_is_new };
        let clock = clock.unwrap_or_else(Clock::system);
        KeyedRateLimiter { table: Table::new(rule, clock, options) }
    }
}
