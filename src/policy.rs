//! Policies: the rules by which permits are handed out, as arithmetic and nothing else.
//!
//! A policy has no clock, no lock and no input or output. It answers two questions about a small
//! state: when is this cost ready, and what is the state once it is charged? Every verb of a
//! limiter is built on these two.

pub(crate) mod any;
pub(crate) mod compose;
mod cost;
pub(crate) mod fine;
pub(crate) mod fixed_window;
pub(crate) mod gcra;
pub(crate) mod in_flight;
pub(crate) mod leaky_bucket;
pub(crate) mod lock_free;
pub(crate) mod lock_out;
pub(crate) mod log;
mod ready;
pub(crate) mod schedule;
pub(crate) mod sliding_window_counter;
pub(crate) mod sliding_window_log;
pub(crate) mod smooth_bursty;
pub(crate) mod smooth_warming_up;
pub mod state;
pub(crate) mod token_bucket;

use std::fmt::Debug;
use std::time::Duration;

use crate::error::ExceedsCapacity;
use crate::units::{Nanos, Rate};
pub use cost::Cost;
use lock_free::LockFree;
pub use ready::Ready;

/// Two ticks of a timer that fires each millisecond.
pub(crate) const TWO_TICKS: Duration = Duration::from_millis(2);

/// A rule by which permits are granted, as arithmetic on a small state.
///
/// The parameters live in the policy, the history in its [`State`](Policy::State). A policy has no
/// clock and no lock: time is an argument. A rule of your own has all verbs of
/// [`RateLimiter`](crate::RateLimiter) and [`KeyedRateLimiter`](crate::KeyedRateLimiter), and
/// composes with others as part of a tuple, an array or [`Same`](crate::Same).
///
/// # A rule of your own
///
/// A fixed delay after each request, whatever its cost. Five methods are required, and this is all of
/// it (`examples/custom_policy.rs` is a larger one):
///
/// ```
/// use std::time::Duration;
/// use tollgate::{ExceedsCapacity, ManualClock, Nanos, Policy, RateLimiter, Ready};
///
/// #[derive(Clone, Debug)]
/// struct Cooldown(Duration);
///
/// impl Policy for Cooldown {
///     type Cost = u32;
///     type State = Nanos; // when the next request is ready
///     type Receipt = ();
///
///     fn start(&self, now: Nanos) -> Nanos {
///         now
///     }
///     fn ready_at(&self, next: &Nanos, _: Nanos, _: u32) -> Result<Ready, ExceedsCapacity> {
///         Ok(Ready::At(*next))
///     }
///     fn charge(&self, next: &mut Nanos, at: Nanos, _: u32) {
///         *next = at.max(*next).saturating_add(self.0);
///     }
///     fn migrate(&self, _: &Self, _: &mut Nanos, _: Nanos) {} // a cooldown that runs keeps its end
///     fn available(&self, next: &Nanos, now: Nanos) -> u32 {
///         u32::from(*next <= now)
///     }
/// }
///
/// let policy = Cooldown(Duration::from_secs(3));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::auto_advance());
/// limiter.blocking_acquire(10)?;
/// assert_eq!(limiter.blocking_acquire(1)?.waited().as_secs(), 3);
/// # Ok::<(), tollgate::Error>(())
/// ```
///
/// # What every rule must keep
///
/// - **Time alone never takes readiness away.** A cost that is ready at one moment is ready at all
///   later ones as long as nothing is charged. So several rules together are ready at the latest of
///   their moments.
/// - [`charge`](Policy::charge) accepts a cost that is not ready: [`settle`](crate::Grant::settle)
///   charges the difference. It accepts a time somewhat before the last one, and mints nothing by it.
/// - Methods return quickly and do not wait: they run under a lock.
///
/// # Optional methods
///
/// | method | without it |
/// |---|---|
/// | [`refund`](Policy::refund) | refunds, settlements and dropped futures give nothing back |
/// | [`idle`](Policy::idle), [`idle_at`](Policy::idle_at) | keys are never dropped; the quota has no reset |
/// | [`pause`](Policy::pause) | unused time in a pause is stored |
/// | [`HELD`](Policy::HELD), [`release`](Policy::release) | a dropped grant gives nothing back |
/// | [`catch_up`](Policy::catch_up) | a late timer costs throughput |
/// | [`check_debt`](Policy::check_debt) | a settlement is never too large |
/// | [`refused`](Policy::refused) | refusals change nothing |
/// | [`room_at`](Policy::room_at) | any number may wait |
/// | [`limited_by`](Policy::limited_by) | a composed rule does not name its slowest part |
///
/// All other items are hooks by which the rules of this crate are decided faster. They are hidden,
/// change no answer, and are not covered by semantic versioning.
///
/// # Without a limiter
///
/// ```
/// use tollgate::{Nanos, Policy, Rate, Ready, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(5.0));
/// let mut state = policy.start(Nanos::ZERO);
/// assert_eq!(policy.ready_at(&state, Nanos::ZERO, 10)?, Ready::At(Nanos::ZERO));
/// policy.charge(&mut state, Nanos::ZERO, 10);
/// let two_seconds = Nanos::new(2_000_000_000);
/// assert_eq!(policy.ready_at(&state, Nanos::ZERO, 1)?, Ready::At(two_seconds));
/// # Ok::<(), tollgate::ExceedsCapacity>(())
/// ```
pub trait Policy: Clone + Send + Sync + 'static {
    /// What a caller asks for: a number of permits, or a tuple of numbers for a tuple of policies.
    type Cost: Cost;
    /// What a limiter, or a key, remembers between calls: plain data.
    type State: Clone + Debug + Send + 'static;
    /// What a refund has to know of a charge.
    type Receipt: Copy + Debug + Send + Sync + 'static;

    /// The state of a new limiter.
    fn start(&self, now: Nanos) -> Self::State;

    /// The state of a limiter that has long been unused. An absent key of a
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter) has this state. Default: that of a new limiter.
    fn idle(&self, now: Nanos) -> Self::State {
        self.start(now)
    }

    /// The moment from which the state answers as [`idle`](Self::idle) does if nothing happens before;
    /// the key can be dropped then. `None`, the default: never.
    fn idle_at(&self, state: &Self::State) -> Option<Nanos> {
        let _ = state;
        None
    }

    /// When `cost` may be charged if nothing else happens before.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] if waiting does not help.
    fn ready_at(
        &self,
        state: &Self::State,
        now: Nanos,
        cost: Self::Cost,
    ) -> Result<Ready, ExceedsCapacity>;

    /// Takes `cost` at the time `at`, whether it is ready or not.
    fn charge(&self, state: &mut Self::State, at: Nanos, cost: Self::Cost) -> Self::Receipt;

    /// Whether `cost` may be charged although it is not ready: a settlement found that it was spent
    /// already.
    ///
    /// # Errors
    ///
    /// [`ExceedsCapacity`] if paying it off would take longer than the [horizon](Nanos::HORIZON).
    fn check_debt(
        &self,
        state: &Self::State,
        now: Nanos,
        cost: Self::Cost,
    ) -> Result<(), ExceedsCapacity> {
        let _ = (state, now, cost);
        Ok(())
    }

    /// Gives back `part` of the charge of `receipt`, and returns the receipt of the rest. The refund is
    /// exact while no later charge builds on this one; afterwards it must not let others exceed the
    /// limit. Default: gives nothing back.
    fn refund(
        &self,
        state: &mut Self::State,
        now: Nanos,
        part: Self::Cost,
        receipt: Self::Receipt,
    ) -> Self::Receipt {
        let _ = (state, now, part);
        receipt
    }

    /// Whether a grant is held, as a place among the calls in flight is: then its drop calls
    /// [`release`](Self::release).
    const HELD: bool = false;

    /// A grant of `cost` has been dropped, after a [`refund`](Self::refund) too.
    fn release(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) {
        let _ = (state, now, cost);
    }

    /// The limiter is paused until `until`: settles what came before, so that no credit accrues.
    /// Default: does nothing, which is right for a rule that stores no unused time.
    fn pause(&self, state: &mut Self::State, now: Nanos, until: Nanos) {
        let _ = (state, now, until);
    }

    /// Makes a state that was kept under the parameters of `old` one of this policy: idle time up
    /// to now counts at the old rate.
    fn migrate(&self, old: &Self, state: &mut Self::State, now: Nanos);

    /// The permits that can be taken now without a wait for the next caller.
    fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost;

    /// A call for `cost` has been refused. Returns whether that changed the state; for rules with a
    /// penalty.
    fn refused(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) -> bool {
        let _ = (state, now, cost);
        false
    }

    /// The index of the part of a composed rule that holds `cost` back now.
    fn limited_by(&self, state: &Self::State, now: Nanos, cost: Self::Cost) -> Option<usize> {
        let _ = (state, now, cost);
        None
    }

    /// The maximum wake-up lateness that is credited back: a grant counts from its due time, but never
    /// from longer ago than this. Default: zero, as needed by rules that record the times of grants; a
    /// rule of a rate then loses throughput.
    fn catch_up(&self) -> Duration {
        Duration::ZERO
    }

    /// The moment from which `cost` fits in the queue behind `queued` permits of others. Default:
    /// `now`; any number may wait.
    fn room_at(
        &self,
        state: &Self::State,
        now: Nanos,
        queued: <Self::Cost as Cost>::Sum,
        cost: Self::Cost,
    ) -> Nanos {
        let _ = (state, queued, cost);
        now
    }

    /// When a caller is ready who stands behind `ahead` permits of several callers, all of them
    /// charged as soon as they are ready, from `now` on. `None`, the default, if that depends on who
    /// asks for how much: the line then goes through them one by one.
    #[doc(hidden)]
    fn ready_behind(
        &self,
        state: &Self::State,
        now: Nanos,
        ahead: u64,
        cost: Self::Cost,
    ) -> Option<Nanos> {
        let _ = (state, now, ahead, cost);
        None
    }

    /// Whether `cost` is ready at `now`: what [`ready_at`](Self::ready_at) says, in fewer steps where that
    /// pays.
    #[doc(hidden)]
    #[inline]
    fn ready_now(&self, state: &Self::State, now: Nanos, cost: Self::Cost) -> bool {
        self.ready_at(state, now, cost).is_ok_and(|ready| ready.has_come(now))
    }

    /// Whether all answers are the same at any time: then the clock is not read while no caller waits.
    #[doc(hidden)]
    const TIMELESS: bool = false;

    /// Whether [`release`](Self::release) does the same at any time.
    #[doc(hidden)]
    const TIMELESS_RELEASE: bool = !Self::HELD;

    /// Whether receipts are so small that a call may keep them in registers.
    #[doc(hidden)]
    const SMALL: bool = false;

    /// How to decide without a lock; only for policies whose state is one position.
    #[doc(hidden)]
    const LOCK_FREE: Option<LockFree<Self, Self::State, Self::Receipt>> = None;
}

/// How much of a limit is left: the content of a `RateLimit` header.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{FixedWindow, ManualClock, RateLimiter};
///
/// let policy = FixedWindow::new(100, Duration::from_secs(60));
/// let limiter = RateLimiter::with_clock(policy, ManualClock::new());
/// limiter.try_acquire(30)?;
/// let quota = limiter.quota();
/// assert_eq!((quota.limit, quota.remaining), (100, 70));
/// assert_eq!(quota.reset_after, Some(Duration::from_secs(60)));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Quota<C> {
    /// The permits of an unused limiter.
    pub limit: C,
    /// The permits that can be taken now without a wait for the next caller.
    pub remaining: C,
    /// The time until all of the limit is available again if no permit is taken. `None` if that does
    /// not depend on time alone.
    pub reset_after: Option<Duration>,
}

impl<C: Cost> Quota<C> {
    pub(crate) fn of<P: Policy<Cost = C>>(policy: &P, state: &P::State, now: Nanos) -> Self {
        Self {
            limit: policy.available(&policy.idle(now), now),
            remaining: policy.available(state, now),
            reset_after: policy.idle_at(state).map(|time| time.since(now)),
        }
    }
}

/// `Debug` of a policy: its parameters, without what follows from them.
macro_rules! shows {
    ($policy:ident: |$this:ident| $($name:ident = $value:expr),+) => {
        impl std::fmt::Debug for $policy {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $this = self;
                f.debug_struct(stringify!($policy))
                    $(.field(stringify!($name), &{ $value }))+
                    .finish()
            }
        }
    };
}
pub(crate) use shows;

/// Spans of time that a policy is made of: none of them may be nothing, or its limit would be void.
#[track_caller]
pub(crate) fn check_span(span: Duration, what: &str) {
    assert!(!span.is_zero(), "{what} must not be zero");
    assert!(span <= Nanos::HORIZON, "{what} must not exceed 146 years");
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
