//! Callers that are woken together.
//!
//! The callers of a round of the clock's thread wake each other. To wake a task of another thread costs a lock and often
//! a system call; to wake one of the own runtime is a push to a queue. So the thread wakes the first caller of a round
//! only, and that one wakes the others when it is polled. No caller depends on that: the thread comes back, see
//! [`TimerThread`](super::timer_thread::TimerThread).

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use crate::sync::{AtomicBool, Mutex, Ordering};

/// Wakes callers in this order, all of them also if a waker panics.
// Not inlined, to keep the path of calls that wake no others short.
#[inline(never)]
pub(crate) fn wake_each(wakers: &mut dyn Iterator<Item = Waker>) {
    for waker in wakers {
        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
    }
}

/// The wakers that were held back.
#[derive(Debug)]
pub(super) struct WakeRelay {
    /// Whether there are any. Written under the lock, and read without it by callers that need not know exactly.
    holds_back: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl WakeRelay {
    pub(super) fn new() -> Self {
        Self { holds_back: AtomicBool::new(false), wakers: Mutex::new(Vec::new()) }
    }

    /// Keeps wakers until the next caller is polled or the next round begins.
    pub(super) fn hold_back(&self, others: impl IntoIterator<Item = Waker>) {
        let mut wakers = self.wakers.lock();
        wakers.extend(others);
        self.holds_back.store(!wakers.is_empty(), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn holds_back(&self) -> bool {
        self.holds_back.load(Ordering::Relaxed)
    }

    /// Wakes those that were held back.
    // A caller that was woken sees what was held back before it was woken.
    #[inline]
    pub(super) fn wake_others(&self) {
        if self.holds_back() {
            self.wake_all();
        }
    }

    #[inline(never)]
    fn wake_all(&self) {
        let mut others = {
            let mut wakers = self.wakers.lock();
            self.holds_back.store(false, Ordering::Relaxed);
            mem::take(&mut *wakers)
        };
        wake_each(&mut others.drain(..));
    }
}

#[cfg(all(test, tollgate_loom))]
mod loom {
    use std::sync::Arc;
    use std::task::Wake;

    use ::loom::sync::atomic::AtomicUsize;
    use ::loom::thread;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Two callers are polled while the clock's thread ends one round and begins the next.
    #[test]
    fn each_caller_of_a_round_is_woken_once() {
        ::loom::model(|| {
            let (relay, woken) = (Arc::new(WakeRelay::new()), Arc::new(Woken::default()));
            let polled = || {
                let relay = Arc::clone(&relay);
                thread::spawn(move || relay.wake_others())
            };
            let polled = [polled(), polled()];
            relay.hold_back([Waker::from(Arc::clone(&woken)), Waker::from(Arc::clone(&woken))]);
            relay.wake_others();
            polled.into_iter().for_each(|caller| caller.join().expect("no panic"));
            assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        });
    }

    /// A caller that was woken before it is polled wakes those that were held back, while one of the round before does.
    /// The clock's thread does not come back.
    #[test]
    fn the_first_caller_of_a_round_wakes_the_others() {
        ::loom::model(|| {
            let (relay, woken) = (Arc::new(WakeRelay::new()), Arc::new(Woken::default()));
            let waker = || Waker::from(Arc::clone(&woken));
            relay.hold_back([waker()]);
            let is_woken = Arc::new(AtomicBool::new(false));
            let first = thread::spawn({
                let (relay, is_woken) = (Arc::clone(&relay), Arc::clone(&is_woken));
                move || is_woken.load(Ordering::Acquire).then(|| relay.wake_others()).is_some()
            });
            let other = thread::spawn({
                let relay = Arc::clone(&relay);
                move || relay.wake_others()
            });
            relay.hold_back([waker()]);
            is_woken.store(true, Ordering::Release);
            other.join().expect("no panic");
            if first.join().expect("no panic") {
                assert_eq!(woken.0.load(Ordering::SeqCst), 2);
            }
        });
    }
}
