//! Reads what the script reports of changes.

use std::time::Duration;

use super::change::{KeyChange, KeyReport, LimitReport, Report};
use crate::policy::{Cost, Quota};
use crate::redis::connection::Reply;
use crate::redis::script::Scripted;

/// The numbers in a reply, one after the other.
struct Numbers<'a>(&'a [i64]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<i64> {
        self.0.split_off_first().copied()
    }

    fn cost<P: Scripted>(&mut self) -> Option<P::Cost> {
        let numbers = self.0.split_off(..P::Cost::NUMBERS)?;
        Some(P::Cost::from_numbers(|index| u32::try_from(numbers[index]).unwrap_or(u32::MAX)))
    }

    /// In microseconds, or a negative number for none. `None` if there is no number.
    fn time(&mut self) -> Option<Option<Duration>> {
        Some(u64::try_from(self.next()?).ok().map(Duration::from_micros))
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
        for _ in 0..self.next()? {
            limits.push(LimitReport { remaining: self.cost::<P>()?, more_after: self.time()? });
        }
        Some(limits)
    }
}

/// The reports in the reply to changes, for the changes that ask for one. `None` if the reply is malformed.
pub(super) fn reports<P: Scripted>(
    changes: &[KeyChange<P::Cost>],
    reply: &Reply,
) -> Option<Vec<Option<Report<P::Cost>>>> {
    let Reply::Numbers(numbers) = reply else { return None };
    let mut told = Numbers(numbers.get(1..)?);
    let mut reports = Vec::with_capacity(changes.len());
    for change in changes {
        reports.push(match change.todo.first() {
            Some(b'Q') => Some(Report::State(told.state::<P>()?)),
            Some(b'D') => Some(Report::Limits(told.limits::<P>()?)),
            _ => None,
        });
    }
    told.0.is_empty().then_some(reports)
}
