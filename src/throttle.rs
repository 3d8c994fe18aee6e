//! A stream whose items come no faster than a limiter grants.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use crate::error::Error;
use crate::limiter::{Acquire, Limiter};
use crate::policy::Cost;

/// Gives each stream a method to slow it down.
///
/// ```
/// use futures::StreamExt;
/// use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty, Throttle};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::auto_advance();
/// let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), &clock);
/// let mut pages = futures::stream::iter(1..=3).throttle(&limiter);
/// while let Some(page) = pages.next().await {
///     println!("page {} after {:?}", page?, clock.elapsed()); // 0, 200 and 400 ms
/// }
/// assert_eq!(clock.elapsed().as_millis(), 400);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Throttle: Stream + Sized {
    /// Yields the items of this stream, each after a permit of `limiter`. The next item is asked for before its permit, so
    /// a stream that is idle or over takes none.
    ///
    /// An item comes without its grant, so it cannot be refunded or settled, and a place in flight comes back when the item
    /// is yielded. To limit how many items are worked on at a time, use `buffer_unordered` of the futures crate. For one
    /// stream it replaces an [`InFlight`](crate::InFlight).
    ///
    /// Where jobs need their grants, [acquire](Limiter::acquire) inside them, and let `buffer_unordered` run some at a time.
    ///
    /// # Errors
    ///
    /// An item is an error of [`acquire`](Limiter::acquire) if no permit is granted. The stream's own item is not
    /// lost: it comes next, after another `acquire`.
    ///
    /// # Cancel safety
    ///
    /// A future for the next item can be dropped: the [`Throttled`] keeps the item and its place in the queue.
    fn throttle<L: Limiter>(self, limiter: &L) -> Throttled<Self, L> {
        Throttled { stream: self, limiter: limiter.clone(), item: None, acquire: None }
    }
}

impl<S: Stream> Throttle for S {}

/// A stream whose items wait for permits; see [`Throttle::throttle`].
///
/// It is a stream if the one in it is `Unpin`; put others into `Box::pin` or `pin!`.
#[derive(Debug)]
#[must_use = "streams do nothing unless they are polled"]
pub struct Throttled<S: Stream, L: Limiter> {
    stream: S,
    limiter: L,
    /// It waits for its permit.
    item: Option<S::Item>,
    acquire: Option<Acquire<L>>,
}

impl<S: Stream, L: Limiter> Throttled<S, L> {
    /// The stream, and the item that waits for its permit. Its place in the queue is given up.
    pub fn into_inner(self) -> (S, Option<S::Item>) {
        (self.stream, self.item)
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
