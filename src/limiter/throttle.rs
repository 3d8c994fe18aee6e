//! A stream whose items come no faster than a limiter grants.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::{Acquire, Limiter};
use crate::error::Error;
use crate::policy::Cost;

/// A stream whose items wait for permits; see [`Limiter::throttle`].
#[derive(Debug)]
#[must_use = "streams do nothing unless they are polled"]
pub(super) struct Throttled<S: Stream, L: Limiter> {
    stream: S,
    limiter: L,
    /// It waits for its permit.
    item: Option<S::Item>,
    acquire: Option<Acquire<L>>,
}

impl<S: Stream, L: Limiter> Throttled<S, L> {
    pub(super) fn new(stream: S, limiter: L) -> Self {
        Self { stream, limiter, item: None, acquire: None }
    }
}

// Only the stream would be pinned.
impl<S: Stream + Unpin, L: Limiter> Unpin for Throttled<S, L> {}

impl<S: Stream + Unpin, L: Limiter> Stream for Throttled<S, L> {
    type Item = Result<S::Item, Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { stream, limiter, item, acquire } = self.get_mut();
        if item.is_none() {
            *item = ready!(Pin::new(stream).poll_next(context));
            if item.is_none() {
                return Poll::Ready(None);
            }
        }
        let waiting = acquire.get_or_insert_with(|| limiter.acquire(L::Cost::ONE));
        let granted = ready!(Pin::new(waiting).poll(context));
        *acquire = None;
        Poll::Ready(match granted {
            Ok(_) => item.take().map(Ok),
            Err(error) => Some(Err(error)),
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let held = usize::from(self.item.is_some());
        // Errors come on top.
        (self.stream.size_hint().0.saturating_add(held), None)
    }
}
