//! The unit of time, the sizes, and the choices that the laws leave open: over Redis.

use std::time::Duration;

/// Scripts count whole microseconds and round waits up to them, as limiters in process do with
/// nanoseconds. So the statements on nanoseconds in `laws` hold for microseconds here, edges
/// included.
pub(crate) const UNIT: Duration = Duration::from_micros(1);

/// Rates are not slower than one a day, and a waiter for a place in flight asks again several times
/// a second.
pub(crate) const LONGEST: u32 = 20;

/// Each step is a round trip.
pub(crate) const CASES: u32 = 30;

pub(crate) const RATES: u32 = 4;
pub(crate) const PERMITS: i128 = 300;

/// Redis charges when it is asked.
pub(crate) const CATCHES_UP: bool = false;

/// A request for the head of the queue includes at least this many waiters, and those that cannot meet their
/// deadlines are refused.
pub(crate) const REFUSED_AT_ONCE: Option<usize> = Some(8);

/// Permits charged under an earlier policy are not refunded: Redis does not store their price.
pub(crate) const KNOWS_PRICES: bool = false;

/// The number of attempts to shrink a case that failed.
pub(crate) const SHRINKS: u32 = 300;

/// Whether the parts of a window must be whole units: they are rounded up to whole nanoseconds.
pub(crate) const WHOLE_PARTS: bool = true;

/// Whether a change of the policy rounds the state that it keeps to whole units: only waits are
/// rounded.
pub(crate) const ROUNDS_CHANGES: bool = false;

/// Whether a waiter learns at once that a lock, or a place in flight that has come back, makes it late, and a lock
/// also counts for those ahead of the caller whose refusal set it. A script computes each waiter once, in order, and is
/// asked for a place in flight now and then, so the others learn it with their next request.
pub(crate) const EXACT_REFUSALS: bool = false;

/// Whether a limiter that stores time knows how much it has stored since a charge: a key has no room for that, and
/// a refund after later grants returns what time has not paid yet.
pub(crate) const KNOWS_STORED_TIME: bool = false;

/// Whether the waiters that a caller goes ahead of count for the room that is left: a script counts only
/// the calls before it.
pub(crate) const COUNTS_OVERTAKEN: bool = false;

/// Whether a refund is exact behind that of the next charge, too, where the price depends on the state: a key knows
/// only what the last charge took.
pub(crate) const KNOWS_BEFORE_LAST: bool = false;

/// Whether a pause that is ended in its first instant changes nothing, and what is given back in a pause counts if it
/// ends early: a key has one number for what was owed before the pause, and the store is empty at once.
pub(crate) const EXACT_PAUSES: bool = false;
