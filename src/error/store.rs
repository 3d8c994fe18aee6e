//! Errors of the store that keeps a shared limit.

use std::fmt;
use std::hash::{Hash, Hasher};
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
    kind: Kind,
    source: Option<Source>,
}

type Source = Arc<dyn std::error::Error + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Unavailable {
        may_have_charged: bool,
    },
    /// The key holds something else.
    Foreign,
}

impl StoreError {
    pub(crate) fn unavailable(key: &Arc<str>, may_have_charged: bool, source: Source) -> Self {
        Self::new(key, Kind::Unavailable { may_have_charged }, Some(source))
    }

    pub(crate) fn foreign(key: &Arc<str>, source: Option<Source>) -> Self {
        Self::new(key, Kind::Foreign, source)
    }

    /// For a call that was not sent, because earlier requests got no reply.
    pub(crate) fn unsent(&self, key: &Arc<str>) -> Self {
        Self::new(key, Kind::Unavailable { may_have_charged: false }, self.source.clone())
    }

    fn new(key: &Arc<str>, kind: Kind, source: Option<Source>) -> Self {
        Self { key: Arc::clone(key), kind, source }
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
        self.kind == Kind::Unavailable { may_have_charged: true }
    }

    /// Whether Redis cannot be reached. Otherwise the key is at fault.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self.kind, Kind::Unavailable { .. })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the source, which error reporters print after this.
        let key = &self.key;
        match self.kind {
            Kind::Unavailable { may_have_charged: false } => {
                write!(f, "Redis is unavailable for key {key:?}")
            }
            Kind::Unavailable { may_have_charged: true } => {
                write!(f, "no reply from Redis for key {key:?}; permits may have been consumed")
            }
            Kind::Foreign => {
                write!(f, "key {key:?} holds another kind of policy, or something else")
            }
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
        (&self.key, self.kind) == (&other.key, other.kind)
    }
}

impl Eq for StoreError {}

impl Hash for StoreError {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.key, self.kind).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::error::Error as _;
    use std::hash::BuildHasher;

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
        let all: HashSet<_> = others.into_iter().chain([lost.clone(), lost.clone()]).collect();
        assert_eq!(all.len(), 4);
        let hashes: HashSet<_> = all.iter().map(|error| all.hasher().hash_one(error)).collect();
        assert_eq!(hashes.len(), 4);

        // The cause of both is the same.
        let shown = |error: &dyn std::error::Error| error.source().map(ToString::to_string);
        assert_eq!(shown(&lost).as_deref(), Some("a reset"));
        assert_eq!(shown(&Error::from(lost.clone())).as_deref(), Some("a reset"));
        assert_eq!(shown(&Error::Closed), None);
        assert!(StoreError::foreign(&second, None).source().is_none());
    }
}
