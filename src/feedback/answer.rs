//! What a response says.

use std::cmp::Reverse;
use std::time::Duration;

use super::text::When;

/// What a server counts.
///
/// ```
/// use tollgate::feedback::{Dialects, Unit};
///
/// let headers = [("x-ratelimit-remaining-requests", "59"), ("x-ratelimit-remaining-tokens", "149984")];
/// let answer = Dialects::default().read(200u16, &headers);
/// assert_eq!(answer.meter(Unit::Tokens).unwrap().remaining, Some(149_984));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unit {
    /// Calls.
    Requests,
    /// Tokens of a language model, whichever of its limits is the tightest.
    Tokens,
    /// Tokens that are sent.
    InputTokens,
    /// Tokens that come back.
    OutputTokens,
}

impl Unit {
    /// All of them.
    pub(super) const ALL: [Self; 4] =
        [Self::Requests, Self::Tokens, Self::InputTokens, Self::OutputTokens];

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// What a server says of one unit.
///
/// ```
/// use tollgate::feedback::{Dialects, Unit};
///
/// let headers = [("x-rate-limit-limit", "900"), ("x-rate-limit-remaining", "847")];
/// let answer = Dialects::default().read(200u16, &headers);
/// let meter = answer.meter(Unit::Requests).unwrap();
/// assert_eq!((meter.limit, meter.remaining, meter.reset), (Some(900), Some(847), None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Meter {
    /// The quota of a window.
    pub limit: Option<u64>,
    /// How much of it remained after this call.
    pub remaining: Option<u64>,
    /// When the quota is there again: all of it, or of a sliding window perhaps a part. If it comes back steadily,
    /// when all is.
    pub reset: Option<When>,
    /// Whether the server restores permits steadily until the reset, as a token bucket does.
    pub is_continuous: bool,
}

impl Meter {
    /// The tighter one of two: that of which less remains, and of equals the one that lasts longer. What it leaves out
    /// the other one adds, if less remains of neither.
    pub(super) fn tighter(self, other: Self) -> Self {
        let remaining = |meter: Self| Reverse(meter.remaining.unwrap_or(u64::MAX));
        let tightness = |meter| (remaining(meter), meter.reset);
        let is_tighter = tightness(self) < tightness(other);
        let (first, second) = if is_tighter { (other, self) } else { (self, other) };
        if second.remaining.is_some() && second.remaining != first.remaining {
            return first;
        }
        Self {
            limit: first.limit.or(second.limit),
            remaining: first.remaining,
            reset: first.reset.or(second.reset),
            is_continuous: first.is_continuous || second.is_continuous,
        }
    }
}

/// How a call ended, as far as limits are concerned.
///
/// ```
/// use tollgate::feedback::{Dialects, Verdict};
///
/// let none: [(&str, &str); 0] = [];
/// let verdict = |status: u16| Dialects::default().read(status, &none).verdict;
/// assert_eq!(verdict(404), Verdict::Accepted);
/// assert_eq!(verdict(429), Verdict::Refused);
/// assert_eq!(verdict(503), Verdict::Unavailable);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// The server took the call, whatever it thought of it.
    #[default]
    Accepted,
    /// Over a limit: 429, and what the dialect says besides.
    Refused,
    /// The server is overloaded or down: 503, any 5xx that names a time, and what the dialect says besides.
    Unavailable,
}

/// What a response says about limits; read by [`Dialects::read`](super::Dialects::read).
///
/// ```
/// use std::time::Duration;
/// use tollgate::feedback::{Dialects, When};
///
/// let headers = [
///     ("date", "Tue, 15 Nov 1994 08:12:31 GMT"),
///     ("retry-after", "Tue, 15 Nov 1994 08:13:01 GMT"),
/// ];
/// let answer = Dialects::default().read(429u16, &headers);
/// // By the server's own clock, however wrong it is.
/// assert_eq!(answer.retry_after(Duration::ZERO).unwrap().as_secs(), 30);
/// assert_eq!(answer.malformed, 0);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The status of the response.
    pub status: u16,
    /// How the call ended.
    pub verdict: Verdict,
    /// [The time to wait](super#how-long-to-wait): `Retry-After`, or what the dialect has in its place.
    pub wait: Option<When>,
    /// The least time to wait after a refusal without a time, if the dialect asks for one.
    pub least_wait: Option<Duration>,
    /// The server's clock, since the Unix epoch.
    pub date: Option<Duration>,
    /// The name of the first dialect that applies.
    pub dialect: Option<&'static str>,
    /// Which of the server's quotas the meters are of.
    pub bucket: Option<String>,
    /// Whether each channel, guild and webhook has one of that name.
    pub(super) is_per_resource: bool,
    /// How many fields were ignored because they could not be read.
    pub malformed: u32,
    /// What is said of each unit: at first by each quota, at the end by the tightest.
    pub(super) meters: Vec<(Unit, Meter)>,
}

impl Answer {
    /// Whether the server took the call.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.verdict == Verdict::Accepted
    }

    /// Whether the call was over a limit, or the server overloaded: it can be repeated later.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        !self.is_accepted()
    }

    /// What the server says of a unit.
    #[must_use]
    pub fn meter(&self, unit: Unit) -> Option<Meter> {
        self.meters.iter().find(|(other, _)| *other == unit).map(|(_, meter)| *meter)
    }

    /// Keeps the tightest quota of each unit. What a cache has kept is old, and a quota of zero that has just taken a call
    /// is none.
    pub(super) fn keep_tightest(&mut self, is_old: bool) {
        for (unit, meter) in std::mem::take(&mut self.meters) {
            let is_empty = (meter.limit, meter.remaining, meter.reset) == (None, None, None);
            if is_old || is_empty || meter.limit == Some(0) && self.is_accepted() {
                continue;
            }
            match self.meters.iter_mut().find(|(other, _)| *other == unit) {
                Some((_, tightest)) => *tightest = tightest.tighter(meter),
                None => self.meters.push((unit, meter)),
            }
        }
    }

    /// How long to wait by `Retry-After`. `now`: the time since the Unix epoch, for a response without `Date`.
    #[must_use]
    pub fn retry_after(&self, now: Duration) -> Option<Duration> {
        self.wait.map(|wait| wait.after(self.date.unwrap_or(now)))
    }
}
