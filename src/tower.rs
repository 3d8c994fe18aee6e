//! Layers for [tower](https://docs.rs/tower), and so for axum, tonic and hyper: clients wait, servers refuse.
//!
//! | layer | for | beyond the limit | asks the limiter |
//! |---|---|---|---|
//! | [`RateLimitLayer`] | clients | waits | in `poll_ready`, for one permit |
//! | [`RateLimitByLayer`] | clients; key or cost from the request | waits | in the future of `call` |
//! | [`RefuseLayer`] | servers | answers 429 with `Retry-After` | in the future of `call` |
//!
//! Guides: [clients and servers](crate::guide::http), [clients, one by
//! one](crate::guide::clients).
//!
//! The limit belongs to the limiter, not to a service: clones, and all services that a layer makes, share it. Any
//! limiter of this crate will do: a [`RateLimiter`](crate::RateLimiter), a key of a
//! [`KeyedRateLimiter`](crate::KeyedRateLimiter), a `RedisRateLimiter`, an
//! [`AnyRateLimiter`](crate::AnyRateLimiter). The grant lives as long as the body of the response, so
//! a place [in flight](crate::InFlight) is held until the body has ended or is dropped. An upgraded connection (a
//! WebSocket) outlives the body: a client takes the [grant](ResponseBody::take_grant), the handler of a server acquires a
//! permit for the connection.
//!
//! A client layer takes any response that gives status, headers and a place for the grant: see [`AnyResponse`]. A reqwest
//! client has middleware of its own, in `tollgate::reqwest` (feature `reqwest`).
//!
//! # A client that learns
//!
//! With the feature `feedback`, [`RateLimitLayer::learn`] obeys what the servers say (`Retry-After`, `X-RateLimit-*`,
//! [and others](crate::feedback#dialects)), each for its own calls. Of gRPC it reads the status and the push-back in
//! the header or the trailer, but nothing after the first message. A call of which the inner service makes an error
//! counts as one that [failed](crate::feedback::Call::failed).
//!
//! [`RateLimitLayer::new`] with a [`Feedback`](crate::feedback::Feedback) learns as well: for a service whose calls go
//! to one server. It waits in `poll_ready`, for requests of any type.
//!
//! [Clients, one by one](crate::guide::clients) has a gRPC client of tonic.
//!
//! # A client that waits
//!
//! ```
//! use std::convert::Infallible;
//! use std::time::Duration;
//! use http::{Request, Response};
//! use http_body_util::Empty;
//! use tollgate::tower::RateLimitLayer;
//! use tollgate::{InFlight, ManualClock, Rate, RateLimiter, Same, SmoothBursty};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! # let http_client = tower::service_fn(async |_: Request<Empty<&[u8]>>| {
//! #     Ok::<_, Infallible>(Response::new(Empty::<&[u8]>::new()))
//! # });
//! // 50 calls a second, evenly, and 10 at a time. In a program: `RateLimiter::new(policy)`.
//! let even = SmoothBursty::new(Rate::per_second(50.0)).max_burst(Duration::from_millis(20));
//! let clock = ManualClock::auto_advance();
//! let limiter = RateLimiter::with_clock(Same((even, InFlight::new(10))), &clock);
//! let client = ServiceBuilder::new()
//!     .layer(RateLimitLayer::new(limiter))
//!     .service(http_client); // hyper-util's `Client`, tonic's `Channel`, ..
//! for _ in 0..101 {
//!     let request = Request::get("http://api.example/").body(Empty::new())?;
//!     let response = client.clone().oneshot(request).await?;
//!     assert_eq!(response.status(), 200);
//! }
//! assert_eq!(clock.elapsed(), Duration::from_secs(2));
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # A server that refuses
//!
//! [`RefuseLayer::by_header`] has a limit for each API key, [`RefuseLayer::by_ip`] for each [address](ClientIp) of a client,
//! behind proxies as well. [`Limiter::and`](crate::Limiter::and) adds a limit for all.
//!
//! ```
//! use axum::Router;
//! use axum::body::Body;
//! use axum::extract::Request;
//! use axum::routing::get;
//! use tollgate::tower::RefuseLayer;
//! use tollgate::{KeyedRateLimiter, ManualClock, Rate, TokenBucket};
//! use tower::ServiceExt;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! // 100 requests a minute, and 20 at once, as one page may load them, for each API key.
//! let policy = TokenBucket::new(Rate::per_minute(100.0), 20);
//! let limiter = KeyedRateLimiter::<String, _>::with_clock(policy, ManualClock::new());
//! let by_key = move |key: Option<&str>| limiter.at(key.unwrap_or_default().to_owned());
//! let layer = RefuseLayer::by_header("x-api-key", by_key);
//! let app = Router::new().route("/", get(async || "hello")).layer(layer);
//!
//! let ask = |key| app.clone().oneshot(Request::get("/").header("x-api-key", key).body(Body::empty()).unwrap());
//! for left in (1..20).rev() {
//!     let fields = ask("alice").await?.headers()["RateLimit"].clone();
//!     assert!(fields.to_str()?.starts_with(&format!("\"default\";r={left};t=")));
//! }
//! assert_eq!(ask("alice").await?.headers()["RateLimit"], "\"default\";r=0;t=1");
//! let refused = ask("alice").await?;
//! assert_eq!((refused.status().as_u16(), &refused.headers()["Retry-After"]), (429, &"1".parse()?));
//! assert_eq!(ask("bob").await?.status(), 200);
//! # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```

mod call;
mod client_ip;
mod fields;
mod forwarded;
mod grpc;
mod layer;
mod refuse;
mod response;
mod service;

pub use client_ip::{ClientIp, InvalidProxy};
pub use layer::{RateLimitByLayer, RateLimitLayer};
pub use refuse::{Refuse, RefuseLayer};
pub use response::AnyResponse;
pub use service::{RateLimit, RateLimitBy};

pub use crate::body::ResponseBody;
