//! What a limiter reports: events, for a listener and for `tracing`, and how long callers waited.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "redis")]
use crate::error::store::StoreError;
use crate::part::Part;
#[cfg(feature = "metrics")]
use crate::stats::Stats;
use crate::stats::Waits;
use crate::sync::real::Mutex;
use crate::units::{Rate, to_millis};

/// An event of a limiter, for the `on_event` of its builder.
///
/// A call that need not wait makes no event; [`stats`](crate::RateLimiter::stats) counts it.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
/// use tollgate::{Event, ManualClock, Rate, RateLimiter, SmoothBursty};
///
/// let seen = Arc::new(Mutex::new(Vec::new()));
/// let log = Arc::clone(&seen);
/// let limiter = RateLimiter::builder(SmoothBursty::new(Rate::per_second(0.5)))
///     .clock(ManualClock::auto_advance())
///     .on_event(move |event| log.lock().unwrap().push(event.to_string()))
///     .build();
/// limiter.blocking_acquire(1)?;
/// limiter.blocking_acquire(1)?;
/// limiter.pause_for(Duration::from_secs(30));
/// limiter.set_rate(Rate::per_second(2.0));
/// assert_eq!(*seen.lock().unwrap(), ["waited for 2s", "paused for 30s", "the rate is now 2/s"]);
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A caller was granted after a wait of at least the builder's `slow_wait`.
    #[non_exhaustive]
    Waited {
        /// How long it waited.
        wait: Duration,
        /// The limit of a composed policy that it waited for.
        limited_by: Option<Part>,
    },
    /// A call of `pause_for`.
    #[non_exhaustive]
    Paused {
        /// How long nothing is granted from now.
        duration: Duration,
    },
    /// A call of `resume`.
    Resumed,
    /// A call of `set_rate`, `set_policy` or `set_policies`.
    #[non_exhaustive]
    PolicyChanged {
        /// The new rate, if it was changed by `set_rate`.
        rate: Option<Rate>,
    },
    /// Redis did not reply within the deadline; callers now get what [`Unavailable`](crate::redis::Unavailable)
    /// says.
    #[cfg(feature = "redis")]
    #[non_exhaustive]
    Down {
        /// The error of the last request; its source is the cause.
        error: StoreError,
    },
    /// Redis is back.
    #[cfg(feature = "redis")]
    #[non_exhaustive]
    Up {
        /// The time since the first failure, or since the last reply if that came later.
        after: Duration,
    },
    /// The key in Redis has another policy than this process knew, which is now in force here. Another process
    /// has set it, or has it in its code.
    #[cfg(feature = "redis")]
    #[non_exhaustive]
    PolicyAdopted {
        /// The key.
        key: Arc<str>,
        /// The [version](crate::RateLimiterBuilder::version) of the code that brought it.
        version: u32,
        /// The second in which it was set by [`set_policy`](crate::redis::RedisRateLimiter::set_policy), by
        /// the server's clock; zero if it is the one of the code.
        generation: u32,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waited { wait, limited_by } => {
                write!(f, "waited for {:?}", to_millis(*wait))?;
                limited_by.map_or(Ok(()), |part| write!(f, " ({part})"))
            }
            Self::Paused { duration } => write!(f, "paused for {:?}", to_millis(*duration)),
            Self::Resumed => f.write_str("resumed"),
            Self::PolicyChanged { rate: Some(rate) } => write!(f, "the rate is now {rate}"),
            Self::PolicyChanged { rate: None } => f.write_str("the policy was changed"),
            #[cfg(feature = "redis")]
            Self::Down { error } => {
                write!(f, "no longer waiting for Redis: {error}")?;
                // An event is no error, of which reporters print the source.
                std::error::Error::source(error).map_or(Ok(()), |cause| write!(f, ": {cause}"))
            }
            #[cfg(feature = "redis")]
            Self::Up { after } => write!(f, "Redis is back after {:?}", to_millis(*after)),
            #[cfg(feature = "redis")]
            Self::PolicyAdopted { key, version, generation } => {
                write!(
                    f,
                    "the key {key:?} brings a policy of version {version}, set at {generation}"
                )
            }
        }
    }
}

/// Whom a limiter reports to. All clones of a limiter share one, and so do all its keys.
pub(crate) struct Observer {
    reports: Reports,
    pub(crate) waits: Mutex<Waits>,
}

/// Until the builder says otherwise.
const SLOW_WAIT: Duration = Duration::from_secs(1);

type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// What a builder sets of an [`Observer`].
#[derive(Clone)]
pub(crate) struct Reports {
    pub(crate) name: Option<Arc<str>>,
    pub(crate) slow_wait: Duration,
    listener: Option<Listener>,
}

impl Default for Reports {
    fn default() -> Self {
        Self { name: None, slow_wait: SLOW_WAIT, listener: None }
    }
}

impl Reports {
    pub(crate) fn listen(&mut self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        self.listener = Some(Arc::new(listener));
    }
}

impl Observer {
    pub(crate) fn new(reports: Reports) -> Arc<Self> {
        Arc::new(Self { reports, waits: Mutex::default() })
    }

    pub(crate) fn name(&self) -> Option<&str> {
        self.reports.name.as_deref()
    }

    /// A caller was granted. The listener may panic, so the caller must still own its permits.
    pub(crate) fn granted(&self, wait: Duration, limited_by: Option<Part>) {
        if wait.is_zero() {
            return;
        }
        self.waits.lock().count(wait, limited_by);
        if wait >= self.reports.slow_wait {
            self.report(&Event::Waited { wait, limited_by });
        }
    }

    pub(crate) fn paused(&self, duration: Duration) {
        if !duration.is_zero() {
            self.report(&Event::Paused { duration });
        }
    }

    /// Must not be called under a lock: the listener may call the limiter.
    pub(crate) fn report(&self, event: &Event) {
        #[cfg(feature = "tracing")]
        self.trace(event);
        if let Some(listener) = &self.reports.listener {
            listener(event);
        }
    }

    #[cfg(feature = "tracing")]
    fn trace(&self, event: &Event) {
        let limiter = self.name();
        match event {
            #[cfg(feature = "redis")]
            Event::Down { .. } => tracing::warn!(limiter, "{event}"),
            _ => tracing::info!(limiter, "{event}"),
        }
    }
}

/// What a limiter has counted so far.
#[cfg(feature = "metrics")]
#[derive(Clone, Debug, Default)]
pub struct Observation {
    pub(crate) stats: Stats,
    pub(crate) waiting: usize,
    /// The rate, and the permits that remain; of a tuple the first number.
    pub(crate) rate: Option<Rate>,
    pub(crate) permits: Option<u32>,
    /// Requests sent, requests that failed, and calls without Redis.
    pub(crate) redis: Option<[u64; 3]>,
    /// Only the publisher still has the limiter, so these counts do not change any more.
    pub(crate) is_last: bool,
}

/// Observes a limiter, and keeps it.
#[cfg(feature = "metrics")]
pub(crate) type Observe = Box<dyn Fn() -> Observation + Send>;

#[cfg(feature = "metrics")]
pub(crate) fn observe<T: Send + Sync + 'static>(
    shared: &Arc<T>,
    look: impl Fn(&Arc<T>) -> Observation + Send + 'static,
) -> Observe {
    let shared = Arc::clone(shared);
    Box::new(move || {
        // Before the look: then the counts are the last.
        let is_last = Arc::strong_count(&shared) == 1;
        Observation { is_last, ..look(&shared) }
    })
}
