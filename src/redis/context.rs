//! What all keys of a limiter share, apart from the connection.

use std::sync::Arc;
use std::time::Duration;

use super::connection::random;
use super::counters::Counters;
use super::health::Health;
use super::options::{Options, Unavailable};
use super::script::wire::{PolicyHeader, Sender};
use super::script::{Rules, Scripted};
use crate::keyed::KeyedRateLimiter;
use crate::observe::Observer;
use crate::sync::Mutex;

/// What the line of a key needs of its limiter.
pub(super) struct Context<P: Scripted> {
    pub(super) options: Options<P>,
    pub(super) policy: P,
    /// Those of the policy. Their kinds never change.
    pub(super) rules: Rules,
    /// In use while Redis is away.
    pub(super) local: Option<KeyedRateLimiter<Arc<str>, P>>,
    pub(super) health: Health,
    pub(super) counters: Mutex<Counters>,
    pub(super) observer: Arc<Observer>,
    /// Distinguishes this limiter from those of other processes.
    id: f64,
}

impl<P: Scripted> Context<P> {
    pub(super) fn new(options: Options<P>, policy: P) -> Self {
        let local = match &options.unavailable {
            Unavailable::Local(policy) => {
                let local = KeyedRateLimiter::builder(policy.clone())
                    .clock(options.clock.clone())
                    .absent_is_new(true)
                    .max_waiters(options.max_waiters)
                    .max_queued_permits(options.max_queued_permits);
                Some(local.build())
            }
            _ => None,
        };
        Self {
            health: Health::default(),
            observer: Observer::new(options.reports.clone()),
            options,
            rules: Rules::of(&policy),
            policy,
            local,
            counters: Mutex::default(),
            id: f64::from_bits(random() >> 2),
        }
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Counters)) {
        count(&mut self.counters.lock());
    }

    /// What the head of a request under a policy says of this process. `sets`: whether it sets another one.
    pub(super) fn sender(&self, policy: &P, header: &PolicyHeader, sets: bool) -> Sender {
        let idle = !self.options.absent_is_new;
        let is_kept = sets || header.rank > (0, 0) || !(idle || policy.starts_idle());
        let keep = if is_kept { self.options.keep } else { Duration::ZERO };
        Sender { id: self.id, keep, idle }
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
            let keep = context.sender(policy, &header, sets).keep;
            assert_eq!(keep > Duration::ZERO, is_kept, "{rank:?} {sets}");
        }
    }
}
