//! Drops while a panic unwinds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

/// Runs the code of a drop that calls a policy. If the drop runs because of a panic, a second panic
/// is caught here, because it would abort the process.
pub(crate) fn in_drop(ask: impl FnOnce()) {
    if thread::panicking() {
        let _ = catch_unwind(AssertUnwindSafe(ask));
    } else {
        ask();
    }
}
