//! Waiting on a thread.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Waits for a future of this crate on this thread, in a program without a runtime.
///
/// Each limiter has `blocking_acquire` and the like; this is for the other methods that are async because a store is
/// asked, such as [`quota`](crate::Limiter::quota) and [`pause_for`](crate::Limiter::pause_for).
///
/// ```
/// use tollgate::{AnyRateLimiter, Limiter, ManualClock, Rate, RateLimiter, SmoothBursty, block_on};
///
/// let policy = SmoothBursty::new(Rate::per_second(5.0));
/// let limiter = AnyRateLimiter::new(RateLimiter::with_clock(policy, ManualClock::new()));
/// limiter.blocking_acquire(1)?;
/// assert_eq!(block_on(limiter.quota())?.remaining, 0);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[inline]
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // Most need not wait: only one that does pays for a waker.
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => park_until_ready(future),
    }
}

#[inline(never)]
fn park_until_ready<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
