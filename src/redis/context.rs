//! What all keys of a limiter share, apart from the connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connection::random;
use super::counters::Counters;
use super::health::Health;
use super::options::{Options, Unavailable};
use super::script::wire::{PolicyHeader, Sender};
use super::script::{Rules, Scripted};
use crate::keyed::KeyedRateLimiter;
use crate::observe::Observer;
use crate::sync::Mutex;

/// The slots of keys whose requests fail.
const FAILING: usize = 16;

/// A place of a request in flight.
pub(super) type Slot = OwnedSemaphorePermit;

/// What the line of a key needs of its limiter.
pub(super) struct Context<P: Scripted> {
    pub(super) options: Options<P>,
    pub(super) policy: P,
    /// Those of the policy. Their kinds never change.
    pub(super) rules: Rules,
    /// In use while Redis is away.
    pub(super) local: Option<KeyedRateLimiter<Arc<str>, P>>,
    pub(super) health: Health,
    /// Slots for the requests in flight, at most one for each key; and those of keys whose requests fail, so that
    /// thousands of keys on a mute node leave slots to the others. Of these, how many there are beyond [`FAILING`].
    pub(super) slots: [Arc<Semaphore>; 2],
    wider: Mutex<usize>,
    pub(super) counters: Mutex<Counters>,
    pub(super) observer: Arc<Observer>,
    /// Distinguishes this limiter from those of other processes.
    id: f64,
}

impl<P: Scripted> Context<P> {
    pub(super) fn new(options: Options<P>, policy: P) -> Self {
        let random = random();
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
            slots: [options.max_requests, FAILING].map(|most| Arc::new(Semaphore::new(most))),
            wider: Mutex::default(),
            health: Health::new(random),
            observer: Observer::new(options.reports.clone()),
            options,
            rules: Rules::of(&policy),
            policy,
            local,
            counters: Mutex::default(),
            id: f64::from_bits(random >> 2),
        }
    }

    /// A key that has failed was answered: others of its node may be well again. It leaves its slot to them, and one more,
    /// so that twice as many try with each round trip. Each failure takes one away again.
    pub(super) fn widen(&self, is_answered: bool) {
        let (failing, mut wider) = (&self.slots[1], self.wider.lock());
        if !is_answered {
            *wider -= failing.forget_permits((*wider).min(1));
        } else if *wider < self.options.max_requests {
            failing.add_permits(1);
            *wider += 1;
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
