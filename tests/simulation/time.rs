//! The time of a run: a manual clock, whose alarms go off exactly when they are due, or tokio's, whose alarms may be
//! late.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Runtime};
use tollgate::{Clock, ManualClock};

pub(crate) enum Time {
    Manual(ManualClock),
    Tokio(Runtime, Clock),
}

impl Time {
    pub(crate) fn new(is_late: bool) -> Self {
        if is_late {
            let mut builder = Builder::new_current_thread();
            let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
            let clock = runtime.block_on(async { Clock::tokio() });
            Self::Tokio(runtime, clock)
        } else {
            Self::Manual(ManualClock::new())
        }
    }

    pub(crate) fn is_late(&self) -> bool {
        matches!(self, Self::Tokio(..))
    }

    pub(crate) fn clock(&self) -> Clock {
        match self {
            Self::Manual(clock) => Clock::from(clock),
            Self::Tokio(_, clock) => clock.clone(),
        }
    }

    /// Callers that are polled meanwhile wait in this runtime.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        match self {
            Self::Manual(_) => None,
            Self::Tokio(runtime, _) => Some(runtime.enter()),
        }
    }

    /// Moves on by `span`. Late alarms do not go off before [`catch_up`](Self::catch_up).
    pub(crate) fn advance(&self, span: Duration) {
        match self {
            Self::Manual(clock) => clock.advance(span),
            Self::Tokio(runtime, _) => runtime.block_on(async {
                let mut advance = pin!(tokio::time::advance(span));
                // It moves the time with its first poll, and then waits for the timers.
                poll_fn(|context| {
                    let _ = advance.as_mut().poll(context);
                    Poll::Ready(())
                })
                .await;
            }),
        }
    }

    /// Late alarms go off.
    pub(crate) fn catch_up(&self) {
        if let Self::Tokio(runtime, _) = self {
            runtime.block_on(async {
                for _ in 0..3 {
                    // A timer goes off when the time has moved, and its task runs then.
                    tokio::time::advance(Duration::ZERO).await;
                    tokio::task::yield_now().await;
                }
            });
        }
    }

    /// How far it is to the next alarm; a guess where that is not known.
    pub(crate) fn next(&self, guess: Duration) -> Option<Duration> {
        match self {
            Self::Manual(clock) => Some(clock.next_due()?.saturating_sub(clock.elapsed())),
            Self::Tokio(..) => Some(guess),
        }
    }
}
