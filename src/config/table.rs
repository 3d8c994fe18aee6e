//! A limit as a table of fields.

use std::fmt;
use std::time::Duration;

use serde_core::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

use super::draft::{Draft, Kind};
use super::limits::Limit;
use crate::clock::Clock;
use crate::policy::any::{AllOf, AnyPolicy};

/// A time as text: `"20ms"`, `"1h 30m"`.
struct Time(Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as \"20ms\" or \"15min\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                let time = humantime::parse_duration(text);
                time.map(Time)
                    .map_err(|error| E::custom(format_args!("not a time: {text:?}: {error}")))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// The time from the epoch to the clock's origin, or `true` for that of the system clock.
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
        struct Name;

        impl Visitor<'_> for Name {
            type Value = Kind;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a policy")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Kind, E> {
                let kind = Kind::ALL.iter().find(|kind| kind.name() == name);
                kind.copied().ok_or_else(|| E::unknown_variant(name, Kind::NAMES))
            }
        }

        deserializer.deserialize_str(Name)
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
    draft: Draft,
    limits: Option<AllOf>,
    max_waiters: Option<usize>,
    max_queued_permits: Option<u64>,
}

/// All names of fields, those of a queue after those of a policy.
pub(super) const NAMES: [&str; NAMES_OF_POLICY + 3] = {
    let mut names = ["policy"; NAMES_OF_POLICY + 3];
    let mut index = 1;
    while index < NAMES_OF_POLICY {
        names[index] = Draft::FIELDS[index - 1];
        index += 1;
    }
    (names[index], names[index + 1], names[index + 2]) =
        ("limits", "max_waiters", "max_queued_permits");
    names
};

pub(super) const NAMES_OF_POLICY: usize = Draft::FIELDS.len() + 1;

impl Table {
    /// Reads a table of `names`. The kind may stand behind the fields, because formats sort them.
    pub(super) fn read<'de, A: MapAccess<'de>>(
        names: Names,
        kind: Option<Kind>,
        mut map: A,
    ) -> Result<Self, A::Error> {
        let mut table = Self { kind, ..Self::default() };
        let (mut is_named, draft) = (false, &mut table.draft);
        while let Some(Field(field)) = map.next_key_seed(names)? {
            // A field that is there twice falls through to the last arm.
            macro_rules! take {
                (plain: $($plain:ident),+; times: $($time:ident),+; of the queue: $($queue:ident),+) => {
                    match field {
                        "policy" if !is_named => {
                            (table.kind, is_named) = (Some(map.next_value()?), true);
                        }
                        "of" if draft.of.is_none() => draft.of = Some(Box::new(map.next_value()?)),
                        "aligned" if draft.aligned.is_none() => {
                            draft.aligned = map.next_value::<Epoch>()?.0;
                        }
                        $(stringify!($plain) if draft.$plain.is_none() => {
                            draft.$plain = Some(map.next_value()?);
                        })+
                        $(stringify!($time) if draft.$time.is_none() => {
                            draft.$time = Some(map.next_value::<Time>()?.0);
                        })+
                        $(stringify!($queue) if table.$queue.is_none() => {
                            table.$queue = Some(map.next_value()?);
                        })+
                        _ => return Err(de::Error::duplicate_field(field)),
                    }
                };
            }
            take!(
                plain: rate, limit, capacity, burst, max, initial, cold_factor, meter, buckets;
                times: window, refill_every, max_burst, warm_up, duration, catch_up;
                of the queue: limits, max_waiters, max_queued_permits
            );
        }
        Ok(table)
    }

    pub(super) fn policy<E: de::Error>(self) -> Result<AnyPolicy, E> {
        let Some(kind) = self.kind else {
            let names = Kind::NAMES.join(", ");
            return Err(E::custom(format_args!("missing field `policy`, which is one of {names}")));
        };
        if let Some(field) = self.draft.given().find(|field| !kind.has(field)) {
            let fields: Vec<_> = kind.needs().iter().chain(kind.may_have()).copied().collect();
            let (name, fields) = (kind.name(), fields.join(", "));
            return Err(E::custom(format_args!(
                "`{field}` is no field of {name}, which has {fields}"
            )));
        }
        let policy = self.draft.policy(kind);
        policy.map_err(|flaw| {
            E::custom(format_args!("`{}` of {} {}", flaw.field, kind.name(), flaw.reason))
        })
    }

    pub(super) fn limit<E: de::Error>(mut self) -> Result<Limit, E> {
        let (max_waiters, max_queued_permits) = (self.max_waiters, self.max_queued_permits);
        let policy = match self.limits.take() {
            None if self.kind.is_none() => {
                return Err(E::custom("missing field `policy` or `limits`"));
            }
            None => AllOf::new([self.policy()?]),
            Some(limits) => match self.draft.given().next().or(self.kind.map(|_| "policy")) {
                Some(field) => {
                    return Err(E::custom(format_args!("`{field}` does not go with `limits`")));
                }
                None => limits,
            },
        };
        Ok(Limit { policy, max_waiters, max_queued_permits })
    }
}
