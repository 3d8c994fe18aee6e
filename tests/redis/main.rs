//! The shared limiter on real Redis servers, and tests of the support code that starts them.
// It starts them by a shell and stops them by signals.
#![cfg(unix)]

mod clusters;
mod faults;
#[cfg(feature = "tower")]
mod layers;
mod proxies;
mod servers;
mod support;
#[cfg(all(feature = "feedback", feature = "tower"))]
mod two_as_one;
