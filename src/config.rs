//! Limits as text and in files.
//!
//! A limit is written as a text, `100/min burst 20`. It becomes [`Parameters`](crate::policy::parameters::Parameters), which are
//! checked for what a constructor would panic at. With the feature `serde` a file has these texts by name.

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
mod text;
