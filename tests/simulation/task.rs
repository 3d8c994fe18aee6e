//! Tasks of an executor that is written by hand: it may poll any of them next.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Wake};

use tollgate::{Clock, Error};

use crate::subject::{Answer, Ask, Pinned, Place};

/// Nanoseconds since the origin of a clock.
pub(crate) fn now(clock: &Clock) -> i64 {
    i64::try_from(clock.now().get()).expect("292 years at most")
}

/// `None` if it panics on purpose.
pub(crate) fn attempt<R>(act: impl FnOnce() -> R) -> Result<Option<R>, String> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => Ok(Some(result)),
        Err(panic) => match panic.downcast_ref::<&str>() {
            Some(reason) if reason.contains("on purpose") => Ok(None),
            Some(reason) => Err((*reason).to_owned()),
            None => Err(panic
                .downcast::<String>()
                .map_or_else(|_| "a panic".to_owned(), |reason| *reason)),
        },
    }
}

/// Asks again after each panic.
pub(crate) fn insist<R>(act: impl Fn() -> R) -> Result<R, String> {
    loop {
        if let Some(result) = attempt(&act)? {
            return Ok(result);
        }
    }
}

/// The tasks that were woken, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Woken(Mutex<Vec<u64>>);

impl Woken {
    pub(crate) fn push(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }

    pub(crate) fn take(&self, pick: usize) -> Option<u64> {
        let mut woken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let length = woken.len();
        (length > 0).then(|| woken.swap_remove(pick % length))
    }
}

/// A waker of a task.
#[derive(Debug)]
pub(crate) struct Bell {
    id: u64,
    woken: Arc<Woken>,
    clock: Clock,
    /// When it rang first since the last poll.
    rung: AtomicI64,
    pub(crate) is_poisoned: AtomicBool,
}

impl Bell {
    pub(crate) fn new(id: u64, woken: &Arc<Woken>, clock: &Clock) -> Arc<Self> {
        let (woken, clock) = (Arc::clone(woken), clock.clone());
        let (rung, is_poisoned) = (AtomicI64::new(-1), AtomicBool::new(false));
        Arc::new(Self { id, woken, clock, rung, is_poisoned })
    }

    pub(crate) fn rung(&self) -> Option<i64> {
        Some(self.rung.load(Relaxed)).filter(|&at| at >= 0)
    }

    pub(crate) fn reset(&self) {
        self.rung.store(-1, Relaxed);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if self.rung().is_none() {
            self.rung.store(now(&self.clock), Relaxed);
        }
        self.woken.push(self.id);
        if self.is_poisoned.swap(false, Relaxed) {
            // Without a message: there are thousands.
            resume_unwind(Box::new("a waker that panics, on purpose"));
        }
    }
}

pub(crate) enum Kind {
    Call(Pinned<Answer>),
    Place(Box<dyn Place>),
    Run(Pinned<Result<u32, Error>>, Arc<Work>),
    Drain(Pinned<()>),
}

pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) stage: usize,
    pub(crate) kind: Kind,
    pub(crate) ask: Ask,
    pub(crate) bell: Arc<Bell>,
    /// The number of its arrival, and when it was.
    pub(crate) joined: Option<(u64, i64)>,
    /// Whether it was closed by then.
    pub(crate) came_late: bool,
    /// Whether it was polled and has to be woken.
    pub(crate) waits: bool,
}

/// What a call does once it is granted.
#[derive(Debug)]
pub(crate) struct Work {
    started: AtomicI64,
    pub(crate) actual: Option<u32>,
}

impl Work {
    /// Is polled `steps` times, and then costs `actual`, or panics.
    pub(crate) fn new(
        clock: &Clock,
        steps: u8,
        actual: Option<u32>,
    ) -> (Arc<Self>, Pin<Box<dyn Future<Output = u32> + Send>>) {
        let work = Arc::new(Self { started: AtomicI64::new(-1), actual });
        let (own, clock, mut left) = (Arc::clone(&work), clock.clone(), steps);
        let future = poll_fn(move |context| {
            if own.started().is_none() {
                own.started.store(now(&clock), Relaxed);
            }
            if left > 0 {
                left -= 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match actual {
                Some(actual) => Poll::Ready(actual),
                None => resume_unwind(Box::new("work that panics, on purpose")),
            }
        });
        (work, Box::pin(future))
    }

    /// When it was granted, or somewhat later.
    pub(crate) fn started(&self) -> Option<i64> {
        Some(self.started.load(Relaxed)).filter(|&at| at >= 0)
    }
}
