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
// Aligned, so that it moves as one number: each call can return one.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(align(8))]
pub struct Part {
    index: u16,
    of: u16,
    rule: Rule,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Rule {
    /// Composed itself, or of a user.
    Unnamed,
    Of(Kind),
    /// What a server is known to allow.
    Server,
}

impl Part {
    /// Limit `index`, counted from zero, of `of` limits: for a composed [`Policy`](crate::Policy) of your own. A number
    /// above 65,535 counts as 65,535.
    #[must_use]
    pub fn new(index: usize, of: usize) -> Self {
        let small = |number| u16::try_from(number).unwrap_or(u16::MAX);
        Self { index: small(index), of: small(of), rule: Rule::Unnamed }
    }

    /// Adds the rule's name.
    #[must_use]
    pub(crate) fn of_kind(self, rule: Option<Kind>) -> Self {
        Self { rule: rule.map_or(Rule::Unnamed, Rule::Of), ..self }
    }

    /// What a server is known to allow, by what it says or by what was learned.
    #[cfg(feature = "feedback")]
    #[must_use]
    pub(crate) fn of_server(self) -> Self {
        Self { rule: Rule::Server, ..self }
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

    /// The name of the rule, such as `"token-bucket"`, or `"server"` if a `Feedback` held the call back for its server. `None` if it is composed itself, or a rule
    /// of your own.
    #[must_use]
    pub fn rule(self) -> Option<&'static str> {
        match self.rule {
            Rule::Unnamed => None,
            Rule::Of(kind) => Some(kind.name()),
            Rule::Server => Some("server"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rule == Rule::Server {
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
