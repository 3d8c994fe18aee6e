//! The limiters of `Limits`.

use std::fmt;
use std::sync::Arc;

use super::limits::Limits;
use crate::clock::Clock;
use crate::keyed::KeyedRateLimiter;
use crate::keyed::at_key::AtKey;
use crate::keyed::builder::KeyedRateLimiterBuilder;
use crate::policy::any::AllOf;
use crate::policy::unlimited::Unlimited;
use crate::sync::Mutex;

/// The limiters of [`Limits`]: one for each name.
///
/// Clones share them. [`reload`](Self::reload) changes the limits while they work. Guide: [limits as text, and from a
/// file](crate::guide::config).
///
/// ```
/// use tollgate::{Limiter, Limits, ManualClock, RateLimiters};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let limits = Limits::per_host("5/s")?.named("slow.example.org", "1/s")?;
/// let limiters = RateLimiters::with_clock(limits, ManualClock::auto_advance());
/// let mut waits = Vec::new();
/// for host in ["a.org", "a.org", "b.org", "slow.example.org", "slow.example.org"] {
///     let limiter = limiters.at(host).expect("a limit for each host");
///     waits.push(limiter.acquire(1).await?.waited().as_millis());
/// }
/// assert_eq!(waits, [0, 200, 0, 0, 1000]);
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Each name is a key of one [`KeyedRateLimiter`], so idle names take no memory. A name starts
/// as a new limiter, even after an idle time: with the `initial` tokens of a bucket, and with nothing stored.
#[derive(Clone)]
pub struct RateLimiters {
    keyed: KeyedRateLimiter<String, AllOf>,
    /// The limits in force.
    limits: Arc<Mutex<Arc<Limits>>>,
}

/// The limit of each key by what is in force when it is asked. A name without a limit is not limited.
#[inline]
fn policies(limits: &Arc<Mutex<Arc<Limits>>>) -> impl Fn(&String) -> AllOf + Send + Sync + use<> {
    let limits = Arc::clone(limits);
    move |key| {
        let limits = Arc::clone(&limits.lock());
        limits.get(key).cloned().unwrap_or_else(|| AllOf::new([Unlimited.into()]))
    }
}

// Inlined, so that the line and the table of an `AllOf` are compiled where they are used, and not with this crate.
impl RateLimiters {
    /// With the system clock.
    #[must_use]
    #[inline]
    pub fn new(limits: Limits) -> Self {
        Self::with_clock(limits, Clock::system())
    }

    /// With another clock.
    #[must_use]
    #[inline]
    pub fn with_clock(limits: Limits, clock: impl Into<Clock>) -> Self {
        Self::with_options(limits, |builder| builder.clock(clock))
    }

    /// With any options of the [builder](KeyedRateLimiterBuilder) of their table: a clock, a name, a maximum of keys, bounds of
    /// each name's queue.
    #[must_use]
    #[inline]
    pub fn with_options(
        limits: Limits,
        options: impl FnOnce(
            KeyedRateLimiterBuilder<String, AllOf>,
        ) -> KeyedRateLimiterBuilder<String, AllOf>,
    ) -> Self {
        let limits = Arc::new(Mutex::new(Arc::new(limits)));
        let builder = KeyedRateLimiter::builder_with_policies(policies(&limits));
        Self { keyed: options(builder).absent_is_new(true).build(), limits }
    }

    /// The limiter of a name. `None` if calls of this name are not limited.
    ///
    /// It takes a name and no memory. Look it up for each call, so that a name that is listed later gets its own
    /// limiter.
    ///
    /// ```
    /// use tollgate::{Limits, Per, RateLimiters};
    ///
    /// let limiters = RateLimiters::new(Limits::new(Per::Name).named("search", "1/s")?);
    /// assert!(limiters.at("search").is_some() && limiters.at("upload").is_none());
    /// # Ok::<(), tollgate::InvalidLimit>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn at(&self, name: &str) -> Option<AtKey<'static, 'static, str, AllOf>> {
        self.in_force().get(name)?;
        Some(self.keyed.at(name).into_owned())
    }

    /// Puts other limits into force, even for callers that already wait. Each name keeps its history and
    /// its queue, as in [`RateLimiter::set_policy`](crate::RateLimiter::set_policy): a call cannot be made twice
    /// because a file was read twice.
    ///
    /// A name that is no longer listed gets the default. If there is none, it is not limited from now on, and its waiters
    /// go at once.
    ///
    /// An evenly spaced limit (`10/min`) has set the time of its next call when it granted the last one. So its first waiter
    /// keeps its wait, and those behind it wait by the new rate. A bucket (`10/min burst 10`) fills at the new rate at once.
    ///
    /// A file that cannot be read changes nothing, because it does not become `Limits`:
    ///
    /// ```
    /// use tollgate::{InvalidLimit, Limits, RateLimiters};
    ///
    /// // Of a whole file: `limiters.reload(toml::from_str(file)?)`.
    /// fn reload(limiters: &RateLimiters, limit: &str) -> Result<(), InvalidLimit> {
    ///     limiters.reload(Limits::per_name(limit)?);
    ///     Ok(())
    /// }
    /// ```
    #[inline]
    pub fn reload(&self, limits: Limits) {
        // Several threads may do this at once: whichever sets the policies last finds the last limits.
        *self.limits.lock() = Arc::new(limits);
        self.keyed.set_policies(policies(&self.limits));
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits::clone(&self.in_force())
    }

    pub(crate) fn in_force(&self) -> Arc<Limits> {
        Arc::clone(&self.limits.lock())
    }

    /// The table of all names, with all methods by name. A name without a limit is not limited there.
    #[must_use]
    pub fn keyed(&self) -> &KeyedRateLimiter<String, AllOf> {
        &self.keyed
    }
}

/// With the system clock.
impl From<Limits> for RateLimiters {
    #[inline]
    fn from(limits: Limits) -> Self {
        Self::new(limits)
    }
}

impl fmt::Debug for RateLimiters {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiters")
            .field("limits", &self.limits())
            .field("keyed", &self.keyed)
            .finish()
    }
}
