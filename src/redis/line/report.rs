//! Reads what the script reports of changes.

use std::time::Duration;

use super::change::{KeyChange, KeyReport, LimitReport, Report};
use crate::policy::{Cost, Quota};
use crate::redis::connection::Reply;
use crate::redis::script::Scripted;
use crate::redis::script::wire::{Rank, whole};

/// The numbers in a reply, one after the other.
struct Numbers<'a>(&'a [f64]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<f64> {
        self.0.split_off_first().copied()
    }

    fn cost<P: Scripted>(&mut self) -> Option<P::Cost> {
        let numbers = self.0.split_off(..P::Cost::NUMBERS)?;
        Some(P::Cost::from_numbers(|index| whole(numbers[index])))
    }

    /// In microseconds, or a negative number for none. `None` if there is no number.
    fn time(&mut self) -> Option<Option<Duration>> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole
        let micros = |micros: f64| (micros >= 0.0).then(|| Duration::from_micros(micros as u64));
        self.next().map(micros)
    }

    fn state<P: Scripted>(&mut self) -> Option<KeyReport<P::Cost>> {
        let (remaining, limit) = (self.cost::<P>()?, self.cost::<P>()?);
        let (reset_after, paused_for, expires_in) = (self.time()?, self.time()??, self.time()?);
        // The window is the policy's to tell.
        let quota = Quota { limit, remaining, reset_after, window: None };
        Some(KeyReport { quota, paused_for, expires_in })
    }

    fn limits<P: Scripted>(&mut self) -> Option<Vec<LimitReport<P::Cost>>> {
        let mut limits = Vec::new();
        for _ in 0..whole(self.next()?) {
            limits.push(LimitReport { remaining: self.cost::<P>()?, more_after: self.time()? });
        }
        Some(limits)
    }
}

/// The report for each change that asks for one, and the rank of a policy that was set.
type Reports<C> = (Vec<Option<Report<C>>>, Option<Rank>);

/// Reads the reply to changes. `None` if it is malformed.
pub(super) fn reports<P: Scripted>(
    changes: &[KeyChange<P::Cost>],
    reply: &Reply,
) -> Option<Reports<P::Cost>> {
    let mut told = Numbers(reply.0.get(1..)?);
    let (mut reports, mut rank) = (Vec::with_capacity(changes.len()), None);
    for change in changes {
        if change.sets {
            rank = Some((whole(told.next()?), whole(told.next()?)));
        }
        reports.push(match change.todo.first() {
            Some(b'Q') => Some(Report::State(told.state::<P>()?)),
            Some(b'D') => Some(Report::Limits(told.limits::<P>()?)),
            _ => None,
        });
    }
    told.0.is_empty().then_some((reports, rank))
}
