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
//! | `tollgate_rate` | gauge | permits a second: of several limits the lowest, and what a `Feedback` has learned |
//! | `tollgate_permits` | gauge | permits that are free now, not the capacity; not of a limiter with keys, and not over Redis, which would take a request |
//! | `tollgate_wait_seconds` | histogram | the wait of each caller that waited and took its grant, recorded as up to half too long; see [below](#waits) |
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
//! the queue. Each wait is recorded as the upper bound of its bucket, so the sum is up to half too long. For averages divide
//! `tollgate_waited_microseconds_total`, which is exact, by `tollgate_granted_total`, which has the calls without a wait as
//! well.
//!
//! `metrics-exporter-prometheus` makes a summary of it, with quantiles that cannot be added up over processes, unless its
//! builder sets buckets (`set_buckets_for_metric`). The dashboard reads the summary.
//!
//! `docs/grafana.json` is a dashboard of these metrics for Grafana with a Prometheus source.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use metrics::Unit;
use metrics::{
    Label, SharedString, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use parking_lot::ReentrantMutex;

use crate::keyed::KeyedRateLimiter;
use crate::limiter::Limiter;
use crate::observe::{Observation, Observe};
use crate::policy::Policy;
use crate::sync::Mutex;
use crate::units::{Rate, saturating_nanos};

/// Hands the counts of limiters to the recorder of the `metrics` facade.
///
/// The publisher keeps a limiter that was dropped until it has published its last counts, with the next
/// [`publish`](Self::publish); its counters stay. Clones publish the same limiters.
///
/// ```
/// use std::time::Duration;
/// use tollgate::metrics::Publisher;
/// use tollgate::{Rate, RateLimiter, SmoothBursty};
///
/// // A recorder was installed before, for example by `metrics_exporter_prometheus`.
/// let policy = SmoothBursty::new(Rate::per_second(50.0));
/// let limiter = RateLimiter::builder(policy).name("search").build();
/// let publisher = Publisher::new();
/// publisher.add(&limiter);
/// let task = publisher.publish_every(Duration::from_secs(5))?; // until it is dropped
/// # drop(task);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Default)]
pub struct Publisher {
    sources: Arc<Mutex<Vec<Arc<Source>>>>,
    turn: Arc<ReentrantMutex<Cell<bool>>>,
    totals: Arc<Mutex<Totals>>,
}

/// What each counter counts, with the counts of dropped limiters. The labels: the limiter, and the part.
type Totals = BTreeMap<(&'static str, SharedString, Option<String>), u64>;

/// Of the limiters of one name.
#[derive(Default)]
struct Gauges {
    waiting: usize,
    rate: Option<f64>,
    permits: Option<f64>,
}

/// Something that a [`Publisher`] can publish: any [`Limiter`], and all keys of a [`KeyedRateLimiter`]. The trait is
/// sealed.
pub trait Observed: sealed::Observed {}

mod sealed {
    use crate::observe::Observe;

    pub trait Observed {
        fn name(&self) -> Option<&str>;

        fn observe(&self) -> Observe;
    }
}

struct Source {
    name: SharedString,
    /// What is observed, and what was published last.
    observed: Mutex<(Observe, Observation)>,
}

impl Publisher {
    /// A publisher of no limiters yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Publishes this limiter too, from its next [`publish`](Self::publish) on. Add each limiter once, not each
    /// of its clones.
    pub fn add(&self, limiter: &impl Observed) {
        let name =
            limiter.name().map_or(Cow::Borrowed("unnamed"), |name| Cow::Owned(name.to_owned()));
        let observed = Mutex::new((limiter.observe(), Observation::default()));
        self.sources.lock().push(Arc::new(Source { name: name.into(), observed }));
    }

    /// Hands to the recorder what has changed since the last call.
    ///
    /// Calls on several threads take turns. The recorder may use the publisher, but a call of this method by the
    /// recorder does nothing.
    ///
    /// ```
    /// # use tollgate::metrics::Publisher;
    /// # use tollgate::{InFlight, RateLimiter};
    /// # let publisher = Publisher::new();
    /// # publisher.add(&RateLimiter::new(InFlight::new(1)));
    /// publisher.publish(); // for example before each scrape
    /// ```
    pub fn publish(&self) {
        let turn = self.turn.lock();
        if turn.replace(true) {
            return;
        }
        let _turn = EndOfTurn(&turn);
        let sources = self.sources.lock().clone();
        describe();
        let mut gauges: BTreeMap<SharedString, Gauges> = BTreeMap::new();
        let mut gone = Vec::new();
        for source in &sources {
            let seen = source.publish(&self.totals);
            if seen.is_last {
                gone.push(Arc::as_ptr(source));
            }
            gauges.entry(source.name.clone()).or_default().add(&seen);
        }
        self.sources.lock().retain(|source| !gone.contains(&Arc::as_ptr(source)));
        let totals = self.totals.lock().clone();
        for ((metric, limiter, part), total) in totals {
            let part = part.map(|part| Label::new("part", part));
            let labels: Vec<_> = [Label::new("limiter", limiter)].into_iter().chain(part).collect();
            let is_of_waits = metric == WAITED;
            counter!(metric, labels.iter()).absolute(if is_of_waits {
                total / 1_000
            } else {
                total
            });
        }
        for (name, gauges) in gauges {
            gauges.publish(&name);
        }
    }

    /// Publishes now and after each `interval`, on a thread, until the task is dropped.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tollgate::metrics::Publisher;
    /// let task = Publisher::new().publish_every(Duration::from_secs(5))?;
    /// drop(task); // publishes a last time, and ends
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn publish_every(&self, interval: Duration) -> std::io::Result<PublishTask> {
        let publisher = self.clone();
        let (end, ends) = mpsc::channel::<()>();
        let run = move || {
            publisher.publish();
            while ends.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                publisher.publish();
            }
            publisher.publish();
        };
        let thread = thread::Builder::new().name("tollgate-metrics".to_owned()).spawn(run)?;
        Ok(PublishTask { end: Some(end), thread: Some(thread) })
    }
}

/// Also if the recorder panics.
struct EndOfTurn<'a>(&'a Cell<bool>);

impl Drop for EndOfTurn<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("limiters", &self.sources.lock().len()).finish()
    }
}

/// Publishes in the background; see [`Publisher::publish_every`]. Dropping it publishes a last time and ends the
/// thread.
///
/// ```
/// # use std::time::Duration;
/// # use tollgate::metrics::{PublishTask, Publisher};
/// let task: PublishTask = Publisher::new().publish_every(Duration::from_secs(5))?;
/// # drop(task);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "it publishes until it is dropped"]
#[derive(Debug)]
pub struct PublishTask {
    end: Option<Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for PublishTask {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // A recorder that panics has shown its message.
            let _ = thread.join();
        }
    }
}

impl Gauges {
    fn add(&mut self, seen: &Observation) {
        let add = |sum: &mut Option<f64>, value: Option<f64>| {
            let value = value.map(|value| if seen.is_last { 0.0 } else { value });
            *sum = sum.zip(value).map(|(sum, value)| sum + value).or(*sum).or(value);
        };
        self.waiting += seen.waiting;
        add(&mut self.rate, seen.rate.map(Rate::as_per_second));
        add(&mut self.permits, seen.permits.map(f64::from));
    }

    fn publish(&self, name: &SharedString) {
        let set =
            |metric: &'static str, value| gauge!(metric, "limiter" => name.clone()).set(value);
        #[allow(clippy::cast_precision_loss)] // to the nearest float
        set("tollgate_waiting", self.waiting as f64);
        if let Some(rate) = self.rate {
            set("tollgate_rate", rate);
        }
        if let Some(permits) = self.permits {
            set("tollgate_permits", permits);
        }
    }
}

impl Source {
    /// Adds what was counted since the last time to `totals`, and returns what it saw.
    fn publish(&self, totals: &Mutex<Totals>) -> Observation {
        let (before, now) = {
            let (observe, published) = &mut *self.observed.lock();
            let now = observe();
            (mem::replace(published, now.clone()), now)
        };
        let waits = now.waits.since(&before.waits);
        let mut totals = totals.lock();
        let mut count = |metric: &'static str, part: Option<String>, more: u64| {
            *totals.entry((metric, self.name.clone(), part)).or_default() += more;
        };
        let (new, old) = (now.stats, before.stats);
        count("tollgate_granted_total", None, new.granted - old.granted);
        count("tollgate_refused_total", None, new.refused - old.refused);
        count("tollgate_given_up_total", None, new.given_up - old.given_up);
        count("tollgate_pauses_total", None, new.pauses - old.pauses);
        count(WAITED, None, saturating_nanos(new.waited.saturating_sub(old.waited)));
        if let Some(redis) = now.redis {
            let before = before.redis.unwrap_or_default();
            count("tollgate_redis_requests_total", None, redis[0] - before[0]);
            count("tollgate_redis_failed_total", None, redis[1] - before[1]);
            count("tollgate_redis_without_total", None, redis[2] - before[2]);
        }
        for (part, callers) in waits.limited_by() {
            count("tollgate_limited_by_total", Some(part.to_string()), callers);
        }
        drop(totals);
        let wait = histogram!("tollgate_wait_seconds", "limiter" => self.name.clone());
        for (bound, count) in waits.buckets() {
            wait.record_many(bound.as_secs_f64(), usize::try_from(count).unwrap_or(usize::MAX));
        }
        now
    }
}

/// Counted in nanoseconds.
const WAITED: &str = "tollgate_waited_microseconds_total";

/// Each time, as a recorder may be installed late.
fn describe() {
    describe_counter!("tollgate_granted_total", Unit::Count, "calls that were granted");
    describe_counter!("tollgate_refused_total", Unit::Count, "calls that got an error");
    describe_counter!("tollgate_given_up_total", Unit::Count, "callers that left the queue");
    describe_counter!("tollgate_pauses_total", Unit::Count, "pauses of the limiter");
    describe_counter!(WAITED, Unit::Microseconds, "the sum of the waits of all granted calls");
    describe_gauge!("tollgate_rate", Unit::CountPerSecond, "permits a second");
    describe_gauge!("tollgate_permits", Unit::Count, "permits that remain");
    describe_counter!("tollgate_limited_by_total", Unit::Count, "callers that waited for a limit");
    describe_counter!("tollgate_redis_requests_total", Unit::Count, "requests sent to Redis");
    describe_counter!("tollgate_redis_failed_total", Unit::Count, "requests that failed");
    describe_counter!("tollgate_redis_without_total", Unit::Count, "calls served without Redis");
    describe_gauge!("tollgate_waiting", Unit::Count, "callers in the queue");
    describe_histogram!(
        "tollgate_wait_seconds",
        Unit::Seconds,
        "the wait of each caller that waited"
    );
}

impl<L: Limiter> Observed for L {}

/// One key of a limiter, too, publishes all its keys.
impl<L: Limiter> sealed::Observed for L {
    fn name(&self) -> Option<&str> {
        Limiter::name(self)
    }

    fn observe(&self) -> Observe {
        Limiter::observe(self)
    }
}

impl<K, P, S> Observed for KeyedRateLimiter<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
}

impl<K, P, S> sealed::Observed for KeyedRateLimiter<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn name(&self) -> Option<&str> {
        self.name()
    }

    fn observe(&self) -> Observe {
        self.observe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is seen of a limiter that has counted this.
    fn observed(count: u64, requests: u64) -> Observation {
        let mut seen = Observation { redis: Some([requests, 2, 3]), ..Observation::default() };
        (seen.stats.granted, seen.stats.refused) = (count, count + 1);
        (seen.stats.given_up, seen.stats.pauses) = (count + 2, count + 3);
        seen
    }

    #[test]
    fn a_total_is_what_was_counted_whenever_it_was_published() {
        let counts = std::cell::Cell::new((0, 0));
        let observe = Box::new(move || {
            let (count, requests) = counts.replace((counts.get().0 + 10, counts.get().1 + 100));
            observed(count, requests)
        });
        let source = Source {
            name: "search".into(),
            observed: Mutex::new((observe, Observation::default())),
        };
        let totals = Mutex::default();
        for turn in 0..3 {
            source.publish(&totals);
            let totals = totals.lock();
            let total = |metric| totals[&(metric, "search".into(), None)];
            for (metric, first) in [
                ("tollgate_granted_total", 0),
                ("tollgate_refused_total", 1),
                ("tollgate_given_up_total", 2),
                ("tollgate_pauses_total", 3),
            ] {
                assert_eq!(total(metric), first + 10 * turn, "{metric}");
            }
            assert_eq!(total("tollgate_redis_requests_total"), 100 * turn);
            assert_eq!(total("tollgate_redis_failed_total"), 2);
            assert_eq!(total("tollgate_redis_without_total"), 3);
        }
    }
}
