//! What a shared limiter reports: events, and counters of its requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::store::StoreError;

/// Something that happened to a shared limiter and that somebody should know.
///
/// ```
/// use tollgate::redis::Event;
///
/// fn log(event: &Event) {
///     match event {
///         Event::Down { error, .. } => eprintln!("going on without Redis: {error}"),
///         Event::Up { after, .. } => eprintln!("Redis is back after {after:?}"),
///         other => eprintln!("{other:?}"),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Redis has not answered for so long that callers are served without it.
    #[non_exhaustive]
    Down {
        /// What the last request said.
        error: StoreError,
    },
    /// Redis is there again.
    #[non_exhaustive]
    Up {
        /// Since the first request that failed, or the last answer if that came later.
        after: Duration,
    },
    /// Another process has set another policy for all; it is in force here now.
    #[non_exhaustive]
    PolicyAdopted {
        /// The key for which.
        key: Arc<str>,
        /// How many times the policy has been set in all.
        generation: u32,
    },
}

/// What a shared limiter has cost so far, all keys of it together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Requests sent to Redis.
    pub requests: u64,
    /// Calls that they asked for, each as often as it was asked for until its turn was near.
    pub asked: u64,
    /// Calls refused without asking, because Redis had said when it makes sense again.
    pub denied_locally: u64,
    /// Requests whose answer was lost, so that what they asked for counts as charged. Those that only look
    /// for the server do not count.
    pub lost: u64,
    /// Calls that were answered without Redis because it did not answer in time.
    pub without_redis: u64,
}

/// [`Counters`] while they are counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: Count,
    pub(super) asked: Count,
    pub(super) denied_locally: Count,
    pub(super) lost: Count,
    pub(super) without_redis: Count,
}

#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: usize) {
        self.0.fetch_add(n as u64, Ordering::Relaxed);
    }

    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counts {
    pub(super) fn read(&self) -> Counters {
        Counters {
            requests: self.requests.read(),
            asked: self.asked.read(),
            denied_locally: self.denied_locally.read(),
            lost: self.lost.read(),
            without_redis: self.without_redis.read(),
        }
    }
}
