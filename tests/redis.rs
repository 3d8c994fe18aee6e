//! Real Redis servers: what the support that starts them does.
// It starts them by a shell and stops them by signals.
#![cfg(unix)]

#[path = "redis/clusters.rs"]
mod clusters;
#[path = "redis/proxies.rs"]
mod proxies;
#[path = "redis/servers.rs"]
mod servers;
#[path = "redis/smoke.rs"]
mod smoke;
#[path = "redis/support/mod.rs"]
mod support;
