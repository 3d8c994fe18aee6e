//! What the fields of a server promise, and how far a client gets that knows nothing else.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use sfv::{BareItem, Item, List, ListEntry, Parser};
use tollgate::feedback::Feedback;
use tollgate::tower::RefuseLayer;
use tollgate::{
    AllOf, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, ManualClock, Policy, Rate,
    RateLimiter, Same, SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};
use tower::util::ServiceFn;
use tower::{Layer, ServiceExt, service_fn};

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

type Answer = std::future::Ready<Result<Response<String>, Infallible>>;
type Server = <RefuseLayer as Layer<ServiceFn<fn(Request<()>) -> Answer>>>::Service;

fn server(layer: &RefuseLayer) -> Server {
    layer.layer(service_fn(|_| std::future::ready(Ok(Response::new("hello".to_owned())))))
}

async fn ask(server: &Server) -> Response<()> {
    server.clone().oneshot(Request::new(())).await.expect("infallible").map(drop)
}

fn items(headers: &HeaderMap, name: &str) -> Vec<(String, Item)> {
    let text = headers[name].to_str().expect("ASCII");
    let list: List = Parser::new(text).parse().expect("a structured field");
    let item = |entry| {
        let ListEntry::Item(item) = entry else { panic!("an inner list") };
        let BareItem::String(name) = &item.bare_item else { panic!("not a string") };
        (name.to_string(), item)
    };
    list.into_iter().map(item).collect()
}

fn number(item: &Item, key: &str) -> Option<u64> {
    let number: i64 = item.params.get(key)?.as_integer().expect("a whole number").into();
    Some(u64::try_from(number).expect("not negative"))
}

// For every rule, at random times.

/// A random number that stands for an event, its cost, and a span.
type Event = (u8, u32, u64);

/// After a random history as many calls are granted at once as the fields have promised last.
async fn keeps_its_promise(
    policy: impl Policy<Cost = u32>,
    events: &[Event],
) -> Result<u64, TestCaseError> {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(policy, &clock);
    let server = server(&RefuseLayer::new(limiter.clone()));
    let mut held = Vec::new();
    for &(what, n, far) in events {
        match what % 8 {
            0..3 => held.extend(limiter.try_acquire(n % 8).ok()),
            3 => drop(held.pop()),
            4 => held.pop().into_iter().for_each(tollgate::Grant::refund),
            5 if far % 8 == 0 => limiter.pause_for(Duration::from_nanos(far % 5_000_000_000)),
            6 => clock.advance(Duration::from_millis(far % 50)),
            _ => clock.advance(Duration::from_nanos((far >> (far % 64)) % 100_000_000_000)),
        }
    }
    let answer = ask(&server).await;
    let rests = items(answer.headers(), "ratelimit");
    let policies = items(answer.headers(), "ratelimit-policy");
    let names = |items: &[(String, Item)]| -> Vec<_> {
        items.iter().map(|(name, _)| name.clone()).collect()
    };
    prop_assert_eq!(names(&rests), names(&policies));
    let promised = rests.iter().map(|(_, item)| number(item, "r").expect("required")).min();
    let promised = promised.expect("a limit");
    for call in 0..promised {
        let granted = limiter.try_acquire(1);
        prop_assert!(granted.is_ok(), "{} of {promised}, {:?}", call, answer.headers());
        held.extend(granted);
    }
    Ok(promised)
}

/// Runs random histories. `is_even`: after each call the next one has to wait, so that nothing is ever promised.
fn check<P: Policy<Cost = u32> + Debug>(policy: impl Strategy<Value = P>, is_even: bool) {
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() };
    let mut runner = TestRunner::new(ProptestConfig { rng_seed: RngSeed::Fixed(24), ..config });
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let promised = std::cell::Cell::new(0);
    let history = prop::collection::vec(any::<Event>(), 0..30);
    let result = runner.run(&(policy, history), |(policy, events)| {
        let n = runtime.block_on(keeps_its_promise(policy, &events))?;
        promised.set(promised.get() + n);
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    let name = std::any::type_name::<P>();
    assert_eq!(promised.get() == 0, is_even, "{name}: {} were promised", promised.get());
}

fn rates() -> impl Strategy<Value = Rate> {
    prop::sample::select(vec!["50/s", "10/s", "7/s", "600/min", "100/min", "1000/h"])
        .prop_map(|text| text.parse().expect("a rate"))
}

fn windows() -> impl Strategy<Value = Duration> {
    prop::sample::select(vec![100, 700, 1000, 1500, 60_000]).prop_map(Duration::from_millis)
}

fn buckets() -> impl Strategy<Value = TokenBucket> {
    (rates(), 1..60_u32).prop_map(|(rate, burst)| TokenBucket::new(rate, burst))
}

#[test]
fn what_the_fields_promise_is_granted() {
    check(rates().prop_map(|rate| SmoothBursty::new(rate).max_burst(Duration::ZERO)), true);
    check(
        (rates(), 1..3000_u64).prop_map(|(rate, burst)| {
            SmoothBursty::new(rate).max_burst(Duration::from_millis(burst))
        }),
        false,
    );
    check(rates().prop_map(|rate| SmoothWarmingUp::new(rate, secs(3))), true);
    check(buckets(), false);
    check(
        (rates(), 1..60_u32, 1..3000_u64).prop_map(|(rate, burst, every)| {
            TokenBucket::new(rate, burst).refill_every(Duration::from_millis(every))
        }),
        false,
    );
    check(
        (0..40_u32, 1..60_u32, windows())
            .prop_map(|(burst, n, window)| Gcra::new(burst, n, window)),
        false,
    );
    check((rates(), 1..60_u32).prop_map(|(rate, n)| LeakyBucket::new(rate, n)), true);
    check((rates(), 1..60_u32).prop_map(|(rate, n)| LeakyBucket::meter(rate, n)), false);
    check((1..60_u32, windows()).prop_map(|(n, window)| FixedWindow::new(n, window)), false);
    check((1..60_u32, windows()).prop_map(|(n, window)| SlidingWindowLog::new(n, window)), false);
    check(
        (1..60_u32, windows(), 1..9_u32)
            .prop_map(|(n, window, parts)| SlidingWindowCounter::new(n, window, parts)),
        false,
    );
    check((1..60_u32).prop_map(InFlight::new), false);
    check((buckets(), windows()).prop_map(|(policy, lock)| LockOut::new(policy, lock)), false);
    check(
        (buckets(), 1..60_u32, windows()).prop_map(|(bucket, n, window)| {
            Same((bucket, FixedWindow::new(n, window), InFlight::new(n)))
        }),
        false,
    );
    check(
        (buckets(), 1..60_u32, windows()).prop_map(|(bucket, n, window)| {
            AllOf::new([bucket.into(), SlidingWindowLog::new(n, window).into()])
        }),
        false,
    );
}

// A client that obeys.

/// What a client does that reads nothing but the fields: of each limit it uses no more than what remains until its
/// effective window has ended. `Retry-After` takes precedence.
#[derive(Default)]
struct Obedient {
    /// What remains of each limit, and until when.
    limits: BTreeMap<String, (u64, Duration)>,
    closed_until: Duration,
}

impl Obedient {
    fn hear(&mut self, now: Duration, headers: &HeaderMap) {
        for (name, item) in items(headers, "ratelimit") {
            let remaining = number(&item, "r").expect("required");
            let until = now + secs(number(&item, "t").unwrap_or(0));
            self.limits.insert(name, (remaining, until));
        }
        if let Some(wait) = headers.get("retry-after") {
            let seconds = wait.to_str().expect("ASCII").parse().expect("whole seconds");
            self.closed_until = now + secs(seconds);
        }
    }

    /// When it may call.
    fn may_at(&self) -> Duration {
        let used_up = self.limits.values().filter(|(remaining, _)| *remaining == 0);
        used_up.map(|&(_, until)| until).fold(self.closed_until, Duration::max)
    }
}

/// The calls that were granted and refused.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    granted: u64,
    refused: u64,
}

/// Calls as soon as it may, for `span`, where each call takes `trip`.
async fn obey(policy: impl Policy<Cost = u32>, span: Duration, trip: Duration) -> Calls {
    let clock = ManualClock::new();
    let server = server(&RefuseLayer::new(RateLimiter::with_clock(policy, &clock)));
    let (mut client, mut calls) = (Obedient::default(), Calls::default());
    loop {
        clock.advance(client.may_at().saturating_sub(clock.elapsed()));
        if clock.elapsed() >= span {
            return calls;
        }
        clock.advance(trip / 2);
        let answer = ask(&server).await;
        clock.advance(trip / 2);
        calls.granted += u64::from(answer.status() == 200);
        calls.refused += u64::from(answer.status() != 200);
        client.hear(clock.elapsed(), answer.headers());
    }
}

/// What the policy grants in `span` to a client that asks all the time.
fn allowed(policy: impl Policy<Cost = u32>, span: Duration, trip: Duration) -> u64 {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(policy, &clock);
    let mut granted = 0;
    while clock.elapsed() < span {
        match limiter.try_acquire(1) {
            Ok(_) => {
                granted += 1;
                clock.advance(trip);
            }
            Err(error) => clock.advance(error.retry_after().expect("a rate")),
        }
    }
    granted
}

async fn gets_what_is_allowed(policy: impl Policy<Cost = u32>) {
    for trip in [0, 80] {
        let trip = Duration::from_millis(trip);
        for span in [secs(600), secs(3 * 3600)] {
            let calls = obey(policy.clone(), span, trip).await;
            let allowed = allowed(policy.clone(), span, trip);
            assert!(
                100 * calls.granted >= 97 * allowed && calls.refused == 0,
                "{policy:?}, {trip:?} each, {span:?}: {calls:?} of {allowed}"
            );
        }
    }
}

#[tokio::test]
async fn a_client_that_obeys_the_fields_gets_what_two_limits_allow() {
    let (second, hour) = (secs(1), secs(3600));
    let bucket = |rate, burst| TokenBucket::new(rate, burst);
    let a_second = || bucket(Rate::per_second(10.0), 10);
    let an_hour = || bucket(Rate::per_hour(1000.0), 1000);
    gets_what_is_allowed(Same((a_second(), an_hour()))).await;
    gets_what_is_allowed(Same((bucket(Rate::per_minute(100.0), 20), an_hour()))).await;
    gets_what_is_allowed(Same((FixedWindow::new(10, second), FixedWindow::new(1000, hour)))).await;
    let logs = (SlidingWindowLog::new(10, second), SlidingWindowLog::new(1000, hour));
    gets_what_is_allowed(Same(logs)).await;
    let counters = |n, window| SlidingWindowCounter::new(n, window, 10);
    gets_what_is_allowed(Same((counters(100, secs(60)), counters(1000, hour)))).await;
    let rules = [a_second().into(), FixedWindow::new(1000, hour).into()];
    gets_what_is_allowed(AllOf::new(rules)).await;
}

/// The crate's own client, whose own limit is far above that of the server.
async fn learn(policy: impl Policy<Cost = u32>, span: Duration) -> Calls {
    let clock = ManualClock::auto_advance();
    let server = server(&RefuseLayer::new(RateLimiter::with_clock(policy, &clock)));
    let own = TokenBucket::new(Rate::per_second(100.0), 1);
    let feedback = Feedback::new(RateLimiter::with_clock(own, &clock));
    let mut calls = Calls::default();
    loop {
        let mut call = feedback.acquire(1).await.expect("it waits");
        if clock.elapsed() >= span {
            return calls;
        }
        let answer = ask(&server).await;
        calls.granted += u64::from(answer.status() == 200);
        calls.refused += u64::from(answer.status() != 200);
        call.observe(answer.status(), answer.headers()).await;
    }
}

#[tokio::test]
async fn the_client_of_this_crate_gets_what_two_limits_allow() {
    let (second, hour) = (secs(1), secs(3600));
    for (span, windows) in [(secs(600), 1), (3 * hour, 3)] {
        let check = |calls: Calls, allowed: u64| {
            assert!(
                100 * calls.granted >= 97 * allowed && calls.refused <= windows,
                "{span:?}: {calls:?} of {allowed}"
            );
        };
        let buckets = || {
            let hour = TokenBucket::new(Rate::per_hour(1000.0), 1000);
            Same((TokenBucket::new(Rate::per_second(10.0), 10), hour))
        };
        check(learn(buckets(), span).await, allowed(buckets(), span, Duration::ZERO));
        let fixed = || Same((FixedWindow::new(10, second), FixedWindow::new(1000, hour)));
        check(learn(fixed(), span).await, allowed(fixed(), span, Duration::ZERO));
        let logs = || Same((SlidingWindowLog::new(10, second), SlidingWindowLog::new(1000, hour)));
        check(learn(logs(), span).await, allowed(logs(), span, Duration::ZERO));
    }
}

/// A limit that is whole again within a second cannot be told in whole seconds. The policy has its rate: a client that
/// spreads its calls by that gets all of it.
#[tokio::test]
async fn a_client_that_keeps_the_pace_of_the_policy_gets_all_of_a_short_limit() {
    let clock = ManualClock::new();
    let even = LeakyBucket::new(Rate::per_second(50.0), 10);
    let server = server(&RefuseLayer::new(RateLimiter::with_clock(even, &clock)));
    let mut client = Obedient::default();
    for _ in 0..500 {
        let answer = ask(&server).await;
        assert_eq!(answer.status(), 200);
        client.hear(clock.elapsed(), answer.headers());
        assert!(client.may_at() <= clock.elapsed(), "the fields do not hold it back");
        let policies = items(answer.headers(), "ratelimit-policy");
        let number = |key| number(&policies[0].1, key).expect("a rate");
        clock.advance(secs(number("w")) / u32::try_from(number("q")).expect("small"));
    }
    assert_eq!(clock.elapsed(), secs(10));
}
