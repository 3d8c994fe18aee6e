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
    failure: Failure,
}

/// Whether a failed request may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// It had no effect, and may be sent again.
    None,
    /// It may have taken effect: its permits count as charged.
    Unknown,
}

/// Why a request has no reply.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Whether it may have taken effect.
    pub effect: Effect,
    /// The key is at fault, not the server: it holds something else.
    pub key: bool,
    /// The cause.
    pub source: Arc<dyn std::error::Error + Send + Sync>,
}

impl Failure {
    /// A failure of the server, or of the way to it.
    #[must_use]
    pub fn new(effect: Effect, source: Box<dyn std::error::Error + Send + Sync>) -> Self {
        Self { effect, key: false, source: source.into() }
    }
}

impl StoreError {
    pub(crate) fn new(key: &Arc<str>, failure: Failure) -> Self {
        Self { key: Arc::clone(key), failure }
    }

    /// For a call that was not sent, because earlier requests got no reply.
    pub(crate) fn unsent(&self, key: &Arc<str>) -> Self {
        let failure = Failure { effect: Effect::None, key: false, ..self.failure.clone() };
        Self::new(key, failure)
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
        self.failure.effect == Effect::Unknown && self.is_unavailable()
    }

    /// Whether Redis cannot be reached. Otherwise the key is at fault.
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        !self.failure.key
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the source, which error reporters print after this.
        let key = &self.key;
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
        Some(&*self.failure.source)
    }
}

/// The same key and the same kind of fault.
impl PartialEq for StoreError {
    fn eq(&self, other: &Self) -> bool {
        let parts = |error: &Self| (error.is_unavailable(), error.may_have_charged());
        self.key == other.key && parts(self) == parts(other)
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
        let cause = |text: &str| Failure::new(Effect::Unknown, text.into());
        let lost = StoreError::new(&first, cause("a reset"));
        assert_eq!(lost, StoreError::new(&first, cause("a timeout")));
        let foreign = StoreError::new(&first, Failure { key: true, ..cause("a list") });
        assert_eq!((foreign.may_have_charged(), foreign.is_unavailable()), (false, false));
        let others = [lost.unsent(&first), lost.unsent(&second), foreign];
        assert!(others.iter().all(|other| *other != lost), "{others:?}");

        // The cause of both is the same.
        let shown = |error: &dyn std::error::Error| error.source().map(ToString::to_string);
        assert_eq!(shown(&lost).as_deref(), Some("a reset"));
        assert_eq!(shown(&Error::from(lost.clone())).as_deref(), Some("a reset"));
        assert_eq!(shown(&Error::Closed), None);
    }
}
