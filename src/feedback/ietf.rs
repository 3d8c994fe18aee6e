//! The fields of the IETF: draft-ietf-httpapi-ratelimit-headers, from version 8 on `RateLimit` and
//! `RateLimit-Policy` as lists (`"default";r=50;t=30`), in version 7 `RateLimit` as a dictionary (`limit=100, remaining=50`).
//! Versions up to 6 have plain fields (`RateLimit-Limit`, `-Remaining`, `-Reset`), which are a
//! [`Dialect`](super::Dialect).

use std::borrow::Cow;
use std::time::Duration;

use super::answer::{Meter, Unit};
use super::quota::Reader;
use super::text::{When, whole};

/// Splits what is not in quotes.
fn split(text: &str, at: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let parts = text.split(move |c| {
        is_quoted ^= c == '"';
        c == at && !is_quoted
    });
    parts.map(str::trim)
}

/// An item of a list: a policy, or what remains of one.
struct Item<'a> {
    name: &'a str,
    /// `None`: bytes and places in flight are not counted.
    unit: Option<Unit>,
    number: u64,
    time: Option<Duration>,
    /// Such as a user or an application, in Base64.
    partition: Option<&'a str>,
}

impl<'a> Item<'a> {
    fn list(text: &'a str, numbers: &[&str], times: &[&str]) -> Vec<Option<Self>> {
        split(text, ',').map(|item| Self::parse(item, numbers, times)).collect()
    }

    /// By the names that its number and its time have in different versions. `None`: it is malformed.
    fn parse(text: &'a str, numbers: &[&str], times: &[&str]) -> Option<Self> {
        let mut parts = split(text, ';');
        let name = match parts.next()? {
            name if name.starts_with(|c: char| c.is_ascii_alphabetic()) => name,
            name => name.strip_prefix('"')?.strip_suffix('"')?,
        };
        let parameters: Vec<_> = parts.filter_map(|text| text.split_once('=')).collect();
        let get = |names: &[&str]| {
            let of = |name: &&str| parameters.iter().find(|(other, _)| other == name);
            names.iter().find_map(of).map(|(_, value)| *value)
        };
        let time = match get(times) {
            Some(text) => Some(Duration::from_secs(whole(text)?)),
            None => None,
        };
        Some(Self {
            name,
            unit: match get(&["qu"]).map(|unit| unit.trim_matches('"')) {
                None | Some("request" | "requests") => Some(Unit::Requests),
                Some("token" | "tokens") => Some(Unit::Tokens),
                Some(_) => None,
            },
            number: whole(get(numbers)?)?,
            time,
            partition: get(&["pk"]).map(|key| key.trim_matches(':')),
        })
    }
}

/// Reads both fields. All quotas hold for the same request, so their names are no buckets: those are the partitions. A
/// server may send the closest quota only.
pub(super) fn read(reader: &mut Reader<'_>, limits: &str, policies: &str) {
    let Some(mut limits) = reader.get(limits).map(Cow::from) else { return };
    let mut policies = reader.get(policies).map(Cow::from);
    let first = limits.split(';').next().unwrap_or_default();
    if first.contains('=') && !first.starts_with('"') {
        // Version 7 has one quota, as a dictionary: `limit=100, remaining=50, reset=30`.
        limits = Cow::from(format!("one;{}", limits.replace(',', ";")));
        policies = Some(limits.clone());
    }
    let policies = policies.as_deref().map(|text| Item::list(text, &["q", "limit"], &["w"]));
    let policies = policies.unwrap_or_default();
    // `a` and `w` are the names of a change to the draft.
    let limits = Item::list(&limits, &["r", "a", "remaining"], &["t", "reset", "w"]);
    let all = policies.iter().chain(&limits);
    reader.answer.malformed += all.map(|item| u32::from(item.is_none())).sum::<u32>();
    let mut partitions = Vec::new();
    for item in limits.into_iter().flatten() {
        let policy = policies.iter().flatten().find(|policy| policy.name == item.name);
        let Some(unit) = policy.map_or(Some(Unit::Requests), |policy| policy.unit) else {
            continue;
        };
        let meter = Meter {
            limit: policy.map(|policy| policy.number),
            remaining: Some(item.number),
            reset: item.time.map(When::After),
            is_continuous: false,
        };
        reader.answer.meters.push((unit, meter));
        partitions.extend(item.partition);
    }
    let counted = policies.iter().flatten().filter(|policy| policy.unit.is_some());
    partitions.extend(counted.filter_map(|policy| policy.partition));
    partitions.sort();
    partitions.dedup();
    if !partitions.is_empty() {
        reader.answer.bucket.get_or_insert(partitions.join(","));
    }
}
