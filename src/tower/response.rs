//! What a client layer needs of a response.

use http::{HeaderMap, Response, StatusCode};
use http_body::Body;

use super::ResponseBody;
use crate::body::Slot;
use crate::limiter::any::AnyGrant;
use crate::policy::Cost;

/// A response of a client: it says how the call went, and has a place for the grant.
///
/// For [`http::Response`], whose [body](ResponseBody) keeps the grant, and with the feature `reqwest` for
/// `reqwest::Response`. A client with a response of its own takes a few lines:
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use tollgate::tower::{AnyResponse, RateLimitLayer};
/// use tollgate::{AnyGrant, Cost, InFlight, RateLimiter};
///
/// struct Answer {
///     head: http::response::Parts,
///     text: String,
/// }
///
/// impl AnyResponse for Answer {
///     type Held<C: Cost> = (Self, AnyGrant<C>);
///
///     fn head(&self) -> (StatusCode, &HeaderMap) {
///         (self.head.status, &self.head.headers)
///     }
///
///     fn hold<C: Cost>(self, grant: AnyGrant<C>) -> Self::Held<C> {
///         (self, grant)
///     }
/// }
///
/// let layer = RateLimitLayer::new(RateLimiter::new(InFlight::new(1)));
/// # drop(layer);
/// ```
pub trait AnyResponse: Sized {
    /// The response together with a grant.
    type Held<C: Cost>;

    /// The status and the header fields.
    fn head(&self) -> (StatusCode, &HeaderMap);

    /// Keeps the grant until the call is over: until the body has ended or is dropped.
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
