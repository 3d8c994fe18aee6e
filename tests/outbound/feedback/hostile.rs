//! Header and rate text of any kind: the committed texts, and random changes of them.
//!
//! Nothing panics, no wait is longer than the bound, and what cannot be read is counted.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::feedback::{Answer, Dialects, Feedback, Unit, When};
use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};

const FIELDS: [&str; 37] = [
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "date",
    "age",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-ratelimit-reset-after",
    "x-ratelimit-used",
    "x-ratelimit-bucket",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-tokens",
    "x-rate-limit-limit",
    "x-rate-limit-remaining",
    "x-rate-limit-reset",
    "x-shopify-shop-api-call-limit",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-limit",
    "retry-after-short",
    "rate-limit-total",
    "rate-limit-remaining",
    "x-ratelimit-limit-short",
    "x-ratelimit-remaining-short",
    "x-ratelimit-reset-short",
    "x-ratelimit-userlimit",
    "x-ratelimit-userremaining",
    "x-ratelimit-userreset",
    "ratelimit-name",
];

fn corpus() -> impl Iterator<Item = &'static str> {
    include_str!("corpus.txt").lines().skip(1)
}

fn read(status: u16, headers: &[(&str, &str)]) -> Answer {
    Dialects::default().read(status, headers)
}

/// Teaches a limiter with an answer, and returns how long the next two calls wait.
fn waits(status: u16, headers: &[(&str, &str)], max: Duration) -> Duration {
    let clock = ManualClock::auto_advance();
    // Years after the epoch, as most clocks are.
    clock.set(Duration::from_secs(1_700_000_000));
    let policy = SmoothBursty::new(Rate::per_second(1000.0));
    let limiter = RateLimiter::with_clock(policy, &clock);
    let feedback = Feedback::builder(limiter).max_wait(max).seed(7).build();
    let mut call = feedback.blocking_acquire(1).expect("granted");
    call.blocking_observe(status, headers);
    drop(call);
    let begin = clock.elapsed();
    for _ in 0..2 {
        let mut call = feedback.blocking_acquire(1).expect("granted");
        call.blocking_observe(200u16, headers);
    }
    clock.elapsed() - begin
}

/// Two windows at most, and what the limiter itself takes.
fn is_bounded(waited: Duration, max: Duration) -> bool {
    waited <= 2 * max + Duration::from_secs(1)
}

#[test]
fn each_text_in_each_field_is_read_and_bounded() {
    let max = Duration::from_secs(100);
    let mut malformed = 0;
    for text in corpus() {
        for field in FIELDS {
            for status in [200, 429, 503, 403] {
                malformed += read(status, &[(field, text)]).malformed;
                let beside = [("x-ratelimit-remaining", "0"), (field, text)];
                for headers in [&beside[..], &beside[1..]] {
                    let waited = waits(status, headers, max);
                    assert!(is_bounded(waited, max), "{field}: {text} waits {waited:?}");
                }
            }
        }
    }
    assert!(malformed > 2_000, "{malformed}");
}

#[test]
fn hostile_values_are_bounded_and_malformed_ones_counted() {
    let max = Duration::from_secs(100);
    for (text, waited) in [
        ("31536000", max),
        ("99999999999999999999999999", max),
        ("Fri, 31 Dec 9999 23:59:59 GMT", max),
        // Not a number of HTTP: as without `Retry-After`, at a learned rate.
        ("1e30", Duration::from_millis(600)),
        ("NaN", Duration::from_millis(600)),
        ("-5", Duration::from_millis(600)),
        // Dates in the past, and zero: at once.
        ("Sun, 06 Nov 1994 08:49:37 GMT", Duration::from_millis(10)),
        ("0", Duration::from_millis(10)),
    ] {
        let headers = [("retry-after", text)];
        let first = waits(429, &headers, max);
        let is_number = !matches!(text, "1e30" | "NaN" | "-5");
        // The second call goes at the learned rate.
        let most = waited + Duration::from_millis(if is_number { 1_000 } else { 2_000 });
        assert!(first >= waited && first < most, "{text}: {first:?}");
        assert_eq!(read(429, &headers).malformed == 0, is_number, "{text}");
    }
}

#[test]
fn a_clock_of_the_server_that_is_hours_off_does_not_matter() {
    for date in ["Sun, 06 Nov 2011 08:49:37 GMT", "Thu, 01 Jan 2099 00:00:00 GMT"] {
        let now = read(200, &[("date", date)]).date.expect("a date");
        let reset = (now.as_secs() + 30).to_string();
        let headers =
            [("date", date), ("x-rate-limit-remaining", "0"), ("x-rate-limit-reset", &reset)];
        let waited = waits(200, &headers, Duration::from_secs(3600));
        assert!(waited >= Duration::from_secs(30), "{date}: {waited:?}");
        assert!(waited < Duration::from_secs(62), "{date}: {waited:?}");
    }
}

#[test]
fn a_server_that_refuses_at_once_is_not_called_in_a_circle() {
    let clock = ManualClock::auto_advance();
    let policy = SmoothBursty::new(Rate::per_second(1e6));
    let limiter = RateLimiter::with_clock(policy, &clock);
    let feedback = Feedback::builder(limiter).seed(7).build();
    let mut calls = 0;
    while clock.elapsed() < Duration::from_secs(60) {
        let mut call = feedback.blocking_acquire(1).expect("granted");
        call.blocking_observe(429u16, &[("retry-after", "0")]);
        calls += 1;
    }
    assert!(calls < 80, "{calls} calls in a minute");
}

fn text() -> impl Strategy<Value = String> {
    let known: Vec<&str> = corpus().collect();
    let known = prop::sample::select(known);
    // One of the corpus; two of them spliced; one with a random piece; anything.
    prop_oneof![
        known.clone().prop_map(str::to_owned),
        (known.clone(), known.clone(), 0..40usize, 0..40usize).prop_map(|(one, other, a, b)| {
            one.chars().take(a).chain(other.chars().skip(b)).collect()
        }),
        (known, ".{0,4}", 0..40usize).prop_map(|(one, piece, at)| {
            let (before, after): (String, String) =
                (one.chars().take(at).collect(), one.chars().skip(at).collect());
            before + &piece + &after
        }),
        "\\PC{0,40}",
    ]
}

proptest! {
    #[test]
    fn no_text_panics_or_waits_too_long(
        status in prop::sample::select(vec![200u16, 403, 429, 503, 529]),
        headers in prop::collection::vec((prop::sample::select(&FIELDS[..]), text()), 0..5),
    ) {
        let headers: Vec<_> = headers.iter().map(|(name, text)| (*name, text.as_str())).collect();
        let max = Duration::from_secs(50);
        let waited = waits(status, &headers, max);
        prop_assert!(is_bounded(waited, max), "{waited:?}");
    }

    #[test]
    fn numbers_and_times_of_any_form_are_those_that_were_written(
        whole in any::<u64>(), millis in 0u32..1000, seconds in 0u64..4_000_000_000,
    ) {
        let headers = [("x-ratelimit-remaining", whole.to_string())];
        let answer = Dialects::default().read(200u16, &headers);
        prop_assert_eq!(answer.meter(Unit::Requests).expect("said").remaining, Some(whole));
        let time = Duration::from_secs(seconds) + Duration::from_millis(millis.into());
        let text = format!("{seconds}.{millis:03}");
        let wait = |text: &str| read(429, &[("retry-after", text)]).wait;
        let is_date = seconds >= 1_000_000_000;
        prop_assert_eq!(wait(&text), Some(if is_date { When::At(time) } else { When::After(time) }));
        let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let text = format!("{hours}h{minutes}m{rest}.{millis:03}s");
        prop_assert_eq!(wait(&text), Some(When::After(time)));
    }

    #[test]
    fn rate_text_is_refused_or_goes_there_and_back(
        one in prop::sample::select(include_str!("rates.txt").lines().skip(1).collect::<Vec<_>>()),
        piece in ".{0,3}", at in 0..10usize,
    ) {
        let before: String = one.chars().take(at).collect();
        let after: String = one.chars().skip(at).collect();
        for text in [one.to_owned(), before + &piece + &after] {
            if let Ok(rate) = text.parse::<Rate>() {
                prop_assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate), "{}", text);
            }
        }
    }
}
