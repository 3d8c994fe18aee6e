//! Limits in a file: each is a text.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error as _, Visitor};
use serde::ser::{Serialize, Serializer};

use super::limits::Limits;
use super::names::Per;
use crate::policy::any::{AllOf, AnyPolicy};
use crate::policy::unlimited::Unlimited;
use crate::units::Rate;

/// Reads a text. A fault is found in the visitor, so that the format knows where in the file it is.
struct Text<T>(&'static str, PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

macro_rules! as_text {
    ($($type:ty: $expected:literal,)+) => {$(
        /// As text.
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        /// From text.
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Text($expected, PhantomData))
            }
        }
    )+};
}

as_text! {
    Rate: "a rate such as \"100/min\"",
    AnyPolicy: "a limit such as \"100/min\"",
    AllOf: "limits such as \"10/s, 1000/h\"",
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table with `default` or `limits`")]
struct File {
    #[serde(default)]
    per: Per,
    default: Option<AllOf>,
    #[serde(default)]
    limits: BTreeMap<String, AllOf>,
}

/// From a table with `per`, `default` and `limits`; see [`Limits`].
impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let File { per, default, limits } = File::deserialize(deserializer)?;
        if default.is_none() && limits.is_empty() {
            return Err(D::Error::custom("no limit: `default` or `limits` must be there"));
        }
        let default = default.unwrap_or_else(|| AnyPolicy::from(Unlimited).into());
        // What a name means depends on `per`, which may stand behind it.
        let listed = limits
            .into_iter()
            .try_fold(Self::new(per, default), |all, (name, limit)| all.list(name, limit));
        listed.map_err(D::Error::custom)
    }
}
