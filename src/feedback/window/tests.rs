//! Which of two answers is the newer one, and what is known after it.

use std::time::Duration;

use super::{Calendar, Cap, Observation, Order, Window};
use crate::feedback::answer::Meter;
use crate::feedback::learner::tests::at;
use crate::feedback::places::Sent;
use crate::feedback::text::When;
use crate::units::Nanos;

const MINUTE: When = When::After(Duration::from_secs(60));

fn meter(remaining: u64, reset: When) -> Meter {
    Meter { limit: Some(100), remaining: Some(remaining), reset: Some(reset), ..Meter::default() }
}

/// A call was sent at one time and answered at another, perhaps with a date.
pub(in crate::feedback) fn observed((sent, now): (u64, u64), date: Option<u64>) -> Observation {
    let (sent, now) = (at(sent), at(now));
    let calendar = Duration::from_secs(date.unwrap_or(1_000_000));
    let (is_dated, max) = (date.is_some(), Duration::from_secs(3600));
    let sent = Sent { at: sent, units: [1, 0, 0, 0], ahead: 0, waited_for: None };
    Observation { sent, now, calendar, is_dated, is_accepted: true, named: None, max }
}

/// A window of which 50 remain for a minute from the tenth second on, by a server that sends dates or that does not.
fn last_answer(date: Option<u64>, reset: When) -> Window {
    let mut window = Window::default();
    assert_eq!(window.record(&observed((100, 100), date), meter(50, reset), 1, 0), Order::First);
    window
}

#[test]
fn of_answers_without_dates_one_whose_reset_is_surely_later_is_of_a_new_window() {
    let order = |times, remaining| {
        last_answer(None, MINUTE).record(&observed(times, None), meter(remaining, MINUTE), 1, 0)
    };
    // The time to the reset was rounded up, by less than a second.
    assert_eq!([(110, 110), (111, 111)].map(|at| order(at, 40)), [Order::Newer, Order::First]);
    // Calls that were under way together: what remains only falls.
    let under_way = [(51, Order::Stale), (50, Order::Newer), (49, Order::Newer)];
    for (remaining, is) in under_way {
        assert_eq!(order((95, 105), remaining), is, "{remaining}");
    }
    // One that was overtaken, from a window before.
    assert_eq!([(80, 90), (80, 89)].map(|at| order(at, 40)), [Order::Newer, Order::Stale]);
}

#[test]
fn of_answers_with_dates_the_time_of_the_reset_tells() {
    let reset = |seconds: u64| When::At(Duration::from_secs(2_000_060 + seconds));
    let order = |times, date, to| {
        let mut window = last_answer(Some(2_000_000), reset(1));
        window.record(&observed(times, Some(date)), meter(40, reset(to)), 1, 0)
    };
    // The same one, although the date is late.
    assert_eq!(order((130, 130), 2_000_000, 1), Order::Newer);
    assert_eq!(order((90, 105), 2_000_000, 2), Order::First);
    assert_eq!(order((90, 105), 2_000_000, 0), Order::Stale);
}

#[test]
fn how_far_a_reset_is_can_be_known_if_it_is_near_and_the_calendar_the_servers() {
    let knows = |date, reset| observed((0, 0), date).knows(reset);
    let after = |seconds| When::After(Duration::from_secs(seconds));
    assert_eq!([3_599, 3_600].map(|seconds| knows(None, after(seconds))), [true, false]);
    let date = When::At(Duration::from_secs(2_000_060));
    assert_eq!([None, Some(2_000_000)].map(|now| knows(now, date)), [false, true]);
}

#[test]
fn permits_come_back_steadily_only_up_to_a_limit_and_a_reset_that_are_known() {
    let known = Meter { is_continuous: true, ..meter(5, MINUTE) };
    for (is, meter) in [
        (true, known),
        (false, Meter { limit: None, ..known }),
        (false, Meter { reset: None, ..known }),
        (false, Meter { is_continuous: false, ..known }),
    ] {
        let mut window = Window::default();
        window.record(&observed((100, 100), None), meter, 1, 0);
        assert_eq!((window.is_refilling, window.last_answer.is_some()), (is, true), "{meter:?}");
    }
}

#[test]
fn a_call_tries_at_the_earliest_reset_that_was_named_unless_the_server_is_not_believed() {
    let mut window = last_answer(None, MINUTE);
    // The same window, as the times are rounded; and from here it would end half a second later.
    window.record(&observed((105, 105), None), meter(49, MINUTE), 1, 0);
    assert_eq!(window.reset(), Some(at(700)));
    window.distrust(true);
    assert_eq!(window.reset(), Some(at(705)));
    // Not one of the window before.
    let mut window = last_answer(None, MINUTE);
    window.record(&observed((701, 701), None), meter(49, MINUTE), 1, 0);
    assert_eq!(window.reset(), Some(at(1_301)));
}

/// What a window shows of whether it slides.
#[test]
fn more_that_remains_before_the_reset_shows_that_permits_come_back_steadily() {
    let is_sliding = |answers: &[((u64, u64), u64)]| {
        let mut window = last_answer(None, MINUTE);
        for &(times, remaining) in answers {
            window.record(&observed(times, None), meter(remaining, MINUTE), 1, 0);
        }
        window.is_sliding
    };
    assert!(is_sliding(&[((200, 200), 51)]));
    assert!(!is_sliding(&[((101, 101), 50)]));
    // Sent before the last answer came: it says nothing.
    assert!(!is_sliding(&[((99, 105), 60)]));
    assert!(is_sliding(&[((100, 105), 60)]));
}

#[test]
fn a_call_was_short_if_nothing_remained_or_less_than_it_needs_and_the_rest_comes_soon() {
    let mut window = Window::default();
    let steady = |remaining| Meter { is_continuous: true, ..meter(remaining, MINUTE) };
    let short = |meter| window.was_short(meter, 5);
    assert_eq!([0, 4, 5].map(|left| short(steady(left))), [true, true, false]);
    assert_eq!([0, 4].map(|left| short(meter(left, MINUTE))), [true, false]);
    window.record(&observed((100, 100), None), meter(50, MINUTE), 1, 0);
    window.open();
    assert!(window.last_answer.is_none() && window.cap() == Cap::UNKNOWN);
}

#[test]
fn a_window_that_was_seen_to_begin_with_all_will_do_so_again() {
    let mut window = Window::default();
    window.record(&observed((100, 100), None), meter(99, MINUTE), 1, 0);
    assert_eq!(window.opening, 1, "it may have begun before");
    window.record(&observed((101, 101), None), meter(98, MINUTE), 2, 0);
    assert_eq!(window.opening, 1, "nor has it begun now");
    window.record(&observed((701, 701), None), meter(99, MINUTE), 1, 0);
    assert_eq!(window.opening, 100);
}

#[test]
fn a_time_to_wait_that_is_short_but_not_the_share_of_a_call_does_not_show_a_steady_return() {
    let is_steady = |seconds| {
        let mut window = last_answer(None, MINUTE);
        let (observed, left) = (observed((200, 200), None), meter(0, MINUTE));
        window.record_refusal(&observed, left, 1, Some(Duration::from_secs(seconds)));
        window.is_steady(left)
    };
    // One of a hundred a minute is back in 0.6 s.
    assert_eq!([1, 20, 50].map(is_steady), [true, false, false]);
}

#[test]
fn a_pause_that_ends_after_a_sliding_window_has_enough_tells_nothing_of_it() {
    let mut window = last_answer(None, MINUTE);
    window.record(&observed((200, 200), None), meter(60, MINUTE), 1, 0);
    assert!(window.is_sliding);
    let before = window.cap();
    let reached = before.reached(70);
    let (observed, left) = (observed((300, 300), None), meter(0, MINUTE));
    window.close_until(&observed, left, 70, reached);
    assert_eq!(window.cap(), before);
    window.close_until(&observed, left, 70, Nanos::new(reached.get() - 1));
    assert_ne!(window.cap(), before);
}

/// `Date` is cut to its second.
#[test]
fn the_latest_date_by_our_clock_shows_what_time_it_is_at_the_server() {
    let date = Duration::from_secs(2_000_000);
    let millis = |tenths, seconds| {
        let mut calendar = Calendar::default();
        calendar.read(at(0), date);
        let shown = calendar.read(at(tenths), date + Duration::from_secs(seconds));
        shown.checked_sub(date).map(|time| time.as_millis())
    };
    // A second is 0.3 s old, and the first one was nearer.
    assert_eq!([millis(9, 0), millis(13, 1)], [Some(899), Some(1299)]);
    // This is nearer.
    assert_eq!(millis(13, 2), Some(2000));
    // Too old: the clock was set.
    assert_eq!(millis(100, 6), Some(6000));
    // An hour later the clocks may have drifted by half a second.
    assert_eq!(millis(36_000, 3600), Some(3_600_000));
    assert_eq!(millis(36_000, 3599), Some(3_599_560));
}

#[test]
fn a_timer_of_the_server_that_is_late_makes_no_longer_window() {
    let misses = |seconds, is_least| {
        let length = Some(Duration::from_secs(seconds));
        let mut window = Window { length, is_least, ..Window::default() };
        [(); 5].map(|()| (window.was_early(), window.length.map(|length| length.as_millis())).1)
    };
    assert_eq!(misses(9, false)[..2], [Some(10_000), Some(10_062)]);
    let later = [Some(1_062), Some(1_125), Some(1_250), Some(1_500), None];
    assert_eq!([misses(1, false), misses(1, true)], [later; 2]);
}

/// Five calls in any ten seconds, of which the first was counted half a second before the others.
#[test]
fn a_sliding_window_gives_each_call_back_one_window_after_it() {
    let mut window = Window::default();
    let left = |remaining| Meter {
        limit: Some(5),
        ..meter(remaining, When::After(Duration::from_millis(9_900)))
    };
    window.record(&observed((0, 1), None), left(4), 1, 0);
    for remaining in [3, 2, 1, 0] {
        window.record(&observed((5, 6), None), left(remaining), 1, 0);
    }
    // It is back before the reset that the others named.
    window.record(&observed((101, 102), None), left(0), 1, 0);
    assert!(window.is_log());
    assert_eq!(window.cap().steps[1..], [(at(105), 4), (at(201), 5)]);
    assert_eq!(window.cap().steps[0].1, 0);
}

/// Twice as much as its calls of the last ten seconds leave.
#[test]
fn a_bucket_is_no_sliding_window() {
    let mut window = Window::default();
    for (now, remaining) in [(1, 50), (2, 10), (3, 40)] {
        window.record(&observed((now - 1, now), None), meter(remaining, MINUTE), 40, 0);
    }
    assert!(window.is_sliding && !window.is_log());
}
