//! The atomics and locks of the line: the real ones, or loom's when its model checker runs.

use std::ops::{Deref, DerefMut};

#[cfg(not(tollgate_loom))]
mod real {
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use spin::mutex::{SpinMutex, SpinMutexGuard};
    pub(crate) use std::hint::spin_loop;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, fence};
    pub(crate) use std::thread::yield_now;
}
#[cfg(not(tollgate_loom))]
pub(crate) use real::*;

#[cfg(tollgate_loom)]
mod modelled {
    use super::{Deref, DerefMut, Ordering};
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
    pub(crate) use loom::thread::{yield_now, yield_now as spin_loop};

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

    /// spin's mutex: a flag that is set by a compare-exchange and cleared by a store. The mutex in it
    /// is never contended; to take it is a step at which the model lets other threads run.
    #[derive(Debug)]
    pub(crate) struct SpinMutex<T> {
        flag: AtomicBool,
        value: Mutex<T>,
    }

    /// Dropped in this order.
    pub(crate) struct SpinMutexGuard<'a, T> {
        value: MutexGuard<'a, T>,
        _flag: ClearFlag<'a>,
    }

    struct ClearFlag<'a>(&'a AtomicBool);

    impl<T> SpinMutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { flag: AtomicBool::new(false), value: Mutex::new(value) }
        }

        pub(crate) fn try_lock(&self) -> Option<SpinMutexGuard<'_, T>> {
            self.flag.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).ok()?;
            Some(SpinMutexGuard { value: self.value.lock(), _flag: ClearFlag(&self.flag) })
        }
    }

    impl Drop for ClearFlag<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::Release);
        }
    }

    impl<T> Deref for SpinMutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            &self.value
        }
    }

    impl<T> DerefMut for SpinMutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            &mut self.value
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

/// A mutex for data that most callers need for some nanoseconds.
///
/// A short caller takes it by one compare-exchange and gives it back by one store: half of what a mutex
/// costs, which must look for parked threads when it is given back. A caller that needs it for longer, or
/// does not get it at once, takes a mutex first, where threads park. So at most one thread at a time
/// spins, and only until a short caller gives the data back.
#[derive(Debug)]
pub(crate) struct ShortMutex<T> {
    turn: Mutex<()>,
    /// Set when the thread that spins has done so for too long: no short caller overtakes it then.
    starving: AtomicBool,
    value: SpinMutex<T>,
}

/// The number of tries before a thread does something else.
const SPINS: usize = if cfg!(tollgate_loom) { 1 } else { 32 };

impl<T> ShortMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self {
            turn: Mutex::new(()),
            starving: AtomicBool::new(false),
            value: SpinMutex::new(value),
        }
    }

    /// For a short caller, which must not wait for anything while it has the data. `None` if it is taken
    /// for longer.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SpinMutexGuard<'_, T>> {
        if self.starving.load(Ordering::Relaxed) {
            return None;
        }
        match self.value.try_lock() {
            Some(guard) => Some(guard),
            None => self.try_again(),
        }
    }

    #[cold]
    fn try_again(&self) -> Option<SpinMutexGuard<'_, T>> {
        (0..SPINS).find_map(|_| {
            let value = self.value.try_lock();
            if value.is_none() {
                spin_loop();
            }
            value
        })
    }

    pub(crate) fn lock(&self) -> ShortMutexGuard<'_, T> {
        let turn = self.turn.lock();
        let value = self.try_again().unwrap_or_else(|| self.insist());
        ShortMutexGuard { value, _turn: turn }
    }

    /// The short caller that has the data may have been preempted, and wait for this very processor: one
    /// that is busy, or that runs no thread of a lower priority.
    #[cold]
    fn insist(&self) -> SpinMutexGuard<'_, T> {
        self.starving.store(true, Ordering::Relaxed);
        let mut rounds = 0;
        let value = loop {
            if let Some(value) = self.try_again() {
                break value;
            }
            rounds += 1;
            if rounds < SPINS { yield_now() } else { sleep_a_little() }
        };
        self.starving.store(false, Ordering::Relaxed);
        value
    }
}

#[cfg(not(tollgate_loom))]
fn sleep_a_little() {
    std::thread::sleep(std::time::Duration::from_micros(50));
}

#[cfg(tollgate_loom)]
fn sleep_a_little() {
    yield_now();
}

/// Given back in this order.
pub(crate) struct ShortMutexGuard<'a, T> {
    value: SpinMutexGuard<'a, T>,
    _turn: MutexGuard<'a, ()>,
}

impl<T> Deref for ShortMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ShortMutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn short_and_long_holders_exclude_each_other() {
        let counter = ShortMutex::new(0_u64);
        let add = |value: &mut u64| *value = std::hint::black_box(*value) + 1;
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for turn in 0..10_000 {
                        let short = if turn % 3 == 0 { None } else { counter.try_lock() };
                        match short {
                            Some(mut value) => add(&mut value),
                            None => add(&mut counter.lock()),
                        }
                    }
                });
            }
        });
        assert_eq!(*counter.lock(), 40_000);
    }

    /// A holder that has been preempted, and one that panicked.
    #[test]
    fn a_long_holder_waits_for_a_short_one() {
        let value = ShortMutex::new(0);
        let (start, started) = mpsc::channel();
        thread::scope(|scope| {
            let mut held = value.try_lock().expect("free");
            let waiter = scope.spawn(|| {
                start.send(()).expect("heard");
                *value.lock()
            });
            started.recv().expect("sent");
            // Long enough for it to sleep; the test does not depend on that.
            (0..1000).for_each(|_| thread::yield_now());
            *held = 7;
            drop(held);
            assert_eq!(waiter.join().expect("no panic"), 7);
        });
        let panicked = thread::scope(|scope| {
            let hold = || {
                let _held = value.try_lock();
                panic!("while it is held");
            };
            scope.spawn(hold).join()
        });
        assert!(panicked.is_err());
        assert_eq!(*value.lock(), 7);
    }
}
