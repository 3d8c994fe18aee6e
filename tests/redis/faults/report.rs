//! What a fault may cost.

use std::time::Duration;

use super::SLACK;

#[track_caller]
fn within(what: &str, measured: f64, bound: f64) {
    assert!(measured <= bound, "{what}: {measured:.1}, at most {bound:.1}");
}

/// Permits granted beyond `rate x time + burst`.
#[track_caller]
pub(super) fn not_over(measured: f64, bound: f64) {
    within("granted too much", measured, bound);
}

/// Permits charged and not granted.
#[track_caller]
pub(super) fn not_under(measured: f64, bound: f64) {
    within("granted too little", measured, bound);
}

/// The longest wait for Redis, and the deadline.
#[track_caller]
pub(super) fn not_longer(measured: Duration, deadline: Duration) {
    assert!(measured <= deadline + SLACK, "blocked for {measured:?}, deadline {deadline:?}");
}

/// The time from the server's return to the first grant.
#[track_caller]
pub(super) fn is_back(measured: Duration) {
    assert!(measured <= Duration::from_secs(1), "back only after {measured:?}");
}
