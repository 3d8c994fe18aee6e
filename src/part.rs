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
            #[cfg(test)]
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
    Unlimited "unlimited",
}

/// Hands the rules that hold no other rule to a macro.
macro_rules! each_rule {
    ($then:ident) => {
        $then! {
            SmoothBursty, SmoothWarmingUp, TokenBucket, Gcra, LeakyBucket, FixedWindow,
            SlidingWindowLog, SlidingWindowCounter, InFlight, Unlimited
        }
    };
}
pub(crate) use each_rule;

impl Kind {
    #[cfg(any(test, feature = "serde"))]
    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Names the limit that delayed or refused a call, in a policy made of several limits.
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
// From the lowest bit: one, the number of limits and the index in twelve bits each, and the rule and one. The upper half
// is empty, and it is no `NonZero`: with errors of another size a call in flight takes 14 instructions more.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part(u64);

impl Part {
    const MOST: u64 = 0xfff;
    /// In place of a rule.
    const SERVER: u64 = 0x3f << 25;

    /// Limit `index`, counted from zero, of `of` limits: for a composed [`Policy`](crate::Policy) of your own. A number
    /// above 4,095 counts as 4,095.
    #[must_use]
    pub fn new(index: usize, of: usize) -> Self {
        let small = |number| u64::try_from(number).unwrap_or(Self::MOST).min(Self::MOST);
        Self(1 | small(of) << 1 | small(index) << 13)
    }

    /// Adds the rule's name.
    #[must_use]
    pub(crate) fn of_kind(self, rule: Option<Kind>) -> Self {
        Self(self.0 | rule.map_or(0, |rule| rule as u64 + 1) << 25)
    }

    /// What a server is known to allow, by what it says or by what was learned.
    #[cfg(feature = "feedback")]
    #[must_use]
    pub(crate) fn of_server(self) -> Self {
        Self(self.0 | Self::SERVER)
    }

    /// The same in half the room, and not zero.
    pub(crate) fn bits(self) -> u32 {
        u32::try_from(self.0).unwrap_or_default()
    }

    pub(crate) fn from_bits(bits: u32) -> Option<Self> {
        (bits != 0).then_some(Self(bits.into()))
    }

    /// The place among the limits, counted from zero.
    #[must_use]
    pub fn index(self) -> usize {
        (self.0 >> 13 & Self::MOST) as usize
    }

    /// The number of limits.
    #[must_use]
    pub fn of(self) -> usize {
        (self.0 >> 1 & Self::MOST) as usize
    }

    fn is_server(self) -> bool {
        self.0 & Self::SERVER == Self::SERVER
    }

    /// The name of the rule, such as `"token-bucket"`, or `"server"` if a `Feedback` held the call back for its server. `None` if it is composed itself, or a rule
    /// of your own.
    #[must_use]
    pub fn rule(self) -> Option<&'static str> {
        if self.is_server() {
            return Some("server");
        }
        let rule = (self.0 >> 25) as usize;
        Kind::NAMES.get(rule.checked_sub(1)?).copied()
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_server() {
            return f.write_str("the server");
        }
        write!(f, "limit {} of {}", self.index() + 1, self.of())?;
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
    fn a_part_is_one_number() {
        let kinds = Kind::ALL.iter().copied().map(Some).chain([None]);
        for (index, kind) in kinds.enumerate() {
            let part = Part::new(index, 20).of_kind(kind);
            assert_eq!((part.index(), part.of(), part.rule()), (index, 20, kind.map(Kind::name)));
            assert_eq!(Part::from_bits(part.bits()), Some(part));
        }
        let large = Part::new(usize::MAX, usize::MAX);
        assert_eq!((large.index(), large.of(), large.rule()), (4_095, 4_095, None));
        assert_eq!(Part::from_bits(0), None);
    }
}
