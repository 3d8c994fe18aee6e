//! Law 1: what each rule allows in any window, from its definition alone.

use tollgate::{AnyPolicy, Rate, Rated};

/// Permits that were granted, in this order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) at: u64,
    pub(super) n: u64,
    /// Not given back.
    pub(super) kept: bool,
}

/// The parameters of a policy, as its text has them.
struct Parameters(String);

impl Parameters {
    fn of(policy: &AnyPolicy) -> Self {
        Self(policy.to_string())
    }

    /// The word behind others.
    fn behind(&self, words: &str) -> Option<&str> {
        self.0.split_once(&format!(" {words} "))?.1.split(' ').next()
    }

    fn number(&self, words: &str) -> u32 {
        self.behind(words).expect(words).parse().expect("a number")
    }

    /// Zero if the words are not there.
    fn time(&self, words: &str) -> u128 {
        self.behind(words).map_or(0, time)
    }

    /// The limit and the length of a window.
    fn window(&self) -> (u32, u128) {
        let (limit, window) = self.0.split_once('/').expect("a quota");
        (limit.parse().expect("a number"), time(window.split(' ').next().unwrap_or_default()))
    }
}

/// The nanoseconds of `15min` or `min`.
fn time(text: &str) -> u128 {
    let (count, unit) = text.split_at(text.find(char::is_alphabetic).expect("a unit"));
    let nanos = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "day" | "days" => 86_400_000_000_000,
        unit => panic!("{unit}"),
    };
    nanos * if count.is_empty() { 1 } else { count.parse().expect("a number") }
}

/// The rule in a lock-out.
fn inside(text: &str) -> AnyPolicy {
    text.rsplit_once(" lock out ").expect("a lock-out").0.parse().expect("a policy")
}

/// No window that ends with the last grant holds more than `policy` allows.
pub(super) fn holds(policy: &AnyPolicy, granted: &[Granted]) {
    let kept: Vec<_> = granted.iter().filter(|grant| grant.kept).copied().collect();
    let told = Parameters::of(policy);
    let at_once = |rate, capacity: u32, step| rated(&kept, rate, capacity.into(), step);
    let after_one = |rate, stored| {
        let before = kept.split_last().map_or(&[][..], |(_, before)| before);
        let until = kept.last().map_or(0, |last| last.at);
        rated_until(before, until, rate, 0, stored);
    };
    match policy {
        AnyPolicy::SmoothBursty(rule) => after_one(rule.rate(), told.time("max burst")),
        AnyPolicy::SmoothWarmingUp(rule) => after_one(rule.rate(), 0),
        AnyPolicy::TokenBucket(rule) => {
            at_once(rule.rate(), told.number("burst"), told.time("refill every"));
        }
        AnyPolicy::Gcra(rule) => {
            rated(&kept, rule.rate(), u128::from(told.number("gcra")) + 1, 0);
        }
        AnyPolicy::LeakyBucket(rule) if told.behind("meter").is_some() => {
            at_once(rule.rate(), told.number("meter"), 0);
        }
        AnyPolicy::LeakyBucket(rule) => after_one(rule.rate(), 0),
        AnyPolicy::FixedWindow(_) => windows(&told, granted),
        AnyPolicy::SlidingWindowLog(_) => {
            let (limit, window) = told.window();
            within(&kept, limit, window);
        }
        AnyPolicy::SlidingWindowCounter(_) => {
            let (buckets, (limit, window)) = (u128::from(told.number("buckets")), told.window());
            let part = window.div_ceil(buckets);
            within(&kept, limit, ((buckets - 1) * part).max(1));
        }
        AnyPolicy::LockOut(_) => holds(&inside(&told.0), granted),
        // Not a matter of time.
        AnyPolicy::InFlight(_) | AnyPolicy::Unlimited(_) => {}
        other => panic!("no law for {other}"),
    }
}

/// The most permits out at once, if that is limited.
pub(super) fn in_flight(policy: &AnyPolicy) -> Option<u32> {
    match policy {
        AnyPolicy::InFlight(_) => {
            Some(policy.to_string().split(' ').next()?.parse().expect("a number"))
        }
        AnyPolicy::LockOut(_) => in_flight(&inside(&policy.to_string())),
        _ => None,
    }
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
fn windows(told: &Parameters, granted: &[Granted]) {
    let (limit, window) = told.window();
    if told.behind("aligned").is_some() {
        let kept: Vec<_> = granted.iter().filter(|grant| grant.kept).copied().collect();
        within(&kept, limit.saturating_mul(2), window);
        return;
    }
    let mut current: Option<(u64, u64)> = None;
    for grant in granted {
        let (begin, before) = match current {
            Some((begin, permits)) if u128::from(grant.at - begin) < window => (begin, permits),
            _ => (grant.at, 0),
        };
        let permits = before + if grant.kept { grant.n } else { 0 };
        assert!(permits <= limit.into(), "{permits} in the window from {begin}: {}", told.0);
        current = Some((begin, permits));
    }
}
