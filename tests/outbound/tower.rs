//! The layers for tower.

mod bodies;
mod client_ip;
mod clones;
mod fields;
mod learns;
mod readiness;
mod refusals;
mod servers;
mod wires;
