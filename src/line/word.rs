//! The lock-free half of a line: the state as one atomic word.
//!
//! ```text
//!    63      62                                            0
//!   +------+------------------------------------------------+
//!   | LOCK | position + bump                                |
//!   +------+------------------------------------------------+
//! ```
//!
//! While `LOCK` is clear no caller waits, nothing is paused, and the word is the state: one clock read and
//! one compare-exchange decide a call. While it is set, the state is under the mutex: callers wait, the limiter
//! is paused or closed, a change is in progress, or the state is too wide for the word, as with refills in steps. A locked word is greater than
//! any position of the permit clock and so reads as not ready: a grant needs no test for the lock.
//!
//! **Why no call is charged an old price.** Parameters change only under the mutex with `LOCK` set, and with each change the
//! word jumps above every word ever published, `bump` making up for the jump. So the word is its own epoch: no word appears
//! under two sets of parameters, and a compare-exchange that succeeds proves that the parameters read before it were those in
//! force. (The exchange releases what was read before it, and the lock acquires it.) A refusal writes nothing and proves the
//! same by reading the word again behind a fence. A refund may lower the position under unchanged parameters, where an old word
//! still has its meaning. `loom.rs` checks all of this.
//!
//! **Why 64 bits are enough.** A permit clock makes less than two units a nanosecond. Times are before
//! 2^61 ns ([`END`]), `bump` and the units of a request are below 2^62, so the permit clock with `bump`
//! is below 2^63, and due positions are below 2^64. The mutex decides all that exceeds these bounds:
//! [`Word::publish`] checks them for parameters, `most` for requests, the top bit for the word.
//!
//! Words are never reused across changes, so the 62 bits last for at least 73 years, less what refunds
//! across changes use up; after that the line goes on under its mutex.

use crate::policy::schedule::{
    Attempt, RateReceipt, RateState, Schedule, nanos_of, position_at, time_of,
};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::units::{Nanos, saturating_nanos};

const LOCK: u64 = 1 << 63;
/// The mutex decides words, bumps and requests from here on.
const TOO_WIDE: u64 = 1 << 62;

/// The mutex decides times from here on: 73 years.
const END: Nanos = Nanos::new(1 << 61);

/// The word, and beside it its parameters: a cache line each, of the pair that processors fetch together.
/// Each call needs both, and the second is seldom written.
#[derive(Debug)]
#[repr(C, align(128))]
pub(super) struct Word {
    bits: AtomicU64,
    /// The mutex decides from this time on, at the latest from [`END`]. Not among the parameters, whose cache
    /// line is seldom written. Not loom's: a time that was read late is only earlier, and sends the call to the
    /// mutex. With one more value to choose from, the models would take much longer.
    until: std::sync::atomic::AtomicU64,
    parameters: Parameters,
}

/// The parameters of the word, in the order of [`parameters_of`]. Written only under the mutex with `LOCK` set.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Parameters([AtomicU64; 8]);

/// Where `bump` is among them.
const BUMP: usize = 3;

/// The owner's half, kept in the mutex.
#[derive(Debug, Default)]
pub(super) struct Published {
    /// The first word under the present parameters.
    floor: u64,
    /// The greatest word ever published or seen.
    ceiling: u64,
    /// The word that was published last, and the time up to which it grants.
    word: u64,
    pub(super) until: Nanos,
    /// The end of the times under the present parameters.
    end: Nanos,
}

impl Word {
    /// A word that leaves all calls to the mutex until a state is published.
    pub(super) fn locked() -> Self {
        Self {
            bits: AtomicU64::new(LOCK),
            until: std::sync::atomic::AtomicU64::new(0),
            parameters: Parameters::default(),
        }
    }

    /// Decides a call for `permits` without the mutex, if it can.
    // As `Line::decide`.
    #[inline(always)]
    pub(super) fn attempt(&self, now: Nanos, permits: u64) -> Attempt<RateReceipt> {
        let Self { until, parameters: Parameters(parameters), .. } = self;
        let [multiplier, inverse, burst, bump, mark, strict, most, unit] = parameters;
        let mut bits = self.bits.load(Ordering::Acquire);
        loop {
            if permits > most.load(Ordering::Relaxed) || now.get() >= until.load(Ordering::Relaxed)
            {
                return Attempt::Undecided;
            }
            let unit = unit.load(Ordering::Relaxed);
            let units = permits.wrapping_mul(unit);
            let multiplier = multiplier.load(Ordering::Relaxed);
            let bump = bump.load(Ordering::Relaxed);
            let here = position_at(now, multiplier).wrapping_add(bump);
            let due = bits.wrapping_add(units & strict.load(Ordering::Relaxed));
            if due > here {
                if due >= LOCK {
                    return Attempt::Undecided;
                }
                let inverse = inverse.load(Ordering::Relaxed);
                fence(Ordering::Acquire);
                // Acquires, because the loop goes on with it if it is another.
                let again = self.bits.load(Ordering::Acquire);
                if again == bits {
                    // `here` is at least `bump`, so a later position is, too.
                    return Attempt::ReadyAt(time_of(due - bump, multiplier, inverse));
                }
                bits = again;
                continue;
            }
            let burst = burst.load(Ordering::Relaxed);
            // As `Schedule::overflow`. Below 2^63, as `here` is below 2^62; the full store's may be negative.
            let full = here.wrapping_sub(burst);
            let overflows = full.cast_signed() > bits.wrapping_add(1).cast_signed();
            let start = if overflows { full } else { bits };
            let next = start.wrapping_add(units);
            // Read before the exchange, which proves that they were in force.
            let mark = mark.load(Ordering::Relaxed);
            let inverse = inverse.load(Ordering::Relaxed);
            match self.bits.compare_exchange_weak(bits, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let (span, mark) = (nanos_of(units, inverse), next.wrapping_add(mark));
                    return Attempt::Granted(RateReceipt { permits, span, mark });
                }
                Err(current) => bits = current,
            }
        }
    }

    /// Sends all calls to the mutex, which the caller holds. Returns the position that was published last and the
    /// present one, if the word held it.
    pub(super) fn lock(&self, published: &mut Published) -> Option<[i128; 2]> {
        // Not `fetch_or`, which is a loop if its result is used.
        let bits = self.bits.swap(LOCK, Ordering::AcqRel);
        published.ceiling = published.ceiling.max(bits & !LOCK);
        Some([self.position_of(published.word)?, self.position_of(bits)?])
    }

    /// The position, if the word holds it, for an observer that holds the mutex.
    pub(super) fn position(&self) -> Option<i128> {
        self.position_of(self.bits.load(Ordering::Acquire))
    }

    /// Under the mutex, so that `bump` is that of the word.
    fn position_of(&self, bits: u64) -> Option<i128> {
        let bump = self.parameters.0[BUMP].load(Ordering::Relaxed);
        (bits < LOCK).then(|| i128::from(bits) - i128::from(bump))
    }

    /// Publishes `state` under `schedule`, if its numbers are small enough: the word decides again. The caller
    /// holds the mutex and has called [`lock`](Self::lock).
    pub(super) fn publish(
        &self,
        published: &mut Published,
        schedule: &Schedule,
        state: &RateState,
        now: Nanos,
    ) {
        let mut bump = self.parameters.0[BUMP].load(Ordering::Relaxed);
        let word = |bump| fitting(state.position + i128::from(bump));
        let current = self.parameters.0.iter().map(|it| it.load(Ordering::Relaxed));
        if current.ne(parameters_of(schedule, state.moved, bump))
            || word(bump).is_none_or(|word| word < published.floor)
        {
            let floor = i128::from(published.ceiling) + 1;
            let Some(least) = fitting((floor - state.position).max(0)) else { return };
            bump = least;
            let Some(floor) = word(bump) else { return };
            self.set_parameters(parameters_of(schedule, state.moved, bump));
            // No call of a word under these parameters has read an earlier time.
            (published.floor, published.until) = (floor, Nanos::ZERO);
            published.end = schedule.time_of(i128::from(TOO_WIDE - bump)).min(END);
        }
        let Some(word) = word(bump) else { return };
        // For a slot of time: what is charged in it will be noted together, when the mutex takes over. Not earlier than
        // before: a call that has read the other one counts in this slot.
        let slot = schedule.slot().map_or(u64::MAX, saturating_nanos);
        let until = Nanos::new(now.get().saturating_add(slot)).min(published.end);
        published.until = published.until.max(until);
        self.until.store(published.until.get(), Ordering::Relaxed);
        published.ceiling = published.ceiling.max(word);
        published.word = word;
        self.bits.store(word, Ordering::Release);
    }

    fn set_parameters(&self, values: [u64; 8]) {
        // A thread that did not see LOCK must not see the stores below.
        fence(Ordering::Release);
        for (parameter, value) in self.parameters.0.iter().zip(values) {
            parameter.store(value, Ordering::Relaxed);
        }
    }
}

/// The [`Parameters`] of `schedule`, with marks of `moved`:
///
/// - `multiplier`, `inverse`, `burst`: as in the schedule
/// - `bump`: by how much the word is ahead of the position; never negative, so that all is unsigned
/// - `mark`: what must be added to the word for a state's mark
/// - `strict`: all ones if a request must be stored in full, else zero
/// - `most`: the mutex decides requests for more permits
/// - `unit`: how many units make a permit
fn parameters_of(schedule: &Schedule, moved: i64, bump: u64) -> [u64; 8] {
    let Schedule { multiplier, inverse, burst, strict, .. } = *schedule;
    let mark = moved.cast_unsigned().wrapping_sub(bump);
    // Units that are not too wide, and no more than may go unnoted for a slot.
    let most = schedule.most.min((TOO_WIDE - 1) >> schedule.shift).min(schedule.most_in_a_slot());
    let strict = if strict { u64::MAX } else { 0 };
    [multiplier, inverse, burst, bump, mark, strict, most, schedule.unit()]
}

/// A number that is neither negative nor too wide.
fn fitting(number: i128) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number < TOO_WIDE)
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::units::Rate;
    use proptest::prelude::*;
    use std::time::Duration;

    /// A word under a schedule, and beside it the state as the schedule itself counts.
    struct Twins {
        word: Word,
        published: Published,
        schedule: Schedule,
        state: RateState,
    }

    impl Twins {
        fn new(schedule: Schedule, position: i128, now: Nanos) -> Self {
            let (word, published) = (Word::locked(), Published::default());
            let state = RateState::new(position);
            let mut twins = Self { word, published, schedule, state };
            twins.publish(now);
            twins
        }

        fn publish(&mut self, now: Nanos) {
            assert_eq!(self.word.lock(&mut self.published), None);
            self.word.publish(&mut self.published, &self.schedule, &self.state, now);
        }

        /// Asks both, and demands the same answer and the same state afterwards.
        fn ask(&mut self, now: Nanos, permits: u64) -> Result<Attempt<RateReceipt>, TestCaseError> {
            let told = self.word.attempt(now, permits);
            let exceeds = permits > self.schedule.most;
            let ready = self.schedule.time_of(self.schedule.due(self.state.position, permits));
            match &told {
                Attempt::Granted(receipt) => {
                    prop_assert!(!exceeds && ready <= now);
                    prop_assert_eq!(*receipt, self.schedule.charge(&mut self.state, now, permits));
                }
                Attempt::ReadyAt(due) => {
                    prop_assert!(!exceeds && ready > now);
                    prop_assert_eq!(*due, ready);
                }
                Attempt::Undecided => {}
            }
            let position = self.word.position();
            prop_assert!(position.is_none_or(|position| position == self.state.position));
            Ok(told)
        }
    }

    fn schedules() -> impl Strategy<Value = Schedule> {
        let rates = (-4.9f64..=9.0).prop_map(|exponent| {
            // The ends themselves, too.
            Rate::per_second(10f64.powf(exponent).clamp(1.0 / 86_400.0, 1e9))
        });
        let burst = prop_oneof![Just(0), 0..1u64 << 40, 0..=1u64 << 62];
        (rates, burst, 1u32.., any::<bool>()).prop_map(|(rate, burst, capacity, strict)| {
            if strict {
                Schedule::bucket(rate, capacity)
            } else {
                Schedule::new(rate, Duration::from_nanos(burst))
            }
        })
    }

    /// Around the bounds of the word, and anywhere.
    fn times() -> impl Strategy<Value = u64> {
        prop_oneof![0..1u64 << 61, (1u64 << 61) - 1000..1 << 61, 0..1000u64, 0..1u64 << 50]
    }

    fn permits() -> impl Strategy<Value = u64> {
        prop_oneof![Just(1u64), 1..10u64, 1..=u64::from(u32::MAX)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        /// One call of each word: near its due time, and at any distance from it.
        #[test]
        fn the_word_decides_as_the_schedule_does(
            schedule in schedules(), now in times(), permits in permits(),
            back in prop_oneof![-3i128..4, -(1i128 << 62)..1i128 << 62],
        ) {
            let now = Nanos::new(now);
            let at = schedule.position_at(now) - back;
            let mut twins = Twins::new(schedule, at, now);
            let told = twins.ask(now, permits)?;
            // Small numbers are not left to the mutex.
            let units = schedule.units(permits);
            let is_early = schedule.position_at(now) < (1 << 62) - 1;
            let is_small = units < 1 << 61 && permits <= schedule.most_in_a_slot();
            if is_early && (0..1 << 61).contains(&at) && is_small && permits <= schedule.most {
                prop_assert_ne!(told, Attempt::Undecided);
            }
        }

        /// Many calls of one word, with changes between them. A call that was read at an earlier time
        /// than the last one is one of them, as after a thread has been preempted.
        #[test]
        fn the_word_goes_on_as_the_schedule_does(
            schedule in schedules(), others in prop::collection::vec(schedules(), 1..3),
            start in times(), calls in prop::collection::vec(
                (-1000i64..1 << 20, permits(), 0u8..11), 1..30,
            ),
        ) {
            let position = schedule.position_at(Nanos::new(start));
            let mut twins = Twins::new(schedule, position, Nanos::new(start));
            let (mut now, mut highest, mut kept) = (start, 0, None);
            for (step, permits, change) in calls {
                now = now.saturating_add_signed(step).min(END.get() - 1);
                let at = Nanos::new(now);
                match usize::from(change) {
                    change @ 0..2 => {
                        let position = twins.word.lock(&mut twins.published);
                        prop_assert!(position.is_none_or(|[_, it]| it == twins.state.position));
                        let next = others[change % others.len()];
                        next.migrate(&twins.schedule, &mut twins.state, at);
                        twins.schedule = next;
                        twins.publish(at);
                    }
                    2 => if let Attempt::Granted(receipt) = twins.ask(at, permits)? {
                        twins.word.lock(&mut twins.published);
                        twins.schedule.refund(&mut twins.state, at, permits, receipt);
                        twins.publish(at);
                    },
                    3 => if let Attempt::Granted(receipt) = twins.ask(at, permits)? {
                        kept = Some((permits, receipt));
                    },
                    // The position may fall behind that of the last change.
                    4 => if let Some((permits, receipt)) = kept.take() {
                        twins.word.lock(&mut twins.published);
                        twins.schedule.refund(&mut twins.state, at, permits, receipt);
                        twins.publish(at);
                    },
                    _ => _ = twins.ask(at, permits)?,
                }
                // No word under other parameters comes again.
                prop_assert!(twins.published.ceiling >= highest);
                highest = twins.published.ceiling;
                let word = twins.word.bits.load(Ordering::Relaxed);
                prop_assert!(word >= twins.published.floor);
            }
        }
    }

    /// At 2^61 and 2^62 the mutex takes over; states below can still be published.
    #[test]
    fn what_is_too_wide_is_left_to_the_mutex() {
        let schedule = Schedule::new(Rate::per_second(1e9), Duration::ZERO);
        let latest = Nanos::new(END.get() - 1);
        for (position, is_published) in
            [((1 << 61) - 1, true), (1 << 61, true), ((1 << 62) - 1, true), (1 << 62, false)]
        {
            let mut twins = Twins::new(schedule, position, latest);
            assert_eq!(twins.word.position(), is_published.then_some(position));
            let told = twins.ask(latest, 1).expect("as the schedule");
            assert_eq!(told == Attempt::Undecided, !is_published, "{position}");
        }
        // A request of 2^62 units, and one less.
        let mut twins = Twins::new(schedule, 0, latest);
        assert_eq!(twins.word.attempt(latest, 1 << 62), Attempt::Undecided);
        assert!(matches!(twins.ask(latest, (1 << 62) - 1), Ok(Attempt::Granted(_))));
        // A position before the origin of the clock leaves that much less room.
        let mut early = Twins::new(schedule, -(3 << 60), Nanos::ZERO);
        let end = schedule.time_of((1 << 60) - 1);
        let before = Nanos::new(end.get() - 1);
        assert!(matches!(early.ask(before, 1), Ok(Attempt::Granted(_))));
        assert!(matches!(early.ask(end, 1), Ok(Attempt::Undecided)));
        // The same of a day each.
        let slow = Schedule::new(Rate::every(Duration::from_secs(86_400)), Duration::ZERO);
        let mut days = Twins::new(slow, 0, Nanos::ZERO);
        let too_many = TOO_WIDE >> slow.shift;
        assert!(too_many < slow.most);
        assert!(matches!(days.ask(Nanos::ZERO, too_many), Ok(Attempt::Undecided)));
        assert!(matches!(days.ask(Nanos::ZERO, too_many - 1), Ok(Attempt::Granted(_))));
        // Charged beyond what could be published, it is still read right, and then kept in the mutex.
        let charged = twins.word.lock(&mut twins.published);
        assert_eq!(charged, Some([0, twins.state.position]));
        assert!(twins.state.position >= 1 << 62);
        twins.publish(latest);
        assert_eq!(twins.word.position(), None);
    }
}
