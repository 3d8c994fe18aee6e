//! The layers for tower.

mod bodies;
mod clones;
mod fields;
mod readiness;
mod refusals;
mod wires;
