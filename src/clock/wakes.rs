//! Callers that are woken go on one behind the other.
//!
//! A caller that goes on can give back what others wait for, and so wake them. They go on behind all that were woken
//! with it, because these are ahead of them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread;

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

/// Wakes callers that were granted together, in this order, all of them also if a waker panics.
// Not inlined, to keep the path of calls that wake no others short.
#[inline(never)]
pub(crate) fn wake_in_turn(wakers: &mut dyn ExactSizeIterator<Item = Waker>) {
    if wakers.len() < 2 { wake_each(wakers) } else { in_turn(|| wake_each(wakers)) }
}

fn wake_each(wakers: &mut dyn ExactSizeIterator<Item = Waker>) {
    let mut panicked = None;
    for waker in wakers {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            panicked.get_or_insert(panic);
        }
    }
    if let Some(panic) = panicked {
        resume_unwind(panic);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::task::Wake;

    use super::*;
    use crate::sync::Mutex;

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
