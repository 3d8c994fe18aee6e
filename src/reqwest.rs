//! Middleware for [reqwest](https://docs.rs/reqwest), by
//! [reqwest-middleware](https://docs.rs/reqwest-middleware): each request waits for its limit.
//!
//! ```
//! use reqwest_middleware::ClientBuilder;
//! use tollgate::{Limits, RateLimit};
//!
//! let limit = RateLimit::limits(Limits::per_host("10/s")?);
//! let client = ClientBuilder::new(reqwest::Client::new()).with(limit).build();
//! # Ok::<(), tollgate::InvalidLimit>(())
//! ```
//!
//! Guides: [clients and servers](crate::guide::http), [limits from a file](crate::guide::config).
//!
//! The client and its clones share the limits. Requests of one limit are sent in the order in which they were made. One that is
//! dropped while it waits takes nothing.
//!
//! # Limits per what
//!
//! [`Limits`](crate::Limits) list a limit for each name, in the program or in a file. The name of a request is
//!
//! | limits | the name of a request | which are listed as |
//! |---|---|---|
//! | `per_host` | its host and port | `"api.github.com"`, `"localhost:3000"`, `"[::1]:3000"`, `"*.github.com"` |
//! | `per_route` | the most specific listed template that matches; its host, if none does | `"GET /users/{id}"`, `"api.github.com/search/{*rest}"`, `"*.github.com/users"` |
//! | `per_name` | none: all requests without a [`LimitName`] share one limit | any names |
//!
//! [`Limits::named`](crate::Limits::named) says how names are written. [`LimitName`] gives a request another name, whatever the
//! limits are per. With [`RateLimit::by`](crate::RateLimit::by) the program finds the limiter of a request
//! by itself, such as the one of an API key.
//!
//! HTTP and HTTPS are one host. A route has one limit for all its hosts and ids; requests of no listed route share the limit of
//! their host.
//!
//! # What counts as one call
//!
//! - **Retries** are calls: add the limits *after* a middleware that retries, so that they see each attempt. Retries that
//!   reqwest's own `ClientBuilder::retry` makes are not seen.
//! - **Redirects** that reqwest follows are one call, of the host that was asked first; so is what the last host says. To count
//!   each, set [`Policy::none`](::reqwest::redirect::Policy::none).
//! - **A request that fails**, by a timeout for instance, was perhaps counted by the server, and stays counted.
//!
//! # Learning limits from response headers
//!
//! The middleware [learns](crate::feedback) from responses: a 429 or 503 pauses the requests to that host, and no
//! more are sent than the server says remain. A refused request's response is returned like any other.
//! It belongs to the host that said it, and to the bucket that it named: see [`Servers`](crate::feedback::Servers).
//! [`RateLimit::limits_with`](crate::RateLimit::limits_with) has options, and [`RateLimit::by`](crate::RateLimit::by) learns only
//! what its limiter learns. Errors of the connection and timeouts count as calls that [failed](crate::feedback::Call::failed).
//!
//! Of a 429 or 503 in JSON, and for a program that [judges](crate::feedback::FeedbackBuilder::judge) of all responses of 400
//! and above, the body is read before the response is returned, which has the same body. If it breaks off, the request
//! fails.
//!
//! # Places in flight
//!
//! A place of an [`InFlight`](crate::InFlight) is held until the body of the response has been read or is dropped, or the request
//! fails or is dropped. For that the body is wrapped if the policy has places in flight or may be changed to one that has;
//! `Limits` may. [`take_grant`] gives you the grant, to settle the true cost.
//!
//! # Errors
//!
//! A request that its limit refuses is not sent, and its error has the [`tollgate::Error`](crate::Error).
//! [`max_wait`](crate::RateLimit::max_wait) bounds waits for the server as well.
//!
//! ```
//! use reqwest_middleware::{ClientBuilder, Error};
//! use tollgate::{InFlight, RateLimit, RateLimiter};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let limit = RateLimit::new(RateLimiter::new(InFlight::new(0)));
//! let client = ClientBuilder::new(reqwest::Client::new()).with(limit).build();
//! let Err(Error::Middleware(error)) = client.get("http://localhost:1/").send().await else { panic!() };
//! let refused = error.chain().find_map(|cause| cause.downcast_ref());
//! assert!(matches!(refused, Some(tollgate::Error::ExceedsCapacity(_))));
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```

mod body;
mod middleware;

pub use body::take_grant;
pub use middleware::LimitName;
