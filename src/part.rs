//! The names of the rules, and one of several limits.

use std::fmt;

macro_rules! kinds {
    ($($kind:ident $name:literal,)+) => {
        /// Each rule of this crate.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Kind {
            $($kind,)+
        }

        impl Kind {
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),+];
            pub(crate) const NAMES: &[&str] = &[$($name),+];
        }
    };
}

kinds! {
    SmoothBursty "smooth-bursty",
    SmoothWarmingUp "smooth-warming-up",
    TokenBucket "token-bucket",
    Gcra "gcra",
    LeakyBucket "leaky-bucket",
    FixedWindow "fixed-window",
    SlidingWindowLog "sliding-window-log",
    SlidingWindowCounter "sliding-window-counter",
    InFlight "in-flight",
    LockOut "lock-out",
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// One of the limits of a composed policy: the one that a caller waited for, or that refused it.
///
/// It prints as people count, from one; [`index`](Self::index) counts from zero, as the fields of a tuple do.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ManualClock, Rate, RateLimiter, SlidingWindowLog, TokenBucket};
///
/// let requests = TokenBucket::new(Rate::per_second(10.0), 10);
/// let tokens = SlidingWindowLog::new(90_000, Duration::from_secs(60));
/// let limiter = RateLimiter::with_clock((requests, tokens), ManualClock::new());
/// limiter.try_acquire((1, 90_000))?;
/// let part = limiter.try_acquire((1, 500)).unwrap_err().part().expect("one of two limits");
/// assert_eq!(part.to_string(), "limit 2 of 2, sliding-window-log");
/// assert_eq!((part.index(), part.of()), (1, 2));
/// assert_eq!(part.rule(), Some("sliding-window-log"));
/// # Ok::<(), tollgate::Error>(())
/// ```
// Six bytes, because each error and each grant has room for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    index: u16,
    of: u16,
    rule: Option<Kind>,
}

impl Part {
    /// Limit `index`, counted from zero, of `of` limits: for a composed [`Policy`](crate::Policy) of your own.
    #[must_use]
    pub fn new(index: usize, of: usize) -> Self {
        let small = |number| u16::try_from(number).unwrap_or(u16::MAX);
        Self { index: small(index), of: small(of), rule: None }
    }

    /// The limit that this rule is.
    #[must_use]
    pub(crate) fn of_kind(self, rule: Option<Kind>) -> Self {
        Self { rule, ..self }
    }

    /// To be kept in one atomic; not zero.
    pub(crate) fn to_bits(self) -> u64 {
        let rule = self.rule.map_or(0, |rule| rule as u64 + 1);
        1 << 63 | rule << 32 | u64::from(self.of) << 16 | u64::from(self.index)
    }

    /// `None` for zero.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        let number = |shift: u32| usize::try_from(bits >> shift & 0xffff).unwrap_or_default();
        let rule = number(32).checked_sub(1).and_then(|rule| Kind::ALL.get(rule).copied());
        (bits != 0).then(|| Self::new(number(0), number(16)).of_kind(rule))
    }

    /// The place among the limits, counted from zero.
    #[must_use]
    pub fn index(self) -> usize {
        self.index.into()
    }

    /// The number of limits.
    #[must_use]
    pub fn of(self) -> usize {
        self.of.into()
    }

    /// The name of the rule, as in a [file](crate::Limits#in-a-file). `None` if it is composed itself, or a rule of
    /// your own.
    #[must_use]
    pub fn rule(self) -> Option<&'static str> {
        self.rule.map(Kind::name)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limit {} of {}", self.index() + 1, self.of)?;
        self.rule().map_or(Ok(()), |rule| write!(f, ", {rule}"))
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_small_and_survives_its_bits() {
        assert_eq!(size_of::<Option<Part>>(), 6);
        let kinds = Kind::ALL.iter().copied().map(Some).chain([None]);
        for (index, kind) in kinds.enumerate() {
            let part = Part::new(index, Kind::ALL.len() + 1).of_kind(kind);
            assert_eq!(Part::from_bits(part.to_bits()), Some(part));
        }
        let large = Part::new(usize::MAX, usize::MAX);
        assert_eq!(Part::from_bits(large.to_bits()), Some(large));
        assert_eq!(Part::from_bits(0), None);
    }
}
