//! The names of the rules, and one of several limits.

use std::fmt;

/// Hands the rules that hold no other rule, and their names, to a macro.
macro_rules! each_rule {
    ($then:ident) => {
        $then! {
            SmoothBursty "smooth-bursty",
            SmoothWarmingUp "smooth-warming-up",
            TokenBucket "token-bucket",
            Gcra "gcra",
            LeakyBucket "leaky-bucket",
            FixedWindow "fixed-window",
            SlidingWindowLog "sliding-window-log",
            SlidingWindowCounter "sliding-window-counter",
            InFlight "in-flight",
            Unlimited "unlimited"
        }
    };
}
#[cfg(feature = "config")]
pub(crate) use each_rule;

macro_rules! kinds {
    ($($kind:ident $name:literal),+) => {
        /// What a limit is: a rule of this crate, or what a server is known to allow.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Kind {
            $($kind,)+
            LockOut,
            Server,
        }

        impl Kind {
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                    Self::LockOut => "lock-out",
                    Self::Server => "server",
                }
            }
        }
    };
}
each_rule!(kinds);

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
    /// `None` if it is composed itself, or a rule of a user.
    kind: Option<Kind>,
}

impl Part {
    /// Limit `index`, counted from zero, of `of` limits: for a composed [`Policy`](crate::Policy) of your own. A number
    /// above 65,535 counts as 65,535.
    #[must_use]
    pub fn new(index: usize, of: usize) -> Self {
        let small = |number| u16::try_from(number).unwrap_or(u16::MAX);
        Self { index: small(index), of: small(of), kind: None }
    }

    /// Adds what it is.
    pub(crate) fn of_kind(self, kind: Option<Kind>) -> Self {
        Self { kind, ..self }
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
        self.kind.map(Kind::name)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == Some(Kind::Server) {
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
