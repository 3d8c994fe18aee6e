//! Answers of a server, from which a client learns.
//!
//! Each line is a field, `name: value`; one that is a number begins another answer, with this status.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate::feedback::{Dialects, Feedback};
use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};

/// The longest time for which the server can stop calls.
const MAX_WAIT: Duration = Duration::from_secs(100);

/// At most so far apart are calls that are to show whether the server is back: 16 seconds, and half of that at random.
const PROBES: Duration = Duration::from_secs(24);

/// Reads the answers, and teaches a client with them.
pub(crate) fn judge(input: &[u8]) {
    let clock = ManualClock::auto_advance();
    // Years after the epoch, as most clocks are.
    clock.set(Duration::from_secs(1_700_000_000));
    let limiter = RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(1000.0)), &clock);
    let feedback = Feedback::builder(limiter).max_wait(MAX_WAIT).seed(7).build();
    for (status, headers) in answers(input) {
        let answer = Dialects::default().read(status, &headers);
        assert_eq!(answer.status, status);
        let begin = clock.elapsed();
        let mut call = feedback.blocking_acquire(1).expect("any call is granted");
        let waited = clock.elapsed() - begin;
        assert!(waited <= MAX_WAIT + PROBES, "a call waits {waited:?}");
        call.blocking_observe(status, &headers);
    }
}

fn answers(input: &[u8]) -> Vec<(u16, HeaderMap)> {
    let mut answers = vec![(200, HeaderMap::new())];
    for line in input.split(|&byte| byte == b'\n').take(64) {
        if let Some(status) = str::from_utf8(line).ok().and_then(|line| line.parse().ok()) {
            answers.push((status, HeaderMap::new()));
            continue;
        }
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let field = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value));
        if let ((Ok(name), Ok(value)), Some((_, headers))) = (field, answers.last_mut()) {
            headers.append(name, value);
        }
    }
    answers
}
