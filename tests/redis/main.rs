//! The shared limiter on real Redis servers.
// It starts them by a shell and stops them by signals.
#![cfg(unix)]

mod faults;
mod layers;
mod support;
mod two_as_one;
