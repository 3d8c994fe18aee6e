//! Keeps the traits of this module to this crate.

/// Of this crate only.
pub trait Sealed {}
