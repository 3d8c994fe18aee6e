//! Limits in a file: each is a text.

use std::collections::BTreeMap;
use std::fmt;

use serde_core::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_core::ser::{Serialize, Serializer};

use super::limits::Limits;
use super::names::Per;
use crate::policy::any::{AllOf, AnyPolicy};
use crate::units::Rate;

/// Reads a text. A fault is found in the visitor, so that the format knows where in the file it is.
fn from_text<'de, D: Deserializer<'de>, T, E: fmt::Display>(
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
    ($($type:ty: $expected:literal by $read:expr,)+) => {$(
        /// As text.
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        /// From text.
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                from_text(deserializer, $expected, $read)
            }
        }
    )+};
}

as_text! {
    Rate: "a rate such as \"100/min\"" by str::parse,
    AnyPolicy: "a limit such as \"100/min\"" by str::parse,
    AllOf: "limits such as \"10/s, 1000/h\"" by str::parse,
}

const PER: [(&str, Per); 3] = [("name", Per::Name), ("host", Per::Host), ("route", Per::Route)];

/// From text.
impl<'de> Deserialize<'de> for Per {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "one of name, host, route", |name| {
            let per = PER.iter().find(|(known, _)| *known == name).map(|(_, per)| *per);
            per.ok_or_else(|| format!("unknown {name:?}: expected one of name, host, route"))
        })
    }
}

const FIELDS: &[&str] = &["per", "default", "limits"];

/// The name of a field.
struct Field(&'static str);

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "the name of a field", |name| {
            let field = FIELDS.iter().find(|field| **field == name).map(|field| Field(field));
            field.ok_or_else(|| -> de::value::Error { de::Error::unknown_field(name, FIELDS) })
        })
    }
}

/// From a table with `per`, `default` and `limits`; see [`Limits`].
impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Table;

        impl<'de> Visitor<'de> for Table {
            type Value = Limits;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table with `default` or `limits`")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Limits, A::Error> {
                let (mut per, mut default, mut named) = (None, None, None);
                while let Some(Field(field)) = map.next_key()? {
                    match field {
                        "per" if per.is_none() => per = Some(map.next_value()?),
                        "default" if default.is_none() => default = Some(map.next_value()?),
                        "limits" if named.is_none() => {
                            named = Some(map.next_value::<BTreeMap<String, AllOf>>()?);
                        }
                        _ => return Err(de::Error::duplicate_field(field)),
                    }
                }
                let named = named.unwrap_or_default();
                if default.is_none() && named.is_empty() {
                    return Err(de::Error::custom("no limit: `default` or `limits` must be there"));
                }
                let mut limits = Limits::new(per.unwrap_or_default());
                limits.default = default;
                // What a name means depends on `per`, which may stand behind it.
                named
                    .into_iter()
                    .try_fold(limits, |limits, (name, limit)| limits.list(name, limit))
                    .map_err(de::Error::custom)
            }
        }

        deserializer.deserialize_map(Table)
    }
}
