//! Each rule by itself.

use std::time::Duration;

use super::{CHANCE, LEAST_FOUND, LEAST_LEFT, LONGEST_PROBE, Learner, Pace, Recent, Search};
use crate::units::Nanos;

/// Between two calls.
const LONGEST: Duration = Duration::from_secs(3600);

/// In tenths of a second.
pub(in crate::feedback) fn at(tenths: u64) -> Nanos {
    Nanos::new(tenths * 100_000_000)
}

fn searching(start: f64) -> Learner {
    Learner::new(Search { start, seed: 7 }, at(0))
}

/// One whose rate was found a while ago.
fn found(rate: f64) -> Learner {
    let mut learner = searching(rate / 0.75);
    learner.cycle = u32::MAX;
    learner.refused(at(10), at(9), None);
    assert!((learner.rate - rate).abs() < 1e-9);
    learner
}

fn near(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-6
}

#[test]
fn a_refusal_takes_less_the_more_calls_went_well_before() {
    for (good, keeps) in [(0, 0.75), (5, 0.8), (30, 0.9), (40, 1.0 - 1.0 / 12.0), (1000, 0.94)] {
        let mut learner = found(100.0);
        for call in 0..good {
            learner.good(at(20 + call), at(11 + call), false);
        }
        learner.refused(at(2000), at(1999), None);
        assert!(near(learner.rate, 100.0 * keeps), "{good}: {}", learner.rate);
    }
}

#[test]
fn calls_that_were_under_way_lower_the_rate_once() {
    let mut learner = found(100.0);
    (0..50).for_each(|_| learner.refused(at(11), at(10), None));
    assert!(near(learner.rate, 100.0));
    learner.refused(at(20), at(11), None);
    (0..50).for_each(|sent| learner.refused(at(21), at(20 - sent % 10), None));
    assert!(near(learner.rate, 75.0));
}

#[test]
fn only_calls_that_waited_raise_the_rate_and_idleness_does_not() {
    let mut learner = found(100.0);
    (0..100).for_each(|call| learner.good(at(11 + call), at(11 + call), false));
    assert!(near(learner.rate, 100.0));
    // An hour, of which two permits' time counts.
    learner.good(at(36_000), at(35_999), true);
    assert!(near(learner.rate, 100.0 * (1.0 + 0.025 * 0.02 * 8.0)), "{}", learner.rate);
}

/// By what one more call raises the rate, after some that went well and a time without a refusal.
fn growth(good: u64, tenths: u64) -> f64 {
    let mut learner = found(100.0);
    let now = 10 + tenths;
    (0..good).for_each(|_| learner.good(at(now - 1), at(now - 1), false));
    learner.good(at(now), at(now), true);
    learner.rate - 100.0
}

#[test]
fn neither_many_calls_nor_a_long_time_raise_the_rate_faster_by_themselves() {
    let most = growth(1000, 600);
    for (good, tenths) in [(0, 600), (3, 600), (1000, 3), (1000, 9)] {
        let growth = growth(good, tenths);
        assert!((most / 16.0..most / 4.0).contains(&growth), "{good} in {tenths}: {growth}");
    }
}

#[test]
fn the_search_more_than_doubles_the_rate_each_second() {
    let mut learner = searching(10.0);
    (1..=10).for_each(|tenth| learner.good(at(tenth), at(tenth - 1), true));
    assert!((24.0..27.0).contains(&learner.rate), "{}", learner.rate);
}

/// RFC 7661: 1,000/s is no start for a client that has used 5/s.
#[test]
fn the_first_refusal_leaves_twice_what_was_delivered() {
    let mut learner = searching(1000.0);
    (1..=50).for_each(|call| learner.good(at(2 * call), at(2 * call), false));
    learner.refused(at(100), at(100), None);
    assert!(near(learner.rate, 10.0), "{}", learner.rate);
}

#[test]
fn six_refusals_in_a_row_are_a_window_whose_quota_is_what_was_delivered() {
    let mut learner = found(100.0);
    (learner.cycle, learner.since) = (0, at(10));
    for call in 0..600 {
        learner.good(at(11 + call), at(11 + call), false);
    }
    for refusal in 0..6 {
        learner.refused(at(700 + 2 * refusal), at(699 + 2 * refusal), None);
    }
    let mut over = learner.clone();
    over.good(at(712), at(711), false);
    assert!(near(over.rate, 601.0 / 70.2), "{}", over.rate);
    // Probes after 1, 1.6, 2.6 s and so on, each by half.
    for (refusal, seconds) in [(1, 1.6), (2, 2.56), (3, 4.096), (4, 6.55), (5, 10.5), (6, 16.0)] {
        let now = at(1000 * refusal);
        learner.refused(now, now, None);
        let wait = learner.until.since(now).as_secs_f64();
        assert!((0.5 * seconds..1.5 * seconds).contains(&wait), "{refusal}: {wait}");
    }
    // A tenth is left at least.
    let before = learner.rate;
    learner.good(at(70_100), at(70_099), false);
    assert!(near(learner.rate, before / 10.0), "{}", learner.rate);
}

/// From a quota that was found to be used up to the next time: 20 calls in 10 s.
#[test]
fn after_many_good_calls_three_refusals_in_a_row_are_a_window() {
    let mut learner = found(6.0);
    (learner.cycle, learner.since) = (0, at(10));
    (0..19).for_each(|call| learner.good(at(11 + call), at(11 + call), false));
    (0..3).for_each(|refusal| learner.refused(at(90 + 2 * refusal), at(89 + 2 * refusal), None));
    learner.good(at(110), at(109), false);
    assert!(near(learner.rate, 2.0) && near(learner.borne, 2.0), "{}", learner.rate);
}

#[test]
fn near_what_the_server_bore_the_rate_grows_slowly() {
    let growth = |good: u64| {
        let mut learner = found(10.0);
        (0..good).for_each(|call| learner.good(at(11 + call), at(11 + call), false));
        // Ten a second were borne.
        learner.refused(at(10 + good), at(10 + good), None);
        let now = 10 + good + 30;
        (0..100).for_each(|_| learner.good(at(now), at(now), false));
        learner.rate = 9.5;
        let before = learner.rate;
        learner.good(at(now + 1), at(now + 1), true);
        learner.rate / before - 1.0
    };
    assert!(growth(11) > 4.0 * growth(12), "{} {}", growth(11), growth(12));
    assert!((0.0007..0.0009).contains(&growth(12)), "{}", growth(12));
}

#[test]
fn the_first_refusal_within_a_second_leaves_the_search_on() {
    let refused = |tenth| {
        let mut learner = searching(1000.0);
        (1..=5).for_each(|_| learner.good(at(0), at(0), false));
        learner.refused(at(tenth), at(tenth), None);
        (learner.rate, learner.is_searching)
    };
    // Five in less than a second are five a second.
    assert_eq!([9, 20].map(refused), [(10.0, true), (5.0, false)]);
}

#[test]
fn slow_refusals_in_a_row_leave_one_call_at_a_time() {
    let mut learner = found(10.0);
    learner.good(at(20), at(20), false);
    for (refusal, rate) in [(1, 10.0 * (1.0 - 1.0 / 4.2)), (2, 0.5)] {
        let now = at(100 * refusal);
        learner.refused(now, at(100 * refusal - 20), None);
        learner.set_pace(1, LONGEST);
        assert!(near(learner.pace().rate, rate), "{:?}", learner.pace());
    }
    learner.good(at(300), at(280), false);
    assert!(learner.pace().rate > 5.0);
}

#[test]
fn a_pause_after_a_refusal_is_short_and_no_two_are_the_same() {
    let mut waits = Vec::new();
    let mut learner = found(10.0);
    for refusal in 2..6 {
        let now = at(100 * refusal);
        learner.good(now, now, false);
        learner.refused(now, now, Some(Duration::from_secs(3)));
        waits.push(learner.until.since(now));
    }
    assert!(waits.iter().all(|wait| (3000..4000).contains(&wait.as_millis())), "{waits:?}");
    waits.dedup();
    assert_eq!(waits.len(), 4, "{waits:?}");
}

#[test]
fn clients_that_are_refused_together_come_back_within_two_calls_and_not_together() {
    let wait = |seed| {
        let mut learner = found(10.0);
        learner.random = seed;
        learner.refused(at(20), at(11), None);
        (learner.until.since(at(20)), learner.rate)
    };
    let mut waits: Vec<_> = (1..=20).map(wait).collect();
    assert!(waits.iter().all(|(wait, rate)| wait.as_secs_f64() * rate <= 2.0), "{waits:?}");
    waits.sort_by_key(|wait| wait.0);
    assert!(waits.windows(2).all(|two| two[0].0 < two[1].0), "{waits:?}");
    assert!(waits[19].0 - waits[0].0 >= Duration::from_millis(133), "{waits:?}");
}

#[test]
fn who_has_more_waiting_asks_for_more() {
    let mut learner = found(100.0);
    for (waiting, pace) in [(0, 100.0), (1, 100.0), (16, 200.0), (25, 223.607), (9999, 223.607)] {
        learner.set_pace(waiting, LONGEST);
        assert!((learner.pace().rate / pace - 1.0).abs() < 0.011, "{waiting}");
    }
}

/// A call in two is refused, for a day.
#[test]
fn refusals_leave_a_call_in_the_longest_time() {
    let mut learner = found(100.0);
    for call in 0..1_000 {
        let now = 20 + 900 * call;
        learner.good(at(now), at(now - 1), false);
        learner.refused(at(now + 1), at(now), None);
        learner.set_pace(1, Duration::from_secs(60));
        assert!(learner.pace().rate >= 1.5 / 60.0);
    }
    assert!(near(learner.rate, 1.5 / 60.0));
}

/// Calls of which some fail: how many of the thousand go at less than the rate of 100, and the learner after them.
fn failing(bad: impl Fn(f64, u64) -> bool) -> (u64, Learner) {
    let mut learner = found(100.0);
    let (mut now, mut slower) = (at(20), 0);
    for call in 0..1000 {
        learner.set_pace(1, LONGEST);
        let pace = learner.pace().rate;
        slower += u64::from(pace < 99.0);
        now = super::after(now, 1.0 / pace);
        if bad(pace, call) {
            learner.failed(now, now);
        } else {
            learner.good(now, now, true);
        }
    }
    (slower, learner)
}

#[test]
fn failures_that_do_not_heal_at_a_lower_pace_are_no_limit() {
    let (slower, learner) = failing(|_, call| call % 8 == 0);
    assert_eq!((slower, learner.suspect.is_none()), (0, true), "fewer than three of twenty");
    let (slower, learner) = failing(|_, call| call % 5 < 2);
    assert!(slower <= 150 && learner.suspect.is_none(), "{slower}");
    assert!(learner.rate >= 100.0);
    // Two of three fail: twice what comes through.
    let (_, learner) = failing(|_, call| call % 3 > 0);
    let pace = learner.pace().rate / learner.rate;
    assert!(learner.suspect.is_none() && (0.6..0.75).contains(&pace), "{pace}");
}

#[test]
fn failures_that_heal_at_a_lower_pace_are_a_limit() {
    // Of each five calls above 50/s two fail.
    let (_, learner) = failing(|pace, call| pace > 50.0 && call % 5 < 2);
    assert!(learner.suspect.is_some_and(|suspect| suspect.is_limit));
    assert!((35.0..60.0).contains(&learner.pace().rate), "{}", learner.pace().rate);
    // It is none any more once lower paces heal nothing.
    let mut learner = learner;
    for call in 0..12 {
        let now = at(100_000 + call);
        learner.failed(now, now);
    }
    assert!(learner.suspect.is_none());
}

#[test]
fn a_good_call_right_after_nine_failures_in_a_row_is_no_end_of_an_outage() {
    let suspects = |tenths: u64| {
        let mut learner = searching(f64::INFINITY);
        (0..=CHANCE).for_each(|_| learner.failed(at(20), at(20)));
        learner.good(at(20 + tenths), at(20), false);
        learner.suspect.is_some()
    };
    assert_eq!([9, 10].map(suspects), [true, false]);
}

#[test]
fn an_outage_is_probed_after_1_2_4_8_and_16_seconds_and_over_after_13_calls() {
    let mut learner = found(100.0);
    (0..6000).for_each(|_| learner.recent.count(at(300)));
    (0..8).for_each(|_| learner.failed(at(600), at(600)));
    assert_eq!(learner.probe, 0);
    // The ninth in a row. Those that were under way as well are one.
    (0..51).for_each(|_| learner.failed(at(600), at(600)));
    assert_eq!(learner.probe, 1);
    for (probe, seconds) in [(0, 1.0), (1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 16.0)] {
        learner.set_pace(25, LONGEST);
        assert!(near(learner.pace().rate, 1.0 / seconds), "{probe}: {}", learner.pace().rate);
        assert!(learner.pace().jitter != 0.0 && learner.pace().jitter.abs() <= 0.5);
        learner.failed(at(1000 + probe), at(1000 + probe));
    }
    for (good, part) in [(1, 0.1), (12, 0.975), (1, 1.0)] {
        (0..good).for_each(|_| learner.good(at(2000), at(2000), false));
        learner.set_pace(1, LONGEST);
        assert!((learner.pace().rate - 100.0 * part).abs() < 2.0, "{}", learner.pace().rate);
    }
    assert!(learner.pace().jitter == 0.0);
}

/// A client that had used 1/s of 100/s has to find them again.
#[test]
fn an_outage_leaves_twice_what_was_used() {
    let mut learner = found(100.0);
    (0..60).for_each(|call| learner.recent.count(at(10 * call)));
    (0..9).for_each(|_| learner.failed(at(600), at(600)));
    assert!(near(learner.rate, 2.0), "{}", learner.rate);
    assert!(learner.is_searching);
}

#[test]
fn strangers_that_use_a_quota_up_leave_what_was_delivered_lately() {
    let mut learner = searching(f64::INFINITY);
    assert_eq!(learner.pace(), Pace::NONE);
    (0..120).for_each(|call| learner.recent.count(at(5 * call)));
    let recent = learner.recent;
    learner.used_up((at(600), at(600), at(700)), true);
    assert!(near(learner.rate, 2.0), "{}", learner.rate);
    let wait = learner.until.since(at(700));
    assert!(learner.until >= at(700) && wait <= Duration::from_secs(1), "{wait:?}");
    // Within two calls, of a quota of other units twice as many; and without a call nothing is known of the share.
    let left = |of_requests, recent| {
        let mut learner = Learner { recent, ..found(100.0) };
        learner.used_up((at(600), at(600), at(700)), of_requests);
        let wait = learner.until.since(at(700)).as_secs_f64();
        assert!(wait <= 2.0 / learner.rate, "{wait}");
        learner.rate
    };
    assert!(near(left(true, recent), 2.0) && near(left(false, recent), 4.0));
    assert!(near(left(false, Recent::new(at(0))), 100.0));
}

#[test]
fn an_outage_leaves_a_rate_that_is_known_and_the_least_of_one_that_is_not() {
    let out = |mut learner: Learner| {
        (0..=CHANCE).for_each(|_| learner.failed(at(20), at(20)));
        assert_eq!(learner.probe, 1);
        learner
    };
    let known = out(found(100.0));
    assert!(near(known.rate, 100.0));
    assert_eq!((known.share, known.fails()), (0.0, true));
    let unknown = out(searching(f64::INFINITY));
    assert_eq!((unknown.rate, unknown.cuts), (LEAST_LEFT, 1));
    assert_eq!((unknown.share, unknown.fails()), (0.5, false));
}

#[test]
fn few_calls_that_succeed_leave_a_call_in_the_longest_time_between_probes() {
    let mut learner = found(10.0);
    learner.share = 1e-6;
    assert!(near(learner.next_pace(), 1.0 / LONGEST_PROBE));
}

#[test]
fn a_pace_that_is_off_by_less_than_a_hundredth_stays() {
    let mut learner = found(100.0);
    learner.set_pace(1, LONGEST);
    for (rate, pace) in [(100.5, 100.0), (99.5, 100.0), (102.0, 102.0)] {
        learner.rate = rate;
        learner.set_pace(1, LONGEST);
        assert!(near(learner.pace().rate, pace), "{rate}");
    }
}

#[test]
fn what_is_no_more_than_what_is_known_is_not_searched_again() {
    let mut learner = found(LEAST_FOUND);
    learner.rate = LEAST_FOUND;
    learner.last_answer(at(20), at(30));
    assert!(!learner.is_searching);
    assert!(learner.lowered().is_some() && searching(10.0).lowered().is_none());
}

#[test]
fn probes_of_many_clients_are_spread_over_as_long_as_they_wait() {
    let wait = |seed| {
        let mut learner = found(100.0);
        (learner.row, learner.random) = (30, seed);
        learner.refused(at(20), at(11), None);
        learner.until.since(at(20)).as_secs_f64()
    };
    let waits: Vec<_> = (1..=20).map(wait).collect();
    let spread =
        waits.iter().copied().fold(0.0, f64::max) - waits.iter().copied().fold(99.0, f64::min);
    assert!(spread > LONGEST_PROBE / 2.0, "{waits:?}");
}

#[test]
fn what_was_used_is_of_this_minute_and_the_last() {
    let mut recent = Recent::new(at(0));
    let minute = 687;
    (0..100).for_each(|_| recent.count(at(10)));
    assert_eq!(recent.read(at(20)), (100, at(0)));
    (0..10).for_each(|_| recent.count(at(minute + 10)));
    assert_eq!(recent.read(at(minute + 20)), (110, at(0)));
    assert_eq!(recent.read(at(2 * minute + 20)).0, 10);
    assert_eq!(recent.read(at(3 * minute + 20)).0, 0);
    recent.count(at(9 * minute));
    assert_eq!(recent.read(at(9 * minute + 20)).0, 1);
}
