//! The state under the mutex beside the word: what the word has charged is recorded in it, and it is published as
//! the word.

use super::atomic_state::AtomicState;
use super::inner::Inner;
use crate::policy::Policy;
use crate::policy::schedule::{Attempt, RateReceipt};
use crate::units::Nanos;

impl<P: Policy> Inner<P> {
    /// Takes over the position from the word, and notes what the word has charged since it was published `before`.
    pub(super) fn take_over(&mut self, [before, position]: [i128; 2], now: Nanos) {
        let Some(one) = P::ONE_RATE else { return };
        let state = (one.state_mut)(&mut self.state);
        state.position = position;
        if position != before
            && let Some(schedule) = (one.schedule)(&self.policy)
        {
            schedule.note_charges(state, before, now.min(self.published.until));
        }
    }

    /// Decides a call by the word, and records what it finds.
    #[inline]
    pub(super) fn attempt_recorded(
        &mut self,
        word: &AtomicState,
        now: Nanos,
        permits: u64,
        read_again: impl FnOnce() -> Nanos,
    ) -> Attempt<RateReceipt> {
        let Some(one) = P::ONE_RATE else { return Attempt::Undecided };
        let (attempt, found) = word.attempt_recorded(now, permits);
        if let (Attempt::Granted(receipt), Some(found)) = (&attempt, found) {
            if let Some(positions) = word.unrecorded(&self.published, &found) {
                self.take_over(positions, read_again());
            }
            (one.state_mut)(&mut self.state).note(found.units, receipt, found.level);
            word.open_slot(&mut self.published, found.next, now);
        }
        attempt
    }

    /// Lets the word decide again, if no caller waits and nothing is paused.
    pub(super) fn publish(&mut self, word: &AtomicState, now: Nanos) {
        if let Some(one) = P::ONE_RATE
            && self.is_quiet(now)
            && let Some(schedule) = (one.schedule)(&self.policy)
        {
            let state = (one.state_mut)(&mut self.state);
            word.publish(&mut self.published, schedule, state, now);
        }
    }
}
