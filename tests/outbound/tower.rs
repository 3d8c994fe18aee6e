//! The layers for tower.

mod bodies;
mod clones;
mod fields;
#[cfg(feature = "feedback")]
mod learns;
mod readiness;
mod refusals;
mod wires;
