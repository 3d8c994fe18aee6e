//! Limits in a file: a text, a list of texts, or a table.
//!
//! Written by hand and not derived, because a derived choice of text or table reads the value twice, and loses
//! where in the file it stands.

use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Unexpected, Visitor};
use serde_core::ser::{Serialize, Serializer};

use super::limits::Limit;
use super::table::{NAMES, NAMES_OF_POLICY, Names, Table, from_text};
use crate::policy::any::{AllOf, AnyPolicy, each_rule};
use crate::policy::parameters::Kind;
use crate::policy::parts::Same;
use crate::units::Rate;
use crate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, SmoothWarmingUp, TokenBucket, Unlimited,
};

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
        from_text(deserializer, "a rate such as \"100/min\"", str::parse)
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
    ($($policy:ident $(<$inner:ident>)?),+) => {$(
        impl Written for $policy$(<$inner>)? {
            const EXPECTED: &str = AnyPolicy::EXPECTED;

            fn of_text<E: de::Error>(text: &str) -> Result<Self, E> {
                Self::of_any(AnyPolicy::of_text(text)?)
            }

            fn of_table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
                Self::of_any(Table::read(of_policy(), Some(Kind::$policy), map)?.policy()?)
            }
        }

        impl $policy$(<$inner>)? {
            fn of_any<E: de::Error>(policy: AnyPolicy) -> Result<Self, E> {
                match policy {
                    AnyPolicy::$policy(policy) => Ok(policy.into_inner()),
                    other => Err(E::custom(format_args!("expected a {}, not \"{other}\"", Kind::$policy.name()))),
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
