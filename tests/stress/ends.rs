//! Calls while a thread ends: in the destructors of its thread-locals, before and after the one in
//! which the limiter keeps the thread's counter.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate::{Policy, RateLimiter};

use crate::tally::Tally;

/// Counts made when no caller could return them any more.
pub(crate) type Late = Arc<Mutex<Tally>>;

struct AtEnd(Box<dyn FnOnce()>);

struct Ends(Vec<AtEnd>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|end| (end.0)());
    }
}

thread_local! {
    static BEFORE: RefCell<Ends> = const { RefCell::new(Ends(Vec::new())) };
    static AFTER: RefCell<Ends> = const { RefCell::new(Ends(Vec::new())) };
}

/// Runs `count`, and tries once more for each of two thread-locals when this thread ends: one that is
/// older than whatever `count` is the first to need, and one that is younger.
pub(crate) fn with_ends<P: Policy, R>(
    limiter: &RateLimiter<P>,
    cost: P::Cost,
    permits: u32,
    late: &Late,
    count: impl FnOnce() -> R,
) -> R {
    let end = || {
        let (limiter, late) = (limiter.clone(), Arc::clone(late));
        AtEnd(Box::new(move || {
            let mut tally = Tally::default();
            tally_of_a_try(&limiter, cost, permits, &mut tally);
            drop(limiter);
            *late.lock().unwrap_or_else(PoisonError::into_inner) += tally;
        }))
    };
    BEFORE.with_borrow_mut(|ends| ends.0.push(end()));
    let result = count();
    AFTER.with_borrow_mut(|ends| ends.0.push(end()));
    result
}

/// One try whose grant is kept, and dropped at once.
pub(crate) fn tally_of_a_try<P: Policy>(
    limiter: &RateLimiter<P>,
    cost: P::Cost,
    permits: u32,
    tally: &mut Tally,
) {
    if limiter.try_acquire(cost).is_ok() {
        tally.granted += 1;
        tally.charged += u64::from(permits);
        tally.kept += i64::from(permits);
    } else {
        tally.refused += 1;
    }
}
