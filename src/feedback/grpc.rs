//! What gRPC says of limits: in the header of a response without a message, else in the trailer.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};

use super::answer::{Answer, Verdict};
use super::quota::Reader;
use super::text::{Form, When, base64};

/// Whether this is the head of a response whose trailer has the status. A gateway that answers by itself does so with
/// another status of HTTP.
pub(super) fn is_open(status: StatusCode, headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    status == StatusCode::OK
        && kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
        && !headers.contains_key("grpc-status")
}

/// Reads how the call ended, and when to repeat one that was refused: `grpc-retry-pushback-ms`, or `RetryInfo` in the
/// details.
pub(super) fn read(reader: &mut Reader<'_>) {
    reader.answer.verdict = match reader.get("grpc-status").as_deref().map(str::trim) {
        Some("8") => Verdict::Refused,
        Some("14") => Verdict::Unavailable,
        _ => return,
    };
    if let Some(pushback) = reader.get("grpc-retry-pushback-ms") {
        match pushback.trim().parse::<i32>().map(u64::try_from) {
            Ok(Ok(millis)) => reader.answer.wait = Some(When::After(Duration::from_millis(millis))),
            // As gRPC has it, what is negative or no number asks not to repeat the call.
            Ok(Err(_)) | Err(_) => reader.answer.is_final = true,
        }
    } else if let Some(details) = reader.get("grpc-status-details-bin") {
        // Of several values the first counts.
        let bytes = base64(details.split(',').next().unwrap_or_default().trim());
        let delay = bytes.and_then(|bytes| retry_delay(&bytes));
        reader.answer.malformed += u32::from(delay.is_none());
        reader.answer.wait = delay.flatten().map(When::After).or(reader.answer.wait);
    }
}

/// Reads `RetryInfo` in the first 64 KiB of a refusal in JSON, as APIs of Google have it, or a gateway that quotes one. If
/// the quota is one for a day, its time is too short, and the call is tried again after minutes.
pub(super) fn read_body(body: &[u8], answer: &mut Answer) {
    let text = String::from_utf8_lossy(&body[..body.len().min(1 << 16)]);
    if answer.is_accepted() || answer.wait.is_some() || !text.contains("google.rpc.") {
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
        let delay = Form::Duration.parse(&value[..end.unwrap_or(value.len())]);
        answer.malformed += u32::from(delay.is_none());
        answer.wait = answer.wait.max(delay);
    }
}

/// `google.rpc.RetryInfo` among the details of a `google.rpc.Status`. The outer `None`: malformed.
fn retry_delay(status: &[u8]) -> Option<Option<Duration>> {
    let mut delay = None;
    for (_, detail) in all(status, 3)? {
        let (_, name) = last(detail, 1)?;
        if name.ends_with(b"/google.rpc.RetryInfo") {
            let (_, info) = last(detail, 2)?;
            let (_, time) = last(info, 1)?;
            let ((seconds, _), (nanos, _)) = (last(time, 1)?, last(time, 2)?);
            // A negative number is a large one here: not a time.
            let nanos = u32::try_from(nanos).ok().filter(|&nanos| nanos < 1_000_000_000)?;
            let seconds = u64::try_from(i64::try_from(seconds).ok()?).ok()?;
            delay = Some(Duration::new(seconds, nanos));
        }
    }
    Some(delay)
}

/// The last field of a message with this number; zero and empty if there is none.
fn last(message: &[u8], wanted: u64) -> Option<(u64, &[u8])> {
    Some(all(message, wanted)?.pop().unwrap_or_default())
}

/// The fields of a message with this number, in the wire format of Protocol Buffers: a number, or text or a message.
fn all(mut message: &[u8], wanted: u64) -> Option<Vec<(u64, &[u8])>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let (tag, rest) = varint(message)?;
        let (number, rest) = if matches!(tag & 7, 0 | 2) { varint(rest)? } else { (0, rest) };
        let length = match tag & 7 {
            0 => 0,
            1 => 8,
            2 => usize::try_from(number).ok()?,
            5 => 4,
            _ => return None,
        };
        let (bytes, rest) = rest.split_at_checked(length)?;
        if tag >> 3 == wanted {
            found.push((number, bytes));
        }
        message = rest;
    }
    Some(found)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let (number, rest) = bytes.split_at(length);
    let value = number.iter().rev().fold(0, |value: u64, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, rest))
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
        assert_eq!(refused.dialect.as_deref(), Some("grpc"));
    }

    #[test]
    fn push_back_is_a_time_or_asks_not_to_repeat_the_call() {
        let pushed = |millis| read(&[("grpc-status", "8"), ("grpc-retry-pushback-ms", millis)]);
        assert_eq!(wait(&pushed("150")), Some(Duration::from_millis(150)));
        assert!(!pushed("150").is_final);
        for never in ["-1", "", "soon", "99999999999"] {
            assert_eq!((wait(&pushed(never)), pushed(never).is_final), (None, true), "{never}");
        }
    }

    #[test]
    fn fields_of_other_types_are_skipped() {
        let fixed = [&[6 << 3 | 1][..], &[9; 8], &[7 << 3 | 5], &[9; 4]].concat();
        let message = [&fixed[..], &[1 << 3, 42], &fixed].concat();
        let number = |message, wanted| last(message, wanted).map(|(number, _)| number);
        assert_eq!((number(&message, 1), number(&message, 6)), (Some(42), Some(0)));
        assert_eq!(number(&message[..message.len() - 1], 1), None);
    }

    /// A duration's nanoseconds are less than a second.
    #[test]
    fn a_delay_of_a_thousand_million_nanoseconds_is_malformed() {
        let bytes = |number: u32| {
            let sevens = (0..5).map(|at| (number >> (7 * at) & 0x7f) as u8 | 0x80);
            let mut bytes: Vec<_> = sevens.collect();
            bytes[4] &= 0x7f;
            bytes
        };
        let field = |number: u8, value: &[u8]| {
            [&[number << 3 | 2, u8::try_from(value.len()).expect("short")], value].concat()
        };
        let delay = |nanos| {
            let info = field(1, &[&[2 << 3][..], &bytes(nanos)].concat());
            let name = field(1, b"type.googleapis.com/google.rpc.RetryInfo");
            retry_delay(&field(3, &[name, field(2, &info)].concat()))
        };
        let most = Duration::from_nanos(999_999_999);
        assert_eq!((delay(999_999_999), delay(1_000_000_000)), (Some(Some(most)), None));
    }

    /// `Status { code: 8, message: "slow down", details: [RetryInfo { 2.5 s }] }`.
    const DETAILS: &str = "CAgSCXNsb3cgZG93bho2Cih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUmV0cnlJbmZvEgoKCAgCEIDKte4B";

    #[test]
    fn retry_info_is_a_time() {
        let refused = read(&[("grpc-status", "8"), ("grpc-status-details-bin", DETAILS)]);
        assert_eq!((wait(&refused), refused.malformed), (Some(Duration::from_millis(2500)), 0));
        // What a server says for the call itself comes first.
        let both = read(&[
            ("grpc-status", "8"),
            ("grpc-retry-pushback-ms", "40"),
            ("grpc-status-details-bin", DETAILS),
        ]);
        assert_eq!(wait(&both), Some(Duration::from_millis(40)));
    }

    #[test]
    fn details_that_are_cut_or_not_base64_are_malformed() {
        let whole = base64(DETAILS).expect("base64");
        assert!((1..whole.len()).all(|end| retry_delay(&whole[..end]).flatten().is_none()));
        for (details, malformed) in [("%", 1), ("GP8", 1), ("CAg", 0), ("", 0)] {
            let fields = [("grpc-status", "8"), ("grpc-status-details-bin", details)];
            assert_eq!(
                (wait(&read(&fields)), read(&fields).malformed),
                (None, malformed),
                "{details}"
            );
        }
    }
}
