//! A limit as a table of fields.

use std::fmt;
use std::time::Duration;

use serde_core::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::limits::Limit;
use crate::clock::Clock;
use crate::policy::any::{AllOf, AnyPolicy};
use crate::policy::parameters::{Kind, Parameter, Parameters, Type, Value};
use crate::units::text::instead_of;

/// Reads a text.
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

/// The one of `all` with this name.
pub(super) fn named<T: Copy>(
    all: &[T],
    names: &'static [&'static str],
    name: &str,
) -> Result<T, de::value::Error> {
    let found = names.iter().position(|other| *other == name);
    found.map(|index| all[index]).ok_or_else(|| de::Error::unknown_variant(name, names))
}

/// A time as text: `"20ms"`, `"1h 30m"`.
struct Time(Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a time such as \"20ms\" or \"15min\"", |text| {
            let mut units = text.split(|character: char| !character.is_alphabetic());
            if let Some(instead) = units.find_map(instead_of) {
                return Err(format!("not a time: {text:?}: {instead}"));
            }
            let time = humantime::parse_duration(text);
            time.map(Self).map_err(|error| format!("not a time: {text:?}: {error}"))
        })
    }
}

/// The time from the epoch to the clock's origin, or `true` for the system clock's.
struct Epoch(Option<Duration>);

impl<'de> Deserialize<'de> for Epoch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrBool;

        impl Visitor<'_> for TextOrBool {
            type Value = Epoch;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a time such as \"20s\"")
            }

            fn visit_bool<E: de::Error>(self, aligned: bool) -> Result<Epoch, E> {
                Ok(Epoch(aligned.then(|| Clock::system().since_epoch())))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Epoch, E> {
                let time = Time::deserialize(de::value::StrDeserializer::new(text))?;
                Ok(Epoch(Some(time.0)))
            }
        }

        deserializer.deserialize_any(TextOrBool)
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "the name of a policy", |name| named(Self::ALL, Self::NAMES, name))
    }
}

/// One of the names of the fields.
pub(super) struct Field(pub(super) &'static str);

/// The names that may stand in a table.
#[derive(Clone, Copy)]
pub(super) struct Names(pub(super) &'static [&'static str]);

impl<'de> de::DeserializeSeed<'de> for Names {
    type Value = Field;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Names {
    type Value = Field;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Field, E> {
        let field = self.0.iter().find(|field| **field == name);
        field.map(|field| Field(field)).ok_or_else(|| E::unknown_field(name, self.0))
    }
}

/// What a table says.
#[derive(Default)]
pub(super) struct Table {
    kind: Option<Kind>,
    parameters: Parameters,
    limits: Option<AllOf>,
    max_waiters: Option<usize>,
    max_queued_permits: Option<u64>,
}

/// All names of fields: of a policy, then of a queue.
pub(super) const NAMES: [&str; NAMES_OF_POLICY + 3] = {
    let mut names = ["policy"; NAMES_OF_POLICY + 3];
    let mut index = 1;
    while index < NAMES_OF_POLICY {
        names[index] = Parameter::NAMES[index - 1];
        index += 1;
    }
    (names[index], names[index + 1], names[index + 2]) =
        ("limits", "max_waiters", "max_queued_permits");
    names
};

pub(super) const NAMES_OF_POLICY: usize = Parameter::NAMES.len() + 1;

/// The value of a parameter. `None` for `false` as a time since the epoch.
fn value<'de, A: MapAccess<'de>>(kind: Type, map: &mut A) -> Result<Option<Value>, A::Error> {
    Ok(Some(match kind {
        Type::Rate => Value::Rate(map.next_value()?),
        Type::Number | Type::Permits => Value::Number(map.next_value()?),
        Type::Time | Type::Span => Value::Time(map.next_value::<Time>()?.0),
        Type::Epoch => return Ok(map.next_value::<Epoch>()?.0.map(Value::Time)),
        Type::Factor => Value::Factor(map.next_value()?),
        Type::Flag => Value::Flag(map.next_value()?),
        Type::Rule => Value::Rule(Box::new(map.next_value()?)),
    }))
}

impl Table {
    /// Reads a table of `names`. The kind may stand behind the fields, because formats sort them.
    pub(super) fn read<'de, A: MapAccess<'de>>(
        names: Names,
        kind: Option<Kind>,
        mut map: A,
    ) -> Result<Self, A::Error> {
        let mut table = Self { kind, ..Self::default() };
        let mut seen = Vec::new();
        while let Some(Field(field)) = map.next_key_seed(names)? {
            if seen.contains(&field) {
                return Err(de::Error::duplicate_field(field));
            }
            seen.push(field);
            match field {
                "policy" => table.kind = Some(map.next_value()?),
                "limits" => table.limits = Some(map.next_value()?),
                "max_waiters" => table.max_waiters = Some(map.next_value()?),
                "max_queued_permits" => table.max_queued_permits = Some(map.next_value()?),
                _ => {
                    let parameter = Parameter::ALL.iter().find(|other| other.name() == field);
                    if let Some(&parameter) = parameter
                        && let Some(value) = value(parameter.kind(), &mut map)?
                    {
                        table.parameters.set(parameter, value);
                    }
                }
            }
        }
        Ok(table)
    }

    pub(super) fn policy<E: de::Error>(self) -> Result<AnyPolicy, E> {
        let Some(kind) = self.kind else {
            let names = Kind::NAMES.join(", ");
            return Err(E::custom(format_args!("missing field `policy`, which is one of {names}")));
        };
        if let Some(field) = self.parameters.given().find(|&parameter| !kind.has(parameter)) {
            let fields: Vec<_> = kind.parameters().map(Parameter::name).collect();
            let (field, name, fields) = (field.name(), kind.name(), fields.join(", "));
            return Err(E::custom(format_args!(
                "unknown field `{field}` for {name}; expected {fields}"
            )));
        }
        kind.checked(&self.parameters).map_err(|flaw| {
            let (field, name) = (flaw.parameter.name(), kind.name());
            E::custom(format_args!("`{field}` of {name} {}", flaw.reason))
        })
    }

    /// The first field of a policy.
    fn given(&self) -> Option<&'static str> {
        let parameter = self.parameters.given().next();
        parameter.map(Parameter::name).or(self.kind.map(|_| "policy"))
    }

    pub(super) fn limit<E: de::Error>(mut self) -> Result<Limit, E> {
        let (max_waiters, max_queued_permits) = (self.max_waiters, self.max_queued_permits);
        let policy = match self.limits.take() {
            None if self.kind.is_none() => {
                return Err(E::custom("missing field `policy` or `limits`"));
            }
            None => AllOf::new([self.policy()?]),
            Some(limits) => match self.given() {
                Some(field) => {
                    return Err(E::custom(format_args!("`{field}` does not go with `limits`")));
                }
                None => limits,
            },
        };
        Ok(Limit { policy, max_waiters, max_queued_permits })
    }
}
