//! The scripts on a real server, driven by a manual clock, against the policies in Rust.

mod batches;
mod changes;
mod held;
mod idle;
mod keys;
mod random;
mod refunds;
mod server;
mod simulation;
mod steps;
mod subject;
