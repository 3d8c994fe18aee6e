//! Real Redis servers, alone, replicated and in a cluster, and a proxy that injects faults.
//! Everything listens on the loopback address and ends with its owner.
//!
//! Needs nothing of the limiter, so that tests, benchmarks and examples can all include it.
// Each of those uses a part of it.
#![allow(dead_code)]

mod clock;
pub(crate) mod cluster;
mod ports;
pub(crate) mod process;
pub(crate) mod proxy;
pub(crate) mod replica;
pub(crate) mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The bound of every wait: far more than any of them takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// How long a wait sleeps between two looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Polls until `done`, and panics after [`LIMIT`].
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    until_some(what, || done().then_some(()));
}

/// The same with a value to return.
#[track_caller]
pub(crate) fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        thread::sleep(PAUSE);
    }
}

/// A test that panicked elsewhere must not keep a server from being stopped.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
