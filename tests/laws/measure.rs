//! What the laws are measured in, and what is left to whoever is held to them: in process.

use std::time::Duration;

/// What a [`Time`](crate::oracle::Time) counts: that to which grants are rounded.
pub(crate) const UNIT: Duration = Duration::from_nanos(1);

/// The time between two permits is at most 2 to this power.
pub(crate) const LONGEST: u32 = 34;

/// How many cases a property over whole scripts is tried with, of which there are many policies.
pub(crate) const CASES: u32 = 120;

/// With how many cases the rate that is used is measured, and over how many permits.
pub(crate) const RATES: u32 = 24;
pub(crate) const PERMITS: i128 = 2000;

/// Whether a policy makes good how late a wake-up was.
pub(crate) const CATCHES_UP: bool = true;

/// Whether somebody in line who will not make it any more, because there was a change or a pause,
/// hears so at once. Else it does at its deadline, or when it comes to the head of the line.
pub(crate) const TELLS_AT_ONCE: bool = false;

/// Whether a grant knows at which price it was charged, so that it comes back at that whatever the
/// price is now.
pub(crate) const KNOWS_PRICES: bool = true;

/// How often a case that failed is made smaller.
pub(crate) const SHRINKS: u32 = 20_000;

/// Whether the parts of a window must be whole units: they are rounded up to whole nanoseconds.
pub(crate) const WHOLE_PARTS: bool = false;

/// Whether what a change of the policy keeps is rounded to whole units.
pub(crate) const ROUNDS_CHANGES: bool = true;

/// Whether a lock is known at once to those in line who are late because of it, and counted for those
/// ahead of him whose refusal it was.
pub(crate) const TELLS_LOCKS: bool = true;
