//! The fields of the IETF: draft-ietf-httpapi-ratelimit-headers, from version 8 on `RateLimit` and
//! `RateLimit-Policy` as lists of structured fields, in version 7 `RateLimit` as a dictionary. Versions up to 6
//! have plain fields (`RateLimit-Limit`, `-Remaining`, `-Reset`), which are a [`Dialect`](super::Dialect).

use std::cmp::Reverse;
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

/// Outer: the parameter is there but no number. Inner: whether it is there.
fn parameter(item: &Item, name: &str) -> Option<Option<u64>> {
    item.params.get(name).map_or(Some(None), |value| number(value).map(Some))
}

struct Quota {
    name: String,
    unit: Option<Unit>,
    limit: u64,
    window: Option<Duration>,
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
        limit: parameter(item, "q")??,
        window: parameter(item, "w")?.map(Duration::from_secs),
    })
}

/// Bytes and places in flight are not what a limiter of this crate is shrunk by.
fn unit_of(unit: &str) -> Option<Unit> {
    match unit {
        "request" | "requests" => Some(Unit::Requests),
        "token" | "tokens" => Some(Unit::Tokens),
        _ => None,
    }
}

/// Reads both fields. Of several quotas of a unit the one of which least remains counts, and of those the one
/// whose reset is the latest. Whether there were any.
pub(super) fn read(headers: &(impl Headers + ?Sized), answer: &mut Answer) -> bool {
    let Some(text) = headers.field("ratelimit") else { return false };
    let policy = headers.field("ratelimit-policy");
    let mut quotas = Vec::new();
    let listed = items(&text);
    if listed.is_some()
        && let Some(policy) = policy
    {
        match items(&policy) {
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
    let Some(items) = listed else { return dictionary(&text, answer) };
    for item in &items {
        let read = || {
            let quota = quotas.iter().find(|quota| Some(quota.name.as_str()) == name(item));
            let unit = quota.map_or(Some(Unit::Requests), |quota| quota.unit);
            let meter = Meter {
                limit: quota.map(|quota| quota.limit),
                window: quota.and_then(|quota| quota.window),
                remaining: Some(parameter(item, "r")??),
                reset: parameter(item, "t")?.map(|t| When::After(Duration::from_secs(t))),
                is_continuous: false,
            };
            name(item).map(|name| (name, unit, meter))
        };
        match read() {
            None => answer.malformed += 1,
            Some((_, None, _)) => {}
            Some((name, Some(unit), meter)) => {
                let tightest = answer.meters.get_mut(unit);
                let tightness = |meter: &Meter| {
                    let reset = meter.reset.map(|reset| reset.after(Duration::ZERO));
                    (Reverse(meter.remaining), reset)
                };
                if tightest.is_empty() || tightness(&meter) > tightness(tightest) {
                    *tightest = meter;
                    answer.bucket.get_or_insert_with(|| name.to_owned());
                }
            }
        }
    }
    true
}

/// Version 7: `limit=100, remaining=50, reset=30`.
fn dictionary(text: &str, answer: &mut Answer) -> bool {
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
        Some(meter) => *answer.meters.get_mut(Unit::Requests) = meter,
        None => answer.malformed += 1,
    }
    true
}
