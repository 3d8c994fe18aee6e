//! What a shared limiter says when the store is at fault.

use std::fmt;
use std::sync::Arc;

use super::connection::{Effect, Failure};

/// Why Redis gave no answer that could be used. It names the key.
///
/// ```no_run
/// # fn limiter() -> tollgate::redis::RedisRateLimiter<tollgate::InFlight, tollgate::redis::Blocking> { todo!() }
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
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unavailable(Effect),
    Foreign,
    Conflict,
}

impl StoreError {
    pub(super) fn failed(key: &Arc<str>, failure: &Failure) -> Self {
        let kind = if failure.key { Kind::Foreign } else { Kind::Unavailable(failure.effect) };
        Self { key: Arc::clone(key), kind, source: Some(Arc::clone(&failure.source)) }
    }

    pub(super) fn foreign(key: &Arc<str>) -> Self {
        Self { key: Arc::clone(key), kind: Kind::Foreign, source: None }
    }

    pub(super) fn conflict(key: &Arc<str>) -> Self {
        Self { key: Arc::clone(key), kind: Kind::Conflict, source: None }
    }

    /// For somebody who has not been asked for, and will not be, because others got no answer.
    pub(super) fn unasked(&self, key: &Arc<str>) -> Self {
        let kind = Kind::Unavailable(Effect::None);
        Self { key: Arc::clone(key), kind, source: self.source.clone() }
    }

    /// The key that was asked for.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether the request may have been carried out although nobody knows: an answer was lost. Then the
    /// permits count as taken.
    #[must_use]
    pub fn may_have_charged(&self) -> bool {
        self.kind == Kind::Unavailable(Effect::Unknown)
    }

    /// Whether Redis, or the way to it, is down; else the key is at fault.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self.kind, Kind::Unavailable(_))
    }

    /// Whether another process has asked for the same key with another policy: of the same kind, but with
    /// other parameters. A policy of another kind cannot be told from whatever else may be in a key.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.kind == Kind::Conflict
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, source, .. } = self;
        match self.kind {
            Kind::Unavailable(Effect::None) => write!(f, "Redis is unavailable for key {key:?}")?,
            Kind::Unavailable(_) => {
                write!(f, "Redis gave no answer for key {key:?}, and may have charged")?;
            }
            Kind::Foreign => {
                write!(f, "key {key:?} holds another kind of policy, or something else")?;
            }
            Kind::Conflict => write!(
                f,
                "key {key:?} is in use with another policy: all who share it must agree, or one \
                 must set it for all by `set_policy`"
            )?,
        }
        source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
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
