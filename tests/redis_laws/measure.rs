//! What the laws are measured in, and what is left to whoever is held to them: over Redis.

use std::time::Duration;

/// Scripts count in whole microseconds and round waits up to those, as limiters in process do with
/// nanoseconds. So all that is said of these in `laws` holds of those here, edges included.
pub(crate) const UNIT: Duration = Duration::from_micros(1);

/// Rates are not slower than one a day, and who waits for a place in flight asks again some times a
/// second.
pub(crate) const LONGEST: u32 = 20;

/// Each step is a round trip.
pub(crate) const CASES: u32 = 30;

pub(crate) const RATES: u32 = 4;
pub(crate) const PERMITS: i128 = 300;

/// Redis charges when it is asked.
pub(crate) const CATCHES_UP: bool = false;

/// Whenever the head of the line is asked for, so are all others, and who will not make it is told.
pub(crate) const TELLS_AT_ONCE: bool = true;

/// What was charged under a policy that is no longer in force does not come back: Redis does not keep
/// at which price that was.
pub(crate) const KNOWS_PRICES: bool = false;

/// How often a case that failed is made smaller.
pub(crate) const SHRINKS: u32 = 300;

/// Whether the parts of a window must be whole units: they are rounded up to whole nanoseconds.
pub(crate) const WHOLE_PARTS: bool = true;

/// Whether what a change of the policy keeps is rounded to whole units: only waits are.
pub(crate) const ROUNDS_CHANGES: bool = false;

/// Whether a lock is known at once to those in line who are late because of it, and counted for those
/// ahead of him whose refusal it was. A script reckons each of them once, those ahead first; they hear
/// of it when they are asked for next.
pub(crate) const TELLS_LOCKS: bool = false;
