//! The fields of a response that tell its client the limit: `RateLimit-Policy` and `RateLimit` of
//! draft-ietf-httpapi-ratelimit-headers (as of revision 11), and `Retry-After`.
//!
//! All times are whole seconds, rounded up. `q` is enlarged in proportion, so that the rate `q / w` stays right.
//! `r` is what can be taken now. But if the whole limit comes again in less than a second, then all that a client
//! could read of it is "no more than this in a second", which is a fiftieth of 50 a second, evenly spaced: there
//! the permits that come in the part that rounding adds are added to `r` too. Numbers of structured fields (RFC
//! 9651) have at most 15 digits.

use std::fmt::Write;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use crate::policy::Quota;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// The largest number of a structured field.
const MOST: u128 = 999_999_999_999_999;

/// Adds the two fields. Those of other limits, of an inner layer say, stay.
///
/// `refused` is the time after which a refused request can be repeated.
pub(super) fn add_quota(
    headers: &mut HeaderMap,
    name: Option<&str>,
    quota: &Quota<u32>,
    refused: Option<Option<Duration>>,
) {
    let name = string(name.unwrap_or("default"));
    let rate = Rate::of(quota);
    let mut policy = format!("{name};q={}", rate.q);
    if let Some(seconds) = rate.w {
        let _ = write!(policy, ";w={seconds}");
    }
    let (remaining, time) = match refused {
        // In that time the client can use no more than what is left.
        Some(retry_after) => (u128::from(quota.remaining), retry_after.map(seconds)),
        None => rate.left(quota),
    };
    let mut limit = format!("{name};r={remaining}");
    if let Some(seconds) = time {
        let _ = write!(limit, ";t={seconds}");
    }
    for (field, value) in [(POLICY, policy), (LIMIT, limit)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.append(field, value);
        }
    }
}

pub(super) fn set_retry_after(headers: &mut HeaderMap, retry_after: Duration) {
    let seconds = u64::try_from(seconds(retry_after)).unwrap_or(u64::MAX);
    headers.insert(RETRY_AFTER, seconds.into());
}

/// In whole seconds, rounded up.
fn seconds(time: Duration) -> u128 {
    time.as_nanos().div_ceil(1_000_000_000).min(MOST)
}

/// A string of a structured field: printable ASCII in quotation marks.
fn string(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            ' '..='~' => quoted.push(char),
            _ => quoted.push('?'),
        }
    }
    quoted + "\""
}

/// `q` permits in `w` seconds.
struct Rate {
    q: u128,
    w: Option<u128>,
    /// The permits of a window, and its length.
    exact: Option<(u128, u128)>,
}

impl Rate {
    fn of(quota: &Quota<u32>) -> Self {
        let window = quota.window.filter(|window| !window.is_zero());
        let Some(window) = window else {
            return Self { q: quota.limit.into(), w: None, exact: None };
        };
        let (limit, w) = (quota.limit.max(1).into(), seconds(window));
        let rate = Self { q: limit, w: Some(w), exact: Some((limit, window.as_nanos())) };
        if window.subsec_nanos() == 0 {
            return rate;
        }
        Self { q: rate.permits_in(w * 1_000_000_000).clamp(limit, MOST), ..rate }
    }

    /// In `nanos` of at most 15 digits of seconds.
    fn permits_in(&self, nanos: u128) -> u128 {
        self.exact.map_or(0, |(limit, window)| {
            let permits = limit * nanos;
            // The window is rounded up to a nanosecond, which must not take a whole permit.
            (permits + (permits / 1_000_000).min(window / 2)) / window
        })
    }

    /// What is left until the whole limit is there again, and the time until then.
    fn left(&self, quota: &Quota<u32>) -> (u128, Option<u128>) {
        let remaining = u128::from(quota.remaining);
        let Some(after) = quota.reset_after else { return (remaining, None) };
        let time = seconds(after);
        if self.exact.is_none_or(|(_, window)| window >= 1_000_000_000) {
            return (remaining, Some(time));
        }
        let rest = (time * 1_000_000_000).saturating_sub(after.as_nanos());
        ((remaining + self.permits_in(rest)).min(self.q.max(remaining)), Some(time))
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::{
        FixedWindow, Gcra, InFlight, LeakyBucket, ManualClock, Policy, RateLimiter, Same,
        SlidingWindowLog, SmoothBursty, TokenBucket,
    };

    fn shown(headers: &HeaderMap) -> String {
        let value = |name| headers[name].to_str().expect("ASCII").to_owned();
        format!("{} | {}", value(POLICY), value(LIMIT))
    }

    /// The fields after one grant of `n`.
    fn after<P: Policy<Cost = u32>>(policy: P, n: u32) -> String {
        let limiter = RateLimiter::with_clock(policy, ManualClock::new());
        let _grant = limiter.try_acquire(n).expect("unused");
        let mut headers = HeaderMap::new();
        add_quota(&mut headers, None, &limiter.quota(), None);
        shown(&headers)
    }

    #[test]
    fn a_window_is_told_as_it_is() {
        let window = FixedWindow::new(100, Duration::from_secs(60));
        assert_eq!(after(window, 30), "\"default\";q=100;w=60 | \"default\";r=70;t=60");
        let bucket = TokenBucket::new(crate::Rate::per_minute(100.0), 20);
        assert_eq!(after(bucket, 20), "\"default\";q=20;w=12 | \"default\";r=0;t=12");
        let gcra = Gcra::new(15, 30, Duration::from_secs(60));
        assert_eq!(after(gcra, 1), "\"default\";q=16;w=32 | \"default\";r=15;t=2");
    }

    #[test]
    fn the_rate_is_right_though_times_are_whole_seconds() {
        let rate = crate::Rate::per_second(50.0);
        let short = SmoothBursty::new(rate).max_burst(Duration::from_millis(20));
        // Two permits, of 20 ms each, are missing: 40 ms, and 48 permits come in the rest of the second.
        assert_eq!(after(short, 1), "\"default\";q=50;w=1 | \"default\";r=48;t=1");
        let even = LeakyBucket::new(rate, 10);
        assert_eq!(after(even, 1), "\"default\";q=50;w=1 | \"default\";r=49;t=1");
        let tenth = SlidingWindowLog::new(3, Duration::from_millis(100));
        assert_eq!(after(tenth, 3), "\"default\";q=30;w=1 | \"default\";r=27;t=1");
        let third = TokenBucket::new(crate::Rate::per_second(3.0), 10);
        assert_eq!(after(third, 10), "\"default\";q=12;w=4 | \"default\";r=0;t=4");
        let single = TokenBucket::new(crate::Rate::per_second(3.0), 1);
        assert_eq!(after(single, 1), "\"default\";q=3;w=1 | \"default\";r=2;t=1");
    }

    #[test]
    fn a_limit_without_a_window_has_no_w_and_no_t() {
        assert_eq!(after(InFlight::new(10), 4), "\"default\";q=10 | \"default\";r=6");
        let both = Same((InFlight::new(10), FixedWindow::new(100, Duration::from_secs(60))));
        assert_eq!(after(both, 4), "\"default\";q=10;w=6 | \"default\";r=6");
    }

    #[test]
    fn a_refusal_tells_the_time_of_its_retry_after() {
        let policy = TokenBucket::new(crate::Rate::per_minute(100.0), 20);
        let limiter = RateLimiter::with_clock(policy, ManualClock::new());
        limiter.try_acquire(18).expect("full");
        let retry_after = limiter.try_acquire(5).expect_err("two are left").retry_after();
        let mut headers = HeaderMap::new();
        add_quota(&mut headers, None, &limiter.quota(), Some(retry_after));
        set_retry_after(&mut headers, retry_after.expect("known"));
        assert_eq!(shown(&headers), "\"default\";q=20;w=12 | \"default\";r=2;t=2");
        assert_eq!(headers[RETRY_AFTER], "2"); // 1.8 s
    }

    #[test]
    fn names_are_strings_of_structured_fields() {
        assert_eq!(string("per user"), "\"per user\"");
        assert_eq!(string("a\"b\\c"), "\"a\\\"b\\\\c\"");
        assert_eq!(string("für\r\nalle"), "\"f?r??alle\"");
    }

    #[test]
    fn extreme_numbers_fit() {
        let day = TokenBucket::new("1/day".parse().expect("a rate"), u32::MAX);
        let limit = 53_375_u64;
        let policy = format!("\"default\";q={limit};w={}", limit * 86_400);
        assert!(after(day, 1).starts_with(&policy));
        let fast = TokenBucket::new(crate::Rate::per_second(1e9), 1);
        assert!(after(fast, 1).starts_with("\"default\";q=1000000000;w=1 |"));
        let mut headers = HeaderMap::new();
        let quota = Quota {
            limit: u32::MAX,
            remaining: u32::MAX,
            reset_after: Some(Duration::MAX),
            window: Some(Duration::new(0, 1)),
        };
        add_quota(&mut headers, None, &quota, None);
        let remaining = u32::MAX;
        assert_eq!(
            shown(&headers),
            format!("\"default\";q={MOST};w=1 | \"default\";r={remaining};t={MOST}")
        );
        let endless = Quota { window: Some(Duration::MAX), ..quota };
        headers.clear();
        add_quota(&mut headers, None, &endless, Some(Some(Duration::MAX)));
        assert_eq!(
            shown(&headers),
            format!("\"default\";q={};w={MOST} | \"default\";r={remaining};t={MOST}", u32::MAX)
        );
        set_retry_after(&mut headers, Duration::MAX);
        assert_eq!(headers[RETRY_AFTER], MOST.to_string());
    }
}
