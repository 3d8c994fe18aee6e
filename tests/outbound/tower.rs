//! The layers for tower.

mod bodies;
mod client_ip;
mod clones;
mod fields;
#[cfg(feature = "feedback")]
mod learns;
mod readiness;
mod refusals;
mod servers;
mod wires;
