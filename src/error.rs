//! The errors of all limiters.

#[cfg(feature = "redis")]
pub(crate) mod store;

use std::fmt;
use std::time::Duration;

use crate::part::Part;

/// Why permits were not granted.
///
/// No permit was taken, with one exception: if Redis did not reply, it may have charged them; the `StoreError` says so.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Error, ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let limiter =
///     RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), ManualClock::new());
/// limiter.try_acquire(1)?;
/// let error = limiter.try_acquire(1).unwrap_err();
/// assert!(matches!(error, Error::Denied { .. }));
/// assert_eq!(error.retry_after(), Some(Duration::from_millis(200)));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The permits are not available now, or not within the caller's timeout: the limit is reached, the
    /// limiter is paused, or other callers are ahead in the queue.
    #[non_exhaustive]
    Denied {
        /// The wait that the same call would have needed behind the callers in the queue. `None` if it
        /// is unpredictable, because a place in flight has to be given back.
        retry_after: Option<Duration>,
        /// The limit of a composed policy that takes longest. `None` for a single rule, and in a pause.
        part: Option<Part>,
    },
    /// The request is larger than the limiter can ever grant at once. Waiting does not help.
    ExceedsCapacity(ExceedsCapacity),
    /// The table holds its maximum number of keys, and none of them is idle and could make room.
    #[non_exhaustive]
    TooManyKeys {
        /// The maximum number of keys.
        max: usize,
    },
    /// The queue is full.
    #[non_exhaustive]
    QueueFull {
        /// The option of the builder that bounds the queue, such as `max_waiters` or `max_waiters_per_tenant`; `capacity` of
        /// a [`LeakyBucket`](crate::LeakyBucket).
        limit: &'static str,
        /// The time until the queue moves, if it is known.
        retry_after: Option<Duration>,
    },
    /// The limiter was [closed](crate::Limiter::close). Waiting does not help.
    Closed,
    /// The store of a shared limit gave no usable reply.
    // In a box, which is dropped by one call and by value: otherwise each result would pass through memory.
    #[cfg(feature = "redis")]
    Store(Box<store::StoreError>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied { retry_after, part } => {
                f.write_str("no permits available")?;
                write_part(*part, f)?;
                write_retry(*retry_after, f)
            }
            Self::ExceedsCapacity(error) => error.fmt(f),
            Self::TooManyKeys { max } => write!(
                f,
                "the limit of {max} keys is reached and no key is idle; raise `max_keys` or use fewer keys"
            ),
            Self::QueueFull { limit, retry_after } => {
                write!(f, "the queue is full: its {limit} is reached")?;
                write_retry(*retry_after, f)
            }
            Self::Closed => f.write_str("the limiter is closed"),
            #[cfg(feature = "redis")]
            Self::Store(error) => error.fmt(f),
        }
    }
}

/// The message: a `main` that returns an error prints this form.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    /// The source of a store's error, whose message is the message of this error.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            #[cfg(feature = "redis")]
            Self::Store(error) => error.source(),
            _ => None,
        }
    }
}

impl From<ExceedsCapacity> for Error {
    fn from(error: ExceedsCapacity) -> Self {
        Self::ExceedsCapacity(error)
    }
}

#[cfg(feature = "redis")]
impl From<store::StoreError> for Error {
    fn from(error: store::StoreError) -> Self {
        Self::Store(error.into())
    }
}

fn write_part(part: Option<Part>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    part.map_or(Ok(()), |part| write!(f, " ({part})"))
}

/// In whole milliseconds, rounded up: earlier would be too early.
fn write_retry(retry_after: Option<Duration>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Some(wait) = retry_after else { return Ok(()) };
    let wait = wait.saturating_add(Duration::from_nanos(999_999));
    match (wait.as_secs(), wait.subsec_millis()) {
        (0, millis) => write!(f, ", retry after {millis}ms"),
        (seconds, 0) => write!(f, ", retry after {seconds}s"),
        (seconds, millis) => write!(f, ", retry after {seconds}.{millis:03}s"),
    }
}

impl Error {
    /// When to ask again. For a `Retry-After` header, which has whole seconds, round up.
    ///
    /// For [`Error::Denied`] this is the wait that the call would have needed, for
    /// [`Error::QueueFull`] the time until the queue moves. `None` if waiting does not help
    /// ([`Error::ExceedsCapacity`], [`Error::Closed`]) or the wait is unpredictable. The error message rounds it up to
    /// milliseconds.
    #[inline]
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Denied { retry_after, .. } | Self::QueueFull { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The same of one limiter of several.
    pub(crate) fn in_part(self, part: Part) -> Self {
        match self {
            Self::Denied { retry_after, .. } => Self::Denied { retry_after, part: Some(part) },
            Self::ExceedsCapacity(error) => Self::ExceedsCapacity(error.in_part(Some(part))),
            other => other,
        }
    }

    /// The limit of a composed policy that refused the call. `None` for a single rule, or if no limit refused it.
    #[inline]
    #[must_use]
    pub fn part(&self) -> Option<Part> {
        match self {
            Self::Denied { part, .. } => *part,
            Self::ExceedsCapacity(error) => error.part(),
            _ => None,
        }
    }
}

/// The request can never be granted: it exceeds the policy's capacity, or what the rate yields in
/// [146 years](crate::Nanos::HORIZON).
///
/// ```
/// use tollgate::{Error, ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let daily = SmoothBursty::new("1/day".parse()?);
/// let limiter = RateLimiter::with_clock(daily, ManualClock::new());
/// let Err(Error::ExceedsCapacity(error)) = limiter.try_acquire(u32::MAX) else { panic!() };
/// assert_eq!(error.to_string(), "4294967295 permits exceed the capacity: ask for at most 53375 at once");
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ExceedsCapacity {
    /// The permits that were asked for.
    pub asked: u32,
    /// The maximum for one request.
    pub max: u64,
    part: Option<Part>,
}

impl fmt::Display for ExceedsCapacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} permits exceed the capacity", self.asked)?;
        write_part(self.part, f)?;
        write!(f, ": ask for at most {} at once", self.max)
    }
}

impl std::error::Error for ExceedsCapacity {}

impl ExceedsCapacity {
    /// For a policy to return: at most `max` permits can be granted at once, and `asked` are more.
    #[must_use]
    pub fn new(asked: u32, max: u64) -> Self {
        Self { asked, max, part: None }
    }

    /// The limit of a composed policy whose capacity the request exceeds. `None` for a single rule.
    #[must_use]
    pub fn part(&self) -> Option<Part> {
        self.part
    }

    /// The same of one part of a composed policy.
    pub(crate) fn in_part(self, part: Option<Part>) -> Self {
        Self { part, ..self }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::part::Kind;

    #[test]
    fn a_retry_time_is_shown_in_whole_milliseconds_and_never_too_early() {
        let denied = |nanos| {
            let retry_after = Some(Duration::from_nanos(nanos));
            Error::Denied { retry_after, part: None }.to_string()
        };
        assert_eq!(denied(59_999_996_635), "no permits available, retry after 60s");
        assert_eq!(denied(1), "no permits available, retry after 1ms");
        assert_eq!(denied(1_000_000), "no permits available, retry after 1ms");
        assert_eq!(denied(1_000_001), "no permits available, retry after 2ms");
        assert_eq!(denied(0), "no permits available, retry after 0ms");
        assert_eq!(denied(61_050_000_000), "no permits available, retry after 61.050s");
        let unknown = Error::Denied { retry_after: None, part: Some(Part::new(2, 3)) };
        assert_eq!(unknown.to_string(), "no permits available (limit 3 of 3)");
        let longest = Error::QueueFull { limit: "capacity", retry_after: Some(Duration::MAX) };
        let told = "the queue is full: its capacity is reached, retry after 18446744073709551615";
        assert!(longest.to_string().starts_with(told));
        let part = Part::new(1, 3).of_kind(Some(Kind::TokenBucket));
        let large = ExceedsCapacity::new(11, 10).in_part(Some(part)).to_string();
        assert_eq!(
            large,
            "11 permits exceed the capacity (limit 2 of 3, token-bucket): ask for at most 10 at once"
        );
    }
}
