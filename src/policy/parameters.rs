//! The parameters of each rule, by name: what a limit as text says, and what a script is given.
//!
//! A rule is taken apart by [`AnyPolicy::parameters`] and put together by [`Kind::make`]. Between the two,
//! [`Kind::checked`] finds what a constructor would panic at. A [`LockOut`](crate::LockOut) has none: it is a word around
//! another rule.

use std::time::Duration;

use super::any::AnyPolicy;
use super::{Policy, TWO_TICKS};
pub(crate) use crate::part::Kind;
use crate::units::{Nanos, Rate};
use crate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, SmoothBursty,
    SmoothWarmingUp, TokenBucket, Unlimited,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    Rate,
    Limit,
    Window,
    Capacity,
    Burst,
    Max,
    Initial,
    RefillEvery,
    MaxBurst,
    WarmUp,
    ColdFactor,
    Meter,
    Buckets,
    Aligned,
    Duration,
    CatchUp,
}

/// What a parameter may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Rate,
    Number,
    /// A number of permits. A rule of none grants nothing, which is a mistake in a text.
    Permits,
    Time,
    /// A time that a constructor accepts: not zero, nor beyond the horizon.
    Span,
    /// A time since the epoch, or `false` for none.
    Epoch,
    Factor,
    Flag,
}

impl Parameter {
    pub(crate) fn kind(self) -> Type {
        match self {
            Self::Rate => Type::Rate,
            Self::Burst | Self::Initial => Type::Number,
            Self::Limit | Self::Capacity | Self::Max | Self::Buckets => Type::Permits,
            Self::MaxBurst | Self::Duration | Self::CatchUp => Type::Time,
            Self::Window | Self::RefillEvery | Self::WarmUp => Type::Span,
            Self::Aligned => Type::Epoch,
            Self::ColdFactor => Type::Factor,
            Self::Meter => Type::Flag,
        }
    }
}

macro_rules! values {
    ($($variant:ident($type:ty),)+) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub(crate) enum Value {
            $($variant($type),)+
        }

        $(
            impl From<$type> for Value {
                fn from(value: $type) -> Self {
                    Self::$variant(value)
                }
            }

            impl TryFrom<Value> for $type {
                type Error = Value;

                fn try_from(value: Value) -> Result<Self, Value> {
                    match value {
                        Value::$variant(value) => Ok(value),
                        other => Err(other),
                    }
                }
            }
        )+
    };
}

values! {
    Rate(Rate),
    Number(u32),
    Time(Duration),
    Factor(f64),
    Flag(bool),
}

/// Parameters with values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(Vec<(Parameter, Value)>);

impl Parameters {
    pub(crate) fn set(&mut self, parameter: Parameter, value: impl Into<Value>) {
        self.0.retain(|(other, _)| *other != parameter);
        self.0.push((parameter, value.into()));
    }

    pub(crate) fn get(&self, parameter: Parameter) -> Option<Value> {
        self.0.iter().find(|(other, _)| *other == parameter).map(|&(_, value)| value)
    }

    /// `None` if it is not set.
    fn value<T: TryFrom<Value>>(&self, parameter: Parameter) -> Option<T> {
        T::try_from(self.get(parameter)?).ok()
    }
}

/// What is wrong with a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Flaw {
    pub(crate) parameter: Parameter,
    pub(crate) reason: &'static str,
}

/// The rules: the parameters that a rule needs, and those that it may have, with what they
/// are otherwise; then how it is made of them. A script takes its parameters in this order, without `catch_up`.
macro_rules! rules {
    ($(
        $kind:ident of $it:ident:
        $($need:ident $needed:ident = $get:expr),*;
        $($may:ident $optional:ident = $value:expr, or $otherwise:expr;)*
        => $make:expr;
    )+) => {
        impl Kind {
            /// All that it needs, and all that it may have.
            fn lists(self) -> [&'static [Parameter]; 2] {
                match self {
                    $(Self::$kind => [&[$(Parameter::$need),*], &[$(Parameter::$may),*]],)+
                    Self::LockOut | Self::Server => [&[], &[]],
                }
            }

            /// The rule. Parameters that it does not have are not looked at. `None` if one is missing.
            pub(crate) fn make(self, given: &Parameters) -> Option<AnyPolicy> {
                Some(match self {
                    $(Self::$kind => {
                        $(let $needed = given.value(Parameter::$need)?;)*
                        $(let $optional = given.value(Parameter::$may).unwrap_or($otherwise);)*
                        $make.into()
                    })+
                    Self::LockOut | Self::Server => return None,
                })
            }
        }

        impl AnyPolicy {
            /// All parameters, or only those that are not as they would be otherwise.
            pub(crate) fn parameters(&self, all: bool) -> Parameters {
                let mut parameters = Parameters::default();
                match self {
                    $(Self::$kind($it) => {
                        $(let $needed = $get;
                        parameters.set(Parameter::$need, $needed);)*
                        $(let ($optional, otherwise) = (Value::from($value), Value::from($otherwise));
                        if all || $optional != otherwise {
                            parameters.set(Parameter::$may, $optional);
                        })*
                    })+
                    Self::LockOut(_) => {}
                }
                parameters
            }
        }
    };
}

rules! {
    SmoothBursty of it:
        Rate rate = it.rate;
        MaxBurst max_burst = it.max_burst, or Duration::ZERO;
        CatchUp catch_up = it.catch_up, or TWO_TICKS;
        => SmoothBursty::new(rate).max_burst(max_burst).with_catch_up(catch_up);
    SmoothWarmingUp of it:
        Rate rate = it.rate, WarmUp warm_up = it.warm_up;
        ColdFactor factor = it.cold_factor, or 3.0;
        CatchUp catch_up = it.catch_up, or TWO_TICKS;
        => SmoothWarmingUp::new(rate, warm_up).cold_factor(factor).with_catch_up(catch_up);
    TokenBucket of it:
        Rate rate = it.rate, Capacity capacity = it.capacity;
        Initial initial = it.initial, or capacity;
        RefillEvery period = it.period(), or Duration::ZERO;
        CatchUp catch_up = it.catch_up, or TWO_TICKS;
        => {
            let bucket = TokenBucket::new(rate, capacity).initial(initial).with_catch_up(catch_up);
            if period.is_zero() { bucket } else { bucket.refill_every(period) }
        };
    Gcra of it:
        Rate rate = it.rate, Burst burst = it.max_burst;
        CatchUp catch_up = it.catch_up, or TWO_TICKS;
        => Gcra::of(rate, burst).with_catch_up(catch_up);
    LeakyBucket of it:
        Rate rate = it.rate, Capacity capacity = it.capacity;
        Meter meter = it.meter, or false;
        CatchUp catch_up = it.catch_up, or TWO_TICKS;
        => {
            let new = if meter { LeakyBucket::meter } else { LeakyBucket::new };
            new(rate, capacity).with_catch_up(catch_up)
        };
    FixedWindow of it:
        Limit limit = it.limit, Window window = nanos(it.window);
        Aligned grid = it.grid.map_or(NO_GRID, |grid| nanos(grid).into()), or NO_GRID;
        => match grid {
            Value::Time(epoch) => FixedWindow::new(limit, window).aligned(epoch),
            _ => FixedWindow::new(limit, window),
        };
    SlidingWindowLog of it:
        Limit limit = it.limit, Window window = nanos(it.span.window);
        => SlidingWindowLog::new(limit, window);
    SlidingWindowCounter of it:
        Limit limit = it.limit, Window window = nanos(it.span.window), Buckets buckets = it.buckets();
        => SlidingWindowCounter::new(limit, window, buckets);
    InFlight of it:
        Max max = it.max;
        => InFlight::new(max);
    Unlimited of _it:
        ;
        => Unlimited;
}

const NO_GRID: Value = Value::Flag(false);

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

impl AnyPolicy {
    pub(crate) fn kind(&self) -> Option<Kind> {
        self.facts(0).kind
    }
}

impl Kind {
    #[cfg(feature = "redis")]
    pub(crate) fn needs(self, parameter: Parameter) -> bool {
        self.lists()[0].contains(&parameter)
    }

    pub(crate) fn parameters(self) -> impl Iterator<Item = Parameter> {
        self.lists().into_iter().flatten().copied()
    }

    pub(crate) fn has(self, parameter: Parameter) -> bool {
        self.parameters().any(|other| other == parameter)
    }

    /// The rule that a text describes, and not one that grants nothing.
    pub(crate) fn checked(self, given: &Parameters) -> Result<AnyPolicy, Flaw> {
        for parameter in self.parameters() {
            let reason = match (given.get(parameter), parameter.kind()) {
                (Some(Value::Number(0)), Type::Permits) => "must not be zero",
                (Some(Value::Time(Duration::ZERO)), Type::Span) => "must not be zero",
                (Some(Value::Time(span)), Type::Span) if span > Nanos::HORIZON => {
                    "must not exceed 146 years"
                }
                (Some(Value::Factor(factor)), _) if !(1.0..=1e9).contains(&factor) => {
                    "must be from 1 to 1e9"
                }
                _ => continue,
            };
            return Err(Flaw { parameter, reason });
        }
        let missing = || Flaw { parameter: self.lists()[0][0], reason: "is missing" };
        self.make(given).ok_or_else(missing)
    }
}
