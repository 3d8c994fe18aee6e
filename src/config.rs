//! Limits as text and in files.
//!
//! A limit is written as a text (`100/min burst 20`) or, with the feature `serde`, as a table. Both become
//! [`Parameters`](crate::policy::parameters::Parameters) with their checks for what a constructor would panic at.

mod display;
pub(crate) mod error;
#[cfg(feature = "serde")]
mod file;
mod lazy;
pub(crate) mod limiters;
pub(crate) mod limits;
pub(crate) mod names;
pub(crate) mod pattern;
#[cfg(feature = "serde")]
mod serde;
#[cfg(feature = "serde")]
mod table;
mod text;
