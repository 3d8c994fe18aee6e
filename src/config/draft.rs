//! A policy as it is written, before it is checked.

use std::time::Duration;

use crate::policy::Rated;
use crate::policy::any::AnyPolicy;
use crate::policy::fixed_window::FixedWindow;
use crate::policy::gcra::Gcra;
use crate::policy::in_flight::InFlight;
use crate::policy::leaky_bucket::LeakyBucket;
use crate::policy::lock_out::LockOut;
use crate::policy::sliding_window_counter::SlidingWindowCounter;
use crate::policy::sliding_window_log::SlidingWindowLog;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::policy::smooth_warming_up::SmoothWarmingUp;
use crate::policy::token_bucket::TokenBucket;
use crate::units::{Nanos, Rate};

/// The kinds of policies, each with its name in a table, the fields that it needs and those that it may have.
macro_rules! kinds {
    ($($kind:ident $name:literal: [$($needs:literal),+] [$($may:literal),*],)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($kind,)+
        }

        impl Kind {
            #[cfg(feature = "serde")]
            pub(super) const ALL: &[Self] = &[$(Self::$kind),+];
            #[cfg(feature = "serde")]
            pub(super) const NAMES: &[&str] = &[$($name),+];

            #[cfg(feature = "serde")]
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            pub(super) fn needs(self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind => &[$($needs),+],)+
                }
            }

            pub(super) fn may_have(self) -> &'static [&'static str] {
                match self {
                    $(Self::$kind => &[$($may),*],)+
                }
            }
        }
    };
}

kinds! {
    SmoothBursty "smooth-bursty": ["rate"] ["max_burst", "catch_up"],
    SmoothWarmingUp "smooth-warming-up": ["rate", "warm_up"] ["cold_factor", "catch_up"],
    TokenBucket "token-bucket": ["rate", "capacity"] ["initial", "refill_every", "catch_up"],
    Gcra "gcra": ["rate", "burst"] ["catch_up"],
    LeakyBucket "leaky-bucket": ["rate", "capacity"] ["meter", "catch_up"],
    FixedWindow "fixed-window": ["limit", "window"] ["aligned"],
    SlidingWindowLog "sliding-window-log": ["limit", "window"] [],
    SlidingWindowCounter "sliding-window-counter": ["limit", "window", "buckets"] [],
    InFlight "in-flight": ["max"] [],
    LockOut "lock-out": ["of", "duration"] [],
}

impl Kind {
    pub(super) fn has(self, field: &str) -> bool {
        self.needs().contains(&field) || self.may_have().contains(&field)
    }
}

macro_rules! fields {
    ($($field:ident: $type:ty,)+) => {
        /// What is known of a policy.
        #[derive(Clone, Debug, Default)]
        pub(crate) struct Draft {
            $(pub(crate) $field: Option<$type>,)+
        }

        impl Draft {
            #[cfg(feature = "serde")]
            pub(super) const FIELDS: &[&str] = &[$(stringify!($field)),+];

            /// The names of the fields that are set.
            #[cfg(feature = "serde")]
            pub(super) fn given(&self) -> impl Iterator<Item = &'static str> {
                let given = [$((stringify!($field), self.$field.is_some())),+];
                given.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name)
            }
        }
    };
}

fields! {
    rate: Rate,
    limit: u32,
    window: Duration,
    capacity: u32,
    burst: u32,
    max: u32,
    initial: u32,
    refill_every: Duration,
    max_burst: Duration,
    warm_up: Duration,
    cold_factor: f64,
    meter: bool,
    buckets: u32,
    aligned: Duration,
    duration: Duration,
    of: Box<AnyPolicy>,
    catch_up: Duration,
}

/// What is wrong with a draft: a field, and the reason.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Flaw {
    pub(crate) field: &'static str,
    pub(crate) reason: &'static str,
}

const ZERO: &str = "must not be zero";
const MISSING: &str = "is missing";
const TOO_LONG: &str = "must not exceed 146 years";

fn needed<T>(value: Option<T>, field: &'static str) -> Result<T, Flaw> {
    value.ok_or(Flaw { field, reason: MISSING })
}

/// A number of permits. A rule of none grants nothing, which is a mistake in a file.
fn permits(value: Option<u32>, field: &'static str) -> Result<u32, Flaw> {
    match needed(value, field)? {
        0 => Err(Flaw { field, reason: ZERO }),
        permits => Ok(permits),
    }
}

/// A time that the constructor of a policy accepts.
fn span(value: Option<Duration>, field: &'static str) -> Result<Duration, Flaw> {
    match needed(value, field)? {
        Duration::ZERO => Err(Flaw { field, reason: ZERO }),
        span if span > Nanos::HORIZON => Err(Flaw { field, reason: TOO_LONG }),
        span => Ok(span),
    }
}

impl Draft {
    /// The policy. Fields that the kind does not have are not looked at.
    pub(crate) fn policy(self, kind: Kind) -> Result<AnyPolicy, Flaw> {
        let rate = || needed(self.rate, "rate");
        let catch_up = self.catch_up;
        macro_rules! caught_up {
            ($policy:expr) => {{
                let policy = $policy;
                match catch_up {
                    Some(catch_up) => policy.with_catch_up(catch_up).into(),
                    None => policy.into(),
                }
            }};
        }
        Ok(match kind {
            Kind::SmoothBursty => {
                let max_burst = self.max_burst.unwrap_or_default();
                caught_up!(SmoothBursty::new(rate()?).max_burst(max_burst))
            }
            Kind::SmoothWarmingUp => {
                let policy = SmoothWarmingUp::new(rate()?, span(self.warm_up, "warm_up")?);
                let cold_factor = self.cold_factor.unwrap_or(policy.cold_factor);
                if !(1.0..=1e9).contains(&cold_factor) {
                    let reason = "must be from 1 to 1e9";
                    return Err(Flaw { field: "cold_factor", reason });
                }
                caught_up!(policy.cold_factor(cold_factor))
            }
            Kind::TokenBucket => {
                let mut policy = TokenBucket::new(rate()?, permits(self.capacity, "capacity")?);
                if let Some(initial) = self.initial {
                    policy = policy.initial(initial);
                }
                if self.refill_every.is_some() {
                    policy = policy.refill_every(span(self.refill_every, "refill_every")?);
                }
                caught_up!(policy)
            }
            Kind::Gcra => {
                let burst = needed(self.burst, "burst")?;
                caught_up!(Gcra::new(burst, 1, Duration::from_secs(1)).with_rate(rate()?))
            }
            Kind::LeakyBucket => {
                let capacity = permits(self.capacity, "capacity")?;
                caught_up!(if self.meter == Some(true) {
                    LeakyBucket::meter(rate()?, capacity)
                } else {
                    LeakyBucket::new(rate()?, capacity)
                })
            }
            Kind::FixedWindow => {
                let policy =
                    FixedWindow::new(permits(self.limit, "limit")?, span(self.window, "window")?);
                self.aligned.map_or(policy.clone(), |epoch| policy.aligned(epoch)).into()
            }
            Kind::SlidingWindowLog => {
                let limit = permits(self.limit, "limit")?;
                SlidingWindowLog::new(limit, span(self.window, "window")?).into()
            }
            Kind::SlidingWindowCounter => {
                let (limit, window) = (permits(self.limit, "limit")?, span(self.window, "window")?);
                SlidingWindowCounter::new(limit, window, permits(self.buckets, "buckets")?).into()
            }
            Kind::InFlight => InFlight::new(permits(self.max, "max")?).into(),
            Kind::LockOut => {
                let policy = *needed(self.of, "of")?;
                LockOut::new(policy, needed(self.duration, "duration")?).into()
            }
        })
    }
}
