//! Limits in a file: a text, a list of texts, or a table.
//!
//! Written by hand and not derived, because a derived choice of text or table reads the value twice, and loses
//! where in the file it stands.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde_core::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_core::ser::{Serialize, Serializer};

use super::draft::{Draft, Kind};
use super::limits::Limit;
use crate::clock::Clock;
use crate::policy::any::{AllOf, AnyPolicy};
use crate::policy::compose::Same;
use crate::policy::fixed_window::FixedWindow;
use crate::policy::gcra::Gcra;
use crate::policy::in_flight::InFlight;
use crate::policy::leaky_bucket::LeakyBucket;
use crate::policy::lock_out::LockOut;
use crate::policy::sliding_window_counter::SlidingWindowCounter;
use crate::policy::sliding_window_log::SlidingWindowLog;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::policy::smooth_warming_up::SmoothWarmingUp;
use crate::policy::token_bucket::TokenBucket;
use crate::units::Rate;

/// A type that is written as its text.
macro_rules! as_text {
    ($($type:ty),+) => {$(
        /// As text.
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}

as_text!(Rate, AnyPolicy, AllOf);

/// From text: `"100/min"`.
impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Rate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate such as \"100/min\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
                text.parse().map_err(E::custom)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

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
struct Table {
    kind: Option<Kind>,
    draft: Draft,
    limits: Option<AllOf>,
    max_waiters: Option<usize>,
    max_queued_permits: Option<u64>,
}

/// All names of fields, those of a queue after those of a policy.
const NAMES: [&str; NAMES_OF_POLICY + 3] = {
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

const NAMES_OF_POLICY: usize = Draft::FIELDS.len() + 1;

impl Table {
    /// Reads a table of `names`. The kind may stand behind the fields, because formats sort them.
    fn read<'de, A: MapAccess<'de>>(
        names: Names,
        kind: Option<Kind>,
        mut map: A,
    ) -> Result<Self, A::Error> {
        let mut table = Self { kind, ..Self::default() };
        let (mut is_named, draft) = (false, &mut table.draft);
        while let Some(Field(field)) = map.next_key_seed(names)? {
            macro_rules! take {
                ($($place:ident),+) => {
                    match field {
                        $(stringify!($place) if draft.$place.is_none() => {
                            draft.$place = Some(map.next_value()?);
                        })+
                        "policy" if !is_named => {
                            (table.kind, is_named) = (Some(map.next_value()?), true);
                        }
                        "window" if draft.window.is_none() => draft.window = Some(map.next_value::<Time>()?.0),
                        "refill_every" if draft.refill_every.is_none() => {
                            draft.refill_every = Some(map.next_value::<Time>()?.0);
                        }
                        "max_burst" if draft.max_burst.is_none() => {
                            draft.max_burst = Some(map.next_value::<Time>()?.0);
                        }
                        "warm_up" if draft.warm_up.is_none() => draft.warm_up = Some(map.next_value::<Time>()?.0),
                        "duration" if draft.duration.is_none() => draft.duration = Some(map.next_value::<Time>()?.0),
                        "catch_up" if draft.catch_up.is_none() => draft.catch_up = Some(map.next_value::<Time>()?.0),
                        "aligned" if draft.aligned.is_none() => draft.aligned = map.next_value::<Epoch>()?.0,
                        "of" if draft.of.is_none() => draft.of = Some(Box::new(map.next_value()?)),
                        "limits" if table.limits.is_none() => table.limits = Some(map.next_value()?),
                        "max_waiters" if table.max_waiters.is_none() => {
                            table.max_waiters = Some(map.next_value()?);
                        }
                        "max_queued_permits" if table.max_queued_permits.is_none() => {
                            table.max_queued_permits = Some(map.next_value()?);
                        }
                        _ => return Err(de::Error::duplicate_field(field)),
                    }
                };
            }
            take!(rate, limit, capacity, burst, max, initial, cold_factor, meter, buckets);
        }
        Ok(table)
    }

    fn policy<E: de::Error>(self) -> Result<AnyPolicy, E> {
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

    fn limit<E: de::Error>(mut self) -> Result<Limit, E> {
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

/// What a value that may be a text, a list or a table becomes.
trait Written: Sized {
    const EXPECTED: &str;

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E>;

    fn of_list<'de, A: SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(de::Error::invalid_type(Unexpected::Seq, &Self::EXPECTED))
    }

    fn of_table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error>;
}

struct Any<T>(PhantomData<T>);

impl<'de, T: Written> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        T::of_text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::of_list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::of_table(map)
    }
}

fn written<'de, T: Written, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    // A compact format does not say what comes, and holds what `Serialize` writes: a text.
    if deserializer.is_human_readable() {
        deserializer.deserialize_any(Any(PhantomData))
    } else {
        deserializer.deserialize_str(Any(PhantomData))
    }
}

/// The fields of a policy, for the table of one.
fn of_policy() -> Names {
    Names(&NAMES[..NAMES_OF_POLICY])
}

impl Written for AnyPolicy {
    const EXPECTED: &str = "a limit such as \"100/min\", or a table with `policy`";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        text.parse().map_err(E::custom)
    }

    fn of_table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Table::read(of_policy(), None, map)?.policy()
    }
}

impl Written for AllOf {
    const EXPECTED: &str =
        "limits such as \"10/s, 1000/h\", a list of limits, or a table with `policy`";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        text.parse().map_err(E::custom)
    }

    /// Each part is one limit or several itself.
    fn of_list<'de, A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = list.next_element::<Self>()? {
            parts.extend_from_slice(part.parts());
        }
        Self::try_from(parts).map_err(de::Error::custom)
    }

    fn of_table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Ok(Self::new([AnyPolicy::of_table(map)?]))
    }
}

impl Written for Limit {
    const EXPECTED: &str =
        "limits such as \"10/s, 1000/h\", a list of limits, or a table with `limits` or `policy`";

    fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
        text.parse().map_err(E::custom)
    }

    fn of_list<'de, A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        AllOf::of_list(list).map(Self::from)
    }

    fn of_table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        Table::read(Names(&NAMES), None, map)?.limit()
    }
}

macro_rules! from_written {
    ($($type:ty: $doc:literal,)+) => {$(
        #[doc = $doc]
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                written(deserializer)
            }
        }
    )+};
}

from_written! {
    AnyPolicy: "From the text of one limit, or from a table with `policy`; see [`Limits`](crate::Limits).",
    AllOf: "From the text of limits, a list of texts and tables, or a table with `policy`; see [`Limits`](crate::Limits).",
    Limit: "As [`AllOf`], or a table with `limits`; see [`Limits`](crate::Limits).",
}

/// The policies by their own types: as `AnyPolicy`, but of this kind, and `policy` may be left out of a table.
macro_rules! of_kind {
    ($($policy:ident $(<$inner:ident>)? $kind:ident,)+) => {$(
        impl Written for $policy$(<$inner>)? {
            const EXPECTED: &str = AnyPolicy::EXPECTED;

            fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
                Self::of_any(AnyPolicy::of_text(text)?)
            }

            fn of_table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
                Self::of_any(Table::read(of_policy(), Some(Kind::$kind), map)?.policy()?)
            }
        }

        impl $policy$(<$inner>)? {
            fn of_any<E: de::Error>(policy: AnyPolicy) -> Result<Self, E> {
                match policy {
                    AnyPolicy::$policy(policy) => Ok(policy.into_inner()),
                    other => Err(E::custom(format_args!("expected a {}, not \"{other}\"", Kind::$kind.name()))),
                }
            }
        }

        /// As [`AnyPolicy`] of this kind; in a table, `policy` may be left out.
        impl<'de> Deserialize<'de> for $policy$(<$inner>)? {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                written(deserializer)
            }
        }

        /// As the text of an [`AnyPolicy`].
        impl Serialize for $policy$(<$inner>)? {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                AnyPolicy::from(self.clone()).serialize(serializer)
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

of_kind! {
    SmoothBursty SmoothBursty,
    SmoothWarmingUp SmoothWarmingUp,
    TokenBucket TokenBucket,
    Gcra Gcra,
    LeakyBucket LeakyBucket,
    FixedWindow FixedWindow,
    SlidingWindowLog SlidingWindowLog,
    SlidingWindowCounter SlidingWindowCounter,
    InFlight InFlight,
    LockOut<AnyPolicy> LockOut,
}

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
