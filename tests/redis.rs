//! The shared limiter on real Redis servers, and what the support that starts these does.
// It starts them by a shell and stops them by signals.
#![cfg(unix)]

#[path = "redis/clusters.rs"]
mod clusters;
#[path = "redis/faults/mod.rs"]
mod faults;
#[path = "redis/proxies.rs"]
mod proxies;
#[path = "redis/servers.rs"]
mod servers;
#[path = "redis/support/mod.rs"]
mod support;
