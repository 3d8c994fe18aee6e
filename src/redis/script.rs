//! The script that decides, `limit.lua`, and how requests for it are written and its replies read.

mod policies;
mod rules;
pub(super) mod wire;

use std::sync::{Arc, LazyLock};

pub use policies::Scripted;
pub(crate) use rules::Rules;

use super::connection::Script;

/// The script of all limiters.
pub(super) fn script() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> =
        LazyLock::new(|| Arc::new(Script::new(include_str!("script/limit.lua").into())));
    Arc::clone(&SCRIPT)
}
