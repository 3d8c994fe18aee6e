//! A fleet: eight processes of fifty tasks each, real ones, that share one key of one server.
//!
//! Each process is this program again, told what to do. It reports every grant as its callers saw it,
//! by the time that all processes of a machine share, and how late it was: that is measured, so that
//! the bounds hold on a busy machine without being wide on an idle one.
//!
//! `cargo test --features redis --test fleet -- --nocapture` prints what was measured.
#![cfg(all(unix, feature = "redis"))]

#[path = "fleet/big.rs"]
mod big;
#[path = "fleet/changes.rs"]
mod changes;
#[path = "fleet/history.rs"]
mod history;
#[path = "fleet/job.rs"]
mod job;
#[path = "fleet/leaving.rs"]
mod leaving;
#[path = "fleet/processes.rs"]
mod processes;
#[path = "fleet/steady.rs"]
mod steady;
#[path = "redis/support/mod.rs"]
mod support;
#[path = "fleet/worker.rs"]
mod worker;
