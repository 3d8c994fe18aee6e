//! How far the sweeps have come: those by calls, and the rounds of the alarm.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::segments::Visit;
use crate::clock::Alarm;
use crate::sync::Mutex;
use crate::units::Nanos;
use crate::wait_queue::NEVER;

/// Within this time an idle key is gone, also without calls.
pub(super) const SPAN: Duration = Duration::from_secs(10);

/// The number of calls between two sweeps. A sweep visits two places per call of the shortest interval,
/// so that idle keys are removed faster than new ones can arrive. While sweeps find no idle key, the interval
/// grows.
pub(super) const CALLS_PER_SWEEP: std::ops::Range<usize> = 32..1024;

pub(super) struct Sweeps {
    /// The shard at which the next sweep by calls continues, and the number of calls until then.
    pub(super) next: AtomicUsize,
    pub(super) calls: AtomicUsize,
    /// When the alarm goes off, [`NEVER`] if it is not set.
    pub(super) due: AtomicU64,
    /// Whether there are keys that the round has not seen, or saw before they changed.
    pub(super) again: AtomicBool,
    pub(super) alarm: Mutex<Option<Alarm>>,
    /// `None` while a step is made.
    pub(super) round: Mutex<Option<Round>>,
}

/// A visit of all keys by the alarm, step by step.
pub(super) struct Round {
    /// The shard that is visited next, and where in it.
    pub(super) shard: usize,
    pub(super) hand: Option<Visit>,
    /// How many keys it has removed, and when the first of those that stay is idle.
    pub(super) went: usize,
    pub(super) earliest: Nanos,
    /// Whether there are keys of which this is not known: with waiters, or grants that are kept.
    pub(super) unknown: bool,
    /// How long it is to the next look at those.
    pub(super) patience: Duration,
}

impl Sweeps {
    pub(super) fn new() -> Self {
        Self {
            next: AtomicUsize::new(0),
            calls: AtomicUsize::new(CALLS_PER_SWEEP.start),
            due: AtomicU64::new(NEVER.get()),
            again: AtomicBool::new(false),
            alarm: Mutex::new(None),
            round: Mutex::new(Some(Round {
                shard: 0,
                hand: None,
                went: 0,
                earliest: NEVER,
                unknown: false,
                patience: SPAN,
            })),
        }
    }

    /// The number of calls between two sweeps.
    #[inline]
    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}
