//! Against the real thing: 400 random scenarios, 16,000 steps, that were run on the `RateLimiter`
//! of Guava 31.1.
//!
//! First a model of Guava replays all of them bit for bit, so that the traces and our reading of
//! them are known to be sound. Then `tollgate` itself replays those in which it means to answer as
//! Guava does.

mod limiter;
mod model;
#[cfg(unix)]
mod over_redis;
mod replay;
mod selection;
mod subject;
mod trace;

use model::Model;
use trace::{Op, RateSet, Scenario, State};

#[test]
fn the_reference_model_replays_every_trace_bit_for_bit() {
    let mut scenarios = 0;
    let mut steps = 0;
    for scenario in trace::bursty().iter().chain(&trace::warming_up()) {
        replay_on_the_model(scenario);
        scenarios += 1;
        steps += scenario.steps.len();
    }
    assert_eq!((scenarios, steps), (400, 16_000));
}

#[test]
fn bursty_waits_as_guava_does() {
    let (scenarios, left_out) = selection::divide(trace::bursty());
    assert_eq!(left_out, selection::bursty_left_out());

    let tally = replay::replay(&scenarios, limiter::make);
    println!("bursty: {tally}");
    assert_eq!((tally.scenarios, tally.steps), (161, 6_440));
    assert_eq!((tally.timeouts_moved, tally.decisions_changed), (647, 92));
}

#[test]
fn warming_up_waits_as_guava_does() {
    let (scenarios, left_out) = selection::divide(trace::warming_up());
    assert_eq!(left_out, selection::warming_up_left_out());

    let tally = replay::replay(&scenarios, limiter::make);
    println!("warming up: {tally}");
    assert_eq!((tally.scenarios, tally.steps), (167, 6_680));
    assert_eq!((tally.timeouts_moved, tally.decisions_changed), (560, 144));
}

fn replay_on_the_model(scenario: &Scenario) {
    let mut model = Model::new(scenario.limiter);
    let place = format!("{:?}, scenario {}", scenario.limiter.kind, scenario.id);
    assert_same_rate(&model, scenario.initial_rate, &place);
    assert_same_state(&model, scenario.initial, &place);
    for (index, step) in scenario.steps.iter().enumerate() {
        let place = format!("{place}, step {index}: {step:?}");
        match step.op {
            Op::Advance { micros } => model.advance(micros),
            Op::Acquire { permits, slept_micros } => {
                assert_eq!(model.acquire(permits), slept_micros, "{place}");
            }
            Op::TryAcquire { permits, timeout_micros, granted, slept_micros } => {
                let slept = model.try_acquire(permits, timeout_micros);
                let answer = (slept.is_some(), slept.unwrap_or(0));
                assert_eq!(answer, (granted, slept_micros), "{place}");
            }
            Op::SetRate { permits_per_second, answer } => {
                model.set_rate(permits_per_second);
                assert_same_rate(&model, answer, &place);
            }
        }
        assert_same_state(&model, step.after, &place);
    }
}

fn assert_same_rate(model: &Model, guava: RateSet, place: &str) {
    assert_same(model.rate(), guava.rate_read_back, place);
    assert_same(model.max_permits(), guava.max_permits, place);
}

fn assert_same_state(model: &Model, guava: State, place: &str) {
    let state = model.state();
    assert_same(state.stored_permits, guava.stored_permits, place);
    assert_eq!(state.next_free_micros, guava.next_free_micros, "{place}");
    assert_eq!(state.now_micros, guava.now_micros, "{place}");
}

/// Equal bits, or both NaN: the traces do not tell one NaN from another.
fn assert_same(ours: f64, guava: f64, place: &str) {
    let same = ours.to_bits() == guava.to_bits() || (ours.is_nan() && guava.is_nan());
    assert!(same, "{ours:?}, Guava {guava:?}: {place}");
}
