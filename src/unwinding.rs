//! Panics in code of users, and drops: while a panic unwinds, and of what is large.

use std::any::Any;
use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;
use std::thread;

/// Runs the code of a drop that calls a policy. If the drop runs because of a panic, a second panic
/// is caught here, because it would abort the process.
pub(crate) fn in_drop(ask: impl FnOnce()) {
    if thread::panicking() { _ = caught(ask) } else { ask() }
}

/// Runs code of a user whose panic is not for the caller. Returns `None` if it panics.
pub(crate) fn caught<R>(act: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(act)).map_err(drop_value).ok()
}

/// To drop the value of a panic may panic, too: only the value of that is leaked.
#[inline(never)]
fn drop_value(value: Box<dyn Any + Send>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value))).map_err(mem::forget);
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
