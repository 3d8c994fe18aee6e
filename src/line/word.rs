//! The lock-free half of a line: the state as one atomic word.
//!
//! ```text
//!    63                                             1     0
//!   +------------------------------------------------+------+
//!   | position, relative to `base`                   | LOCK |
//!   +------------------------------------------------+------+
//! ```
//!
//! While `LOCK` is clear nobody waits, nothing is paused, and the word is the state: a call is
//! decided by one clock read and one compare-exchange. While it is set, the state is in the mutex:
//! there is a line, a pause, a change in progress, or a state too wide for the word.
//!
//! **Why nobody charges an old price.** Parameters change only under the mutex with `LOCK` set, and
//! with each change the position jumps above every position ever published, `base` making up for
//! the jump. So the position is its own epoch: no word appears under two sets of parameters, and a
//! compare-exchange that succeeds proves that the parameters read before it were those in force.
//! (The exchange releases what was read before it, and the lock acquires it.) A refusal writes
//! nothing and proves the same by reading the word again behind a fence. A refund may lower the
//! position under unchanged parameters, where an old word means what it says. `loom.rs` checks all
//! of this.
//!
//! Positions are never reused, so the 62 bits last for at least 73 years, less what refunds across
//! changes use up; after that the line goes on under its mutex.

use crate::policy::schedule::{Booking, Schedule, Ticket};
use crate::sync::{AtomicI64, AtomicU32, AtomicU64, Ordering, OwnLine, fence};
use crate::units::Nanos;

const LOCK: u64 = 1;
const STRICT: u32 = 1 << 31;
/// Positions from here on are left to the mutex.
const TOO_WIDE: i128 = 1 << 62;

/// What the lock-free half made of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Attempt {
    Granted(Booking),
    /// Not ready before this time.
    NotBefore(Nanos),
    /// The mutex has to decide.
    Locked,
}

#[derive(Debug)]
pub(super) struct Word {
    bits: OwnLine<AtomicU64>,
    parameters: OwnLine<Parameters>,
}

/// What a call needs to know besides the position. Written only under the mutex with `LOCK` set.
#[derive(Debug)]
struct Parameters {
    multiplier: AtomicU64,
    inverse: AtomicU64,
    burst: AtomicU64,
    /// The top bit says whether the schedule is strict.
    shift: AtomicU32,
    base: AtomicI64,
    moved: AtomicI64,
}

/// The owner's half, kept in the mutex.
#[derive(Debug, Default)]
pub(super) struct Published {
    schedule: Option<Schedule>,
    moved: i64,
    base: i64,
    /// The first position under the present parameters.
    floor: u64,
    /// The greatest position ever published or seen.
    ceiling: u64,
}

impl Word {
    /// A word that leaves all to the mutex until something is published.
    pub(super) fn locked() -> Self {
        Self {
            bits: OwnLine(AtomicU64::new(LOCK)),
            parameters: OwnLine(Parameters {
                multiplier: AtomicU64::new(0),
                inverse: AtomicU64::new(0),
                burst: AtomicU64::new(0),
                shift: AtomicU32::new(0),
                base: AtomicI64::new(0),
                moved: AtomicI64::new(0),
            }),
        }
    }

    /// Decides a call without the mutex, if it can.
    // Called from one place, which hands on what it returns: by memory that takes a third of the call.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    pub(super) fn attempt(&self, now: Nanos, permits: u64) -> Attempt {
        let mut bits = self.bits.0.load(Ordering::Acquire);
        loop {
            if bits & LOCK != 0 {
                return Attempt::Locked;
            }
            let shift = self.parameters.0.shift.load(Ordering::Relaxed);
            let schedule = Schedule {
                multiplier: self.parameters.0.multiplier.load(Ordering::Relaxed),
                inverse: self.parameters.0.inverse.load(Ordering::Relaxed),
                shift: shift & !STRICT,
                burst: self.parameters.0.burst.load(Ordering::Relaxed),
                strict: shift & STRICT != 0,
            };
            let base = i128::from(self.parameters.0.base.load(Ordering::Relaxed));
            let mut ticket = Ticket {
                position: i128::from(bits >> 1) + base,
                moved: self.parameters.0.moved.load(Ordering::Relaxed),
                // Only a refund asks for this.
                resumed: Nanos::ZERO,
                changed: Nanos::ZERO,
            };
            if schedule.exceeds_capacity(permits) {
                return Attempt::Locked;
            }
            let due = schedule.due(ticket.position, permits);
            if due > schedule.position_at(now) {
                fence(Ordering::Acquire);
                // Acquires, because the loop goes on with it if it is another.
                let again = self.bits.0.load(Ordering::Acquire);
                if again == bits {
                    return Attempt::NotBefore(schedule.time_of(due));
                }
                bits = again;
                continue;
            }
            let booking = schedule.charge(&mut ticket, now, permits);
            let Some(next) = encode(ticket.position, base) else {
                return Attempt::Locked;
            };
            match self.bits.0.compare_exchange_weak(bits, next, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Attempt::Granted(booking),
                Err(current) => bits = current,
            }
        }
    }

    /// Sends everybody to the mutex, which the caller holds. The position, if the word held it.
    pub(super) fn lock(&self, published: &mut Published) -> Option<i128> {
        let bits = self.bits.0.fetch_or(LOCK, Ordering::AcqRel);
        if bits & LOCK != 0 {
            return None;
        }
        published.ceiling = published.ceiling.max(bits >> 1);
        Some(i128::from(bits >> 1) + i128::from(published.base))
    }

    /// Makes `ticket` under `schedule` what everybody sees, and decides without the mutex again.
    /// The caller holds the mutex and has called [`lock`](Self::lock).
    pub(super) fn publish(&self, published: &mut Published, schedule: Schedule, ticket: Ticket) {
        let Ticket { position, moved, .. } = ticket;
        let floor = i128::from(published.floor);
        if published.schedule != Some(schedule)
            || published.moved != moved
            || position - i128::from(published.base) < floor
        {
            let first = published.ceiling + 1;
            let Ok(base) = i64::try_from(position - i128::from(first)) else { return };
            // What is stored below must not be seen by anyone who did not see LOCK.
            fence(Ordering::Release);
            self.parameters.0.multiplier.store(schedule.multiplier, Ordering::Relaxed);
            self.parameters.0.inverse.store(schedule.inverse, Ordering::Relaxed);
            let strict = if schedule.strict { STRICT } else { 0 };
            self.parameters.0.shift.store(schedule.shift | strict, Ordering::Relaxed);
            self.parameters.0.burst.store(schedule.burst, Ordering::Relaxed);
            self.parameters.0.base.store(base, Ordering::Relaxed);
            self.parameters.0.moved.store(moved, Ordering::Relaxed);
            *published =
                Published { schedule: Some(schedule), moved, base, floor: first, ceiling: first };
        }
        if let Some(bits) = encode(position, i128::from(published.base)) {
            published.ceiling = published.ceiling.max(bits >> 1);
            self.bits.0.store(bits, Ordering::Release);
        }
    }
}

/// The word for a position, if it fits.
fn encode(position: i128, base: i128) -> Option<u64> {
    let relative = position - base;
    (0..TOO_WIDE).contains(&relative).then_some(())?;
    Some(u64::try_from(relative).ok()? << 1)
}
