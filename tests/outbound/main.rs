//! What a client of other people's APIs needs around its limiter: middleware, feedback, limits from a file,
//! reports. Against real servers on loopback where one matters, else on a manual clock.

mod any_input;
mod config;
mod feedback;
mod metrics;
mod observe_only;
mod reports;
mod reqwest;
mod shown;
mod simulate;
mod support;
mod tower;
mod tracing;
mod ureq;
