//! The atomics and locks of the line: the real ones, or loom's when its model checker runs.

#[cfg(not(tollgate_loom))]
mod real {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, fence};
}
#[cfg(not(tollgate_loom))]
pub(crate) use real::*;

#[cfg(tollgate_loom)]
mod modelled {
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, fence};

    /// loom's mutex with `parking_lot`'s signature: it does not poison.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }
}
#[cfg(tollgate_loom)]
pub(crate) use modelled::*;

pub(crate) use std::sync::atomic::Ordering;

/// A value on cache lines of its own: 128 bytes, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);
