//! The text of a limit, as it is written; [`text`](super::text) reads it.

use std::fmt;
use std::time::Duration;

use super::text::{IN_FLIGHT, LOCK_OUT};
use crate::policy::any::{AllOf, AnyPolicy};
use crate::policy::{Policy, TWO_TICKS};
use crate::units::text::{Per, Span};

/// The text that parses back to this policy; see [`FromStr`](#impl-FromStr-for-AnyPolicy).
impl fmt::Display for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = Duration::from_nanos;
        match self {
            Self::SmoothBursty(policy) => {
                write!(f, "{}", policy.rate)?;
                if !policy.max_burst.is_zero() {
                    write!(f, " max burst {}", Span(policy.max_burst))?;
                }
            }
            Self::SmoothWarmingUp(policy) => {
                write!(f, "{} warm up {}", policy.rate, Span(policy.warm_up))?;
                #[allow(clippy::float_cmp)] // it is the default or it is not
                if policy.cold_factor != 3.0 {
                    write!(f, " cold factor {}", policy.cold_factor)?;
                }
            }
            Self::TokenBucket(policy) => {
                write!(f, "{} burst {}", policy.rate, policy.capacity)?;
                if policy.initial != policy.capacity {
                    write!(f, " initial {}", policy.initial)?;
                }
                if policy.period != 0 {
                    write!(f, " refill every {}", Span(nanos(policy.period)))?;
                }
            }
            Self::Gcra(policy) => write!(f, "{} gcra {}", policy.rate, policy.max_burst)?,
            Self::LeakyBucket(policy) => {
                let word = if policy.meter { "meter" } else { "queue" };
                write!(f, "{} {word} {}", policy.rate, policy.capacity)?;
            }
            Self::FixedWindow(policy) => {
                write!(f, "{}/{} fixed window", policy.limit, Per(policy.window.into()))?;
                if let Some(grid) = policy.grid {
                    write!(f, " aligned {}", Span(nanos(grid)))?;
                }
            }
            Self::SlidingWindowLog(policy) => {
                write!(f, "{}/{} sliding window", policy.limit, Per(policy.span.window.into()))?;
            }
            Self::SlidingWindowCounter(policy) => {
                let (limit, span) = (policy.limit, policy.span);
                let buckets = span.window.div_ceil(span.part);
                write!(f, "{limit}/{} sliding window buckets {buckets}", Per(span.window.into()))?;
            }
            Self::InFlight(policy) => return write!(f, "{} {}", policy.max, IN_FLIGHT[0]),
            Self::LockOut(policy) => {
                return write!(f, "{} {LOCK_OUT} {}", policy.policy, Span(policy.duration));
            }
        }
        let kind_has_it = !matches!(
            self,
            Self::FixedWindow(_) | Self::SlidingWindowLog(_) | Self::SlidingWindowCounter(_)
        );
        if kind_has_it && self.catch_up() != TWO_TICKS {
            write!(f, " catch up {}", Span(self.catch_up()))?;
        }
        Ok(())
    }
}

/// The texts of its parts, with commas between them; see [`FromStr`](#impl-FromStr-for-AllOf).
impl fmt::Display for AllOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts().iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{part}")?;
        }
        Ok(())
    }
}
