//! What gRPC says of limits: in the header of a response without a message, else in the trailer.

use std::time::Duration;

use http::{HeaderMap, StatusCode, header};

use super::answer::{Answer, Verdict};
use super::headers::Headers;
use super::text::{Form, When};

const RESOURCE_EXHAUSTED: &str = "8";
const UNAVAILABLE: &str = "14";

/// The head of a response whose trailer says how the call went.
pub(super) type Head = Box<(StatusCode, HeaderMap)>;

/// Whether this is the head of a response whose trailer has the status. A gateway that answers by itself does so with
/// another status of HTTP.
pub(super) fn is_open(status: StatusCode, headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    status == StatusCode::OK
        && kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
        && !headers.contains_key("grpc-status")
}

/// How the call ended, if it was refused.
pub(super) fn verdict(headers: &(impl Headers + ?Sized)) -> Option<Verdict> {
    match headers.field("grpc-status")?.trim() {
        RESOURCE_EXHAUSTED => Some(Verdict::Refused),
        UNAVAILABLE => Some(Verdict::Unavailable),
        _ => None,
    }
}

/// Reads when to repeat a call that was refused: `grpc-retry-pushback-ms`, or `RetryInfo` in the details.
pub(super) fn read(headers: &(impl Headers + ?Sized), answer: &mut Answer) {
    if verdict(headers).is_none() {
        return;
    }
    if let Some(pushback) = headers.field("grpc-retry-pushback-ms") {
        match pushback.trim().parse::<i32>().map(u64::try_from) {
            Ok(Ok(millis)) => answer.wait = Some(When::After(Duration::from_millis(millis))),
            // As gRPC has it, what is negative or no number asks not to repeat the call.
            Ok(Err(_)) | Err(_) => answer.is_final = true,
        }
    } else if let Some(details) = headers.field("grpc-status-details-bin") {
        let delay = bytes_of(&details).and_then(|bytes| retry_delay(&bytes));
        answer.malformed += u32::from(delay.is_none());
        answer.wait = delay.flatten().map(When::After).or(answer.wait);
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
    for detail in all(status, 3)? {
        let name = all(detail, 1)?.pop().unwrap_or_default();
        if name.ends_with(b"/google.rpc.RetryInfo") {
            let info = all(detail, 2)?.pop().unwrap_or_default();
            let time = all(info, 1)?.pop().unwrap_or_default();
            let (seconds, nanos) = (number(time, 1)?, number(time, 2)?);
            // A negative number is a large one here: not a time.
            let nanos = u32::try_from(nanos).ok().filter(|&nanos| nanos < 1_000_000_000)?;
            let seconds = u64::try_from(i64::try_from(seconds).ok()?).ok()?;
            delay = Some(Duration::new(seconds, nanos));
        }
    }
    Some(delay)
}

/// A field of a message in the wire format of Protocol Buffers.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed,
}

/// The first field of a message, its number, and the rest.
fn first(message: &[u8]) -> Option<(u64, Field<'_>, &[u8])> {
    let (tag, rest) = varint(message)?;
    let (field, rest) = match tag & 7 {
        0 => varint(rest).map(|(number, rest)| (Field::Number(number), rest))?,
        1 => (Field::Fixed, rest.get(8..)?),
        2 => {
            let (length, rest) = varint(rest)?;
            let (bytes, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            (Field::Bytes(bytes), rest)
        }
        5 => (Field::Fixed, rest.get(4..)?),
        _ => return None,
    };
    Some((tag >> 3, field, rest))
}

/// All texts or messages with this number.
fn all(mut message: &[u8], wanted: u64) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    while !message.is_empty() {
        let (number, field, rest) = first(message)?;
        if let Field::Bytes(bytes) = field
            && number == wanted
        {
            found.push(bytes);
        }
        message = rest;
    }
    Some(found)
}

/// The last number with this number; zero if there is none.
fn number(mut message: &[u8], wanted: u64) -> Option<u64> {
    let mut last = 0;
    while !message.is_empty() {
        let (number, field, rest) = first(message)?;
        if let Field::Number(value) = field
            && number == wanted
        {
            last = value;
        }
        message = rest;
    }
    Some(last)
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let length = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    let (number, rest) = bytes.split_at(length);
    let value = number.iter().rev().fold(0, |value: u64, byte| value << 7 | u64::from(byte & 0x7f));
    Some((value, rest))
}

/// Base64, with or without `=` at the end. Of several values the first counts.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let text = text.split(',').next().unwrap_or_default().trim().trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, held) = (bits << 6 | u32::from(value), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff).try_into().ok()?);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
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
    fn base64_has_sixty_four_digits() {
        let bytes = [0x01, 0x96, 0xb3, 0xd3, 0xdf, 0xbf];
        assert_eq!(bytes_of("AZaz09+/").as_deref(), Some(&bytes[..]));
        assert_eq!(bytes_of("AZaz09+"), Some(bytes[..5].to_vec()));
        assert_eq!(bytes_of("AZa=, z09"), Some(vec![0x01, 0x96]));
        for other in ["AZ-z", "AZ_z", "A=Zz"] {
            assert_eq!(bytes_of(other), None, "{other}");
        }
    }

    #[test]
    fn fields_of_other_types_are_skipped() {
        let fixed = [&[6 << 3 | 1][..], &[9; 8], &[7 << 3 | 5], &[9; 4]].concat();
        let message = [&fixed[..], &[1 << 3, 42], &fixed].concat();
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
        let whole = bytes_of(DETAILS).expect("base64");
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
