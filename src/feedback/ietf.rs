//! The fields of the IETF: draft-ietf-httpapi-ratelimit-headers, from version 8 on `RateLimit` and
//! `RateLimit-Policy` as lists of structured fields, in version 7 `RateLimit` as a dictionary. Versions up to 6
//! have plain fields (`RateLimit-Limit`, `-Remaining`, `-Reset`), which are a [`Dialect`](super::Dialect).

use std::time::Duration;

use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parser};

use super::answer::{Answer, Meter, Unit};
use super::headers::Headers;
use super::text::When;

/// The items of a list; `None` if it is malformed.
fn items(text: &str) -> Option<Vec<Item>> {
    let list = Parser::new(text).parse::<List>().ok()?;
    let items = list.into_iter().map(|entry| match entry {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    });
    items.collect()
}

fn name(item: &Item) -> Option<&str> {
    match &item.bare_item {
        BareItem::String(name) => Some(name.as_str()),
        BareItem::Token(name) => Some(name.as_str()),
        _ => None,
    }
}

fn number(value: &BareItem) -> Option<u64> {
    u64::try_from(i64::from(value.as_integer()?)).ok()
}

/// The first of these parameters that is there. Outer: it is no number. Inner: whether it is there.
fn parameter(item: &Item, names: &[&str]) -> Option<Option<u64>> {
    let value = names.iter().find_map(|name| item.params.get(*name));
    value.map_or(Some(None), |value| number(value).map(Some))
}

/// The partition of a quota, such as a user or an application.
fn partition(item: &Item) -> Option<String> {
    match item.params.get("pk")? {
        BareItem::ByteSequence(key) => Some(key.escape_ascii().to_string()),
        _ => None,
    }
}

struct Quota {
    name: String,
    unit: Option<Unit>,
    limit: u64,
    window: Option<Duration>,
    partition: Option<String>,
}

fn quota(item: &Item) -> Option<Quota> {
    let unit = match item.params.get("qu") {
        None => Some(Unit::Requests),
        Some(BareItem::String(unit)) => unit_of(unit.as_str()),
        Some(BareItem::Token(unit)) => unit_of(unit.as_str()),
        Some(_) => return None,
    };
    Some(Quota {
        name: name(item)?.to_owned(),
        unit,
        limit: parameter(item, &["q"])??,
        window: parameter(item, &["w"])?.map(Duration::from_secs),
        partition: partition(item),
    })
}

/// Bytes and places in flight are not counted.
fn unit_of(unit: &str) -> Option<Unit> {
    match unit {
        "request" | "requests" => Some(Unit::Requests),
        "token" | "tokens" => Some(Unit::Tokens),
        _ => None,
    }
}

/// Reads both fields. All quotas hold for the same request, so their names are no buckets: those are the partitions of
/// the policies, or of the quotas if these have none. A server may send the closest quota only.
pub(super) fn read(
    headers: &(impl Headers + ?Sized),
    limits: &str,
    policies: &str,
    meters: &mut Vec<(Unit, Meter)>,
    answer: &mut Answer,
) {
    let Some(text) = headers.field(limits) else { return };
    let mut quotas = Vec::new();
    let listed = items(&text);
    if listed.is_some()
        && let Some(policies) = headers.field(policies)
    {
        match items(&policies) {
            Some(items) => {
                for item in &items {
                    match quota(item) {
                        Some(quota) => quotas.push(quota),
                        None => answer.malformed += 1,
                    }
                }
            }
            None => answer.malformed += 1,
        }
    }
    let Some(items) = listed else { return dictionary(&text, meters, answer) };
    let counted = quotas.iter().filter(|quota| quota.unit.is_some());
    let mut partitions: Vec<_> = counted.filter_map(|quota| quota.partition.clone()).collect();
    let is_of_policies = !partitions.is_empty();
    for item in &items {
        let read = || {
            let quota = quotas.iter().find(|quota| Some(quota.name.as_str()) == name(item));
            let unit = quota.map_or(Some(Unit::Requests), |quota| quota.unit);
            // `a` and `w` are the names of a change to the draft.
            let meter = Meter {
                limit: quota.map(|quota| quota.limit),
                window: quota.and_then(|quota| quota.window),
                remaining: Some(parameter(item, &["r", "a"])??),
                reset: parameter(item, &["t", "w"])?
                    .map(|seconds| When::After(Duration::from_secs(seconds))),
                is_continuous: false,
            };
            name(item).map(|_| (unit, meter))
        };
        let Some((unit, meter)) = read() else {
            answer.malformed += 1;
            continue;
        };
        let Some(unit) = unit else { continue };
        meters.push((unit, meter));
        partitions.extend(partition(item).filter(|_| !is_of_policies));
    }
    partitions.dedup();
    if !partitions.is_empty() {
        answer.bucket.get_or_insert(partitions.join(","));
    }
}

/// Version 7: `limit=100, remaining=50, reset=30`.
fn dictionary(text: &str, meters: &mut Vec<(Unit, Meter)>, answer: &mut Answer) {
    let read = || {
        let fields = Parser::new(text).parse::<Dictionary>().ok()?;
        let field = |name: &str| match fields.get(name) {
            None => Some(None),
            Some(ListEntry::Item(item)) => number(&item.bare_item).map(Some),
            Some(ListEntry::InnerList(_)) => None,
        };
        Some(Meter {
            limit: field("limit")?,
            remaining: Some(field("remaining")??),
            reset: field("reset")?.map(|seconds| When::After(Duration::from_secs(seconds))),
            ..Meter::default()
        })
    };
    match read() {
        Some(meter) => meters.push((Unit::Requests, meter)),
        None => answer.malformed += 1,
    }
}
