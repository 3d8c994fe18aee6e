//! Errors of the store that keeps a shared limit.

use std::fmt;
use std::sync::Arc;

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
    key: Arc<str>,
    /// Otherwise the key holds something else.
    is_unavailable: bool,
    may_have_charged: bool,
    source: Option<Source>,
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

impl StoreError {
    pub(crate) fn unavailable(key: &Arc<str>, may_have_charged: bool, source: Source) -> Self {
        let (key, source) = (Arc::clone(key), Some(source));
        Self { key, is_unavailable: true, may_have_charged, source }
    }

    pub(crate) fn foreign(key: &Arc<str>, source: Option<Source>) -> Self {
        let key = Arc::clone(key);
        Self { key, is_unavailable: false, may_have_charged: false, source }
    }

    /// For a call that was not sent, because earlier requests got no reply.
    pub(crate) fn unsent(&self, key: &Arc<str>) -> Self {
        let (key, source) = (Arc::clone(key), self.source.clone());
        Self { key, is_unavailable: true, may_have_charged: false, source }
    }

    /// The key of the limiter.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether the request may have been carried out: its reply was lost. The permits then count as
    /// taken.
    #[must_use]
    pub fn may_have_charged(&self) -> bool {
        self.may_have_charged
    }

    /// Whether Redis cannot be reached. Otherwise the key is at fault.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        self.is_unavailable
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the source, which error reporters print after this.
        let key = &self.key;
        match (self.is_unavailable, self.may_have_charged) {
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
        self.source.as_deref().map(|source| source as _)
    }
}

/// The same key and the same kind of fault.
impl PartialEq for StoreError {
    fn eq(&self, other: &Self) -> bool {
        let parts = |error: &Self| (error.is_unavailable, error.may_have_charged);
        self.key == other.key && parts(self) == parts(other)
    }
}

impl Eq for StoreError {}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;
    use crate::error::Error;

    #[test]
    fn an_error_is_its_key_and_its_kind_whatever_its_cause() {
        let (first, second) = (Arc::from("first"), Arc::from("second"));
        let cause = |text: &'static str| Arc::new(std::io::Error::other(text)) as Source;
        let lost = StoreError::unavailable(&first, true, cause("a reset"));
        assert_eq!(lost, StoreError::unavailable(&first, true, cause("a timeout")));
        let others = [lost.unsent(&first), lost.unsent(&second), StoreError::foreign(&first, None)];
        assert!(others.iter().all(|other| *other != lost), "{others:?}");

        // The cause of both is the same.
        let shown = |error: &dyn std::error::Error| error.source().map(ToString::to_string);
        assert_eq!(shown(&lost).as_deref(), Some("a reset"));
        assert_eq!(shown(&Error::from(lost.clone())).as_deref(), Some("a reset"));
        assert_eq!(shown(&Error::Closed), None);
        assert!(StoreError::foreign(&second, None).source().is_none());
    }
}
