//! What a limiter says when it does not grant.

#[cfg(feature = "redis")]
pub(crate) mod store;

use std::time::Duration;

/// Why permits were not granted. Nothing has been taken, except perhaps from a shared limit whose store
/// gave no answer.
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
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not now, or not within the time that the caller would wait.
    #[error("rate limit reached{}{}", display_part(*part), display_retry(*retry_after))]
    #[non_exhaustive]
    Denied {
        /// How long the same call would have had to wait, those in line before it included. `None`
        /// where nobody can know.
        retry_after: Option<Duration>,
        /// Which of several rules together held it back, counted from zero. `None` for a single
        /// rule, and in a pause.
        part: Option<usize>,
    },
    /// More than the limiter could ever give at once: waiting does not help.
    #[error(transparent)]
    ExceedsCapacity(#[from] ExceedsCapacity),
    /// There are as many keys as there may be, and none of those looked at is idle: a new one is turned
    /// away.
    #[error("too many keys: at most {max}")]
    #[non_exhaustive]
    TooManyKeys {
        /// How many there may be.
        max: usize,
    },
    /// As many callers or permits wait already as the limiter was told to let wait.
    #[error("the line is full{}", display_retry(*retry_after))]
    #[non_exhaustive]
    QueueFull {
        /// When the line moves next, as far as is known now.
        retry_after: Option<Duration>,
    },
    /// The store that keeps a shared limit gave no answer that could be used.
    #[cfg(feature = "redis")]
    #[error(transparent)]
    Store(#[from] store::StoreError),
}

fn display_part(part: Option<usize>) -> String {
    part.map_or_else(String::new, |part| format!(" (part {part})"))
}

fn display_retry(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |wait| format!(", retry after {wait:?}"))
}

impl Error {
    /// When it makes sense to ask again. A `Retry-After` header has whole seconds: round up.
    ///
    /// For [`Error::Denied`] this is the wait that the call would have needed, for
    /// [`Error::QueueFull`] the time until the line moves. `None` means that waiting does not help
    /// ([`Error::ExceedsCapacity`]) or that nobody can know.
    ///
    /// ```
    /// # use tollgate::{ManualClock, Rate, RateLimiter, SmoothBursty};
    /// # use std::time::Duration;
    /// # let limiter =
    /// #     RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(5.0)), ManualClock::new());
    /// limiter.try_acquire(10)?;
    /// let wait = limiter.try_acquire(1).unwrap_err().retry_after();
    /// assert_eq!(wait, Some(Duration::from_secs(2)));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Denied { retry_after, .. } | Self::QueueFull { retry_after } => *retry_after,
            Self::ExceedsCapacity(_) | Self::TooManyKeys { .. } => None,
            #[cfg(feature = "redis")]
            Self::Store(_) => None,
        }
    }

    /// Which of several rules together said no, counted from zero. `None` for a single rule, or if it
    /// was none of them.
    ///
    /// ```
    /// # use tollgate::{InFlight, ManualClock, Rate, RateLimiter, TokenBucket};
    /// let tokens = TokenBucket::new(Rate::per_minute(60.0), 100);
    /// let limiter = RateLimiter::with_clock((tokens, InFlight::new(10)), ManualClock::new());
    /// let _grant = limiter.try_acquire((80, 1))?;
    /// let error = limiter.try_acquire((80, 1)).unwrap_err();
    /// assert_eq!(error.part(), Some(0));
    /// assert_eq!(error.to_string(), "rate limit reached (part 0), retry after 60s");
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn part(&self) -> Option<usize> {
        match self {
            Self::Denied { part, .. } | Self::ExceedsCapacity(ExceedsCapacity { part, .. }) => {
                *part
            }
            Self::QueueFull { .. } | Self::TooManyKeys { .. } => None,
            #[cfg(feature = "redis")]
            Self::Store(_) => None,
        }
    }
}

/// A request that can never be granted: more than the policy's capacity, or than comes in
/// [146 years](crate::Nanos::HORIZON).
///
/// ```
/// use tollgate::{Error, ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let daily = SmoothBursty::new("1/day".parse()?);
/// let limiter = RateLimiter::with_clock(daily, ManualClock::new());
/// let Err(Error::ExceedsCapacity(error)) = limiter.try_acquire(u32::MAX) else { panic!() };
/// assert_eq!(error.to_string(), "more permits than can ever be granted at once: at most 53375");
/// # Ok::<(), tollgate::InvalidRate>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("more permits than can ever be granted at once: at most {max}{}", display_part(*part))]
#[non_exhaustive]
pub struct ExceedsCapacity {
    /// The most that one request may ask for.
    pub max: u64,
    /// Which of several rules together it exceeds, counted from zero. `None` for a single rule.
    pub part: Option<usize>,
}

impl ExceedsCapacity {
    /// For a policy to return: at most `max` permits can be granted at once.
    ///
    /// ```
    /// assert_eq!(tollgate::ExceedsCapacity::new(10).max, 10);
    /// ```
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { max, part: None }
    }

    /// The same of one part of a composed policy.
    pub(crate) fn in_part(self, part: usize) -> Self {
        Self { part: Some(part), ..self }
    }
}
