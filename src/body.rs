//! Responses, and their bodies, which hold the grant of the call.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::limiter::Granted;
use crate::limiter::any::AnyGrant;
use crate::policy::Cost;
use crate::sync::Mutex;

/// The grant of a call, for its body and for those who take it out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot<C: Cost>(Arc<Mutex<Option<AnyGrant<C>>>>);

impl<C: Cost> Slot<C> {
    pub(crate) fn new(grant: AnyGrant<C>) -> Self {
        Self(Arc::new(Mutex::new(Some(grant))))
    }

    /// The caller drops it after the lock, as a place that is given back wakes callers.
    pub(crate) fn take(&self) -> Option<AnyGrant<C>> {
        self.0.lock().take()
    }
}

/// Gives the grant back when the body is dropped.
#[derive(Debug)]
struct Holder<C: Cost>(Slot<C>);

impl<C: Cost> Drop for Holder<C> {
    fn drop(&mut self) {
        drop(self.0.take());
    }
}

pin_project! {
    /// The body of a response, with the grant of its request: an [`InFlight`](crate::InFlight) place is held until
    /// the body is read, fails, or is dropped.
    ///
    /// Frames, trailers, and the size hint are the inner body's.
    ///
    /// ```
    /// use tollgate::tower::ResponseBody;
    ///
    /// // For layers around it that answer by themselves, such as a timeout.
    /// assert!(ResponseBody::<String>::default().take_grant().is_none());
    /// ```
    #[derive(Debug)]
    pub struct ResponseBody<B, C = u32>
    where
        C: Cost,
    {
        // Dropped before its place is given back.
        #[pin]
        inner: B,
        holder: Holder<C>,
    }
}

impl<B: Body, C: Cost> ResponseBody<B, C> {
    /// Keeps the grant until the body has ended.
    pub(crate) fn new(inner: B, slot: Slot<C>) -> Self {
        if inner.is_end_stream() {
            drop(slot.take());
        }
        Self { inner, holder: Holder(slot) }
    }
}

impl<B, C: Cost> ResponseBody<B, C> {
    /// Takes the grant out of the body, to correct the cost of the call once it is known. The grant then holds the
    /// place in flight in place of the body. `None` if the body has ended, as that of an upgrade (101) has, or the
    /// request was refused.
    ///
    /// ```
    /// use http::Response;
    /// use http_body_util::BodyExt;
    /// use tollgate::tower::ResponseBody;
    ///
    /// async fn text(mut response: Response<ResponseBody<String>>) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    ///     let grant = response.body_mut().take_grant();
    ///     let text = response.into_body().collect().await?.to_bytes();
    ///     if let Some(mut grant) = grant {
    ///         grant.settle(u32::try_from(text.len())?).await?; // in place of the estimate
    ///     }
    ///     Ok(text.to_vec())
    /// }
    /// ```
    #[cfg(feature = "tower")]
    #[must_use = "a grant that is dropped gives its places in flight back"]
    pub fn take_grant(&mut self) -> Option<AnyGrant<C>> {
        self.holder.0.take()
    }
}

/// A response of a client: an [`http::Response`], or one of reqwest.
#[cfg_attr(not(feature = "tower"), allow(unreachable_pub))]
pub trait AnyResponse: Sized {
    /// The response together with a grant.
    type Held<C: Cost>;

    #[doc(hidden)]
    fn head(&self) -> (StatusCode, &HeaderMap);

    /// Keeps the grant until the body has ended or is dropped.
    #[doc(hidden)]
    fn hold<C: Cost>(self, grant: AnyGrant<C>) -> Self::Held<C>;
}

impl<B: Body> AnyResponse for Response<B> {
    type Held<C: Cost> = Response<ResponseBody<B, C>>;

    fn head(&self) -> (StatusCode, &HeaderMap) {
        (self.status(), self.headers())
    }

    fn hold<C: Cost>(self, grant: AnyGrant<C>) -> Self::Held<C> {
        self.map(|body| ResponseBody::new(body, Slot::new(grant)))
    }
}

/// The limiter learns from the response, which then holds the grant.
pub(crate) async fn held<T: AnyResponse, C: Cost>(
    response: T,
    body: &[u8],
    mut grant: AnyGrant<C>,
) -> T::Held<C> {
    let (status, headers) = response.head();
    if let Some(rest) = grant.hear(status, headers, body) {
        rest.await;
    }
    response.hold(grant)
}

/// The default body without a grant.
impl<B: Default, C: Cost> Default for ResponseBody<B, C> {
    fn default() -> Self {
        Self { inner: B::default(), holder: Holder(Slot::default()) }
    }
}

impl<B: Body, C: Cost> Body for ResponseBody<B, C> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(context));
        // A reader that knows the end from the size may not ask for the frame after the last.
        if !matches!(frame, Some(Ok(_))) || this.inner.is_end_stream() {
            drop(this.holder.0.take());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
