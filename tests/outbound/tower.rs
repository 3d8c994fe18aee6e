//! The layers for tower.

mod bodies;
mod clones;
mod readiness;
mod refusals;
mod wires;
