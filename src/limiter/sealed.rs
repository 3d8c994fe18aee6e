//! Keeps the traits of the front desk to this crate.

/// Of this crate only.
pub trait Sealed {}
