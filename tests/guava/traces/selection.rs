//! Which scenarios `tollgate` replays, and which it leaves out, each by its id.
//!
//! Left out is what `tollgate` does otherwise on purpose: it has no infinite rate, no NaN in the
//! store, no ticket that saturates or wraps, and its clock counts nanoseconds and so ends 292 years
//! after its start (all of these are tagged in the traces); warm-ups below a microsecond, which
//! Guava answers with NaN; rates outside 1 per day to 1e9 per second; bookings beyond the horizon
//! of 2^62 ns, 146 years.

use super::trace::{Kind, Scenario, State};

/// The ids of one file's scenarios that are left out, each under the first reason that holds.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct LeftOut {
    pub(crate) tagged: Vec<u32>,
    pub(crate) warm_up_below_a_microsecond: Vec<u32>,
    pub(crate) rate_out_of_range: Vec<u32>,
    pub(crate) beyond_the_horizon: Vec<u32>,
}

pub(crate) fn bursty_left_out() -> LeftOut {
    LeftOut {
        tagged: vec![
            13, 20, 24, 32, 39, 41, 42, 44, 52, 54, 57, 61, 71, 74, 78, 81, 93, 97, 101, 111, 113,
            114, 116, 121, 123, 124, 128, 144, 147, 148, 151, 172, 174, 175, 178, 189, 193, 199,
        ],
        // 2^31 - 1 permits at one in four seconds are 272 years.
        beyond_the_horizon: vec![68],
        ..LeftOut::default()
    }
}

/// All warm-ups below a microsecond have put NaN into the store and are tagged for that.
pub(crate) fn warming_up_left_out() -> LeftOut {
    LeftOut {
        tagged: vec![
            5, 10, 12, 14, 19, 20, 29, 30, 34, 45, 50, 53, 60, 78, 85, 86, 89, 105, 115, 117, 119,
            129, 136, 137, 152, 166, 169, 171, 180, 189, 192, 197,
        ],
        warm_up_below_a_microsecond: vec![],
        rate_out_of_range: vec![141],
        beyond_the_horizon: vec![],
    }
}

/// Divides the scenarios into those to replay and those left out.
pub(crate) fn divide(scenarios: Vec<Scenario>) -> (Vec<Scenario>, LeftOut) {
    let mut replayed = Vec::new();
    let mut left_out = LeftOut::default();
    for scenario in scenarios {
        if !scenario.tags.is_empty() {
            left_out.tagged.push(scenario.id);
        } else if warm_up_below_a_microsecond(&scenario) {
            left_out.warm_up_below_a_microsecond.push(scenario.id);
        } else if !scenario.rates().all(in_range) {
            left_out.rate_out_of_range.push(scenario.id);
        } else if scenario.steps.iter().any(|step| beyond_the_horizon(step.after)) {
            left_out.beyond_the_horizon.push(scenario.id);
        } else {
            replayed.push(scenario);
        }
    }
    (replayed, left_out)
}

fn warm_up_below_a_microsecond(scenario: &Scenario) -> bool {
    match scenario.limiter.kind {
        Kind::Bursty { .. } => false,
        Kind::WarmingUp { warm_up_micros, .. } => warm_up_micros < 1,
    }
}

fn beyond_the_horizon(state: State) -> bool {
    state.next_free_micros.saturating_sub(state.now_micros) > (1 << 62) / 1_000
}

/// Written out, not asked of `Rate`: a `Rate` that refused more would make the replay smaller
/// without a word.
fn in_range(permits_per_second: f64) -> bool {
    (1.0 / 86_400.0..=1e9).contains(&permits_per_second)
}
