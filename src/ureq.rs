//! Middleware for [ureq](https://docs.rs/ureq) 3: each request waits on its thread for its limit.
//!
//! ```
//! # use ureq::middleware::MiddlewareNext;
//! # use ureq::{Body, Error, SendBody, http::{Request, Response}};
//! use tollgate::{ManualClock, Rate, RateLimit, RateLimiter, SmoothBursty};
//!
//! # fn answer(_: Request<SendBody>, _: MiddlewareNext) -> Result<Response<Body>, Error> {
//! #     Ok(Response::new(Body::builder().data("hello")))
//! # }
//! # let clock = ManualClock::auto_advance();
//! // In a program: `RateLimiter::new(policy)`.
//! let limiter = RateLimiter::with_clock(SmoothBursty::evenly_spaced(Rate::per_second(10.0)), &clock);
//! let agent = ureq::Agent::config_builder()
//!     .middleware(RateLimit::new(limiter))
//!     # .middleware(answer) // instead of a server
//!     .http_status_as_error(false) // so that the fields of a 429 are read
//!     .build()
//!     .new_agent();
//! for _ in 0..3 {
//!     agent.get("http://api.example/").call()?;
//! }
//! assert_eq!(clock.elapsed().as_millis(), 200);
//! # Ok::<(), Error>(())
//! ```
//!
//! Guide: [clients, one by one](crate::guide::clients).
//!
//! The agent and its clones share the limit, in one FIFO queue with the tasks that wait for the same limiter. Redirects that ureq
//! follows are one call, of the host that was asked. A call that fails stays counted, as the server may have counted it.
//!
//! The middleware [learns](crate::feedback) from responses, for each host: a 429 or 503 pauses the calls to it as long as
//! the server asks, and no more are sent than the server says remain. **By default `Retry-After` is not read**: ureq makes an
//! error of a status from 400 on, and drops its fields. Set `http_status_as_error(false)`; then a 404 or a 500 is `Ok` as well, so
//! look at the status. **A 429 comes back to the caller and is not sent again**; the next call waits as long as the server asked.
//!
//! A place [in flight](crate::InFlight) is held until the body of the response has been read or is dropped. For that the
//! body is wrapped, and no longer knows its [`content_length`](::ureq::Body::content_length); the header is still there.
//!
//! To settle the true cost of a call, leave the middleware away and [settle](crate::Granted::settle) a grant.
//!
//! A request that its limit refuses is not sent, and its error has the [`tollgate::Error`](crate::Error):
//!
//! ```
//! use tollgate::{InFlight, RateLimit, RateLimiter};
//!
//! let limit = RateLimit::new(RateLimiter::new(InFlight::new(0)));
//! let agent = ureq::Agent::config_builder().middleware(limit).build().new_agent();
//! let Err(ureq::Error::Other(error)) = agent.get("http://localhost:1/").call() else { panic!() };
//! assert!(matches!(error.downcast_ref(), Some(tollgate::Error::ExceedsCapacity(_))));
//! ```

use std::io::{self, Read};

use ::ureq::middleware::{Middleware, MiddlewareNext};
use ::ureq::{Body, BodyReader, Error, SendBody};
use http::{HeaderMap, Request, Response, StatusCode};

use crate::choose::RateLimit;
use crate::limiter::Granted;
use crate::limiter::any::AnyGrant;
use crate::park::block_on;
use crate::policy::Cost;

impl<C: Cost> Middleware for RateLimit<C> {
    fn handle(
        &self,
        request: Request<SendBody>,
        next: MiddlewareNext,
    ) -> Result<Response<Body>, Error> {
        let (parts, body) = request.into_parts();
        let grant = self.of(&parts).2.blocking_wait();
        let mut grant = grant.map_err(|error| Error::Other(Box::new(error)))?;
        let response = next.handle(Request::from_parts(parts, body));
        hear(&mut grant, &response);
        Ok(with_grant(response?, grant))
    }
}

/// Learns from the response, or from its absence.
fn hear<C: Cost>(grant: &mut AnyGrant<C>, response: &Result<Response<Body>, Error>) {
    let none = HeaderMap::new();
    let (status, headers) = match response {
        Ok(response) => (response.status(), response.headers()),
        Err(Error::StatusCode(status)) => {
            (StatusCode::from_u16(*status).unwrap_or_default(), &none)
        }
        Err(
            Error::Io(_)
            | Error::Timeout(_)
            | Error::HostNotFound
            | Error::ConnectionFailed
            | Error::ConnectProxyFailed(_)
            | Error::Protocol(_),
        ) => return grant.hear_failure(),
        // The request was not sent, or its response was read.
        Err(_) => return,
    };
    if let Some(rest) = grant.hear(status, headers, b"") {
        block_on(rest);
    }
}

/// A body that gives the grant back when it has been read, fails or is dropped, in this order of the fields.
struct HeldBody<C: Cost> {
    inner: BodyReader<'static>,
    grant: Option<AnyGrant<C>>,
}

impl<C: Cost> Read for HeldBody<C> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer);
        if !matches!(read, Ok(1..)) && !buffer.is_empty() {
            self.grant = None;
        }
        read
    }
}

/// Puts the grant around the body if it holds places.
fn with_grant<C: Cost>(response: Response<Body>, grant: AnyGrant<C>) -> Response<Body> {
    if !grant.holds_places() || response.body().content_length() == Some(0) {
        return response;
    }
    response.map(|body| {
        let (mime, charset) = (body.mime_type().map(str::to_owned), body.charset());
        let mut builder = Body::builder();
        if let Some(charset) = charset {
            builder = builder.charset(charset);
        }
        if let Some(mime) = mime {
            builder = builder.mime_type(mime);
        }
        builder.reader(HeldBody { inner: body.into_reader(), grant: Some(grant) })
    })
}
