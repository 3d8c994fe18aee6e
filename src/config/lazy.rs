//! The middleware that `Limits` become when a client uses them.

#[cfg(feature = "reqwest")]
use std::sync::OnceLock;

/// Made at the first request. It is no part of the limits: a copy of them makes its own.
#[derive(Default)]
pub(crate) struct Lazy(
    #[cfg(feature = "reqwest")] pub(crate) OnceLock<Box<dyn reqwest_middleware::Middleware>>,
);

impl Clone for Lazy {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Lazy {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Lazy {}
