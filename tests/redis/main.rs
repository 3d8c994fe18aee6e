//! The shared limiter on real Redis servers, and what the support that starts these does.
// It starts them by a shell and stops them by signals.
#![cfg(unix)]

mod clusters;
mod faults;
mod proxies;
mod servers;
mod support;
