//! The limiters of `Limits`.

use std::sync::Arc;

use super::limits::Limits;
use crate::clock::Clock;
use crate::keyed::KeyedRateLimiter;
use crate::keyed::at_key::AtKey;
use crate::policy::any::AllOf;
use crate::rate_limiter::builder::RateLimiterBuilder;
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
///     waits.push(limiters.at(host).acquire(1).await?.waited().as_millis());
/// }
/// assert_eq!(waits, [0, 200, 0, 0, 1000]);
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Each name is a key of one [`KeyedRateLimiter`], so idle names take no memory. A name starts
/// as a new limiter, even after an idle time: with the `initial` tokens of a bucket, and with nothing stored.
#[derive(Clone, Debug)]
pub struct RateLimiters {
    keyed: Keyed,
    /// The limits in force.
    limits: Arc<Mutex<Arc<Limits>>>,
}

type Keyed = KeyedRateLimiter<String, AllOf>;
type Builder = RateLimiterBuilder<Keyed>;

/// The limit of each key by what is in force when it is asked.
#[inline]
fn policies(limits: &Arc<Mutex<Arc<Limits>>>) -> impl Fn(&String) -> AllOf + Send + Sync + use<> {
    let limits = Arc::clone(limits);
    move |key| {
        let limits = Arc::clone(&limits.lock());
        limits.get(key).clone()
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

    /// With any options of the [builder](RateLimiterBuilder) of their table: a clock, a name, a maximum of keys, bounds of
    /// each name's queue.
    #[must_use]
    #[inline]
    pub fn with_options(limits: Limits, options: impl FnOnce(Builder) -> Builder) -> Self {
        let limits = Arc::new(Mutex::new(Arc::new(limits)));
        let builder = KeyedRateLimiter::builder_with_policies(policies(&limits));
        Self { keyed: options(builder).absent_is_new(true).build(), limits }
    }

    /// The limiter of a name.
    ///
    /// ```
    /// use tollgate::{Limits, RateLimiters};
    ///
    /// let limiters = RateLimiters::new(Limits::per_name("unlimited")?.named("search", "1/s")?);
    /// assert!(limiters.at("search").try_acquire(1).is_ok());
    /// assert!(limiters.at("search").try_acquire(1).is_err());
    /// assert!(limiters.at("upload").try_acquire(1000).is_ok());
    /// # Ok::<(), tollgate::InvalidLimit>(())
    /// ```
    #[must_use]
    #[inline]
    pub fn at(&self, name: &str) -> AtKey<'static, 'static, str, AllOf> {
        self.keyed.at(name).into_owned()
    }

    /// Puts other limits into force, even for callers that already wait. Each name keeps its history and
    /// its queue, as in [`RateLimiter::set_policy`](crate::RateLimiter::set_policy): a call cannot be made twice
    /// because a file was read twice.
    ///
    /// A name that is no longer listed gets the default. If that is `unlimited`, or a file has none, its waiters go at once.
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
    pub fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits.lock())
    }

    /// The table of all names, with all methods by name.
    #[must_use]
    pub fn keyed(&self) -> &Keyed {
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
