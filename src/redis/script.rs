//! The script that decides, `limit.lua`, and how requests for it are written and its replies read.

mod policies;
pub(super) mod wire;

pub(crate) use policies::Rules;
pub use policies::Scripted;
