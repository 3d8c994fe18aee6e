//! The atomics and locks of the line: the real ones, or loom's when its model checker runs.

use std::sync::{LockResult, PoisonError};

#[cfg(not(tollgate_loom))]
mod modelled {
    pub(crate) use super::real::Mutex;
    pub(crate) use std::sync::MutexGuard;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, fence};
}

#[cfg(tollgate_loom)]
mod modelled {
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, fence};

    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            super::unpoisoned(self.0.lock())
        }
    }
}

pub(crate) use modelled::*;
pub(crate) use std::sync::atomic::Ordering;

/// Never loom's: for what no model is about.
pub(crate) mod real {
    use std::sync::MutexGuard;

    /// The standard library's mutex. A panic of a user's policy under it does not keep later callers out.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(value))
        }

        #[inline]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            super::unpoisoned(self.0.lock())
        }
    }
}

/// What a lock guards, also after a panic under it.
#[inline]
pub(crate) fn unpoisoned<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// A value on cache lines of its own: 128 bytes, because processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct OwnLine<T>(pub(crate) T);
