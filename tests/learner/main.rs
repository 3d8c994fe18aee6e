//! What learned limits are worth: clients of this crate and others against simulated servers, in no real time. The
//! bounds of [`rows`] are what the limiters of this crate must keep.
// Counts and times here are small.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]

mod clients;
mod page;
mod picture;
mod places;
mod random;
mod real;
mod rows;
mod scenarios;
mod server;
mod simulation;
mod world;
