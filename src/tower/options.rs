//! What both layers for clients set.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::future::{BoxError, RefuseWith};
use crate::error::Error;

#[derive(Clone, Default)]
pub(super) struct Options {
    pub(super) max_wait: Option<Duration>,
    pub(super) refuse_with: Option<RefuseWith>,
}

impl Options {
    pub(super) fn max_wait(self, max_wait: Duration) -> Self {
        Self { max_wait: Some(max_wait), ..self }
    }

    pub(super) fn refuse_with<E: Into<BoxError>>(
        self,
        with: impl Fn(Error) -> E + Send + Sync + 'static,
    ) -> Self {
        Self { refuse_with: Some(Arc::new(move |error| with(error).into())), ..self }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("max_wait", &self.max_wait).finish_non_exhaustive()
    }
}
