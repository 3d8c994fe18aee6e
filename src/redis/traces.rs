//! The scripts on a real server, driven by a manual clock, against the policies in Rust.

mod batches;
mod changes;
mod held;
mod keys;
mod random;
mod refunds;
pub(super) mod server;
mod simulation;
mod steps;
mod subject;
