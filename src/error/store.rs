//! Errors of the store that keeps a shared limit.

use std::fmt;
use std::sync::Arc;

use crate::unwinding::DropApart;

type Source = Arc<dyn std::error::Error + Send + Sync>;

/// Why Redis gave no usable reply. It names the key; the cause is its
/// [`source`](std::error::Error::source).
///
/// ```no_run
/// # fn limiter() -> tollgate::redis::RedisRateLimiter<tollgate::InFlight> { todo!() }
/// use tollgate::Error;
///
/// match limiter().blocking_acquire(1) {
///     Err(Error::Store(error)) if error.may_have_charged() => eprintln!("charged, perhaps: {error}"),
///     Err(error) => eprintln!("nothing was taken: {error}"),
///     Ok(_) => {}
/// }
/// ```
#[derive(Clone, Debug)]
pub struct StoreError {
    /// The key, which is empty until the limiter adds it, and the source.
    pub(crate) parts: DropApart<(Arc<str>, Option<Source>)>,
    pub(crate) may_have_charged: bool,
    /// The key is at fault, not the server: it holds something else.
    pub(crate) is_of_key: bool,
}

impl StoreError {
    /// For a [`Connection`](crate::redis::Connection): the request was not carried out, and may be sent again.
    #[must_use]
    pub fn refused(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let parts = DropApart::default();
        let mut error = Self { parts, may_have_charged: false, is_of_key: false };
        error.parts.1 = Some(source.into().into());
        error
    }

    /// For a [`Connection`](crate::redis::Connection): there is no reply, so the request may have been carried out.
    #[must_use]
    pub fn lost(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { may_have_charged: true, ..Self::refused(source) }
    }

    /// For callers at `key`.
    pub(crate) fn at(&self, key: &Arc<str>) -> Self {
        let mut error = self.clone();
        error.parts.0 = Arc::clone(key);
        error
    }

    /// For a call that was not sent.
    pub(crate) fn unsent(self) -> Self {
        Self { may_have_charged: false, is_of_key: false, ..self }
    }

    /// The key of the limiter.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.parts.0
    }

    /// Whether the request may have been carried out: its reply was lost. The permits then count as
    /// taken.
    #[must_use]
    pub fn may_have_charged(&self) -> bool {
        self.may_have_charged && self.is_unavailable()
    }

    /// Whether Redis cannot be reached. Otherwise the key is at fault.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        !self.is_of_key
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the source, which error reporters print after this.
        let key = self.key();
        match (self.is_unavailable(), self.may_have_charged()) {
            (true, false) => write!(f, "Redis is unavailable for key {key:?}"),
            (true, true) => {
                write!(f, "no reply from Redis for key {key:?}; permits may have been consumed")
            }
            (false, _) => write!(f, "key {key:?} holds another kind of policy, or something else"),
        }
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.parts.1.as_deref().map(|source| source as _)
    }
}

/// The same key and the same kind of fault.
impl PartialEq for StoreError {
    fn eq(&self, other: &Self) -> bool {
        let parts = |error: &Self| (error.is_unavailable(), error.may_have_charged());
        self.key() == other.key() && parts(self) == parts(other)
    }
}

impl Eq for StoreError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn an_error_is_its_key_and_its_kind_whatever_its_cause() {
        let (first, second) = (Arc::from("first"), Arc::from("second"));
        let lost = StoreError::lost("a reset").at(&first);
        assert_eq!(lost, StoreError::lost("a timeout").at(&first));
        let foreign = StoreError { is_of_key: true, ..StoreError::lost("a list").at(&first) };
        assert_eq!((foreign.may_have_charged(), foreign.is_unavailable()), (false, false));
        let others = [lost.clone().unsent(), lost.at(&second).unsent(), foreign];
        assert!(others.iter().all(|other| *other != lost), "{others:?}");

        // The cause of both is the same.
        let shown = |error: &dyn std::error::Error| error.source().map(ToString::to_string);
        assert_eq!(shown(&lost).as_deref(), Some("a reset"));
        assert_eq!(shown(&Error::from(lost.clone())).as_deref(), Some("a reset"));
        assert_eq!(shown(&Error::Closed), None);
    }
}
