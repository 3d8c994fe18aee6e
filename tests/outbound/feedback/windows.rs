//! What is seen of the windows of a server.

use std::time::{Duration, UNIX_EPOCH};

use futures::executor::block_on;
use tollgate::feedback::Feedback;
use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty, TokenBucket};

/// A server alone holds calls back.
fn begin(clock: &ManualClock) -> Feedback<RateLimiter<TokenBucket>> {
    let policy = TokenBucket::new(Rate::per_second(1e6), 2000);
    Feedback::new(RateLimiter::with_clock(policy, clock))
}

#[test]
fn four_calls_go_before_the_first_answer_or_all_after_a_second() {
    let at_once = |feedback: &Feedback<_>| {
        let calls = std::iter::from_fn(|| feedback.try_acquire(1).blocking_wait().ok());
        calls.take(50).collect::<Vec<_>>()
    };
    let clock = ManualClock::new();
    let feedback = begin(&clock);
    let mut first = at_once(&feedback);
    assert_eq!(first.len(), 4);
    let none: [(&str, &str); 0] = [];
    first[0].blocking_observe(200u16, &none);
    assert_eq!(at_once(&feedback).len(), 50);
    // The server is slow.
    let feedback = begin(&clock);
    let first = at_once(&feedback);
    clock.advance(Duration::from_millis(999));
    assert!(feedback.try_acquire(1).blocking_wait().is_err());
    clock.advance(Duration::from_millis(1));
    assert_eq!((first.len(), at_once(&feedback).len()), (4, 50));
}

/// Whether a limit of ten seems to come back steadily after calls that were sent and answered at these milliseconds,
/// with what remained and until when.
fn is_steady(calls: &[(u64, u64, u32, u32)]) -> bool {
    let clock = ManualClock::new();
    let feedback = begin(&clock);
    let mut under_way: Vec<_> = calls.iter().map(|_| None).collect();
    let sent = calls.iter().enumerate().map(|(call, &(at, ..))| (at, call, false));
    let answered = calls.iter().enumerate().map(|(call, &(_, at, ..))| (at, call, true));
    let mut events: Vec<_> = sent.chain(answered).collect();
    events.sort_by_key(|&(at, call, _)| (at, call));
    for (at, call, is_answer) in events {
        clock.set(Duration::from_millis(at));
        if !is_answer {
            under_way[call] = Some(feedback.sent(1));
            continue;
        }
        let (.., remaining, reset) = calls[call];
        let headers = [
            ("x-ratelimit-limit", "10".to_owned()),
            ("x-ratelimit-remaining", remaining.to_string()),
            ("x-ratelimit-reset", reset.to_string()),
        ];
        block_on(under_way[call].take().expect("it was sent").observe(200u16, &headers));
    }
    feedback.server_state().meters[0].1.is_continuous
}

#[test]
fn permits_that_are_back_before_the_reset_come_back_steadily() {
    let first = (0, 0, 5, 60);
    assert!(is_steady(&[first, (10_000, 10_100, 7, 60)]));
    // It was sent before that answer came.
    assert!(!is_steady(&[(0, 1_000, 5, 60), (500, 2_000, 6, 60)]));
    // Sixty seconds may have been fifty-nine: another window, with all that it begins with.
    assert!(!is_steady(&[first, (59_000, 59_000, 9, 60)]));
    assert!(is_steady(&[first, (58_999, 58_999, 9, 60)]));
}

#[test]
fn more_that_remains_twice_within_a_window_comes_back_steadily() {
    let begin = [(0, 0, 5, 2), (1_500, 1_500, 9, 2)];
    let again = |reset| is_steady(&[begin[0], begin[1], (3_000, 3_000, 10, reset)]);
    assert!(!is_steady(&begin));
    assert!(again(4) && !again(3));
}

#[test]
fn a_call_that_is_taken_although_nothing_remained_has_taken_what_came_back() {
    let empty = (0, 0, 0, 60);
    assert!(is_steady(&[empty, (10_000, 10_000, 0, 50)]));
}

/// The window was taken for a bucket, and the next call went after 718 ms.
#[test]
fn an_answer_whose_reset_is_as_far_as_the_longest_pause_is_compared_with_the_next_one() {
    let clock = ManualClock::auto_advance();
    let feedback = begin(&clock);
    let answers = [(2600, 4000, 1000), (3600, 4999, 3600), (3601, 4998, 3599), (3610, 0, 3590)];
    for (seconds, remaining, reset) in answers {
        clock.set(Duration::from_secs(seconds));
        let headers = [
            ("ratelimit", format!("\"hour\";r={remaining};t={reset}")),
            ("ratelimit-policy", "\"hour\";q=5000;w=3600".to_owned()),
        ];
        block_on(feedback.sent(1).observe(200u16, &headers));
    }
    drop(feedback.blocking_acquire(1).expect("granted"));
    assert_eq!(clock.elapsed().as_secs(), 7200);
}

/// A window that ends within the second after its reset, by a server whose `Date` is cut to its second.
#[test]
fn a_refusal_at_a_reset_that_was_rounded_down_is_no_rate() {
    let clock = ManualClock::auto_advance();
    let feedback = begin(&clock);
    let says = |minute: &str, remaining: &str, reset: &str| {
        [
            ("date", format!("Tue, 15 Nov 2022 08:{minute}:00 GMT")),
            ("x-ratelimit-limit", "10".to_owned()),
            ("x-ratelimit-remaining", remaining.to_owned()),
            ("x-ratelimit-reset", reset.to_owned()),
        ]
    };
    block_on(feedback.sent(1).observe(200u16, &says("12", "0", "1668499980")));
    let mut early = feedback.blocking_acquire(1).expect("granted");
    assert_eq!(clock.elapsed().as_secs(), 60);
    early.blocking_observe(429u16, &says("13", "0", "1668499980"));
    drop(early);
    let mut next = feedback.blocking_acquire(1).expect("granted");
    assert_eq!((clock.elapsed().as_secs(), feedback.rate()), (61, None));
    next.blocking_observe(200u16, &says("13", "9", "1668500040"));
    let at_once: Vec<_> = (0..9).map(|_| feedback.blocking_acquire(1)).collect();
    assert_eq!(clock.elapsed().as_secs(), 61);
    drop(at_once);
}

#[test]
fn a_refusal_says_how_permits_come_back_and_whether_the_rate_was_too_high() {
    let refused = |headers: &[(&str, &str)]| {
        let feedback = begin(&ManualClock::new());
        block_on(feedback.sent(1).observe(429u16, headers));
        feedback
    };
    let window = [("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "0")];
    let until = |wait| {
        let feedback = refused(&[window[0], window[1], ("x-ratelimit-reset", "60"), wait]);
        feedback.server_state().meters[0].1.is_continuous
    };
    assert!(until(("retry-after", "1")) && !until(("retry-after", "60")));

    // One that remains is enough for the call.
    let rate = |remaining| {
        refused(&[
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", remaining),
            ("x-ratelimit-reset-requests", "59s"),
        ])
        .rate()
    };
    assert!(rate("1").is_some() && rate("0").is_none());
}

/// Of one window, and not that of the window before.
#[test]
fn a_call_tries_at_the_first_of_the_resets_that_may_be_the_same() {
    let next = |answers: [(u64, &str, &str); 2]| {
        let clock = ManualClock::auto_advance();
        let feedback = begin(&clock);
        for (millis, remaining, reset) in answers {
            clock.set(Duration::from_millis(millis));
            let headers = [("x-ratelimit-remaining", remaining), ("x-ratelimit-reset", reset)];
            block_on(feedback.sent(1).observe(200u16, &headers));
        }
        drop(feedback.blocking_acquire(1).expect("granted"));
        clock.elapsed().as_millis()
    };
    assert_eq!(next([(0, "1", "60"), (500, "0", "60")]), 60_000);
    assert_eq!(next([(0, "5", "20"), (10_000, "0", "40")]), 50_000);
}

/// A bucket of nine in six minutes, of which others take as well, so that its permits come back more slowly than it
/// says. A call found none for 16 minutes then.
#[test]
fn a_call_alone_goes_at_the_reset_of_a_server_that_is_not_believed() {
    let clock = ManualClock::auto_advance();
    let feedback = begin(&clock);
    let empty = [
        ("x-ratelimit-limit-requests", "9"),
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", "360s"),
    ];
    block_on(feedback.sent(1).observe(200u16, &empty));
    let mut call = feedback.blocking_acquire(1).expect("granted");
    assert_eq!(clock.elapsed().as_secs(), 40);
    let none: [(&str, &str); 0] = [];
    call.blocking_observe(429u16, &none);
    drop(call);
    let _alone = feedback.blocking_acquire(1).expect("granted");
    assert_eq!(clock.elapsed().as_secs(), 360);
    let _next = feedback.blocking_acquire(1).expect("granted");
    assert_eq!(clock.elapsed().as_secs(), 2 * 24 * 40);
}

/// Makes calls at an even rate, which is the server's own, for a minute, and counts them. `fields` are those of an answer at
/// a time in milliseconds.
fn calls_of_a_minute<const N: usize>(
    per_second: u64,
    fields: impl Fn(u64) -> [(&'static str, String); N],
) -> u64 {
    let clock = ManualClock::auto_advance();
    let policy = SmoothBursty::evenly_spaced(Rate::per_second(per_second as f64));
    let feedback = Feedback::new(RateLimiter::with_clock(policy, &clock));
    let mut calls = 0;
    while clock.elapsed() < Duration::from_secs(60) {
        let mut call = feedback.blocking_acquire(1).expect("granted");
        let millis = u64::try_from(clock.elapsed().as_millis()).expect("a minute");
        let fields = fields(millis);
        call.blocking_observe(200u16, &fields.each_ref().map(|(name, value)| (*name, &**value)));
        calls += 1;
    }
    calls
}

/// litestar 2.25.0: a window of a second, which says "1" for any rest of it. It began before the first call.
#[test]
fn a_right_limit_loses_nothing_to_a_reset_that_was_rounded_up() {
    let calls = calls_of_a_minute(5, |millis| {
        let left = if millis < 400 { 4 - millis / 200 } else { 4 - (millis + 600) % 1000 / 200 };
        [
            ("ratelimit-limit", "5".to_owned()),
            ("ratelimit-remaining", left.to_string()),
            ("ratelimit-reset", "1".to_owned()),
        ]
    });
    assert_eq!(calls, 301);
}

/// salvo 1.1.0: a sliding window of ten cells of a second, and the reset is the date at which the newest cell leaves it.
#[test]
fn a_window_whose_reset_moves_away_over_several_answers_is_a_sliding_one() {
    let calls = calls_of_a_minute(2, |millis| {
        let left = 20 - (millis / 500 + 1).min(19 + millis / 500 % 2);
        let now = UNIX_EPOCH + Duration::from_secs(1_795_898_000 + millis / 1000);
        [
            ("x-ratelimit-limit", "20".to_owned()),
            ("x-ratelimit-remaining", left.to_string()),
            ("x-ratelimit-reset", (1_795_898_010 + millis / 1000).to_string()),
            ("date", httpdate::fmt_http_date(now)),
        ]
    });
    assert_eq!(calls, 121);
}
