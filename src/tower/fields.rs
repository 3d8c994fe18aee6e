//! The fields of a response that tell its client the limits: `RateLimit-Policy` and `RateLimit` of
//! draft-ietf-httpapi-ratelimit-headers (as of revision 11), and `Retry-After`.
//!
//! [`RefuseLayer`](super::RefuseLayer) says what they mean. A client that takes `r` permits, waits for `t` and continues wastes
//! none, as what comes meanwhile is kept until the limit is whole again. Where nothing is left and all is whole again within a
//! second, `t` is 0: a client that waited a second would waste most of it. Numbers of structured fields (RFC 9651) have at
//! most 15 digits.

use std::fmt::Write;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};

use crate::policy::Limit;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

const SECOND: Duration = Duration::from_secs(1);

/// The largest number of a structured field.
const MOST: u128 = 999_999_999_999_999;

/// Adds the two fields. Those of other limits, of an inner layer say, stay.
pub(super) fn add_limits(headers: &mut HeaderMap, name: Option<&str>, limits: &[Limit<u32>]) {
    let name = name.unwrap_or("default");
    let (mut policies, mut rests) = (String::new(), String::new());
    for (part, limit) in limits.iter().enumerate() {
        let name = match limits {
            [_] => string(name),
            _ => string(&format!("{name}-{part}")),
        };
        let comma = if part == 0 { "" } else { ", " };
        let _ = write!(policies, "{comma}{name}{}", policy(limit));
        let _ = write!(rests, "{comma}{name};r={}", limit.remaining);
        if let Some(seconds) = effective_window(limit) {
            let _ = write!(rests, ";t={seconds}");
        }
    }
    for (field, value) in [(POLICY, policies), (LIMIT, rests)] {
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

/// A string of a structured field: printable ASCII in quotation marks, with backslashes before those and backslashes.
fn string(text: &str) -> String {
    format!("{:?}", text.replace(|char| !matches!(char, ' '..='~'), "?"))
}

/// The parameters of a limit in `RateLimit-Policy`.
fn policy(limit: &Limit<u32>) -> String {
    let unit = if limit.is_held { ";qu=\"concurrent-requests\"" } else { "" };
    let Some(window) = limit.window.filter(|window| !window.is_zero()) else {
        return format!(";q={}{unit}", limit.limit);
    };
    let (permits, w) = (u128::from(limit.limit.max(1)), seconds(window));
    let (times, nanos) = (permits * w * 1_000_000_000, window.as_nanos());
    // The window is rounded up to a nanosecond, which must not take a whole permit.
    let q = ((times + (times / 1_000_000).min(nanos / 2)) / nanos).clamp(permits, MOST);
    format!(";q={q}{unit};w={w}")
}

/// The seconds in which the client can use no more than what remains, if they are known.
fn effective_window(limit: &Limit<u32>) -> Option<u128> {
    let more_after = limit.more_after?;
    let is_short = |window: Duration| window < SECOND;
    if limit.remaining == 0 && is_short(more_after) && limit.window.is_some_and(is_short) {
        return Some(0);
    }
    Some(seconds(more_after).max(1))
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::{
        AllOf, FixedWindow, InFlight, LeakyBucket, Limiter, ManualClock, Policy, RateLimiter, Same,
        SlidingWindowLog, SmoothBursty, TokenBucket, block_on,
    };

    fn shown(headers: &HeaderMap) -> String {
        let value = |name| headers[name].to_str().expect("ASCII").to_owned();
        format!("{} | {}", value(POLICY), value(LIMIT))
    }

    /// The fields that answer a request of `n` that was granted.
    fn after<P: Policy<Cost = u32>>(policy: P, n: u32) -> String {
        let limiter = RateLimiter::with_clock(policy, ManualClock::new());
        let _grant = limiter.try_acquire(n).expect("unused");
        fields(&block_on(limiter.limits(n)).expect("in process"))
    }

    fn fields(limits: &[Limit<u32>]) -> String {
        let mut headers = HeaderMap::new();
        add_limits(&mut headers, None, limits);
        shown(&headers)
    }

    #[test]
    fn what_remains_is_there_at_once_though_times_are_whole_seconds() {
        let rate = crate::Rate::per_second(50.0);
        let short = SmoothBursty::new(rate).max_burst(Duration::from_millis(20));
        assert_eq!(after(short, 1), "\"default\";q=50;w=1 | \"default\";r=0;t=0");
        let even = LeakyBucket::new(rate, 10);
        assert_eq!(after(even, 1), "\"default\";q=50;w=1 | \"default\";r=0;t=0");
        let tenth = SlidingWindowLog::new(3, Duration::from_millis(100));
        assert_eq!(after(tenth.clone(), 3), "\"default\";q=30;w=1 | \"default\";r=0;t=0");
        assert_eq!(after(tenth, 2), "\"default\";q=30;w=1 | \"default\";r=1;t=1");
        let third = TokenBucket::new(crate::Rate::per_second(3.0), 10);
        assert_eq!(after(third, 10), "\"default\";q=12;w=4 | \"default\";r=0;t=4");
        let single = TokenBucket::new(crate::Rate::per_second(3.0), 1);
        assert_eq!(after(single, 1), "\"default\";q=3;w=1 | \"default\";r=0;t=0");
        let burst = TokenBucket::new(crate::Rate::per_minute(600.0), 5);
        assert_eq!(after(burst, 1), "\"default\";q=10;w=1 | \"default\";r=4;t=1");
    }

    #[test]
    fn each_limit_is_an_item() {
        assert_eq!(
            after(InFlight::new(10), 4),
            "\"default\";q=10;qu=\"concurrent-requests\" | \"default\";r=6"
        );
        let minute = FixedWindow::new(100, Duration::from_secs(60));
        let both = Same((InFlight::new(10), Same((minute.clone(), minute.clone()))));
        assert_eq!(
            after(both, 4),
            "\"default-0\";q=10;qu=\"concurrent-requests\", \"default-1\";q=100;w=60, \
             \"default-2\";q=100;w=60 | \
             \"default-0\";r=6, \"default-1\";r=96;t=60, \"default-2\";r=96;t=60"
        );
        let parts = [InFlight::new(10).into(), minute.into()];
        assert_eq!(
            after(AllOf::new(parts), 4),
            "\"default-0\";q=10;qu=\"concurrent-requests\", \"default-1\";q=100;w=60 | \
             \"default-0\";r=6, \"default-1\";r=96;t=60"
        );
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
        // Full: of one more there is no number, so it is not missing.
        let large = TokenBucket::new(crate::Rate::per_second(1e9), u32::MAX);
        let unused = RateLimiter::with_clock(large, ManualClock::new());
        let limits = block_on(unused.limits(1)).expect("in process");
        assert!(fields(&limits).ends_with(&format!("r={};t=1", u32::MAX)));
        let limit = Limit {
            limit: u32::MAX,
            remaining: u32::MAX,
            more_after: Some(Duration::MAX),
            window: Some(Duration::new(0, 1)),
            ..Limit::default()
        };
        let remaining = u32::MAX;
        assert_eq!(
            fields(&[limit]),
            format!("\"default\";q={MOST};w=1 | \"default\";r={remaining};t={MOST}")
        );
        let endless = Limit { window: Some(Duration::MAX), ..limit };
        assert_eq!(
            fields(&[endless]),
            format!("\"default\";q={remaining};w={MOST} | \"default\";r={remaining};t={MOST}")
        );
        let mut headers = HeaderMap::new();
        set_retry_after(&mut headers, Duration::MAX);
        assert_eq!(headers[RETRY_AFTER], MOST.to_string());
    }
}
