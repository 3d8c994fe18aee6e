//! The traces of `tests/guava_traces.rs` over Redis, each step a round trip to a real server. The runs that
//! are published for Guava are not here: they are given to the nearest microsecond, and scripts round up.
#![cfg(all(unix, feature = "redis"))]

#[path = "redis_guava_traces/limiter.rs"]
mod limiter;
#[path = "redis/support/manual.rs"]
mod manual;
#[path = "guava_traces/replay.rs"]
mod replay;
#[path = "guava_traces/selection.rs"]
mod selection;
#[path = "guava_traces/subject.rs"]
mod subject;
#[path = "redis/support/mod.rs"]
mod support;
// What the traces say of the model is not asked here.
#[allow(dead_code)]
#[path = "guava_traces/trace.rs"]
mod trace;

#[test]
fn bursty_waits_as_guava_does() {
    let (scenarios, left_out) = selection::divide(trace::bursty());
    assert_eq!(left_out, selection::bursty_left_out());

    let tally = replay::replay(&scenarios);
    println!("bursty: {tally}");
    assert_eq!((tally.scenarios, tally.steps), (161, 6_440));
}

#[test]
fn warming_up_waits_as_guava_does() {
    let (scenarios, left_out) = selection::divide(trace::warming_up());
    assert_eq!(left_out, selection::warming_up_left_out());

    let tally = replay::replay(&scenarios);
    println!("warming up: {tally}");
    assert_eq!((tally.scenarios, tally.steps), (167, 6_680));
}
