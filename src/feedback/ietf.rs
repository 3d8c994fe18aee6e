//! The fields of the IETF: draft-ietf-httpapi-ratelimit-headers, from version 8 on `RateLimit` and
//! `RateLimit-Policy` as lists (`"default";r=50;t=30`), in version 7 `RateLimit` as a dictionary (`limit=100, remaining=50`).
//! Versions up to 6 have plain fields (`RateLimit-Limit`, `-Remaining`, `-Reset`), which are a
//! [`Dialect`](super::Dialect).

use std::time::Duration;

use super::answer::{Answer, Meter, Unit};
use super::quota::Fields;
use super::text::{When, base64, whole};

/// Splits what is not in quotes.
fn split(text: &str, at: char) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let parts = text.split(move |c| {
        is_quoted ^= c == '"';
        c == at && !is_quoted
    });
    parts.map(str::trim)
}

/// An item of a list: a string or a token, and its parameters.
struct Item<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Item<'a> {
    fn new(name: &'a str, parameters: impl Iterator<Item = &'a str>) -> Self {
        let each = parameters.map(|text| text.split_once('=').unwrap_or((text, "")));
        Self { name, parameters: each.collect() }
    }

    /// `None`: it has no name.
    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = split(text, ';');
        let name = parts.next()?;
        let name = match name.strip_prefix('"') {
            Some(name) => name.strip_suffix('"')?,
            None => {
                Some(name).filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))?
            }
        };
        Some(Self::new(name, parts))
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
    }

    /// The first of these parameters that is there. Outer: it is no number. Inner: whether it is there.
    fn number(&self, names: &[&str]) -> Option<Option<u64>> {
        let text = names.iter().find_map(|name| self.get(name));
        text.map_or(Some(None), |text| whole(text).map(Some))
    }

    fn seconds(&self, names: &[&str]) -> Option<Option<Duration>> {
        Some(self.number(names)?.map(Duration::from_secs))
    }

    /// Bytes and places in flight are not counted.
    fn unit(&self) -> Option<Unit> {
        match self.get("qu").map(|unit| unit.trim_matches('"')) {
            None | Some("request" | "requests") => Some(Unit::Requests),
            Some("token" | "tokens") => Some(Unit::Tokens),
            Some(_) => None,
        }
    }

    /// The partition of a quota, such as a user or an application.
    fn partition(&self) -> Option<String> {
        let key = self.get("pk")?.strip_prefix(':')?.strip_suffix(':')?;
        Some(base64(key)?.escape_ascii().to_string())
    }

    fn meter(&self, policy: Option<&Self>) -> Option<Meter> {
        let of_policy = |item: &Self| Some((item.number(&["q"])?, item.seconds(&["w"])?));
        let (limit, window) = policy.and_then(of_policy).unwrap_or_default();
        // `a` and `w` are the names of a change to the draft, the last ones those of version 7.
        Some(Meter {
            limit: self.number(&["limit"])?.or(limit),
            window,
            remaining: Some(self.number(&["r", "a", "remaining"])??),
            reset: self.seconds(&["t", "w", "reset"])?.map(When::After),
            is_continuous: false,
        })
    }
}

/// Reads both fields. All quotas hold for the same request, so their names are no buckets: those are the partitions of
/// the policies, or of the quotas if these have none. A server may send the closest quota only.
pub(super) fn read(fields: &Fields<'_>, limits: &str, policies: &str, answer: &mut Answer) {
    let Some(limits) = fields.get(limits) else { return };
    let first = limits.split(';').next().unwrap_or_default();
    // Version 7 has one quota.
    if first.contains('=') && !first.starts_with('"') {
        let members = limits.split(',').map(|member| member.split(';').next().unwrap_or_default());
        let item = Item::new("", members.map(str::trim));
        match item.meter(None) {
            Some(meter) => answer.meters.push((Unit::Requests, meter)),
            None => answer.malformed += 1,
        }
        return;
    }
    let policies = fields.get(policies);
    let policies = policies.iter().flat_map(|text| split(text, ',')).filter_map(|text| {
        let policy = Item::parse(text).filter(|item| {
            matches!(item.number(&["q"]), Some(Some(_))) && item.number(&["w"]).is_some()
        });
        answer.malformed += u32::from(policy.is_none());
        policy
    });
    let policies: Vec<_> = policies.collect();
    let counted = policies.iter().filter(|policy| policy.unit().is_some());
    let mut partitions: Vec<_> = counted.filter_map(Item::partition).collect();
    let is_of_policies = !partitions.is_empty();
    for text in split(&limits, ',') {
        let item = Item::parse(text);
        let read = item.and_then(|item| {
            let policy = policies.iter().find(|policy| policy.name == item.name);
            Some((policy.map_or(Some(Unit::Requests), Item::unit), item.meter(policy)?, item))
        });
        match read {
            Some((Some(unit), meter, item)) => {
                answer.meters.push((unit, meter));
                partitions.extend(item.partition().filter(|_| !is_of_policies));
            }
            Some((None, ..)) => {}
            None => answer.malformed += 1,
        }
    }
    partitions.dedup();
    if !partitions.is_empty() {
        answer.bucket.get_or_insert(partitions.join(","));
    }
}
