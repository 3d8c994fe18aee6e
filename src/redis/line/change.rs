//! Changes of a key besides taking permits, what the script reports of them, and the request in flight.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::oneshot;

use super::roster::{BATCH, Booking};
use crate::error::Error;
use crate::error::store::StoreError;
use crate::policy::{Cost, Quota};
use crate::redis::script::Scripted;
use crate::redis::script::wire::{Call, Rank, whole};
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

/// The end of a change; with a report if the change asks for it.
pub(crate) type Done<C> = Result<Option<Report<C>>, Error>;

/// What the script reports of a change.
pub(crate) enum Report<C> {
    /// The state of the key: what is left, the rest of a pause, and how long the key lives, if there is one.
    State(Quota<C>, Duration, Option<Duration>),
    /// Of each limit what is left, and when there is more.
    Limits(Vec<(C, Option<Duration>)>),
}

/// A change of a key besides taking permits.
pub(crate) struct KeyChange<P: Scripted> {
    pub(crate) todo: Vec<u8>,
    pub(crate) done: Option<oneshot::Sender<Done<P::Cost>>>,
    /// The policy that it sets for the fleet.
    pub(crate) sets: Option<P>,
    pub(crate) refund: Option<Refund<P::Cost>>,
}

impl<P: Scripted> KeyChange<P> {
    pub(crate) fn of(todo: Vec<u8>) -> Self {
        Self { todo, done: None, sets: None, refund: None }
    }

    /// What follows goes into another request: it is for the key that comes after this one.
    pub(super) fn deletes(&self) -> bool {
        self.todo.first() == Some(&b'X')
    }
}

/// Permits to return at the price at which they were charged: under another policy nothing is returned. A refund
/// is written when it is sent, because the amount depends on the time.
#[derive(Clone, Copy)]
pub(crate) struct Refund<C> {
    pub(crate) part: C,
    /// All permits that are charged under the booking.
    pub(crate) all: C,
    pub(crate) booking: Booking,
}

impl<C: Cost> Refund<C> {
    /// `None` of nothing: if all of it came back before, the next charge has its number.
    pub(crate) fn of(part: C, all: C, booking: Booking) -> Option<Self> {
        (!part.is_zero()).then_some(Self { part, all, booking })
    }
}

/// Ends all changes with the same error.
pub(super) fn refuse_all<P: Scripted>(
    changes: impl IntoIterator<Item = KeyChange<P>>,
    error: &StoreError,
) {
    for change in changes {
        let _ = change.done.map(|done| done.send(Err(error.clone().into())));
    }
}

/// Takes the changes of the next request. A new policy is the last one of its request: what was charged before comes
/// back no more.
pub(super) fn take_batch<P: Scripted>(outbox: &mut VecDeque<KeyChange<P>>) -> Vec<KeyChange<P>> {
    let ends = |change: &KeyChange<P>| change.deletes() || change.sets.is_some();
    let first = outbox.iter().position(ends).map_or(BATCH, |at| at + 1);
    outbox.drain(..first.min(BATCH).min(outbox.len())).collect()
}

/// The kind of a request, and the callers that wait for its reply.
pub(crate) enum RequestKind<P: Scripted> {
    /// For each caller what it asks for.
    Take(Vec<WaiterId>, Vec<Call<P::Cost>>),
    /// None to probe whether the server is back, or to renew the lease.
    Change(Vec<KeyChange<P>>),
}

impl<P: Scripted> RequestKind<P> {
    pub(super) const PROBE: Self = Self::Change(Vec::new());

    pub(super) fn is_probe(&self) -> bool {
        matches!(self, Self::Change(changes) if changes.is_empty())
    }
}

/// A task that sends a request, and its request once that is sent. It belongs to the line, not to the task: if that
/// stands still, the line goes on without it.
pub(super) struct Flight<P: Scripted> {
    /// Distinguishes it from earlier flights, whose tasks may still exist.
    pub(super) number: u64,
    /// When the task was started or, later, the request was sent.
    pub(super) at: Nanos,
    /// When the line goes on without the task.
    pub(super) until: Nanos,
    /// The number of the policy of the request.
    pub(super) policy: u32,
    pub(super) request: Option<RequestKind<P>>,
}

/// The numbers in a reply, one after the other.
struct Numbers<'a>(&'a [f64]);

impl Numbers<'_> {
    fn next(&mut self) -> Option<f64> {
        self.0.split_off_first().copied()
    }

    fn cost<C: Cost>(&mut self) -> Option<C> {
        let numbers = self.0.split_off(..C::NUMBERS)?;
        Some(C::from_numbers(|index| whole(numbers[index])))
    }

    /// In microseconds, or a negative number for none. `None` if there is no number.
    fn time(&mut self) -> Option<Option<Duration>> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole
        let micros = |micros: f64| (micros >= 0.0).then(|| Duration::from_micros(micros as u64));
        self.next().map(micros)
    }

    /// What a change reports that begins with this letter.
    fn report<C: Cost>(&mut self, what: Option<&u8>) -> Option<Option<Report<C>>> {
        Some(match what {
            Some(b'Q') => {
                let (remaining, limit) = (self.cost()?, self.cost()?);
                // The window is the policy's to tell.
                let quota = Quota { limit, remaining, reset_after: self.time()?, window: None };
                Some(Report::State(quota, self.time()??, self.time()?))
            }
            Some(b'D') => {
                let count = whole(self.next()?);
                let limits = (0..count).map(|_| Some((self.cost()?, self.time()?)));
                Some(Report::Limits(limits.collect::<Option<_>>()?))
            }
            _ => None,
        })
    }
}

/// The report for each change that asks for one, and the rank of a policy that was set.
type Reports<C> = (Vec<Option<Report<C>>>, Option<Rank>);

/// Reads the reply to changes. `None` if it is malformed.
pub(super) fn reports<P: Scripted>(
    changes: &[KeyChange<P>],
    reply: &[f64],
) -> Option<Reports<P::Cost>> {
    let mut told = Numbers(reply.get(1..)?);
    let (mut reports, mut rank) = (Vec::with_capacity(changes.len()), None);
    for change in changes {
        if change.sets.is_some() {
            rank = Some((whole(told.next()?), whole(told.next()?)));
        }
        reports.push(told.report(change.todo.first())?);
    }
    told.0.is_empty().then_some((reports, rank))
}
