//! Drops: while a panic unwinds, and of what is large.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
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

/// What one function drops. Otherwise each place that may drop a large value would have the code of all its parts.
#[derive(Clone, Default)]
pub(crate) struct DropApart<T: Default>(ManuallyDrop<T>);

pub(crate) type WakerList = DropApart<Vec<Waker>>;

impl<T: Default> Drop for DropApart<T> {
    #[inline(never)]
    fn drop(&mut self) {
        drop(mem::take(&mut *self.0));
    }
}

impl<T: Default + fmt::Debug> fmt::Debug for DropApart<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: Default> Deref for DropApart<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Default> DerefMut for DropApart<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
