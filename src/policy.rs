//! Policies: the rules by which permits are handed out, as arithmetic and nothing else.
//!
//! A policy has no clock, no lock and no input or output. It answers two questions about a small
//! state: when is this cost ready, and what is the state once it is charged? Every verb of a
//! limiter is built on these two.

pub(crate) mod fine;
pub(crate) mod schedule;
pub(crate) mod smooth_bursty;
pub(crate) mod smooth_warming_up;

use std::fmt::Debug;
use std::time::Duration;

use crate::error::ExceedsCapacity;
use crate::units::{Nanos, Rate};
use schedule::OneWord;

/// Two ticks of a timer that fires each millisecond.
pub(crate) const TWO_TICKS: Duration = Duration::from_millis(2);

/// A rule by which permits are handed out.
///
/// The parameters live in the policy, the history in its [`State`](Policy::State). Time is always
/// an argument and may go backwards, which must never mint permits. A policy of your own gets every
/// verb of [`RateLimiter`](crate::RateLimiter). Before version 1.0 this trait will grow: what keyed
/// limiters and limits on calls in flight need to know is still missing.
///
/// # Examples
///
/// The policies of this crate can be asked directly, without a limiter:
///
/// ```
/// use tollgate::{Nanos, Policy, Rate, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(5.0));
/// let mut state = policy.start(Nanos::ZERO);
/// assert_eq!(policy.ready_at(&state, Nanos::ZERO, 10)?, Nanos::ZERO);
/// policy.charge(&mut state, Nanos::ZERO, 10);
/// assert_eq!(policy.ready_at(&state, Nanos::ZERO, 1)?, Nanos::new(2_000_000_000));
/// # Ok::<(), tollgate::ExceedsCapacity>(())
/// ```
pub trait Policy: Clone + Send + Sync + 'static {
    /// What a caller asks for: a number of permits.
    type Cost: Cost;
    /// What is remembered between calls: plain data.
    type State: Clone + Debug + Send + 'static;
    /// What must be known of a charge to take it back later.
    type Receipt: Copy + Debug + Send + Sync + 'static;

    /// The state of a new limiter.
    fn start(&self, now: Nanos) -> Self::State;

    /// The first moment at which `cost` may be charged if nothing else happens before. A moment
    /// that has passed means "ready".
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] if waiting does not help.
    fn ready_at(
        &self,
        state: &Self::State,
        now: Nanos,
        cost: Self::Cost,
    ) -> Result<Nanos, ExceedsCapacity>;

    /// When a caller is ready who stands behind `ahead` permits (of several callers), all of them
    /// charged as soon as they are ready, from `now` on. With nobody ahead it agrees with
    /// [`ready_at`](Self::ready_at).
    fn ready_behind(&self, state: &Self::State, now: Nanos, ahead: u64, cost: Self::Cost) -> Nanos;

    /// Takes `cost` at the time `at`, whether it is ready or not.
    fn charge(&self, state: &mut Self::State, at: Nanos, cost: Self::Cost) -> Self::Receipt;

    /// Gives back `part` of what was charged under `receipt`: exactly, as long as nobody has built
    /// on the charge, else as much as cannot make others exceed the limit.
    fn refund(&self, state: &mut Self::State, now: Nanos, part: Self::Cost, receipt: Self::Receipt);

    /// Nothing is granted until `until`, and no credit accrues: settles what came before.
    fn pause(&self, state: &mut Self::State, now: Nanos, until: Nanos);

    /// Makes a state that was kept under the parameters of `old` one of this policy: idle time up
    /// to now counts at the old rate.
    fn adopt(&self, old: &Self, state: &mut Self::State, now: Nanos);

    /// What could be taken now without making the next caller wait.
    fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost;

    /// How late a waiting caller's wake-up may be without loss: a grant counts from its due time,
    /// but never from longer ago than this. By default zero, as rules need that look at the very
    /// times of grants; a rule of a rate loses throughput then.
    fn catch_up(&self) -> Duration {
        Duration::ZERO
    }

    /// How to decide without a lock; only for policies whose state is one position.
    #[doc(hidden)]
    const ONE_WORD: Option<OneWord<Self>> = None;
}

/// A policy with one steady rate: its limiter has [`set_rate`](crate::RateLimiter::set_rate).
///
/// ```
/// use tollgate::{Rate, Rated, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(5.0)).with_rate(Rate::per_second(7.0));
/// assert_eq!(policy.rate(), Rate::per_second(7.0));
/// ```
pub trait Rated: Policy {
    /// Permits per time when nothing is stored.
    fn rate(&self) -> Rate;

    /// The same policy at another rate.
    #[must_use]
    fn with_rate(self, rate: Rate) -> Self;
}

/// What a caller asks for: `u32` permits for the policies of this crate. The default is nothing.
///
/// ```
/// use tollgate::Cost;
///
/// assert!(0.is_zero());
/// assert_eq!(5.permits(), 5);
/// assert_eq!(5.less(7), 0);
/// ```
pub trait Cost: Copy + Debug + Default + PartialEq + Send + Sync + 'static {
    /// Whether this asks for nothing: granted at once, and takes nothing.
    fn is_zero(self) -> bool;

    /// How many permits this counts for in a line bounded by permits.
    fn permits(self) -> u64;

    /// What is left of this when `other` is taken away; nothing if `other` is larger.
    #[must_use]
    fn less(self, other: Self) -> Self;
}

impl Cost for u32 {
    fn is_zero(self) -> bool {
        self == 0
    }

    fn permits(self) -> u64 {
        u64::from(self)
    }

    fn less(self, other: Self) -> Self {
        self.saturating_sub(other)
    }
}
