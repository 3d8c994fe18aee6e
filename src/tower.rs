//! Layers for [tower](https://docs.rs/tower), and so for axum, tonic and hyper: clients wait, servers refuse.
//!
//! | layer | for | beyond the limit | asks the limiter |
//! |---|---|---|---|
//! | [`RateLimitLayer`] | clients | waits | in `poll_ready`, for one permit |
//! | [`RateLimit`](crate::RateLimit) | clients; key or cost from the request | waits | in the future of `call` |
//! | [`RefuseLayer`] | servers | answers 429 with `Retry-After` | in the future of `call` |
//!
//! Guides: [clients and servers](crate::guide::http), [clients, one by one](crate::guide::clients), [shadow
//! mode](crate::guide::operations).
//!
//! The limit belongs to the limiter, which may be any of this crate: clones, and all services that a layer makes, share it. The
//! grant lives as long as the body of the response, so a place [in flight](crate::InFlight) is held until the body has ended or
//! is dropped. An upgraded connection (a WebSocket) outlives the body: acquire a permit for the connection itself.
//!
//! The responses of a client are `http::Response`s, or with the feature `reqwest` responses of reqwest. A reqwest client has
//! middleware of its own, in `tollgate::reqwest`.
//!
//! # A client that learns
//!
//! With the feature `feedback`, [`RateLimitLayer::learn`] obeys what the servers say (`Retry-After`, `X-RateLimit-*`,
//! [and others](crate::feedback#dialects)), each for its own calls. Of gRPC it reads the status and the push-back in
//! the header, where a refusal without a message has them. A call of which the inner service makes an error
//! counts as one that [failed](crate::feedback::Call::failed).
//!
//! [`RateLimitLayer::new`] with a [`Feedback`](crate::feedback::Feedback) learns as well: for a service whose calls go
//! to one server. It waits in `poll_ready`, for requests of any type.

mod client;
mod client_ip;
mod fields;
mod refuse;

pub use client::RateLimitLayer;
pub use client_ip::ClientIp;
pub use refuse::RefuseLayer;

pub use crate::body::ResponseBody;
