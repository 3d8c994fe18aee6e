//! Limits in a file: each is a text.

use std::error::Error;
use std::fmt;

use serde_core::de::{self, Deserialize, Deserializer, Visitor};
use serde_core::ser::{Serialize, Serializer};

use crate::part::each_rule;
use crate::policy::any::{AllOf, AnyPolicy};
use crate::policy::parameters::Kind;
use crate::policy::parts::Same;
use crate::units::Rate;

/// Reads a text. A fault is found in the visitor, so that the format knows where in the file it is.
pub(super) fn from_text<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    deserializer: D,
    expected: &'static str,
    read: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    struct Text<F>(&'static str, F);

    impl<T, E: fmt::Display, F: FnOnce(&str) -> Result<T, E>> Visitor<'_> for Text<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<Fault: de::Error>(self, text: &str) -> Result<T, Fault> {
            (self.1)(text).map_err(Fault::custom)
        }
    }

    deserializer.deserialize_str(Text(expected, read))
}

const ONE_LIMIT: &str = "a limit such as \"100/min\"";

macro_rules! as_text {
    ($($type:ty: $expected:expr,)+) => {$(
        /// As text.
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        /// From text.
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer, $expected, str::parse)
            }
        }
    )+};
}

as_text! {
    Rate: "a rate such as \"100/min\"",
    AnyPolicy: ONE_LIMIT,
    AllOf: "limits such as \"10/s, 1000/h\"",
}

/// The policies by their own types.
macro_rules! of_kind {
    ($($policy:ident $(<$inner:ident>)?),+) => {$(
        /// As the text of an [`AnyPolicy`].
        impl Serialize for crate::$policy$(<$inner>)? {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                AnyPolicy::from(self.clone()).serialize(serializer)
            }
        }

        /// From the text of an [`AnyPolicy`] of this kind.
        impl<'de> Deserialize<'de> for crate::$policy$(<$inner>)? {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer, ONE_LIMIT, |text| -> Result<Self, Box<dyn Error>> {
                    match text.parse()? {
                        AnyPolicy::$policy(policy) => Ok(policy.into_inner()),
                        other => Err(format!("expected a {}, not \"{other}\"", Kind::$policy.name()).into()),
                    }
                })
            }
        }
    )+};
}

/// Out of the variant of an `AnyPolicy`.
trait IntoInner<T> {
    fn into_inner(self) -> T;
}

impl<T> IntoInner<T> for T {
    fn into_inner(self) -> T {
        self
    }
}

impl<T> IntoInner<T> for Box<T> {
    fn into_inner(self) -> T {
        *self
    }
}

each_rule!(of_kind);
of_kind!(LockOut<AnyPolicy>);

/// As the policy inside.
impl<P: Serialize> Serialize for Same<P> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// As the policy inside.
impl<'de, P: Deserialize<'de>> Deserialize<'de> for Same<P> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        P::deserialize(deserializer).map(Self)
    }
}
