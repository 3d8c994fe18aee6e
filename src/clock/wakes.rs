//! Callers that are woken together.
//!
//! They go on one behind the other. A caller that goes on can give back what others wait for, and so wake them. These go
//! on behind all that were woken with it, because those are ahead of them.
//!
//! The callers of a round of the clock's thread wake each other. To wake a task of another thread costs a lock and often
//! a system call; to wake one of the own runtime is a push to a queue. So the thread wakes the first caller of a round
//! only, and that one wakes the others when it is polled. No caller depends on that: the thread comes back, see
//! [`TimerThread`](super::timer_thread::TimerThread).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread;

use crate::sync::{AtomicBool, Mutex, Ordering};

/// A caller that goes on where it is woken.
pub(crate) trait Woken: Send + Sync {
    fn go_on(self: Arc<Self>);
}

thread_local! {
    /// The callers that were woken while this thread wakes or drives others. One that goes on can wake the next one, and so on
    /// through the whole queue: with this list, only one of them is on the stack.
    static NEXT: RefCell<Option<VecDeque<Arc<dyn Woken>>>> = const { RefCell::new(None) };
}

/// Drives or wakes callers, then drives all that were woken by that.
pub(crate) fn in_turn(drive: impl FnOnce()) {
    let is_first = NEXT.try_with(|next| {
        let is_first = next.borrow().is_none();
        next.borrow_mut().get_or_insert_default();
        is_first
    });
    if !is_first.unwrap_or(false) {
        return drive();
    }
    let mut panicked = catch_unwind(AssertUnwindSafe(drive)).err();
    let pop = || NEXT.with_borrow_mut(|next| next.as_mut()?.pop_front());
    while let Some(woken) = pop() {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| woken.go_on())) {
            panicked.get_or_insert(panic);
        }
    }
    NEXT.set(None);
    if let Some(panic) = panicked
        && !thread::panicking()
    {
        resume_unwind(panic);
    }
}

/// Drives a woken caller, at once or behind those that this thread wakes or drives.
pub(crate) fn go_on_in_turn(woken: Arc<dyn Woken>) {
    let mut woken = Some(woken);
    let _ = NEXT.try_with(|next| {
        if let Some(queue) = &mut *next.borrow_mut() {
            queue.extend(woken.take());
        }
    });
    if let Some(woken) = woken {
        in_turn(|| woken.go_on());
    }
}

/// Wakes callers that were granted together, in this order. No panic of a waker, nor of a caller that goes on, is for the
/// one that comes here.
// Not inlined, to keep the path of calls that wake no others short.
#[inline(never)]
pub(crate) fn wake_in_turn(wakers: &mut dyn ExactSizeIterator<Item = Waker>) {
    let _ = catch_unwind(AssertUnwindSafe(|| match wakers.len() {
        0 | 1 => wakers.for_each(Waker::wake),
        _ => in_turn(|| {
            for waker in wakers {
                let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
            }
        }),
    }));
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
        wake_in_turn(&mut others.drain(..));
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

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::task::Wake;

    use super::*;

    /// A caller that logs that it goes on, and then wakes the next one.
    struct Caller {
        name: char,
        log: Arc<Mutex<String>>,
        next: Option<Arc<Self>>,
    }

    impl Woken for Caller {
        fn go_on(self: Arc<Self>) {
            self.log.lock().push(self.name);
            if let Some(next) = &self.next {
                go_on_in_turn(Arc::clone(next) as _);
            }
        }
    }

    impl Wake for Caller {
        fn wake(self: Arc<Self>) {
            go_on_in_turn(self);
        }
    }

    #[test]
    fn callers_that_are_woken_together_go_on_ahead_of_those_that_they_wake() {
        for (names, order) in [("a", "aA"), ("ab", "abAB"), ("abc", "abcABC")] {
            let log = Arc::default();
            let callers: Vec<Waker> = names
                .chars()
                .map(|name| {
                    let caller =
                        |name, next| Arc::new(Caller { name, log: Arc::clone(&log), next });
                    caller(name, Some(caller(name.to_ascii_uppercase(), None))).into()
                })
                .collect();
            wake_in_turn(&mut callers.into_iter());
            assert_eq!(*log.lock(), order);
        }
    }
}
