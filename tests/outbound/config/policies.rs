//! Any policy.

use std::time::Duration;

use proptest::option;
use proptest::prelude::*;
use tollgate::{
    AllOf, AnyPolicy, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Rate,
    SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket, Unlimited,
};

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

/// A policy with or without the options that it may have.
macro_rules! with {
    ($policy:expr, $($option:ident $set:ident),*) => {{
        let policy = $policy;
        $(
            let policy = match $option {
                Some($option) => policy.$set($option),
                None => policy,
            };
        )*
        AnyPolicy::from(policy)
    }};
}

fn smooth() -> BoxedStrategy<AnyPolicy> {
    let some_span = || option::of(spans());
    let bursty = (rates(), some_span(), some_span()).prop_map(|(rate, max_burst, catch_up)| {
        with!(SmoothBursty::evenly_spaced(rate), max_burst max_burst, catch_up with_catch_up)
    });
    let warming = (rates(), spans(), option::of(1.0f64..1e9), some_span());
    let warming = warming.prop_map(|(rate, warm_up, factor, catch_up)| {
        with!(SmoothWarmingUp::new(rate, warm_up), factor cold_factor, catch_up with_catch_up)
    });
    prop_oneof![bursty, warming].boxed()
}

fn buckets() -> BoxedStrategy<AnyPolicy> {
    let some_span = || option::of(spans());
    let sizes = || prop_oneof![1u32..100, 1u32..];
    let bucket = (rates(), sizes(), option::of(any::<u32>()), some_span(), some_span());
    let bucket = bucket.prop_map(|(rate, capacity, initial, refill_every, catch_up)| {
        let bucket = TokenBucket::new(rate, capacity);
        with!(bucket, initial initial, refill_every refill_every, catch_up with_catch_up)
    });
    let gcra = (any::<u32>(), 1u32..1_000_000, 1u64..80_000, some_span());
    let gcra = gcra.prop_map(|(burst, count, secs, catch_up)| {
        with!(Gcra::new(burst, count, Duration::from_secs(secs)), catch_up with_catch_up)
    });
    let leaky = (rates(), sizes(), any::<bool>(), some_span());
    let leaky = leaky.prop_map(|(rate, capacity, is_meter, catch_up)| {
        let new = if is_meter { LeakyBucket::meter } else { LeakyBucket::new };
        with!(new(rate, capacity), catch_up with_catch_up)
    });
    prop_oneof![bucket, gcra, leaky].boxed()
}

fn windows() -> BoxedStrategy<AnyPolicy> {
    let fixed = (1u32.., spans(), option::of(spans()));
    let fixed = fixed.prop_map(
        |(limit, window, aligned)| with!(FixedWindow::new(limit, window), aligned aligned),
    );
    let log =
        (1u32.., spans()).prop_map(|(limit, window)| SlidingWindowLog::new(limit, window).into());
    let counter = (1u32.., spans(), prop_oneof![1u32..10, 1u32..]);
    let counter = counter.prop_map(|(limit, window, buckets)| {
        SlidingWindowCounter::new(limit, window, buckets).into()
    });
    prop_oneof![fixed, log, counter].boxed()
}

pub(crate) fn policies() -> impl Strategy<Value = AnyPolicy> {
    let in_flight = (1u32..).prop_map(|max| InFlight::new(max).into());
    let rules = prop_oneof![smooth(), buckets(), windows(), in_flight, Just(Unlimited.into())];
    (rules, option::weighted(0.3, spans())).prop_map(|(rule, locked)| match locked {
        Some(duration) => LockOut::new(rule, duration).into(),
        None => rule,
    })
}

pub(crate) fn several() -> impl Strategy<Value = AllOf> {
    proptest::collection::vec(policies(), 1..=AllOf::MAX_PARTS).prop_map(AllOf::new)
}
