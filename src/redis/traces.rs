//! Compares the scripts, on a real server with a manual clock, with the policies in Rust.

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
