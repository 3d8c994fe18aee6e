//! What all keys of a limiter share, apart from the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::counters::Counts;
use super::health::Health;
use super::options::Options;
use super::script::wire::{PolicyHeader, Sender};
use super::script::{Rules, Scripted};
use crate::observe::Observer;

/// A place of a request in flight.
pub(super) type Slot = OwnedSemaphorePermit;

/// Slots for the requests in flight of all keys, at most one for each key.
pub(super) struct Slots {
    all: Arc<Semaphore>,
    /// For keys whose requests fail: thousands of keys on a mute node hold no more than these.
    failing: Arc<Semaphore>,
    /// How many more of those there are now, and at most.
    wider: AtomicUsize,
    most_wider: usize,
}

impl Slots {
    const FAILING: usize = 16;

    fn new(most: usize) -> Self {
        let slots = |most| Arc::new(Semaphore::new(most));
        let (wider, most_wider) = (AtomicUsize::new(0), most.saturating_sub(Self::FAILING));
        Self { all: slots(most), failing: slots(Self::FAILING), wider, most_wider }
    }

    /// A key that has failed was answered: others of its node may be well again. It leaves its slot to them, and
    /// one more, so that twice as many try with each round trip.
    pub(super) fn widen(&self) {
        let wider = |wider| (wider < self.most_wider).then_some(wider + 1);
        if self.wider.fetch_update(Ordering::Relaxed, Ordering::Relaxed, wider).is_ok() {
            self.failing.add_permits(1);
        }
    }

    /// A request has failed.
    pub(super) fn narrow(&self) {
        let narrower = |wider: usize| wider.checked_sub(1);
        if self.wider.fetch_update(Ordering::Relaxed, Ordering::Relaxed, narrower).is_ok() {
            match self.failing.try_acquire() {
                Ok(slot) => slot.forget(),
                Err(_) => drop(self.wider.fetch_add(1, Ordering::Relaxed)),
            }
        }
    }

    pub(super) fn of(&self, fails: bool) -> &Arc<Semaphore> {
        if fails { &self.failing } else { &self.all }
    }
}

/// What the line of a key needs of its limiter.
pub(super) struct Context<P> {
    pub(super) options: Options<P>,
    /// Those of the policy in the code. Their kinds never change.
    pub(super) rules: Rules,
    pub(super) health: Health,
    pub(super) slots: Slots,
    pub(super) counters: Counts,
    pub(super) observer: Arc<Observer>,
    /// Distinguishes this limiter from those of other processes.
    id: f64,
}

impl<P: Scripted> Context<P> {
    pub(super) fn new(options: Options<P>, policy: &P, random: u64) -> Self {
        Self {
            slots: Slots::new(options.max_requests),
            health: Health::new(options.max_retry_pause, random),
            observer: Observer::new(options.reports.clone()),
            options,
            rules: Rules::of(policy),
            counters: Counts::default(),
            id: f64::from_bits(random >> 2),
        }
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
            Arc::clone(&limiter.shared.core.context)
        }
    }

    #[test]
    fn keys_that_fail_get_more_slots_as_they_are_answered_and_no_more_than_all() {
        let slots = Slots::new(18);
        let count = |fails| slots.of(fails).available_permits();
        assert_eq!((count(false), count(true)), (18, 16));
        slots.narrow();
        assert_eq!(count(true), 16, "no fewer");
        for free in [17, 18, 18] {
            slots.widen();
            assert_eq!(count(true), free);
        }
        for free in [17, 16, 16] {
            slots.narrow();
            assert_eq!(count(true), free);
        }
        // All are in use: the next failure takes one back.
        slots.widen();
        let all = slots.of(true).try_acquire_many(17).expect("all");
        slots.narrow();
        drop(all);
        assert_eq!(count(true), 17);
        slots.narrow();
        assert_eq!((count(false), count(true)), (18, 16));
        assert_eq!(Slots::new(3).most_wider, 0);
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
