//! Limits as text and in files.
//!
//! A limit is written as a text, `100/min burst 20`. It becomes [`Parameters`](crate::policy::parameters::Parameters), which are
//! checked for what a constructor would panic at. With the feature `serde` a file has these texts by name.

#[cfg(feature = "serde")]
mod file;
pub(crate) mod limiters;
pub(crate) mod limits;
pub(crate) mod names;
mod text;
