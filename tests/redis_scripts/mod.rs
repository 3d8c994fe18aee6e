//! Compares the scripts, on a real server with a manual clock, with the policies in Rust.
//!
//! Unit tests of `src/redis`, which includes them: they run private functions, without a limiter.

mod changes;
mod held;
mod idle;
mod keys;
mod random;
mod refunds;
mod server;
mod simulation;
mod subject;
