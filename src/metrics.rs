//! Metrics of limiters, for any recorder of the [`metrics`](https://docs.rs/metrics) facade, such as a Prometheus
//! exporter.
//!
//! A [`Publisher`] reads the counts that limiters keep anyway, and hands the changes to the recorder. So a grant
//! costs the same with and without metrics.
//!
//! | metric | kind | |
//! |---|---|---|
//! | `tollgate_granted_total` | counter | calls that were granted |
//! | `tollgate_refused_total` | counter | calls that got an error |
//! | `tollgate_given_up_total` | counter | callers that left the queue |
//! | `tollgate_pauses_total` | counter | pauses that began or were made longer |
//! | `tollgate_waiting` | gauge | callers in the queue now |
//! | `tollgate_wait_seconds` | histogram | the wait of each caller that waited; at most half too long |
//! | `tollgate_limited_by_total` | counter | callers that waited for a limit of a composed policy, with the label `part`, such as "limit 2 of 3, in-flight" |
//! | `tollgate_redis_requests_total` | counter | requests sent to Redis |
//! | `tollgate_redis_failed_total` | counter | requests that failed |
//! | `tollgate_redis_without_total` | counter | calls served without Redis because it was away |
//!
//! Each has the label `limiter`, the name that the builder was given, or `unnamed`. Limiters of one name are added
//! up. All keys of a limiter are one: a label for each key would not be bounded.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use metrics::Unit;
use metrics::{
    Label, SharedString, counter, describe_counter, describe_histogram, gauge, histogram,
};
use parking_lot::ReentrantMutex;

use crate::keyed::KeyedRateLimiter;
use crate::limiter::Limiter;
use crate::observe::{Observation, Observe};
use crate::policy::Policy;
use crate::sync::Mutex;

/// Hands the counts of limiters to the recorder of the `metrics` facade.
///
/// It does not keep a limiter alive: the metrics of a dropped limiter stay as they are. Clones publish the same
/// limiters.
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
        let mut waiting: Vec<(SharedString, usize)> = Vec::new();
        let mut gone = Vec::new();
        for source in &sources {
            let of_source = source.publish();
            if of_source.is_none() {
                gone.push(Arc::as_ptr(source));
            }
            let of_source = of_source.unwrap_or_default();
            match waiting.iter_mut().find(|(name, _)| *name == source.name) {
                Some((_, sum)) => *sum += of_source,
                None => waiting.push((source.name.clone(), of_source)),
            }
        }
        if !gone.is_empty() {
            self.sources.lock().retain(|source| !gone.contains(&Arc::as_ptr(source)));
        }
        for (name, waiting) in waiting {
            #[allow(clippy::cast_precision_loss)] // to the nearest float
            gauge!("tollgate_waiting", "limiter" => name).set(waiting as f64);
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

impl Source {
    /// Returns the number of waiting callers; `None` if the limiter has been dropped.
    fn publish(&self) -> Option<usize> {
        let (before, now) = {
            let (observe, published) = &mut *self.observed.lock();
            let now = observe()?;
            (mem::replace(published, now.clone()), now)
        };
        let count = |metric: &'static str, now: u64, before: u64| {
            counter!(metric, "limiter" => self.name.clone()).increment(now.saturating_sub(before));
        };
        count("tollgate_granted_total", now.stats.granted, before.stats.granted);
        count("tollgate_refused_total", now.stats.refused, before.stats.refused);
        count("tollgate_given_up_total", now.stats.given_up, before.stats.given_up);
        count("tollgate_pauses_total", now.stats.pauses, before.stats.pauses);
        if let Some(redis) = now.redis {
            let before = before.redis.unwrap_or_default();
            count("tollgate_redis_requests_total", redis[0], before[0]);
            count("tollgate_redis_failed_total", redis[1], before[1]);
            count("tollgate_redis_without_total", redis[2], before[2]);
        }
        let waits = now.waits.since(&before.waits);
        let wait = histogram!("tollgate_wait_seconds", "limiter" => self.name.clone());
        for (bound, count) in waits.buckets() {
            wait.record_many(bound.as_secs_f64(), usize::try_from(count).unwrap_or(usize::MAX));
        }
        for (part, count) in waits.limited_by() {
            let labels =
                [Label::new("limiter", self.name.clone()), Label::new("part", part.to_string())];
            counter!("tollgate_limited_by_total", labels.iter()).increment(count);
        }
        Some(now.waiting)
    }
}

/// Each time, as a recorder may be installed late.
fn describe() {
    describe_counter!("tollgate_granted_total", Unit::Count, "calls that were granted");
    describe_counter!("tollgate_refused_total", Unit::Count, "calls that got an error");
    describe_counter!("tollgate_given_up_total", Unit::Count, "callers that left the queue");
    describe_counter!("tollgate_pauses_total", Unit::Count, "pauses of the limiter");
    describe_counter!("tollgate_limited_by_total", Unit::Count, "callers that waited for a limit");
    describe_counter!("tollgate_redis_requests_total", Unit::Count, "requests sent to Redis");
    describe_counter!("tollgate_redis_failed_total", Unit::Count, "requests that failed");
    describe_counter!("tollgate_redis_without_total", Unit::Count, "calls served without Redis");
    metrics::describe_gauge!("tollgate_waiting", Unit::Count, "callers in the queue");
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
