//! Limits in a file: each is a text.

use std::fmt;

use serde_core::de::{self, Deserialize, Deserializer, Visitor};
use serde_core::ser::{Serialize, Serializer};

use crate::policy::any::{AllOf, AnyPolicy};
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
    AnyPolicy: "a limit such as \"100/min\"",
    AllOf: "limits such as \"10/s, 1000/h\"",
}
