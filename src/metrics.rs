//! Metrics of limiters, for any recorder of the [`metrics`](https://docs.rs/metrics) facade, such as a Prometheus
//! exporter.
//!
//! A [`Publisher`] reads the counts that limiters keep anyway, and hands the changes to the recorder. So a grant
//! costs the same with and without metrics.
//!
//! Guide: [operations](crate::guide::operations#what-to-watch), with alerts.
//!
//! | metric | kind | |
//! |---|---|---|
//! | `tollgate_granted_total` | counter | calls that were granted, not permits |
//! | `tollgate_refused_total` | counter | calls that got an error |
//! | `tollgate_given_up_total` | counter | callers that left the queue, and grants that no caller took |
//! | `tollgate_pauses_total` | counter | pauses that began or were made longer |
//! | `tollgate_waited_microseconds_total` | counter | the exact sum of the waits of all granted calls |
//! | `tollgate_waiting` | gauge | callers in the queue now |
//! | `tollgate_rate` | gauge | permits a second: of several limits the lowest, and what a `Feedback` has learned; not of a limiter with keys |
//! | `tollgate_permits` | gauge | permits that are free now, not the capacity; not of a limiter with keys, and not over Redis, which would take a request |
//! | `tollgate_wait_seconds` | histogram | the wait of each caller that waited and took its grant, recorded as up to twice too long; see [below](#waits) |
//! | `tollgate_limited_by_total` | counter | callers that waited for a limit of a composed policy, with the label `part`, such as "limit 2 of 3, in-flight" |
//! | `tollgate_redis_requests_total` | counter | requests sent to Redis |
//! | `tollgate_redis_failed_total` | counter | requests that failed |
//! | `tollgate_redis_without_total` | counter | calls served without Redis because it was away |
//!
//! Each has the label `limiter`, the name that the builder was given, or `unnamed`. Limiters of one name are added
//! up. All keys of a limiter are one: a label for each key would not be bounded. Of a limiter whose cost is a tuple
//! `tollgate_permits` is the first number.
//!
//! A counter is set to what was counted since the limiter was made, so a recorder that is installed later misses nothing of
//! it; the histogram begins with the first publish that finds a recorder. Publish to one recorder by one publisher.
//!
//! # Waits
//!
//! `tollgate_wait_seconds` has only callers that waited and took their grant. Callers that did not wait are not in it, nor
//! those that left the queue, which `tollgate_given_up_total` counts: in a stall it stays empty, and `tollgate_waiting` shows
//! the queue. Each wait is recorded as the upper bound of its bucket, so the sum is up to twice too long. For averages divide
//! `tollgate_waited_microseconds_total`, which is exact, by `tollgate_granted_total`, which has the calls without a wait as
//! well.
//!
//! `metrics-exporter-prometheus` makes a summary of it, with quantiles that cannot be added up over processes, unless its
//! builder sets buckets (`set_buckets_for_metric`). The dashboard reads the summary.
//!
//! `docs/grafana.json` is a dashboard of these metrics for Grafana with a Prometheus source.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::iter;
use std::mem;
use std::sync::{self, Arc, TryLockError};

use metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use crate::keyed::KeyedRateLimiter;
use crate::limiter::Limiter;
use crate::observe::{Observation, Observe};
use crate::policy::Policy;
use crate::stats::Stats;
use crate::sync::real::Mutex;
use crate::units::Rate;

/// The counters of a limiter, in the order of [`counts`]. The last three are of a limiter over Redis.
const COUNTERS: [(&str, Unit, &str); 8] = [
    ("tollgate_granted_total", Unit::Count, "calls that were granted"),
    ("tollgate_refused_total", Unit::Count, "calls that got an error"),
    ("tollgate_given_up_total", Unit::Count, "callers that left the queue"),
    ("tollgate_pauses_total", Unit::Count, "pauses of the limiter"),
    (
        "tollgate_waited_microseconds_total",
        Unit::Microseconds,
        "the sum of the waits of all granted calls",
    ),
    ("tollgate_redis_requests_total", Unit::Count, "requests sent to Redis"),
    ("tollgate_redis_failed_total", Unit::Count, "requests that failed"),
    ("tollgate_redis_without_total", Unit::Count, "calls served without Redis"),
];

fn counts(seen: &Observation) -> [u64; COUNTERS.len()] {
    let stats = &seen.stats;
    let waited = u64::try_from(stats.waited.as_micros()).unwrap_or(u64::MAX);
    let [requests, failed, without] = seen.redis.unwrap_or_default();
    let &Stats { granted, refused, given_up, pauses, .. } = stats;
    [granted, refused, given_up, pauses, waited, requests, failed, without]
}

/// One for each limit of a composed policy.
const LIMITED_BY: &str = "tollgate_limited_by_total";
const WAITS: &str = "tollgate_wait_seconds";

/// Hands the counts of limiters to the recorder of the `metrics` facade.
///
/// The publisher keeps a limiter that was dropped until it has published its last counts, with the next
/// [`publish`](Self::publish); its counters stay. Clones publish the same limiters.
///
/// ```
/// use tollgate::metrics::Publisher;
/// use tollgate::{Rate, RateLimiter, SmoothBursty};
///
/// // A recorder was installed before, for example by `metrics_exporter_prometheus`.
/// let policy = SmoothBursty::new(Rate::per_second(50.0));
/// let limiter = RateLimiter::builder(policy).name("search").build();
/// let publisher = Publisher::new();
/// publisher.add(&limiter);
/// publisher.publish(); // and again each few seconds, or before each scrape
/// ```
#[derive(Clone, Default)]
pub struct Publisher {
    published: Arc<Mutex<Published>>,
    /// Held while the recorder is called.
    turn: Arc<sync::Mutex<()>>,
}

#[derive(Default)]
struct Published {
    limiters: Vec<Source>,
    totals: Totals,
}

/// What each counter counts, with the counts of dropped limiters: the metric, the limiter, and the part.
type Totals = BTreeMap<(&'static str, SharedString, Option<String>), u64>;

type Gauges = BTreeMap<(&'static str, SharedString), f64>;

struct Source {
    name: SharedString,
    observe: Observe,
    /// What was published last.
    before: Observation,
}

impl Publisher {
    /// A publisher of no limiters yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Publishes this limiter too, from its next [`publish`](Self::publish) on. Add each limiter once, not each
    /// of its clones. One key of a limiter publishes all its keys.
    pub fn add(&self, limiter: &impl Limiter) {
        self.add_source(limiter.name(), limiter.observe());
    }

    /// Publishes all keys of a limiter as one.
    pub fn add_keyed<K: Hash + Eq + Send + 'static, P: Policy>(
        &self,
        limiter: &KeyedRateLimiter<K, P>,
    ) {
        self.add_source(limiter.name(), limiter.observe());
    }

    fn add_source(&self, name: Option<&str>, observe: Observe) {
        let name = name.unwrap_or("unnamed").to_owned().into();
        self.published.lock().limiters.push(Source {
            name,
            observe,
            before: Observation::default(),
        });
    }

    /// Hands to the recorder what has changed since the last call. Does nothing while another call is under way, such as
    /// one whose recorder calls this method.
    ///
    /// ```
    /// # use tollgate::metrics::Publisher;
    /// # use tollgate::{InFlight, RateLimiter};
    /// # let publisher = Publisher::new();
    /// # publisher.add(&RateLimiter::new(InFlight::new(1)));
    /// publisher.publish(); // for example before each scrape
    /// ```
    pub fn publish(&self) {
        let turn = self.turn.try_lock();
        if matches!(turn, Err(TryLockError::WouldBlock)) {
            return;
        }
        describe();
        // The recorder may use the publisher, so it is called without the lock.
        let (totals, gauges, waits) = self.published.lock().look();
        for ((metric, limiter, part), total) in totals {
            let part = part.map(|part| Label::new("part", part));
            let labels: Vec<_> = iter::once(Label::new("limiter", limiter)).chain(part).collect();
            counter!(metric, labels.iter()).absolute(total);
        }
        for ((metric, limiter), value) in gauges {
            gauge!(metric, "limiter" => limiter).set(value);
        }
        for (limiter, waits) in waits {
            let histogram = histogram!(WAITS, "limiter" => limiter);
            for (bound, count) in waits.wait_buckets() {
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                histogram.record_many(bound.as_secs_f64(), count);
            }
        }
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("limiters", &self.published.lock().limiters.len())
            .finish()
    }
}

impl Published {
    /// Looks at each limiter: returns all totals and gauges, and the waits since the last time. Forgets limiters that have
    /// gone.
    fn look(&mut self) -> (Totals, Gauges, Vec<(SharedString, Stats)>) {
        let (mut gauges, mut all_waits) = (Gauges::new(), Vec::new());
        let totals = &mut self.totals;
        self.limiters.retain_mut(|Source { name, observe, before }| {
            let now = observe();
            let before = mem::replace(before, now.clone());
            let mut count = |metric, part, more: u64| {
                *totals.entry((metric, name.clone(), part)).or_default() += more;
            };
            let has = if now.redis.is_some() { COUNTERS.len() } else { COUNTERS.len() - 3 };
            let counted = counts(&now).into_iter().zip(counts(&before));
            for ((metric, ..), (new, old)) in COUNTERS.into_iter().zip(counted).take(has) {
                count(metric, None, new - old);
            }
            let waits = now.stats.waits_since(&before.stats);
            for (part, callers) in waits.limited_by() {
                count(LIMITED_BY, Some(part.to_string()), callers);
            }
            all_waits.push((name.clone(), waits));
            #[allow(clippy::cast_precision_loss)] // to the nearest float
            for (metric, value) in [
                ("tollgate_waiting", Some(now.waiting as f64)),
                ("tollgate_rate", now.rate.map(Rate::as_per_second)),
                ("tollgate_permits", now.permits.map(f64::from)),
            ] {
                let Some(value) = value else { continue };
                *gauges.entry((metric, name.clone())).or_default() +=
                    if now.is_last { 0.0 } else { value };
            }
            !now.is_last
        });
        (totals.clone(), gauges, all_waits)
    }
}

/// Each time, as a recorder may be installed late.
fn describe() {
    for (name, unit, text) in COUNTERS {
        describe_counter!(name, unit, text);
    }
    describe_counter!(LIMITED_BY, Unit::Count, "callers that waited for a limit");
    describe_gauge!("tollgate_waiting", Unit::Count, "callers in the queue");
    describe_gauge!("tollgate_rate", Unit::CountPerSecond, "permits a second");
    describe_gauge!("tollgate_permits", Unit::Count, "permits that remain");
    describe_histogram!(WAITS, Unit::Seconds, "the wait of each caller that waited");
}
