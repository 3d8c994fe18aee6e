//! Policies: the rules by which permits are handed out, as arithmetic and nothing else.
//!
//! A policy has no clock, no lock and no input or output. It answers two questions about a small
//! state: when is this cost ready, and what is the state once it is charged? Every verb of a
//! limiter is built on these two.

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

/// A rule by which permits are handed out.
///
/// The parameters live in the policy, the history in its [`State`](Policy::State). Time is always
/// an argument and may go backwards, which must never mint permits. A policy of your own gets every
/// verb of [`RateLimiter`](crate::RateLimiter) and of
/// [`KeyedRateLimiter`](crate::KeyedRateLimiter), and can be composed with others: see
/// `examples/custom_policy.rs`.
///
/// Five methods make a rule: [`start`](Policy::start), [`ready_at`](Policy::ready_at),
/// [`charge`](Policy::charge), [`migrate`](Policy::migrate) and [`available`](Policy::available). Add
/// [`refund`](Policy::refund), or nothing comes back from a refund, a settlement or a dropped future;
/// [`idle_at`](Policy::idle_at), or keys are never dropped and the quota has no reset; and
/// [`pause`](Policy::pause) if unused time is stored.
///
/// What every rule must keep:
///
/// - **Time alone never takes readiness away.** What is ready at some moment is ready at all later ones,
///   as long as nothing is charged meanwhile. So several rules together are ready at the latest of
///   their moments.
/// - [`charge`](Policy::charge) takes what is not ready, too: what [`settle`](crate::Grant::settle) finds
///   missing. It may be told a time somewhat before the last one, and mints nothing by that.
/// - The methods are quick and do not wait: they run under a lock.
///
/// # Examples
///
/// The policies of this crate can be asked directly, without a limiter:
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
    /// What is remembered between calls: plain data.
    type State: Clone + Debug + Send + 'static;
    /// What must be known of a charge to take it back later.
    type Receipt: Copy + Debug + Send + Sync + 'static;

    /// The state of a new limiter.
    fn start(&self, now: Nanos) -> Self::State;

    /// The state of a limiter that has not been used for long: what the absence of a key means to a
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter). By default that of a new limiter.
    fn idle(&self, now: Nanos) -> Self::State {
        self.start(now)
    }

    /// From when on the state answers as [`idle`](Self::idle) does if nothing happens before, so that
    /// a key can be forgotten. `None`, the default: never.
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

    /// Whether `cost` may be charged although it is not ready: once it is known that it was spent
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

    /// Gives back `part` of what was charged under `receipt`: exactly, as long as nobody has built
    /// on the charge, else as much as cannot make others exceed the limit. The receipt of the rest. By
    /// default nothing is given back.
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

    /// Nothing is granted until `until`, and no credit accrues: settles what came before. By default
    /// nothing, which is right for a rule that stores no unused time.
    fn pause(&self, state: &mut Self::State, now: Nanos, until: Nanos) {
        let _ = (state, now, until);
    }

    /// Makes a state that was kept under the parameters of `old` one of this policy: idle time up
    /// to now counts at the old rate.
    fn migrate(&self, old: &Self, state: &mut Self::State, now: Nanos);

    /// What could be taken now without making the next caller wait.
    fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost;

    /// A call for `cost` has been refused. Whether that changed the state: only for rules that punish.
    fn refused(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) -> bool {
        let _ = (state, now, cost);
        false
    }

    /// Which of several rules together holds `cost` back now, if any does.
    fn limited_by(&self, state: &Self::State, now: Nanos, cost: Self::Cost) -> Option<usize> {
        let _ = (state, now, cost);
        None
    }

    /// How late a waiting caller's wake-up may be without loss: a grant counts from its due time,
    /// but never from longer ago than this. By default zero, as rules need that look at the very
    /// times of grants; a rule of a rate loses throughput then.
    fn catch_up(&self) -> Duration {
        Duration::ZERO
    }

    /// When a caller is ready who stands behind `ahead` permits of several callers, all of them
    /// charged as soon as they are ready, from `now` on. `None`, the default, if that depends on who
    /// asks for how much: the line then goes through them one by one.
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

    /// From when on there is room for `cost` in the line, behind `queued` permits of others. By default
    /// now: any number may wait.
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

/// How much of a limit is left: what servers say in their `RateLimit` headers.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota<C> {
    /// What is there when nobody has taken anything for long.
    pub limit: C,
    /// What can be taken now without making the next caller wait.
    pub remaining: C,
    /// How long until everything is there again if nobody takes anything. `None` where that is not a
    /// question of time.
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
