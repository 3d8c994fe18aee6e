//! What a caller asks of a queue, and how much a queue takes.

use std::hash::{BuildHasher, Hash, RandomState};
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::task::Waker;
use std::time::Duration;

use crate::clock::Timed;
use crate::error::QueueLimit;
use crate::units::{Nanos, saturating_nanos};

/// Far enough to mean "never".
pub(crate) const NEVER: Nanos = Nanos::new(u64::MAX);

/// Names a waiter until its entry is removed: its place in the slab, plus one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(NonZeroU32);

impl WaiterId {
    pub(crate) fn new(place: usize) -> Self {
        let id = u32::try_from(place + 1).ok().and_then(NonZeroU32::new);
        Self(id.expect("fewer than 2^32 waiters"))
    }

    pub(crate) fn place(self) -> usize {
        self.0.get() as usize - 1
    }

    pub(super) fn at(self, time: u64, rank: u32) -> Timed {
        Timed::new(time, rank, self.0.get())
    }

    pub(super) fn of(timed: Timed) -> Self {
        Self(NonZeroU32::new(timed.id()).unwrap_or_else(|| unreachable!("an entry has a number")))
    }
}

/// When a caller joined, less the time by which it goes ahead of others: the key of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival(u64);

impl Arrival {
    /// The key of a caller that joins at the origin of the clock. A caller goes ahead by half of it at most.
    const ORIGIN: u64 = 1 << 63;

    pub(crate) fn new(joined: Nanos, ahead: Duration) -> Self {
        let joined = joined.min(Nanos::END).get();
        Self(Self::ORIGIN + joined - saturating_nanos(ahead.min(Nanos::HORIZON)))
    }

    /// Ahead of each caller, and behind calls with smaller numbers.
    #[cfg(feature = "redis")]
    pub(crate) fn ahead_of_all(number: u64) -> Self {
        debug_assert!(number < Self::ORIGIN / 2, "callers come behind");
        Self(number)
    }

    pub(super) fn later(self, by: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(by)))
    }

    pub(super) fn get(self) -> u64 {
        self.0
    }
}

/// The tenant for which a caller comes, and the weight of its permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(super) id: u64,
    pub(crate) weight: NonZeroU32,
}

impl Tenant {
    /// By a hash of 64 bits and not by the key itself, so that no queue has a type parameter for keys and no call
    /// clones one. Two tenants of one hash would share their turns. With a random key of the process no tenant can
    /// choose such a pair, and by chance a million tenants that wait together have one in 37 million runs.
    pub(crate) fn new<T: Hash + ?Sized>(tenant: &T) -> Self {
        static HASHER: OnceLock<RandomState> = OnceLock::new();
        let id = HASHER.get_or_init(RandomState::new).hash_one(tenant);
        Self { id, weight: NonZeroU32::MIN }
    }
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<C> {
    pub(crate) cost: C,
    pub(crate) max_wait: Option<Duration>,
    /// It enters as if it had come this much earlier.
    pub(crate) ahead: Duration,
    /// Or in the turn of a tenant.
    pub(crate) tenant: Option<Tenant>,
}

impl<C> Ask<C> {
    #[inline]
    pub(crate) fn new(cost: C, max_wait: Option<Duration>) -> Self {
        Self { cost, max_wait, ahead: Duration::ZERO, tenant: None }
    }
}

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) waiters: usize,
    pub(crate) permits: u64,
    /// For each tenant.
    pub(crate) waiters_per_tenant: usize,
}

impl Bounds {
    pub(crate) const NONE: Self =
        Self { waiters: usize::MAX, permits: u64::MAX, waiters_per_tenant: usize::MAX };

    /// Which of the bounds one more waiter would exceed, with which all together ask for `permits`. `of_tenant`:
    /// the waiters of the same tenant.
    pub(crate) fn exceeded(
        self,
        waiters: usize,
        permits: u64,
        of_tenant: Option<usize>,
    ) -> Option<QueueLimit> {
        let most = |waiters: usize| u32::try_from(waiters).unwrap_or(u32::MAX);
        if of_tenant.is_some_and(|waiters| waiters >= self.waiters_per_tenant) {
            Some(QueueLimit::WaitersPerTenant(most(self.waiters_per_tenant)))
        } else if waiters >= self.waiters {
            Some(QueueLimit::Waiters(most(self.waiters)))
        } else {
            let most = u32::try_from(self.permits).unwrap_or(u32::MAX);
            (permits > self.permits).then_some(QueueLimit::Permits(most))
        }
    }
}

/// A step of the end of a limiter; `true` where it asks for nothing.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// Lets no caller in any more, and refuses those that wait.
    Close,
    /// Lets no caller in any more, and serves those that wait.
    Serve,
    /// Whether new callers are refused.
    IsClosed,
    /// Whether no caller waits and no place in flight is held. If not, calls the waker when that is so.
    IsDrained(&'a Waker),
}
