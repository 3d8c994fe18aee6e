//! Charges that each come when they are ready: the total time against the exact one.

use std::time::Duration;

use tollgate::{Nanos, Policy, Rate, SmoothBursty, SmoothWarmingUp};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const DAY: u64 = 86_400 * SECOND;

/// Permits, and the nanoseconds in which they come. Only the fastest rate has an interval of whole
/// nanoseconds.
pub(crate) const RATES: [(u64, u64); 5] =
    [(3, SECOND), (700_000, SECOND), (300_000_000, SECOND), (SECOND, SECOND), (900, 7 * SECOND)];

/// When the permit after `permits` is due, in whole nanoseconds, rounded up.
fn due(permits: u64, n: u64, per: u64) -> u64 {
    let due = (u128::from(permits) * u128::from(per)).div_ceil(u128::from(n));
    u64::try_from(due).expect("below 584 years")
}

/// Each permit is charged `late(k)` nanoseconds after it is due.
pub(crate) fn bursty(n: u64, per: u64, max_burst: Duration, charges: u32, late: fn(u64) -> u64) {
    let policy = SmoothBursty::new(Rate::new(n, Duration::from_nanos(per))).max_burst(max_burst);
    let mut state = policy.start(Nanos::ZERO);
    let mut now = Nanos::ZERO;
    for charge in 0..u64::from(charges) {
        // Asked at the origin, for the exact time: it may be ready since before `now`.
        let ready = policy.ready_at(&state, Nanos::ZERO, 1).expect("within the horizon");
        let ready = ready.earliest();
        assert_eq!(ready.get(), due(charge, n, per), "charge {charge} at {n} in {per} ns");
        now = Nanos::new(ready.get() + late(charge)).max(now);
        policy.charge(&mut state, now, 1);
    }
}

/// Costs that double and start again, up to the greatest, for as long as the clock runs.
pub(crate) fn bursty_with_large_costs(n: u64, per: u64) {
    let policy = SmoothBursty::new(Rate::new(n, Duration::from_nanos(per)));
    let mut state = policy.start(Nanos::ZERO);
    let mut now = Nanos::ZERO;
    let mut permits = 0;
    let costs = (0..32).map(|power| 1 << power).chain([u32::MAX]).cycle();
    for cost in costs.take(3000) {
        let ready = policy.ready_at(&state, now, cost).expect("within the horizon").earliest();
        let exact = due(permits, n, per);
        // The rate itself is right to one part in 2^62.
        assert!(ready.get().abs_diff(exact) <= 1 + (exact >> 60), "{ready:?}, exactly {exact}");
        if ready > Nanos::END {
            return;
        }
        now = ready;
        policy.charge(&mut state, now, cost);
        permits += u64::from(cost);
    }
}

/// From cold: the additional time of the ramp over the stable rate is known from Guava's formulas.
/// The trapezoid has the area of the warm-up and `2 warm_up / (stable + cold)` permits.
pub(crate) fn warming_up(n: u64, per: u64, warm_up: Duration, cold_factor: f64, charges: u32) {
    let policy = SmoothWarmingUp::new(Rate::new(n, Duration::from_nanos(per)), warm_up)
        .cold_factor(cold_factor);
    let ramp = warm_up.as_secs_f64() * (1.0 - 2.0 / (1.0 + cold_factor));
    let ramp = u64::try_from(Duration::from_secs_f64(ramp).as_nanos()).expect("short");
    // Drawing the whole store takes no longer than this.
    let warm = 2 * warm_up.as_nanos() * u128::from(n) / u128::from(per) + 1;
    let mut state = policy.start(Nanos::ZERO);
    let mut now = Nanos::ZERO;
    for charge in 0..u64::from(charges) {
        now = policy.ready_at(&state, now, 1).expect("within the horizon").earliest();
        if u128::from(charge) > warm {
            let exact = due(charge, n, per) + ramp;
            assert!(now.get().abs_diff(exact) <= 2, "charge {charge} at {now:?}, exactly {exact}");
        }
        policy.charge(&mut state, now, 1);
    }
}
