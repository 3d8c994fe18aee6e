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

#[derive(Debug, Default)]
pub(super) struct Counts {
    requests: AtomicU64,
    asked: AtomicU64,
    denied_locally: AtomicU64,
    lost: AtomicU64,
    without_redis: AtomicU64,
}

impl Counts {
    pub(super) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn asked(&self, calls: usize) {
        self.asked.fetch_add(calls as u64, Ordering::Relaxed);
    }

    pub(super) fn denied_locally(&self) {
        self.denied_locally.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn without_redis(&self) {
        self.without_redis.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Counters {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counters {
            requests: read(&self.requests),
            asked: read(&self.asked),
            denied_locally: read(&self.denied_locally),
            lost: read(&self.lost),
            without_redis: read(&self.without_redis),
        }
    }
}
