//! What follows from each answer.

use std::time::Duration;

use super::State;
use crate::feedback::answer::{Answer, Unit};
use crate::feedback::dialect::Dialects;
use crate::feedback::learner::Search;
use crate::feedback::learner::tests::at;
use crate::feedback::window::tests::observed;

fn fresh() -> State {
    State::new(Search::default(), None, at(0))
}

fn read(status: u16, fields: &[(&str, &str)]) -> Answer {
    Dialects::default().read(status, fields)
}

/// What remains of 100 requests a minute.
fn quota(status: u16, remaining: u32) -> Answer {
    let remaining = remaining.to_string();
    let fields = [
        ("x-ratelimit-limit", "100"),
        ("x-ratelimit-remaining", &remaining),
        ("x-ratelimit-reset", "60"),
    ];
    read(status, &fields)
}

fn left(remaining: u32) -> Answer {
    quota(200, remaining)
}

/// What remains of the requests.
fn remaining(state: &State, now: u64) -> Option<u64> {
    state.server_state(at(now)).meters.first()?.1.remaining
}

/// The answer to a call for one request that was sent at one time and answered at another.
fn hear(state: &mut State, times: (u64, u64), answer: &Answer) -> Option<Duration> {
    state.learn(&observed(times, None), answer, 0)
}

#[test]
fn while_calls_are_paused_an_answer_to_a_call_sent_before_the_refusal_is_stale() {
    let mut state = fresh();
    let refused = read(429, &[("retry-after", "30")]);
    assert_eq!(hear(&mut state, (10, 20), &refused), Some(Duration::from_secs(30)));
    let last_answer = |state: &State| remaining(state, 30).is_some();
    hear(&mut state, (19, 30), &left(50));
    assert_eq!((state.shown.stale, last_answer(&state)), (1, false));
    hear(&mut state, (20, 30), &left(50));
    assert_eq!((state.shown.stale, last_answer(&state)), (1, true));

    let mut state = fresh();
    hear(&mut state, (10, 20), &refused);
    hear(&mut state, (19, 320), &left(50));
    assert_eq!((state.shown.stale, last_answer(&state)), (0, true), "the pause is over");
}

#[test]
fn a_failure_that_names_a_time_is_a_pause_and_no_outage() {
    let is_down = |fields: &[_]| {
        let mut state = fresh();
        for sent in 0..20 {
            hear(&mut state, (sent, 20), &read(503, fields));
        }
        state.server_state(at(20)).is_down
    };
    assert!(!is_down(&[("retry-after", "1")]));
    assert!(is_down(&[]));
}

#[test]
fn a_server_that_refuses_again_soon_after_its_time_gets_calls_more_slowly() {
    let rate = |again: u64| {
        let search = Search { start: 100.0, ..Search::default() };
        let mut state = State::new(search, None, at(0));
        let refused = read(429, &[("retry-after", "10")]);
        hear(&mut state, (10, 10), &refused);
        hear(&mut state, (again - 1, again), &refused);
        assert_eq!((state.shown.refused, state.shown.pauses), (2, 2));
        assert!(state.learner.is_on());
        state.learner.rate().expect("it is learned").as_per_second()
    };
    // The first one leaves the least rate.
    assert_eq!([120, 710, 711].map(rate), [1.5, 1.5, 2.0]);
}

/// A 503 with a time is a refusal, so between good calls it says that the rate was too high.
#[test]
fn a_503_with_a_time_between_good_calls_lowers_the_rate() {
    let search = Search { start: 100.0, ..Search::default() };
    let mut state = State::new(search, None, at(0));
    let refused = read(503, &[("retry-after", "10")]);
    hear(&mut state, (10, 10), &refused);
    hear(&mut state, (119, 119), &read(200, &[]));
    hear(&mut state, (120, 120), &refused);
    let rate = state.learner.rate().expect("it is learned").as_per_second();
    assert!(rate < 1.6, "{rate}");
}

/// The server cuts 1.9 s to one second, and then to zero.
#[test]
fn a_time_that_was_cut_twice_is_taken_for_a_second_more() {
    let mut state = fresh();
    let mut pause = |tenths, seconds| {
        let fields = [("retry-after", seconds)];
        hear(&mut state, (tenths, tenths), &read(429, &fields)).map(|it| it.as_millis())
    };
    assert_eq!(pause(10, "1"), Some(1_000));
    pause(20, "0");
    pause(100, "1");
    pause(110, "0");
    assert_eq!(pause(200, "1"), Some(2_000));
}

#[test]
fn answers_and_fields_that_cannot_be_read_are_counted() {
    let mut state = fresh();
    for now in 10..13 {
        let fields = [("x-ratelimit-remaining", "many"), ("retry-after", "soon")];
        hear(&mut state, (now, now), &read(200, &fields));
    }
    assert_eq!((state.shown.answers, state.shown.malformed), (3, 6));
}

/// Nothing remains, and no time is named.
fn used_up() -> Answer {
    quota(429, 0)
}

#[test]
fn of_a_quota_that_strangers_use_up_what_was_delivered_is_left() {
    let mut state = fresh();
    (1..=50).for_each(|call| _ = hear(&mut state, (10 * call, 10 * call), &left(99)));
    hear(&mut state, (510, 510), &used_up());
    let rate = state.learner.rate().expect("it is learned").as_per_second();
    assert!((rate - 50.0 / 51.0).abs() < 1e-6, "{rate}");
}

#[test]
fn it_is_idle_if_nothing_holds_calls_back_and_nothing_is_under_way() {
    let mut state = fresh();
    assert!(state.is_idle(at(0)));
    state.send([1, 0, 0, 0]);
    assert!(!state.is_idle(at(0)));
    state.answered([1, 0, 0, 0]);
    assert!(state.is_idle(at(0)));
    let mut state = fresh();
    hear(&mut state, (10, 10), &read(429, &[("retry-after", "30")]));
    assert!(!state.is_idle(at(309)) && !state.is_idle(at(36_009)) && state.is_idle(at(36_010)));
}

#[test]
fn a_window_is_doubted_only_by_the_refusal_of_a_call_that_was_sent_when_it_was_known() {
    let all = |sent| {
        let mut state = fresh();
        hear(&mut state, (10, 20), &left(50));
        hear(&mut state, (sent, 30), &used_up());
        hear(&mut state, (2_000, 2_000), &left(99));
        state.windows[Unit::Requests.index()].cap().steps[2].1
    };
    assert_eq!([19, 20].map(all), [100, 99]);
}
