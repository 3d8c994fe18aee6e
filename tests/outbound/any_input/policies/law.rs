//! Law 1: what each rule allows in any window, from its definition alone.

use std::time::Duration;

use tollgate::{AnyPolicy, FixedWindow, Rate, Rated};

/// Permits that were granted, in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) at: u64,
    pub(super) n: u64,
    /// Not given back.
    pub(super) kept: bool,
}

/// No window that ends with the last grant holds more than `policy` allows.
pub(super) fn holds(policy: &AnyPolicy, granted: &[Granted]) {
    let kept: Vec<_> = granted.iter().filter(|grant| grant.kept).copied().collect();
    let at_once = |rate, capacity: u32, step: Duration| {
        rated(&kept, rate, capacity.into(), nanos(step));
    };
    let after_one = |rate, stored: Duration| {
        let before = kept.split_last().map_or(&[][..], |(_, before)| before);
        let until = kept.last().map_or(0, |last| last.at);
        rated_until(before, until, rate, 0, nanos(stored));
    };
    match policy {
        AnyPolicy::SmoothBursty(rule) => after_one(rule.rate(), rule.burst()),
        AnyPolicy::SmoothWarmingUp(rule) => after_one(rule.rate(), Duration::ZERO),
        AnyPolicy::TokenBucket(rule) => at_once(rule.rate(), rule.capacity(), rule.period()),
        AnyPolicy::Gcra(rule) => {
            rated(&kept, rule.rate(), u128::from(rule.max_burst()) + 1, 0);
        }
        AnyPolicy::LeakyBucket(rule) if rule.is_meter() => {
            at_once(rule.rate(), rule.capacity(), Duration::ZERO);
        }
        AnyPolicy::LeakyBucket(rule) => after_one(rule.rate(), Duration::ZERO),
        AnyPolicy::FixedWindow(rule) => windows(rule, granted),
        AnyPolicy::SlidingWindowLog(rule) => within(&kept, rule.limit(), nanos(rule.period())),
        AnyPolicy::SlidingWindowCounter(rule) => {
            let buckets = u128::from(rule.buckets());
            let part = nanos(rule.period()).div_ceil(buckets);
            within(&kept, rule.limit(), ((buckets - 1) * part).max(1));
        }
        AnyPolicy::LockOut(rule) => holds(rule.policy(), granted),
        // Not a matter of time.
        AnyPolicy::InFlight(_) | AnyPolicy::Unlimited(_) => {}
        other => panic!("no law for {other}"),
    }
}

/// The most permits out at once, if that is limited.
pub(super) fn in_flight(policy: &AnyPolicy) -> Option<u32> {
    match policy {
        AnyPolicy::InFlight(rule) => Some(rule.limit()),
        AnyPolicy::LockOut(rule) => in_flight(rule.policy()),
        _ => None,
    }
}

fn nanos(span: Duration) -> u128 {
    span.as_nanos()
}

fn rated(grants: &[Granted], rate: Rate, capacity: u128, step: u128) {
    let until = grants.last().map_or(0, |last| last.at);
    rated_until(grants, until, rate, capacity, step);
}

/// From any grant until a time there are no more permits than the capacity and what has come, with a nanosecond for
/// each of two times that are rounded.
fn rated_until(grants: &[Granted], until: u64, rate: Rate, capacity: u128, step: u128) {
    let mut permits = 0;
    for grant in grants.iter().rev() {
        permits += u128::from(grant.n);
        let span = u128::from(until - grant.at) + step + 2;
        let beyond = permits.saturating_sub(capacity);
        assert!(
            beyond <= come(rate, span),
            "{permits} granted in {span} ns from {} on: more than {capacity} and {rate}",
            grant.at
        );
    }
}

/// The permits that come in a time, rounded up where the fraction of the rate is too wide.
fn come(rate: Rate, span: u128) -> u128 {
    let (permits, period) = rate.fraction();
    let permits = u128::from(permits);
    match permits.checked_mul(span) {
        Some(product) => product / period,
        None => permits * (span / period + 1),
    }
}

/// No half-open window of this length that ends with the last grant holds more.
fn within(kept: &[Granted], limit: u32, window: u128) {
    let Some(last) = kept.last() else { return };
    let counts = kept.iter().filter(|grant| u128::from(last.at - grant.at) < window);
    let permits: u64 = counts.map(|grant| grant.n).sum();
    assert!(permits <= limit.into(), "{permits} of {limit} in {window} ns until {}", last.at);
}

/// Windows begin with a grant, even with one that is given back. Those of a grid, of which a rule does not say where it
/// lies, are no more than two in a time of their length.
fn windows(rule: &FixedWindow, granted: &[Granted]) {
    let window = nanos(rule.period());
    if rule.is_aligned() {
        let kept: Vec<_> = granted.iter().filter(|grant| grant.kept).copied().collect();
        within(&kept, rule.limit().saturating_mul(2), window);
        return;
    }
    let mut current: Option<(u64, u64)> = None;
    for grant in granted {
        let (begin, before) = match current {
            Some((begin, permits)) if u128::from(grant.at - begin) < window => (begin, permits),
            _ => (grant.at, 0),
        };
        let permits = before + if grant.kept { grant.n } else { 0 };
        assert!(permits <= rule.limit().into(), "{permits} in the window from {begin}: {rule:?}");
        current = Some((begin, permits));
    }
}
