//! Waiting, written once: the future behind every verb, and the loop that runs it on a thread.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use super::Shared;
use super::grant::Grant;
use super::shared::Handle;
use super::source::Source;
use crate::error::Error;
use crate::line::{Charge, Entered, Key, Standing};
use crate::policy::Policy;

/// A caller on its way to a [`Grant`]: what [`acquire`](crate::RateLimiter::acquire) and
/// [`try_acquire_timeout`](crate::RateLimiter::try_acquire_timeout) return, to be awaited.
///
/// # Cancel safety
///
/// Dropping it leaves the line; see [`acquire`](crate::RateLimiter::acquire).
///
/// ```
/// use tollgate::{Acquire, ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let policy = SmoothBursty::new(Rate::per_second(5.0));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// let acquire: Acquire<'_, SmoothBursty> = limiter.acquire(1);
/// let grant = acquire.await?;
/// # drop(grant); Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "futures do nothing unless they are awaited"]
pub struct Acquire<'a, P: Policy> {
    handle: Handle<'a, P>,
    cost: P::Cost,
    max_wait: Option<Duration>,
    place: Place<P>,
}

enum Place<P: Policy> {
    Outside,
    Waiting(Key),
    Granted(Charge<P::Receipt>),
    Over,
}

// Nothing in it is ever pinned.
impl<P: Policy> Unpin for Acquire<'_, P> {}

impl<'a, P: Policy> Acquire<'a, P> {
    pub(crate) fn new(handle: Handle<'a, P>, cost: P::Cost, max_wait: Option<Duration>) -> Self {
        Self { handle, cost, max_wait, place: Place::Outside }
    }

    /// Joins the line, or is granted at once; does not wait.
    #[inline]
    pub(super) fn enter(&mut self) -> Result<(), Error> {
        let shared: &Shared<P> = &self.handle;
        self.place = match shared.line.enter(|| shared.clock.now(), self.cost, self.max_wait) {
            Ok(Entered::Granted(charge)) => Place::Granted(charge),
            Ok(Entered::Waiting(key)) => Place::Waiting(key),
            Err(error) => {
                self.place = Place::Over;
                return Err(error);
            }
        };
        Ok(())
    }

    /// Enters without time to wait: it is granted or refused.
    pub(crate) fn now(self) -> Result<Grant<'a, P>, Error> {
        try_now(self.handle.clone(), self.cost)
    }

    /// How much longer it takes, as things stand.
    pub(super) fn delay(&self) -> Duration {
        match self.place {
            Place::Waiting(key) => self.handle.touch(|inner, now| inner.delay(key, now)),
            _ => Duration::ZERO,
        }
    }

    fn wait(&mut self, key: Key, waker: &Waker) -> Poll<Result<Charge<P::Receipt>, Error>> {
        loop {
            match self.handle.touch(|inner, _| inner.poll(key, waker)) {
                Standing::Over(outcome) => {
                    self.place = Place::Over;
                    return Poll::Ready(outcome);
                }
                // A clock that advances by itself goes to where the line moves.
                Standing::Waiting(Some(due)) if self.handle.clock.skip_to(due) => {}
                Standing::Waiting(_) => return Poll::Pending,
            }
        }
    }

    fn grant(&mut self, charge: Charge<P::Receipt>) -> Grant<'a, P> {
        self.place = Place::Over;
        Grant::new(Source::Line(self.handle.clone()), self.cost, charge)
    }
}

impl<'a, P: Policy> Future for Acquire<'a, P> {
    type Output = Result<Grant<'a, P>, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if matches!(self.place, Place::Outside) {
            self.enter()?;
        }
        match self.place {
            Place::Granted(charge) => Poll::Ready(Ok(self.grant(charge))),
            Place::Waiting(key) => match self.wait(key, context.waker()) {
                Poll::Ready(Ok(charge)) => Poll::Ready(Ok(self.grant(charge))),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            },
            Place::Outside | Place::Over => panic!("`Acquire` polled after it was ready"),
        }
    }
}

impl<P: Policy> Drop for Acquire<'_, P> {
    #[inline]
    fn drop(&mut self) {
        match self.place {
            Place::Outside | Place::Over => {}
            Place::Waiting(key) if thread::panicking() => {
                // Perhaps the policy has panicked, and would again: twice ends the process.
                let leave = || self.handle.touch(|inner, now| inner.leave(key, now));
                if catch_unwind(AssertUnwindSafe(leave)).is_err() {
                    self.handle.line.abandon(key);
                }
            }
            Place::Waiting(key) => self.handle.touch(|inner, now| inner.leave(key, now)),
            Place::Granted(charge) => {
                self.handle.touch(|inner, now| inner.give_back(now, self.cost, charge));
            }
        }
    }
}

impl<P: Policy> fmt::Debug for Acquire<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Outside => "outside",
            Place::Waiting(_) => "waiting",
            Place::Granted(_) => "granted",
            Place::Over => "over",
        };
        f.debug_struct("Acquire").field("cost", &self.cost).field("place", &place).finish()
    }
}

/// Takes `cost` or fails, without a future.
// As `Line::enter`.
#[allow(clippy::inline_always)]
#[inline(always)]
pub(super) fn try_now<P: Policy>(
    handle: Handle<'_, P>,
    cost: P::Cost,
) -> Result<Grant<'_, P>, Error> {
    let shared: &Shared<P> = &handle;
    match shared.line.enter(|| shared.clock.now(), cost, Some(Duration::ZERO))? {
        Entered::Granted(charge) => Ok(Grant::new(Source::Line(handle), cost, charge)),
        // Who has no time to wait is granted or refused; see `Inner::try_enter`.
        Entered::Waiting(_) => unreachable!("waiting without time to wait"),
    }
}

/// Runs a future on this thread and parks it meanwhile.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
