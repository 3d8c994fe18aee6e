//! What all keys of a limiter share, apart from the connection: options and counters.

use std::sync::Arc;
use std::time::Duration;

use super::connection::random;
use super::health::Health;
use super::script::Scripted;
use super::script::wire::PolicyHeader;
use crate::clock::Clock;
use crate::keyed::KeyedRateLimiter;
use crate::observe::{Observer, Reports};
use crate::rate_limiter::builder::RateLimiterBuilder;
use crate::sync::Mutex;
use crate::wait_queue::Bounds;

/// What callers get while Redis is unavailable. The choice decides whether the fleet's quota may be
/// exceeded.
///
/// ```
/// use tollgate::redis::Unavailable;
/// use tollgate::{Rate, SmoothBursty};
///
/// // Eight processes share 80 a second. Alone, each takes its share.
/// let share = SmoothBursty::new(Rate::per_second(10.0));
/// let unavailable = Unavailable::Local(share);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Unavailable<P> {
    /// An [`Error::Store`](crate::Error::Store) at once. The limit is not exceeded.
    #[default]
    Fail,
    /// A grant at once, without any limit.
    Allow,
    /// A limiter of this process with this policy for each key, usually a share of the whole.
    Local(P),
}

/// See the methods of the builder.
pub(super) struct Options<P> {
    pub(super) horizon: Duration,
    pub(super) deadline: Duration,
    pub(super) lease: Duration,
    pub(super) refresh: Duration,
    pub(super) absent_is_new: bool,
    pub(super) version: u32,
    pub(super) keep: Duration,
    pub(super) unavailable: Unavailable<P>,
}

/// Request counters of a limiter, all keys together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Requests sent to Redis.
    pub requests: u64,
    /// Calls in these requests; a call counts each time until its turn is near.
    pub asked: u64,
    /// Calls refused by a cached reply, without a request.
    pub denied_locally: u64,
    /// Requests without a reply whose permits may have been consumed. Probes do not count.
    pub lost: u64,
    /// Calls served without Redis because it was away.
    pub without_redis: u64,
    /// Requests that failed, whether they are tried again or not.
    pub failed: u64,
}

/// What the line of a key needs of its limiter.
pub(super) struct Context<P: Scripted> {
    pub(super) options: Options<P>,
    pub(super) clock: Clock,
    /// Of the queue of each key.
    pub(super) bounds: Bounds,
    pub(super) policy: P,
    /// In use while Redis is away.
    pub(super) local: Option<KeyedRateLimiter<Arc<str>, P>>,
    pub(super) health: Health,
    pub(super) counters: Mutex<Counters>,
    pub(super) observer: Arc<Observer>,
    /// Distinguishes this limiter from those of other processes.
    pub(super) id: f64,
}

impl<P: Scripted> Context<P> {
    pub(super) fn new(
        options: Options<P>,
        policy: P,
        (clock, reports, bounds): (Clock, Reports, Bounds),
    ) -> Self {
        let local = match &options.unavailable {
            Unavailable::Local(policy) => {
                let local = KeyedRateLimiter::builder(policy.clone()).clock(clock.clone());
                Some(RateLimiterBuilder { bounds, ..local.absent_is_new(true) }.build())
            }
            _ => None,
        };
        Self {
            health: Health::default(),
            observer: Observer::new(reports),
            options,
            clock,
            bounds,
            policy,
            local,
            counters: Mutex::default(),
            id: f64::from_bits(random() >> 2),
        }
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Counters)) {
        count(&mut self.counters.lock());
    }

    /// The least time for which a key lives after a request under a policy. `sets`: whether it sets another one.
    pub(super) fn keep(&self, header: &PolicyHeader, sets: bool) -> Duration {
        let starts_idle = !self.options.absent_is_new || header.rules.start_idle();
        let is_kept = sets || header.rank > (0, 0) || !starts_idle;
        if is_kept { self.options.keep } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::{Reconnecting, RedisRateLimiter};
    use crate::{Rate, TokenBucket};

    impl<P: Scripted> Context<P> {
        /// The context of a limiter with this policy.
        pub(in crate::redis) fn with(policy: P) -> Arc<Self> {
            let connection = Reconnecting::open("redis://127.0.0.1/").expect("an address");
            let limiter = RedisRateLimiter::new(policy, connection, "key");
            Arc::clone(&limiter.shared.context)
        }
    }

    /// A key that says more than an absent one is kept.
    #[test]
    fn a_key_is_kept_if_its_policy_was_set_or_has_a_version_or_does_not_begin_full() {
        let full = TokenBucket::new(Rate::per_second(5.0), 10);
        let context = Context::with(full.clone());
        let empty = full.clone().initial(0);
        for (policy, rank, sets, is_kept) in [
            (&full, (0, 0), false, false),
            (&full, (0, 0), true, true),
            (&full, (1, 0), false, true),
            (&full, (0, 1), false, true),
            (&empty, (0, 0), false, true),
        ] {
            let header = PolicyHeader::of(policy, rank);
            let keep = context.keep(&header, sets);
            assert_eq!(keep > Duration::ZERO, is_kept, "{rank:?} {sets}");
        }
    }
}
