//! The `Debug` forms of what stands around a limiter.

use std::fmt::Debug;

#[track_caller]
fn shows(value: &impl Debug, words: &[&str]) {
    let shown = format!("{value:?}");
    assert!(words.iter().all(|word| shown.contains(word)), "{shown}");
}

#[test]
fn layers_and_services_are_shown() {
    use std::time::Duration;

    use tollgate::tower::{ClientIp, RateLimitLayer, RefuseLayer};
    use tollgate::{InFlight, RateLimiter};
    use tower::Layer;

    let limiter = RateLimiter::builder(InFlight::new(1)).name("calls").build();
    let layer = RateLimitLayer::new(limiter.clone()).max_wait(Duration::from_secs(5));
    shows(&layer, &["RateLimitLayer", "calls", "max_wait: Some(5s)"]);
    let service = layer.layer("service of ours");
    shows(&service, &["RateLimit", "service of ours", "calls", "Some(5s)"]);
    let by = RateLimitLayer::learn(limiter.clone()).layer("service of ours");
    shows(&by, &["RateLimitBy", "service of ours"]);
    let refuse = RefuseLayer::new(limiter).layer("service of ours");
    shows(&refuse, &["Refuse", "service of ours", "max_wait: Some(0ns)", "fields: true"]);
    let client = ClientIp::peer_by(|_| None);
    shows(&client, &["ClientIp", "header: None"]);
}

#[test]
fn limits_and_the_middleware_are_shown() {
    use tollgate::RateLimit;
    use tollgate::{Limits, ManualClock, RateLimiters};

    let limits = Limits::per_host("1/s").and_then(|limits| limits.named("a.org", "2/s"));
    let limiters = RateLimiters::with_clock(limits.expect("limits"), ManualClock::new());
    shows(&limiters, &["RateLimiters", "Host", "2/s", "keys: 0"]);
    shows(&RateLimit::limits(limiters), &["RateLimit", "max_wait: None"]);
}
