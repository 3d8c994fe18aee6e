//! What gRPC says of limits, in the header of a response without a message, and Google in JSON.

use std::time::Duration;

use super::answer::{Answer, Verdict};
use super::quota::Reader;
use super::text::{When, time};

/// Reads how the call ended, and when to repeat one that was refused.
pub(super) fn read(reader: &mut Reader<'_>) {
    reader.answer.verdict = match reader.get("grpc-status").map(str::trim) {
        Some("8") => Verdict::Refused,
        Some("14") => Verdict::Unavailable,
        _ => return,
    };
    // As gRPC has it, what is negative or no number names no time: it asks not to repeat the call.
    let pushback = reader.get("grpc-retry-pushback-ms").and_then(|text| text.trim().parse().ok());
    reader.answer.wait = pushback.map(|millis| When::After(Duration::from_millis(millis)));
}

/// Reads `RetryInfo` in the first 64 KiB of a refusal in JSON, as APIs of Google have it, or a gateway that quotes one. If
/// the quota is one for a day, its time is too short, and the call is tried again after minutes.
pub(super) fn read_body(body: &[u8], answer: &mut Answer) {
    if answer.is_accepted() || answer.wait.is_some() || body.is_empty() {
        return;
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(1 << 16)]);
    if !text.contains("google.rpc.") {
        return;
    }
    let is_of_day = ["PerDay", "per day", "1/d/"].iter().any(|day| text.contains(day));
    if is_of_day && text.contains("google.rpc.QuotaFailure") {
        answer.least_wait = answer.least_wait.or(Some(Duration::from_secs(60)));
        return;
    }
    for rest in text.split("\"retryDelay").skip(1) {
        // The quotes may have backslashes before them.
        let value = rest.trim_start_matches(|at: char| at.is_whitespace() || "\\\":".contains(at));
        let end = value.find(|at: char| !at.is_ascii_alphanumeric() && at != '.');
        let delay = time(&value[..end.unwrap_or(value.len())]);
        answer.malformed += u32::from(delay.is_none());
        answer.wait = answer.wait.max(delay);
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::feedback::Dialects;

    fn read(fields: &[(&str, &str)]) -> Answer {
        Dialects::default().read(200u16, fields)
    }

    fn wait(answer: &Answer) -> Option<Duration> {
        answer.retry_after(Duration::ZERO)
    }

    #[test]
    fn a_status_of_eight_or_fourteen_is_a_refusal() {
        assert!(read(&[("grpc-status", "0")]).is_accepted());
        assert!(read(&[("grpc-status", "7"), ("grpc-retry-pushback-ms", "50")]).is_accepted());
        let refused = read(&[("grpc-status", "8")]);
        assert_eq!((refused.verdict, wait(&refused)), (Verdict::Refused, None));
        assert_eq!(read(&[("grpc-status", "14")]).verdict, Verdict::Unavailable);
        assert_eq!(refused.dialect, Some("grpc"));
    }

    #[test]
    fn push_back_is_a_time_or_names_none() {
        let pushed = |millis| read(&[("grpc-status", "8"), ("grpc-retry-pushback-ms", millis)]);
        assert_eq!(wait(&pushed("150")), Some(Duration::from_millis(150)));
        for never in ["-1", "", "soon"] {
            assert_eq!(wait(&pushed(never)), None, "{never}");
        }
    }
}
