//! The script that decides, `limit.lua`, and how requests for it are written and its replies read.

mod policies;
mod rules;
pub(super) mod wire;

pub use policies::Scripted;
pub(crate) use rules::Rules;
