//! Middleware for [reqwest](https://docs.rs/reqwest), by
//! [reqwest-middleware](https://docs.rs/reqwest-middleware): each request waits for its limit.
//!
//! ```
//! use reqwest_middleware::ClientBuilder;
//! use tollgate::{Limits, reqwest::RateLimit};
//!
//! let limit = RateLimit::limits(Limits::per_host("10/s")?);
//! let client = ClientBuilder::new(reqwest::Client::new()).with(limit).build();
//! # Ok::<(), tollgate::InvalidLimit>(())
//! ```
//!
//! Guides: [clients and servers](crate::guide::http), [limits from a
//! file](crate::guide::config).
//!
//! The client and its clones share the limits. Requests of one limit are sent in the order in which they were
//! made, and a request that is dropped while it waits leaves the queue and takes nothing.
//!
//! # Limits per what
//!
//! [`Limits`](crate::Limits) list a limit for each name, in the program or in a file. The name of a request is
//!
//! | limits | the name of a request | which are listed as |
//! |---|---|---|
//! | `per_host` | its host and port | `"api.github.com"`, `"localhost:3000"`, `"[::1]:3000"`, in any spelling; `"*.github.com"` |
//! | `per_route` | the most specific listed template that matches; its host, if none does | `"GET /users/{id}"`, `"api.github.com/search/{*rest}"`, `"*.github.com/users"` |
//! | `per_api_key` | its key; its host, if it has none | the key |
//! | `per_name` | none | any names |
//! | `all` | none: all requests share one limit | |
//!
//! [`Limits::named`](crate::Limits::named) says how names are written; what could match no request is an error.
//! [`LimitName`] gives a request another name, whatever the limits are per. With [`RateLimit::by`] the program
//! finds key and limiter of a request by itself.
//!
//! - **A host**: the ports of HTTP and HTTPS are left out, and both are one host.
//! - **A route**: `{id}` is one segment of the path or a part of it, `{*rest}` is all that follows. The method and
//!   the host may be left out. A route has one limit for all its hosts and ids. The requests of no listed route
//!   share one limit of their host, as paths may contain any number of ids.
//! - **An API key**: what follows the scheme in `Authorization`, or `X-Api-Key`, `Api-Key`, `X-Goog-Api-Key`,
//!   `Private-Token`. A value of several parts, as of schemes that sign each request (AWS, OAuth 1, Digest), is no
//!   key: these requests share the limit of their host, unless [`RateLimit::by`] says who calls. The middleware does not
//!   see the default headers of a [`Client`](::reqwest::Client), and a key in the query of the URL is not read:
//!   use [`LimitName`] or [`RateLimit::by`] for these. Keys are hashed: they stand in no `Debug` output and no
//!   log.
//!
//! # What counts as one call
//!
//! - **Retries** are calls: add the limits *after* a middleware that retries, such as reqwest-retry's, so that
//!   they are inside of it and see each attempt. Retries of reqwest itself, which [`ClientBuilder::retry`] sets,
//!   are not seen.
//! - **Redirects** that reqwest follows are one call, of the host that was asked first. What the last host says is
//!   learned of the first one too, because calls to that are what reaches it. To count each, set
//!   [`Policy::none`](::reqwest::redirect::Policy::none).
//! - **A request that fails**, by a timeout for instance, was perhaps counted by the server, and stays counted.
//!
//! [`ClientBuilder::retry`]: https://docs.rs/reqwest/latest/reqwest/struct.ClientBuilder.html#method.retry
//!
//! # Learning limits from response headers
//!
//! The middleware [learns](crate::feedback) from responses: a 429 or 503 pauses the requests to that host, and no
//! more are sent than the server says remain, in the dialects of GitHub, `OpenAI`, Anthropic, Discord and others. A
//! refused request's response is returned like any other. [`RateLimit::feedback`] has the options,
//! [`RateLimit::without_feedback`] turns it off, and [`RateLimit::learned`] shows what it knows.
//!
//! What was learned within a limit belongs to the host that said it, and to the bucket that it named: see
//! [`Servers`](crate::feedback::Servers). It is kept for up to 65,536 hosts in use; requests to further ones only wait for
//! their limits.
//!
//! A refusal in JSON that names no time in its fields may have one in its body, as those of Google's APIs: up to 64 KiB of
//! it are read before the response is returned. If the program [judges](crate::feedback::FeedbackBuilder::judge) responses, it gets the begin of the body (64 KiB, in
//! whole frames) of those with a status of 400 and above. Errors of the connection and timeouts count as calls that
//! [failed](crate::feedback::Call::failed).
//!
//! # Places in flight
//!
//! A place of an [`InFlight`](crate::InFlight) (`"5000/h, 100 in flight"`) is held until the body of the response
//! has been read or is dropped, or the request fails or is dropped. For that the body is wrapped if the policy has
//! places in flight or may be changed to one that has; `Limits` may. The URL, the extensions, the remote address
//! and the HTTP version of the response stay. [`take_grant`] gives you the grant, to settle the true cost.
//!
//! # Errors
//!
//! A request that is refused is not sent. Its error is the
//! [`Error::Middleware`](reqwest_middleware::Error::Middleware) of reqwest-middleware, can be downcast to a
//! [`tollgate::Error`](crate::Error) and has it as its source: [`refusal`] gets it out. A request is refused if
//! its cost exceeds the capacity of its limit, if a table has no room for another key, or if a shared limit has no
//! store. [`max_wait`](RateLimit::max_wait) and the bounds of the queue refuse more. These bounds count requests
//! that wait for the limit; `max_wait` bounds waits for the server as well.

mod body;
mod host;
mod key;
mod middleware;
mod name;

pub use body::take_grant;
pub use middleware::RateLimit;
pub use name::LimitName;

/// The refusal of a limit, if that is what the error of a request is.
///
/// ```
/// use std::time::Duration;
/// use tollgate::reqwest::{RateLimit, refusal};
/// use tollgate::{InFlight, RateLimiter};
/// use reqwest_middleware::ClientBuilder;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let limit = RateLimit::new(RateLimiter::new(InFlight::new(0)));
/// let client = ClientBuilder::new(reqwest::Client::new()).with(limit).build();
/// let error = client.get("http://localhost:1/").send().await.unwrap_err();
/// assert!(matches!(refusal(&error), Some(tollgate::Error::ExceedsCapacity(_))));
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub fn refusal(error: &reqwest_middleware::Error) -> Option<&crate::Error> {
    match error {
        reqwest_middleware::Error::Middleware(error) => {
            error.chain().find_map(|cause| cause.downcast_ref())
        }
        reqwest_middleware::Error::Reqwest(_) => None,
    }
}
