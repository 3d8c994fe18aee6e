//! The text of a limit, as it is written; [`text`](super::text) reads it.

use std::fmt;

use super::text::{IN_FLIGHT, LOCK_OUT, OPTIONS, UNLIMITED};
use crate::policy::any::{AllOf, AnyPolicy};
use crate::policy::parameters::{Kind, Parameter, Value};
use crate::units::text::{Per, Span};

/// The text that parses back to this policy; see [`FromStr`](#impl-FromStr-for-AnyPolicy).
impl fmt::Display for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight(policy) => return write!(f, "{} {}", policy.max, IN_FLIGHT[0]),
            Self::Unlimited(_) => return f.write_str(UNLIMITED),
            Self::LockOut(policy) => {
                return write!(f, "{} {LOCK_OUT} {}", policy.policy, Span(policy.duration));
            }
            _ => {}
        }
        let kind = match self.kind() {
            Some(Kind::SlidingWindowCounter) => Some(Kind::SlidingWindowLog),
            kind => kind,
        };
        let parameters = self.parameters(false);
        if let Some(Value::Rate(rate)) = parameters.get(Parameter::Rate) {
            write!(f, "{rate}")?;
        }
        if let Some(Value::Number(limit)) = parameters.get(Parameter::Limit) {
            write!(f, "{limit}")?;
        }
        if let Some(Value::Time(window)) = parameters.get(Parameter::Window) {
            write!(f, "/{}", Per(window.as_nanos()))?;
        }
        let is_meter = parameters.get(Parameter::Meter).is_some();
        for option in OPTIONS {
            let is_meant = option.kind.is_none_or(|of| Some(of) == kind)
                && option.meter.is_none_or(|meter| meter == is_meter);
            let Some(value) = parameters.get(option.parameter).filter(|_| is_meant) else {
                continue;
            };
            write!(f, " {}", option.words)?;
            match value {
                _ if option.parameter == Parameter::Window => {}
                Value::Number(number) => write!(f, " {number}")?,
                Value::Time(time) => write!(f, " {}", Span(time))?,
                Value::Factor(factor) => write!(f, " {factor}")?,
                Value::Rate(_) | Value::Flag(_) => {}
            }
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
