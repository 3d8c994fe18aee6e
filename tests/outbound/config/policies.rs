//! Any policy, and a table that means it.

use std::time::Duration;

use proptest::option;
use proptest::prelude::*;
use tollgate::{
    AllOf, AnyPolicy, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Rate,
    SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket, Unlimited,
};

/// A policy, and its table as `key = value`, without braces.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) policy: AnyPolicy,
    pub(crate) table: String,
}

impl Written {
    fn new(policy: impl Into<AnyPolicy>, kind: &str, fields: Vec<String>) -> Self {
        let table = format!("policy = \"{kind}\", {}", fields.join(", "));
        Self { policy: policy.into(), table }
    }
}

pub(crate) fn rates() -> impl Strategy<Value = Rate> {
    let fraction = (1u64.., 1u64..1 << 62).prop_filter_map("out of range", |(n, nanos)| {
        Rate::try_new(n, Duration::from_nanos(nanos)).ok()
    });
    let small = (1u64..1000, 1u64..100_000).prop_filter_map("out of range", |(n, ms)| {
        Rate::try_new(n, Duration::from_millis(ms)).ok()
    });
    let long = (1u64.., 1u64..1 << 50).prop_filter_map("out of range", |(n, secs)| {
        Rate::try_new(n, Duration::from_secs(secs)).ok()
    });
    prop_oneof![
        (1u32..100_000).prop_map(|n| Rate::per_minute(f64::from(n))),
        (1e-4f64..1e9).prop_map(Rate::per_second),
        (1e-3f64..1e6).prop_map(Rate::per_minute),
        (0.05f64..1e6).prop_map(Rate::per_hour),
        fraction,
        small,
        long,
    ]
}

/// Times of all sizes, round and not.
fn spans() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (1u64..5000).prop_map(Duration::from_secs),
        (1u64..100).prop_map(|minutes| Duration::from_secs(60 * minutes)),
        (1u64..40).prop_map(|days| Duration::from_secs(86_400 * days)),
        (1u64..5000).prop_map(Duration::from_millis),
        (1u64..1 << 50).prop_map(Duration::from_nanos),
    ]
}

fn text(name: &str, time: Duration) -> String {
    format!("{name} = \"{}ns\"", time.as_nanos())
}

fn rate_field(rate: Rate) -> String {
    format!("rate = \"{rate}\"")
}

/// A policy with or without the options that it may have.
macro_rules! with {
    ($policy:ident, $fields:ident: $($option:ident $set:ident $field:expr),*) => {
        $(
            let $policy = match $option {
                Some($option) => {
                    $fields.push($field);
                    $policy.$set($option)
                }
                None => $policy,
            };
        )*
    };
}

fn smooth() -> BoxedStrategy<Written> {
    let some_span = || option::of(spans());
    let bursty = (rates(), some_span(), some_span()).prop_map(|(rate, max_burst, catch_up)| {
        let (policy, mut fields) = (SmoothBursty::evenly_spaced(rate), vec![rate_field(rate)]);
        with!(policy, fields: max_burst max_burst text("max_burst", max_burst), catch_up with_catch_up text("catch_up", catch_up));
        Written::new(policy, "smooth-bursty", fields)
    });
    let factors = option::of(1.0f64..1e9);
    let warming = (rates(), spans(), factors, some_span());
    let warming = warming.prop_map(|(rate, warm_up, cold_factor, catch_up)| {
        let policy = SmoothWarmingUp::new(rate, warm_up);
        let mut fields = vec![rate_field(rate), text("warm_up", warm_up)];
        with!(policy, fields: cold_factor cold_factor format!("cold_factor = {cold_factor:?}"), catch_up with_catch_up text("catch_up", catch_up));
        Written::new(policy, "smooth-warming-up", fields)
    });
    prop_oneof![bursty, warming].boxed()
}

fn buckets() -> BoxedStrategy<Written> {
    let some_span = || option::of(spans());
    let sizes = || prop_oneof![1u32..100, 1u32..];
    let bucket = (rates(), sizes(), option::of(any::<u32>()), some_span(), some_span());
    let bucket = bucket.prop_map(|(rate, capacity, initial, refill_every, catch_up)| {
        let policy = TokenBucket::new(rate, capacity);
        let mut fields = vec![rate_field(rate), format!("capacity = {capacity}")];
        with!(policy, fields: initial initial format!("initial = {initial}"), refill_every refill_every text("refill_every", refill_every), catch_up with_catch_up text("catch_up", catch_up));
        Written::new(policy, "token-bucket", fields)
    });
    let gcra = (any::<u32>(), 1u32..1_000_000, 1u64..80_000, some_span());
    let gcra = gcra.prop_map(|(burst, count, secs, catch_up)| {
        let period = Duration::from_secs(secs);
        let policy = Gcra::new(burst, count, period);
        let mut fields = vec![format!("rate = \"{count}/{secs}s\""), format!("burst = {burst}")];
        with!(policy, fields: catch_up with_catch_up text("catch_up", catch_up));
        Written::new(policy, "gcra", fields)
    });
    let leaky = (rates(), sizes(), option::of(any::<bool>()), some_span());
    let leaky = leaky.prop_map(|(rate, capacity, meter, catch_up)| {
        let is_meter = meter == Some(true);
        let policy = if is_meter { LeakyBucket::meter } else { LeakyBucket::new }(rate, capacity);
        let mut fields = vec![rate_field(rate), format!("capacity = {capacity}")];
        fields.extend(meter.map(|meter| format!("meter = {meter}")));
        with!(policy, fields: catch_up with_catch_up text("catch_up", catch_up));
        Written::new(policy, "leaky-bucket", fields)
    });
    prop_oneof![bucket, gcra, leaky].boxed()
}

fn windows() -> BoxedStrategy<Written> {
    let fields = |limit: u32, window| vec![format!("limit = {limit}"), text("window", window)];
    let fixed = (1u32.., spans(), option::of(spans()));
    let fixed = fixed.prop_map(move |(limit, window, aligned)| {
        let (policy, mut fields) = (FixedWindow::new(limit, window), fields(limit, window));
        with!(policy, fields: aligned aligned text("aligned", aligned));
        Written::new(policy, "fixed-window", fields)
    });
    let log = (1u32.., spans()).prop_map(move |(limit, window)| {
        Written::new(
            SlidingWindowLog::new(limit, window),
            "sliding-window-log",
            fields(limit, window),
        )
    });
    let counter = (1u32.., spans(), prop_oneof![1u32..10, 1u32..]);
    let counter = counter.prop_map(move |(limit, window, buckets)| {
        let mut fields = fields(limit, window);
        fields.push(format!("buckets = {buckets}"));
        let policy = SlidingWindowCounter::new(limit, window, buckets);
        Written::new(policy, "sliding-window-counter", fields)
    });
    prop_oneof![fixed, log, counter].boxed()
}

pub(crate) fn policies() -> impl Strategy<Value = Written> {
    let in_flight = (1u32..).prop_map(|max| {
        Written::new(InFlight::new(max), "in-flight", vec![format!("max = {max}")])
    });
    let unlimited =
        Just(Written { policy: Unlimited.into(), table: "policy = \"unlimited\"".into() });
    let rules = prop_oneof![smooth(), buckets(), windows(), in_flight, unlimited];
    rules.prop_recursive(3, 3, 1, |inner| {
        (inner, spans()).prop_map(|(of, duration)| {
            let fields = vec![format!("of = {{ {} }}", of.table), text("duration", duration)];
            Written::new(LockOut::new(of.policy, duration), "lock-out", fields)
        })
    })
}

pub(crate) fn several() -> impl Strategy<Value = Vec<Written>> {
    proptest::collection::vec(policies(), 1..=AllOf::MAX_PARTS)
}
