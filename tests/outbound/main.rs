//! What a client of other people's APIs needs around its limiter: middleware, feedback, limits from a file,
//! reports. Against real servers on loopback where one matters, else on a manual clock.
#![cfg(feature = "tokio")]

#[cfg(all(feature = "feedback", feature = "redis", feature = "serde", feature = "tower"))]
mod any_input;
#[cfg(feature = "serde")]
mod config;
#[cfg(feature = "feedback")]
mod feedback;
#[cfg(feature = "metrics")]
mod metrics;
mod reports;
#[cfg(feature = "reqwest")]
mod reqwest;
#[cfg(any(feature = "tower", feature = "reqwest"))]
mod shown;
mod simulate;
#[cfg(any(feature = "feedback", feature = "tower"))]
mod support;
#[cfg(feature = "tower")]
mod tower;
#[cfg(feature = "tracing")]
mod tracing;
#[cfg(feature = "ureq")]
mod ureq;
