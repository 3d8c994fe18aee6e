//! The parameters of each rule, by name: what a limit as text says, and what a script is given.
//!
//! A rule is taken apart by [`AnyPolicy::parameters`] and put together by [`Kind::make`]. Between the two,
//! [`Kind::checked`] finds what a constructor would panic at. A [`LockOut`](crate::LockOut) has none: it is a word around
//! another rule.

use std::time::Duration;

use super::Policy;
use super::any::AnyPolicy;
use super::prelude::TWO_TICKS;
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
    /// The time from the epoch to the origin of the clock, for windows on a grid.
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

/// The value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value {
    Rate(Rate),
    Number(u32),
    Time(Duration),
    Epoch(Option<Duration>),
    Factor(f64),
    Flag(bool),
}

/// Parameters with values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters(Vec<(Parameter, Value)>);

impl Parameters {
    pub(crate) fn set(&mut self, parameter: Parameter, value: Value) {
        self.0.retain(|(other, _)| *other != parameter);
        self.0.push((parameter, value));
    }

    pub(crate) fn get(&self, parameter: Parameter) -> Option<Value> {
        self.0.iter().find(|(other, _)| *other == parameter).map(|&(_, value)| value)
    }
}

/// What is wrong with a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Flaw {
    pub(crate) parameter: Parameter,
    pub(crate) reason: &'static str,
}

/// The rules: the parameters that a rule needs, each with its type of [`Value`], and those that it may have, with
/// what they are otherwise; then how it is made of them. A script takes its parameters in this order, without `catch_up`.
macro_rules! rules {
    ($(
        $kind:ident of $it:ident:
        $($need:ident($needed_type:ident) $needed:ident = $get:expr),*;
        $($may:ident($type:ident) $optional:ident = $value:expr, or $otherwise:expr;)*
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
                        $(let Value::$needed_type($needed) = given.get(Parameter::$need)? else {
                            return None;
                        };)*
                        $(let $optional = match given.get(Parameter::$may) {
                            Some(Value::$type(value)) => value,
                            _ => $otherwise,
                        };)*
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
                        parameters.set(Parameter::$need, Value::$needed_type($needed));)*
                        $(let $optional = Value::$type($value);
                        if all || $optional != Value::$type($otherwise) {
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
        Rate(Rate) rate = it.rate;
        MaxBurst(Time) max_burst = it.max_burst, or Duration::ZERO;
        CatchUp(Time) catch_up = it.catch_up, or TWO_TICKS;
        => SmoothBursty::new(rate).max_burst(max_burst).with_catch_up(catch_up);
    SmoothWarmingUp of it:
        Rate(Rate) rate = it.rate, WarmUp(Time) warm_up = it.warm_up;
        ColdFactor(Factor) factor = it.cold_factor, or 3.0;
        CatchUp(Time) catch_up = it.catch_up, or TWO_TICKS;
        => SmoothWarmingUp::new(rate, warm_up).cold_factor(factor).with_catch_up(catch_up);
    TokenBucket of it:
        Rate(Rate) rate = it.rate, Capacity(Number) capacity = it.capacity;
        Initial(Number) initial = it.initial, or capacity;
        RefillEvery(Time) period = nanos(it.schedule.period), or Duration::ZERO;
        CatchUp(Time) catch_up = it.catch_up, or TWO_TICKS;
        => {
            let bucket = TokenBucket::new(rate, capacity).initial(initial).with_catch_up(catch_up);
            if period.is_zero() { bucket } else { bucket.refill_every(period) }
        };
    Gcra of it:
        Rate(Rate) rate = it.rate, Burst(Number) burst = it.max_burst;
        CatchUp(Time) catch_up = it.catch_up, or TWO_TICKS;
        => Gcra::of(rate, burst).with_catch_up(catch_up);
    LeakyBucket of it:
        Rate(Rate) rate = it.rate, Capacity(Number) capacity = it.capacity;
        Meter(Flag) meter = it.meter, or false;
        CatchUp(Time) catch_up = it.catch_up, or TWO_TICKS;
        => {
            let new = if meter { LeakyBucket::meter } else { LeakyBucket::new };
            new(rate, capacity).with_catch_up(catch_up)
        };
    FixedWindow of it:
        Limit(Number) limit = it.limit, Window(Time) window = nanos(it.window);
        Aligned(Epoch) grid = it.grid.map(nanos), or None;
        => {
            let fixed = FixedWindow::new(limit, window);
            if let Some(epoch) = grid { fixed.aligned(epoch) } else { fixed }
        };
    SlidingWindowLog of it:
        Limit(Number) limit = it.limit, Window(Time) window = nanos(it.span.window);
        => SlidingWindowLog::new(limit, window);
    SlidingWindowCounter of it:
        Limit(Number) limit = it.limit, Window(Time) window = nanos(it.span.window), Buckets(Number) buckets = it.buckets();
        => SlidingWindowCounter::new(limit, window, buckets);
    InFlight of it:
        Max(Number) max = it.max;
        => InFlight::new(max);
    Unlimited of _it:
        ;
        => Unlimited;
}

/// The words of an option, the kind of policy that it makes of the limit, and the parameter whose value follows the words.
pub(crate) type Words = (&'static str, Option<Kind>, Parameter);

pub(crate) const OPTIONS: &[Words] = &[
    ("burst", Some(Kind::TokenBucket), Parameter::Capacity),
    ("initial", None, Parameter::Initial),
    ("refill every", None, Parameter::RefillEvery),
    ("fixed window", Some(Kind::FixedWindow), Parameter::Window),
    ("aligned", None, Parameter::Aligned),
    // Without buckets it is a log.
    ("sliding window", Some(Kind::SlidingWindowCounter), Parameter::Window),
    ("buckets", None, Parameter::Buckets),
    ("max burst", Some(Kind::SmoothBursty), Parameter::MaxBurst),
    ("warm up", Some(Kind::SmoothWarmingUp), Parameter::WarmUp),
    ("cold factor", None, Parameter::ColdFactor),
    ("gcra", Some(Kind::Gcra), Parameter::Burst),
    (QUEUE, Some(Kind::LeakyBucket), Parameter::Capacity),
    (METER, Some(Kind::LeakyBucket), Parameter::Capacity),
    ("catch up", None, Parameter::CatchUp),
    (LOCK_OUT, None, Parameter::Duration),
];

/// The two kinds of a leaky bucket.
pub(crate) const QUEUE: &str = "queue";
pub(crate) const METER: &str = "meter";

pub(crate) const LOCK_OUT: &str = "lock out";

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
