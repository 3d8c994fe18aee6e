//! Every clock in every place: paused and running runtimes, several at once, none at all, and
//! runtimes that end or are no longer driven. Few of these tests take real time, and then some tens
//! of milliseconds.

mod by_hand;
mod by_itself;
mod paused;
mod places;
mod several;
mod system;
mod threads;

use tollgate::{
    Acquire, Clock, Error, ExceedsCapacity, Grant, ManualClock, RateLimiter, Reservation,
    SmoothBursty, SmoothWarmingUp, Stats,
};

/// The types that a task on a multi-threaded runtime may hold and share.
#[test]
fn everything_goes_to_other_threads() {
    fn check<T: Send + Sync>() {}
    check::<RateLimiter<SmoothBursty>>();
    check::<RateLimiter<SmoothWarmingUp>>();
    check::<Acquire<&tollgate::RateLimiter<SmoothBursty>>>();
    check::<Acquire<tollgate::RateLimiter<SmoothWarmingUp>>>();
    check::<Grant<'_, SmoothBursty>>();
    check::<Grant<'static, SmoothWarmingUp>>();
    check::<Reservation<tollgate::RateLimiter<SmoothBursty>>>();
    check::<Reservation<tollgate::RateLimiter<SmoothWarmingUp>>>();
    check::<Error>();
    check::<ExceedsCapacity>();
    check::<Clock>();
    check::<ManualClock>();
    check::<Stats>();
}

#[test]
fn futures_can_be_moved_while_they_wait_and_outlive_their_origin() {
    fn check<T: Unpin>() {}
    fn check_static<T: 'static>(_: T) {}
    check::<Acquire<&tollgate::RateLimiter<SmoothBursty>>>();
    let (_clock, limiter) = crate::support::busy(5.0);
    check_static(limiter.acquire_owned(1));
    check_static(limiter.reserve(1).map(Reservation::wait));
}
