//! The grant of a response: kept until its body has ended, or taken out to be settled.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::reqwest::{Body, Response, ResponseBuilderExt};
use http::response::Parts;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::body::{ResponseBody, Slot};
use crate::limiter::Granted;
use crate::limiter::any::AnyGrant;
use crate::policy::Cost;

/// Puts the grant into the response, and around its body if it holds places.
pub(super) fn with_grant<C: Cost>(mut response: Response, grant: AnyGrant<C>) -> Response {
    let is_wrapped = grant.holds_places();
    let slot = Slot::new(grant);
    response.extensions_mut().insert(slot.clone());
    if !is_wrapped {
        return response;
    }
    let (head, inner) = into_parts(response);
    let body = Body::wrap(ResponseBody::new(inner, slot));
    http::Response::from_parts(head, body).into()
}

fn into_parts(response: Response) -> (Parts, Body) {
    let url = http::Response::builder().url(response.url().clone()).body(());
    let (mut head, body) = http::Response::from(response).into_parts();
    if let Ok(url) = url {
        // Where reqwest keeps the URL of a response that it did not make.
        head.extensions.extend(url.into_parts().0.extensions);
    }
    (head, body)
}

/// The begin of a body, to look at: an error of an API is shorter.
const MOST_READ: usize = 1 << 16;

type Part = Frame<<Body as HttpBody>::Data>;

/// A body of which the begin was read.
struct BegunBody {
    begin: VecDeque<Result<Part, ::reqwest::Error>>,
    rest: Body,
    hint: SizeHint,
}

impl HttpBody for BegunBody {
    type Data = <Body as HttpBody>::Data;
    type Error = <Body as HttpBody>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Part, Self::Error>>> {
        match self.begin.pop_front() {
            Some(part) => Poll::Ready(Some(part)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.begin.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // `Copy` from http-body 1.1 on.
        SizeHint::clone(&self.hint)
    }
}

/// Reads the begin of the body. The response has it all the same, and the error that it ends with.
pub(super) async fn read(response: Response) -> (Response, Vec<u8>) {
    let (head, mut rest) = into_parts(response);
    let (mut begin, mut text, hint) = (VecDeque::new(), Vec::new(), rest.size_hint());
    while text.len() < MOST_READ {
        let frame = poll_fn(|context| Pin::new(&mut rest).poll_frame(context)).await;
        let Some(frame) = frame else { break };
        if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
            text.extend_from_slice(data);
        }
        let is_cut = frame.is_err();
        begin.push_back(frame);
        if is_cut {
            break;
        }
    }
    let body = Body::wrap(BegunBody { begin, rest, hint });
    (http::Response::from_parts(head, body).into(), text)
}

#[cfg(feature = "tower")]
impl crate::tower::AnyResponse for Response {
    type Held<C: Cost> = Self;

    fn head(&self) -> (http::StatusCode, &http::HeaderMap) {
        (self.status(), self.headers())
    }

    /// [`take_grant`] takes it out again.
    fn hold<C: Cost>(self, grant: AnyGrant<C>) -> Self {
        with_grant(self, grant)
    }
}

/// Takes the grant out of a response, to correct the cost of the call once it is known. Do it before the body is
/// read: a place in flight is then held by the grant and not by the body. A body that is empty, as that of an upgrade
/// (101), has given its place back.
///
/// `None` if the request was not limited, if its body has ended already and held a place, or if the cost has
/// another type: `C` is `u32`, or the tuple of the limiter.
///
/// ```
/// use reqwest_middleware::{ClientWithMiddleware, Result};
/// use tollgate::reqwest::take_grant;
///
/// /// Tokens are the second cost of the limiter; 800 was the estimate.
/// async fn ask(client: &ClientWithMiddleware) -> Result<String> {
///     let mut response = client.post("http://llm.example/").send().await?;
///     let grant = take_grant::<(u32, u32)>(&mut response);
///     let text = response.text().await?;
///     if let Some(mut grant) = grant {
///         let tokens = u32::try_from(text.len() / 4).unwrap_or(u32::MAX);
///         grant.settle((1, tokens)).await.map_err(reqwest_middleware::Error::middleware)?;
///     }
///     Ok(text)
/// }
/// ```
#[must_use = "a grant that is dropped gives its places in flight back"]
pub fn take_grant<C: Cost>(response: &mut Response) -> Option<AnyGrant<C>> {
    response.extensions_mut().remove::<Slot<C>>()?.take()
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::convert::Infallible;

    use axum::body::Bytes;
    use futures::{FutureExt, StreamExt, stream};
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    /// A response whose body is one chunk, and then nothing for ever.
    fn endless(chunk: &'static [u8]) -> Response {
        let chunk = Ok::<_, Infallible>(Frame::data(Bytes::from_static(chunk)));
        let chunks = stream::iter([chunk]).chain(stream::pending());
        http::Response::new(Body::wrap(StreamBody::new(chunks))).into()
    }

    #[tokio::test]
    async fn no_more_is_read_than_an_error_may_be_long() {
        static TEXT: [u8; MOST_READ] = [7; MOST_READ];
        let (response, text) = read(endless(&TEXT)).await;
        assert_eq!((text.len(), response.content_length()), (MOST_READ, None));
        let shorter = read(endless(&TEXT[1..])).now_or_never().is_none();
        assert!(shorter, "more may follow");
    }

    #[tokio::test]
    async fn a_body_that_was_read_is_the_same_body() {
        let response = http::Response::new("hello").into();
        let (response, text) = read(response).await;
        assert_eq!((&*text, response.content_length()), (&b"hello"[..], Some(5)));
        let mut body = http::Response::from(response).into_body();
        assert!(!body.is_end_stream());
        let frame = body.frame().await.expect("a frame").expect("no error");
        assert_eq!(frame.into_data().expect("data"), "hello");
        assert!(body.is_end_stream() && body.frame().await.is_none());

        let response = endless(b"hello");
        let begin = VecDeque::from([Ok(Frame::data(Bytes::from_static(b"hell")))]);
        let (rest, hint) = (into_parts(response).1, SizeHint::default());
        let mut body = BegunBody { begin, rest, hint };
        assert!(!body.is_end_stream());
        body.frame().await.expect("a frame").expect("no error");
        assert!(!body.is_end_stream(), "the rest follows");
    }
}
