//! Callers that take permits in succession, and a log of their calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tollgate::Error;
use tollgate::redis::Connection;

use super::{BURST, HORIZON, Limiter, ms};

pub(super) struct Load {
    start: Instant,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Vec<Call>>>,
}

/// One call: when it was made, when it was answered, and how.
pub(super) struct Call {
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) answer: Result<Duration, Error>,
}

pub(super) struct Log {
    pub(super) start: Instant,
    pub(super) end: Instant,
    pub(super) calls: Vec<Call>,
}

impl Load {
    /// Each of `tasks` waits for permits in a loop.
    pub(super) fn start<C: Connection>(limiter: &Limiter<C>, tasks: usize) -> Self {
        let start = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..tasks).map(|_| {
            let (limiter, stop) = (limiter.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let mut calls = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let start = Instant::now();
                    let answer = limiter.acquire(1).await.map(|grant| grant.waited());
                    let end = Instant::now();
                    if answer.is_err() {
                        // A task that is refused at once waits before it asks again.
                        tokio::time::sleep(ms(5)).await;
                    }
                    calls.push(Call { start, end, answer });
                }
                calls
            })
        });
        let tasks = tasks.collect();
        Self { start, stop, tasks }
    }

    /// Waits for the waiters.
    pub(super) async fn stop(self) -> Log {
        self.stop.store(true, Ordering::SeqCst);
        let mut calls = Vec::new();
        for task in self.tasks {
            calls.extend(task.await.expect("no caller panics"));
        }
        Log { start: self.start, end: Instant::now(), calls }
    }

    /// The waiters leave.
    pub(super) fn abort(self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Log {
    pub(super) fn granted(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.answer.is_ok())
    }

    pub(super) fn grants(&self) -> usize {
        self.granted().count()
    }

    /// The number of grants in a span.
    pub(super) fn grants_in(&self, from: Instant, to: Instant) -> usize {
        self.granted().filter(|call| (from..to).contains(&call.end)).count()
    }

    pub(super) fn first_grant_after(&self, time: Instant) -> Duration {
        let after = self.granted().map(|call| call.end).filter(|&end| end > time).min();
        after.expect("a caller was granted").duration_since(time)
    }

    /// Errors whose calls may have been charged.
    fn perhaps_charged(&self) -> usize {
        let charged = |error: &Error| matches!(error, Error::Store(e) if e.may_have_charged());
        self.errors().filter(|&error| charged(error)).count()
    }

    /// The most of them that can have been charged: those near enough to the head.
    #[allow(clippy::cast_precision_loss)] // of a few hundred
    pub(super) fn lost(&self, rate: f64) -> f64 {
        (self.perhaps_charged() as f64).min(permits(rate, HORIZON) + 1.0)
    }

    pub(super) fn errors(&self) -> impl Iterator<Item = &Error> {
        self.calls.iter().filter_map(|call| call.answer.as_ref().err())
    }

    /// The longest wait for an error.
    pub(super) fn longest_error(&self) -> Duration {
        let failed = self.calls.iter().filter(|call| call.answer.is_err());
        failed.map(|call| call.end - call.start).max().unwrap_or_default()
    }

    /// Permits beyond those of a limiter over this time.
    pub(super) fn excess(&self, rate: f64, open: Duration) -> f64 {
        excess(self.grants(), rate, open)
    }
}

/// Grants beyond `rate x time + burst` and the one that is prepaid.
#[allow(clippy::cast_precision_loss)] // of a few thousand
pub(super) fn excess(grants: usize, rate: f64, open: Duration) -> f64 {
    grants as f64 - permits(rate, open + BURST) - 1.0
}

/// The permits that come in a span.
pub(super) fn permits(rate: f64, span: Duration) -> f64 {
    rate * span.as_secs_f64()
}
