//! Metrics as a recorder sees them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit, with_local_recorder,
};
use tollgate::metrics::Publisher;
use tollgate::{
    InFlight, KeyedRateLimiter, Limiter, ManualClock, Rate, RateLimiter, SmoothBursty, TokenBucket,
    block_on,
};

/// Keeps the sum of each counter, the value of each gauge and all values of each histogram.
#[derive(Clone, Default)]
struct Values(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

struct Metric(Values, String);

impl Values {
    fn metric(&self, key: &Key) -> Arc<Metric> {
        let labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = key.name().strip_prefix("tollgate_").expect("its own metrics");
        Arc::new(Metric(self.clone(), format!("{name} {}", labels.join(","))))
    }

    /// All that is not zero or empty.
    fn shown(&self) -> Vec<String> {
        let values = self.0.lock().expect("no panic");
        let shown = values.iter().filter(|(_, values)| values.iter().any(|&value| value != 0.0));
        shown.map(|(name, values)| format!("{name} {values:?}")).collect()
    }
}

impl Metric {
    fn change(&self, change: impl FnOnce(&mut Vec<f64>)) {
        change(self.0.0.lock().expect("no panic").entry(self.1.clone()).or_default());
    }
}

impl CounterFn for Metric {
    fn increment(&self, _: u64) {
        unreachable!("a recorder that comes late would miss it")
    }

    fn absolute(&self, value: u64) {
        #[allow(clippy::cast_precision_loss)]
        self.change(|values| *values = vec![value as f64]);
    }
}

impl GaugeFn for Metric {
    fn increment(&self, _: f64) {
        unreachable!("a gauge is set")
    }

    fn decrement(&self, _: f64) {
        unreachable!("a gauge is set")
    }

    fn set(&self, value: f64) {
        self.change(|values| *values = vec![value]);
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        self.change(|values| values.push(value));
    }
}

impl Recorder for Values {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.metric(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.metric(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.metric(key))
    }
}

fn search(clock: &ManualClock) -> RateLimiter<SmoothBursty> {
    let policy = SmoothBursty::new(Rate::per_second(1.0));
    RateLimiter::builder(policy).clock(clock).name("search").build()
}

#[test]
fn each_publish_hands_on_what_has_changed() {
    let (values, clock) = (Values::default(), ManualClock::auto_advance());
    let (limiter, publisher) = (search(&clock), Publisher::new());
    publisher.add(&limiter);
    with_local_recorder(&values, || {
        publisher.publish();
        assert_eq!(values.shown(), ["rate limiter=search [1.0]"], "nothing has happened");
        limiter.blocking_acquire(1).expect("the first");
        limiter.blocking_acquire(1).expect("waits for a second");
        assert!(limiter.try_acquire(1).is_err());
        limiter.pause_for(Duration::from_secs(5));
        let _waiting = [limiter.reserve(1).expect("a place"), limiter.reserve(1).expect("a place")];
        for _ in 0..2 {
            publisher.publish();
            let expected = [
                "granted_total limiter=search [2.0]",
                "pauses_total limiter=search [1.0]",
                "rate limiter=search [1.0]",
                "refused_total limiter=search [1.0]",
                "wait_seconds limiter=search [1.048576]",
                "waited_microseconds_total limiter=search [1000000.0]",
                "waiting limiter=search [2.0]",
            ];
            assert_eq!(values.shown(), expected, "also when nothing has changed since");
        }
    });
}

#[test]
fn limiters_of_one_name_are_added_up_and_dropped_ones_stay() {
    let (values, clock) = (Values::default(), ManualClock::new());
    let publisher = Publisher::new();
    let limiters = [search(&clock), search(&clock), search(&clock)];
    limiters.iter().for_each(|limiter| publisher.add(limiter));
    let unnamed = RateLimiter::new(InFlight::new(1));
    publisher.add(&unnamed);
    with_local_recorder(&values, || {
        let places = limiters.each_ref().map(|limiter| {
            limiter.try_acquire(1).expect("the first");
            limiter.reserve(1).expect("a place")
        });
        publisher.publish();
        let expected = [
            "granted_total limiter=search [3.0]",
            "permits limiter=unnamed [1.0]",
            "rate limiter=search [3.0]",
            "waiting limiter=search [3.0]",
        ];
        assert_eq!(values.shown(), expected);
        // What they counted since is published, although they are gone.
        clock.advance(Duration::from_secs(1));
        assert_eq!(places.each_ref().map(|place| place.delay().as_secs()), [0; 3]);
        drop((places, limiters, unnamed));
        publisher.publish();
        assert_eq!(
            values.shown(),
            [
                "given_up_total limiter=search [3.0]",
                "granted_total limiter=search [6.0]",
                "waited_microseconds_total limiter=search [3000000.0]",
            ]
        );
        assert_eq!(format!("{publisher:?}"), "Publisher { limiters: 0 }", "they are forgotten");
    });
}

#[test]
fn two_limiters_as_one_show_the_callers_of_both_queues() {
    let (values, clock) = (Values::default(), ManualClock::new());
    let limiter = search(&clock);
    let both = limiter.and(&RateLimiter::with_clock(InFlight::new(1), &clock));
    let publisher = Publisher::new();
    publisher.add(&both);
    with_local_recorder(&values, || {
        let _place = both.try_acquire(1).blocking_wait().expect("free");
        let join = || block_on(both.acquire(1).reserve()).expect("a place");
        let _waiting = [join(), join()];
        // The first one has passed the first queue.
        clock.advance(Duration::from_secs(1));
        publisher.publish();
        let shown = values.shown();
        assert!(shown.contains(&"waiting limiter=search [1.0]".to_owned()), "{shown:?}");
    });
    drop(both);
    with_local_recorder(&values, || publisher.publish());
    assert_eq!(
        (format!("{publisher:?}"), limiter.queue_len()),
        ("Publisher { limiters: 0 }".into(), 0)
    );
}

#[test]
fn all_keys_are_one_and_parts_have_a_label() {
    let (values, clock) = (Values::default(), ManualClock::auto_advance());
    let bucket = TokenBucket::new(Rate::per_second(1.0), 1);
    let limiter = KeyedRateLimiter::builder((bucket, InFlight::new(1))).clock(&clock);
    let limiter = limiter.name("users").build();
    let publisher = Publisher::new();
    publisher.add_keyed(&limiter);
    with_local_recorder(&values, || {
        for key in 0..100 {
            limiter.at(&key).blocking_acquire((1, 1)).expect("it is full");
            limiter.at(&key).blocking_acquire((1, 1)).expect("waits for a second");
        }
        let _places = [99, 99].map(|key| limiter.at(&key).reserve((1, 1)).expect("a place"));
        publisher.publish();
    });
    let shown = values.shown();
    assert_eq!(
        shown[..2],
        [
            "granted_total limiter=users [200.0]",
            "limited_by_total limiter=users,part=limit 1 of 2, token-bucket [100.0]"
        ]
    );
    assert_eq!(shown.len(), 5, "{shown:?}");
    assert_eq!(shown[3], "waited_microseconds_total limiter=users [100000000.0]");
    assert_eq!(shown[4], "waiting limiter=users [2.0]");
}

/// A recorder that uses the publisher with which it is called, in each of its methods.
struct CallsBack {
    values: Values,
    publisher: Publisher,
    limiter: RateLimiter<SmoothBursty>,
    has_added: AtomicBool,
}

impl CallsBack {
    fn call_back(&self) -> &Values {
        self.publisher.publish();
        assert!(format!("{:?}", self.publisher).starts_with("Publisher { limiters: "));
        if !self.has_added.swap(true, Ordering::Relaxed) {
            self.publisher.add(&self.limiter);
        }
        &self.values
    }
}

impl Recorder for CallsBack {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.call_back().describe_counter(name, unit, text);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.call_back().describe_gauge(name, unit, text);
    }

    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, text: SharedString) {
        self.call_back().describe_histogram(name, unit, text);
    }

    fn register_counter(&self, key: &Key, metadata: &Metadata<'_>) -> Counter {
        self.call_back().register_counter(key, metadata)
    }

    fn register_gauge(&self, key: &Key, metadata: &Metadata<'_>) -> Gauge {
        self.call_back().register_gauge(key, metadata)
    }

    fn register_histogram(&self, key: &Key, metadata: &Metadata<'_>) -> Histogram {
        self.call_back().register_histogram(key, metadata)
    }
}

#[test]
fn a_limiter_that_two_publish_is_alone_when_its_program_has_let_it_go() {
    let (values, clock) = (Values::default(), ManualClock::new());
    let (publisher, limiter) = (Publisher::new(), search(&clock));
    publisher.add(&limiter);
    with_local_recorder(&values, || {
        // The other one goes first, and the program goes on with its limiter.
        let other = Publisher::new();
        other.add(&limiter);
        drop(other);
        publisher.publish();
        limiter.try_acquire(1).expect("the first");
        publisher.publish();
        let expected = ["granted_total limiter=search [1.0]", "rate limiter=search [1.0]"];
        assert_eq!(values.shown(), expected);
    });
}

#[test]
fn each_metric_is_described() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let publisher = Publisher::new();
    publisher.add(&search(&ManualClock::new()));
    metrics::with_local_recorder(&recorder, || publisher.publish());
    let text = handle.render();
    for line in [
        "# HELP tollgate_granted_total calls that were granted",
        "# HELP tollgate_rate permits a second",
    ] {
        assert!(text.lines().any(|other| other == line), "{text}");
    }
}

/// It was a deadlock.
#[test]
fn a_recorder_may_use_its_publisher() {
    let (values, publisher) = (Values::default(), Publisher::new());
    let (counted, other) = (search(&ManualClock::new()), search(&ManualClock::new()));
    publisher.add(&counted);
    counted.try_acquire(1).expect("the first");
    other.try_acquire(1).expect("the first");
    let recorder = CallsBack {
        values: values.clone(),
        publisher: publisher.clone(),
        limiter: other,
        has_added: AtomicBool::new(false),
    };
    with_local_recorder(&recorder, || publisher.publish());
    with_local_recorder(&values, || publisher.publish());
    let expected = ["granted_total limiter=search [2.0]", "rate limiter=search [2.0]"];
    assert_eq!(values.shown(), expected, "each once");
}

/// What it had not taken is published by the next call.
#[test]
fn a_recorder_that_panics_ends_its_turn() {
    struct Panics;

    impl Recorder for Panics {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
            panic!("no counters here")
        }

        fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::noop()
        }

        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    let (values, publisher, limiter) =
        (Values::default(), Publisher::new(), search(&ManualClock::new()));
    publisher.add(&limiter);
    limiter.try_acquire(1).expect("the first");
    let publish = || with_local_recorder(&Panics, || publisher.publish());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(publish)).is_err());
    with_local_recorder(&values, || publisher.publish());
    let expected = ["granted_total limiter=search [1.0]", "rate limiter=search [1.0]"];
    assert_eq!(values.shown(), expected);
}

#[test]
fn a_recorder_that_is_installed_late_gets_all_that_was_counted() {
    let (values, clock) = (Values::default(), ManualClock::auto_advance());
    let (limiter, publisher) = (search(&clock), Publisher::new());
    publisher.add(&limiter);
    for _ in 0..3 {
        limiter.blocking_acquire(1).expect("a permit each second");
        publisher.publish(); // to no recorder
    }
    drop(limiter);
    publisher.publish();
    assert_eq!(format!("{publisher:?}"), "Publisher { limiters: 0 }");
    with_local_recorder(&values, || publisher.publish());
    let shown = values.shown();
    assert_eq!(shown[0], "granted_total limiter=search [3.0]");
    assert_eq!(
        shown.last().expect("waits"),
        "waited_microseconds_total limiter=search [2000000.0]"
    );
}

/// The names of all metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_of_name(c)).filter(|word| word.starts_with("tollgate_"));
    words.collect()
}

/// A panel of a metric that is gone stays empty, and shows no reason.
#[test]
fn the_dashboard_has_the_metrics_of_the_code_and_no_others() {
    let dashboard = include_str!("../../docs/grafana.json");
    let parsed: serde_json::Value = serde_json::from_str(dashboard).expect("JSON");
    let panels = parsed["panels"].as_array().expect("panels");
    let of_code = names(include_str!("../../src/metrics.rs"));
    assert_eq!(names(dashboard), of_code);
    let expressions = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let expressions: Vec<_> =
        expressions.map(|target| target["expr"].as_str().expect("text")).collect();
    assert!(expressions.len() >= panels.len(), "{expressions:?}");
    assert_eq!(names(&expressions.join(" ")), of_code, "each is shown");

    // As an exporter names them.
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let (handle, clock) = (recorder.handle(), ManualClock::auto_advance());
    let policy = tollgate::Same((TokenBucket::new(Rate::per_second(1.0), 1), InFlight::new(9)));
    let limiter = RateLimiter::builder(policy).clock(&clock).name("search").build();
    let publisher = Publisher::new();
    publisher.add(&limiter);
    for _ in 0..2 {
        limiter.blocking_acquire(1).expect("a permit each second");
    }
    with_local_recorder(&recorder, || publisher.publish());
    let scrape = handle.render();
    for expression in expressions.iter().filter(|text| !text.contains("tollgate_redis")) {
        for name in names(expression) {
            assert!(scrape.contains(&format!("\n{name}{{")), "{name} is not in\n{scrape}");
        }
    }
}

#[test]
fn the_rate_of_a_feedback_is_what_it_has_learned() {
    use tollgate::Granted as _;
    use tollgate::feedback::Feedback;

    let (values, clock) = (Values::default(), ManualClock::auto_advance());
    let limiter = search(&clock);
    let feedback = Feedback::builder(limiter.clone()).start(Rate::per_second(0.5)).build();
    let publisher = Publisher::new();
    publisher.add(&feedback);
    with_local_recorder(&values, || publisher.publish());
    assert!(
        values.shown().contains(&"rate limiter=search [0.5]".to_owned()),
        "{:?}",
        values.shown()
    );
    tollgate::block_on(async {
        let mut call = feedback.acquire(1).await.expect("the first");
        assert_eq!(call.cost(), 1);
        call.refused(Some(Duration::from_secs(30))).await;
    });
    let server = feedback.server_state();
    assert_eq!(server.pause, Some(Duration::from_secs(30)));
    assert!(server.rate.expect("it is learned").as_per_second() <= 0.5, "{server:?}");
    // Although the limiter goes on without it.
    drop(feedback);
    assert_eq!(limiter.queue_len(), 0);
    with_local_recorder(&values, || publisher.publish());
    let shown = values.shown();
    assert!(shown.contains(&"granted_total limiter=search [1.0]".to_owned()), "{shown:?}");
    assert_eq!(format!("{publisher:?}"), "Publisher { limiters: 0 }");
}

#[test]
fn callers_that_wait_for_the_server_count_as_waiting() {
    use tollgate::feedback::Feedback;

    let (values, clock) = (Values::default(), ManualClock::new());
    let feedback = Feedback::new(search(&clock));
    let publisher = Publisher::new();
    publisher.add(&feedback);
    tollgate::block_on(async {
        let mut call = feedback.acquire(1).await.expect("the first");
        call.refused(Some(Duration::from_secs(30))).await;
        let (_first, _second) = (feedback.reserve(1).await, feedback.reserve(1).await);
        with_local_recorder(&values, || publisher.publish());
    });
    let shown = values.shown();
    assert!(shown.contains(&"waiting limiter=search [2.0]".to_owned()), "{shown:?}");
}
