//! The shared limiter on real Redis servers, and tests of the support code that starts them.
// It starts them by a shell and stops them by signals.
#![cfg(unix)]

mod clusters;
mod faults;
mod layers;
mod proxies;
mod servers;
mod support;
mod two_as_one;
