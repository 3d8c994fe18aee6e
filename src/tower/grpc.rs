//! Refusals as gRPC has them: a status in the header of a response without a message, and when to repeat the call.

use std::time::Duration;

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{StatusCode, response};

use crate::error::Error;

const RESOURCE_EXHAUSTED: HeaderValue = HeaderValue::from_static("8");
const UNAVAILABLE: HeaderValue = HeaderValue::from_static("14");

/// The content type of a request, if it is gRPC's or gRPC-Web's: the response has the same.
pub(super) fn content_type(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(CONTENT_TYPE).filter(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Says in gRPC's words what the status says.
pub(super) fn translate(head: &mut response::Parts, kind: HeaderValue, error: &Error) {
    let (status, pushback) = match head.status {
        StatusCode::TOO_MANY_REQUESTS => {
            let millis = |wait: Duration| wait.as_nanos().div_ceil(1_000_000);
            let pushback = error.retry_after().map(millis);
            (RESOURCE_EXHAUSTED, pushback.map(|millis| i32::try_from(millis).unwrap_or(i32::MAX)))
        }
        // It never fits, so the call is not to be repeated.
        StatusCode::PAYLOAD_TOO_LARGE => (RESOURCE_EXHAUSTED, Some(-1)),
        _ => (UNAVAILABLE, None),
    };
    head.status = StatusCode::OK;
    head.headers.insert(CONTENT_TYPE, kind);
    head.headers.insert("grpc-status", status);
    if let Some(pushback) = pushback {
        head.headers.insert("grpc-retry-pushback-ms", pushback.into());
    }
}
