//! A fleet: eight processes of fifty tasks each, real ones, that share one key of one server.
//!
//! Each process is this program again, with a job. It reports every grant as its callers saw it, by
//! the time that all processes of a machine share, and how late it was: that is measured, so that
//! the bounds hold on a busy machine without being wide on an idle one.
//!
//! `cargo test -p tests --test fleet -- --nocapture` prints the measurements.
#![cfg(unix)]

mod big;
mod changes;
mod fairness;
mod history;
mod job;
mod leaving;
mod processes;
mod steady;
mod stopped;
#[path = "../redis/support/mod.rs"]
mod support;
mod worker;
