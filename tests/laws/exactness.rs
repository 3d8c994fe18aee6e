//! The arithmetic does not drift, at any rate, and has no ends where it breaks: the policies alone,
//! without a limiter, against exact fractions.

mod drift;
mod extremes;

use std::time::Duration;

use drift::{DAY, RATES, SECOND};
use tollgate::{SmoothBursty, SmoothWarmingUp};

const MILLION: u32 = 1_000_000;

#[test]
fn smooth_bursty_is_exact_after_a_million_charges_without_a_store() {
    for (n, per) in RATES {
        drift::bursty(n, per, Duration::ZERO, MILLION, |_| 0);
    }
}

#[test]
fn smooth_bursty_is_exact_after_a_million_charges_with_a_store() {
    for (n, per) in RATES {
        drift::bursty(n, per, Duration::from_secs(1), MILLION, |_| 0);
    }
}

#[test]
fn smooth_bursty_makes_up_for_late_charges_exactly() {
    for (n, per) in RATES {
        // Never later than the store holds.
        drift::bursty(n, per, Duration::from_secs(1), MILLION / 2, |charge| charge * 7919 % 1000);
    }
}

#[test]
fn smooth_bursty_is_exact_after_a_century_at_one_a_day() {
    drift::bursty(1, DAY, Duration::ZERO, 36_500, |_| 0);
    drift::bursty(1, DAY, Duration::from_secs(1), 36_500, |_| 0);
}

#[test]
fn smooth_bursty_is_exact_with_costs_of_any_size() {
    for (n, per) in RATES {
        drift::bursty_with_large_costs(n, per);
    }
}

#[test]
fn smooth_warming_up_is_exact_after_a_million_charges() {
    for (n, per) in RATES {
        for cold_factor in [3.0, 1.0] {
            let warm_up = Duration::from_nanos(per * 100 / n);
            drift::warming_up(n, per, warm_up, cold_factor, MILLION / 10);
        }
        drift::warming_up(n, per, Duration::from_nanos(per * 777 / n), 7.5, MILLION);
    }
}

#[test]
fn smooth_warming_up_is_exact_after_a_century_at_one_a_day() {
    drift::warming_up(1, DAY, Duration::from_nanos(30 * DAY), 3.0, 36_500);
    drift::warming_up(1, DAY, Duration::from_nanos(SECOND), 3.0, 36_500);
}

#[test]
fn smooth_bursty_takes_any_arguments_and_is_never_early() {
    extremes::any_arguments_are_never_early::<SmoothBursty>(58);
}

#[test]
fn smooth_warming_up_takes_any_arguments_and_is_never_early() {
    // The oracle's store is an f64 of 53 bits. The part above the threshold may be 2^28 times smaller, and a few calls
    // round it.
    extremes::any_arguments_are_never_early::<SmoothWarmingUp>(22);
}

// Where a debug build does not panic, no operation has overflowed, and a release build computes the
// same.

#[test]
fn smooth_bursty_takes_any_refund_without_overflow() {
    extremes::any_refund_is_taken::<SmoothBursty>();
}

#[test]
fn smooth_warming_up_takes_any_refund_without_overflow() {
    extremes::any_refund_is_taken::<SmoothWarmingUp>();
}
