//! The unit of time, the sizes, and the choices that the laws leave open: in process.

use std::time::Duration;

/// The unit of a [`Time`](crate::oracle::Time), to which grants are rounded.
pub(crate) const UNIT: Duration = Duration::from_nanos(1);

/// The time between two permits is at most 2 to this power.
pub(crate) const LONGEST: u32 = 34;

/// The number of cases of a property over whole scripts, for each policy.
pub(crate) const CASES: u32 = 120;

/// The number of cases that measure the rate used, and of permits in each.
pub(crate) const RATES: u32 = 24;
pub(crate) const PERMITS: i128 = 2000;

/// Whether a policy credits the lateness of a wake-up.
pub(crate) const CATCHES_UP: bool = true;

/// Of how many waiters those that a change or a pause makes late are refused at once. `None`: all waiters are
/// refused at their deadlines, or at the head of the queue.
pub(crate) const REFUSED_AT_ONCE: Option<usize> = None;

/// Whether a grant knows its price, so that it is refunded at that price after any change.
pub(crate) const KNOWS_PRICES: bool = true;

/// The number of attempts to shrink a case that failed.
pub(crate) const SHRINKS: u32 = 20_000;

/// Whether the parts of a window must be whole units: they are rounded up to whole nanoseconds.
pub(crate) const WHOLE_PARTS: bool = false;

/// Whether a change of the policy rounds the state that it keeps to whole units.
pub(crate) const ROUNDS_CHANGES: bool = true;

/// Whether a waiter learns at once that a lock, or a place in flight that has come back, makes it late, and a lock
/// also counts for those ahead of the caller whose refusal set it.
pub(crate) const EXACT_REFUSALS: bool = true;

/// Whether a limiter that stores time knows how much it has stored since a charge.
pub(crate) const KNOWS_STORED_TIME: bool = true;

/// Whether the waiters that a caller goes ahead of count for the room that is left: a script counts only
/// the calls before it.
pub(crate) const COUNTS_OVERTAKEN: bool = true;

/// Whether a refund is exact behind that of the next charge, too, where the price depends on the state.
pub(crate) const KNOWS_BEFORE_LAST: bool = true;

/// Whether a pause that is ended in its first instant changes nothing, and what is given back in a pause counts if it
/// ends early.
pub(crate) const EXACT_PAUSES: bool = true;
