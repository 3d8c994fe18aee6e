//! What a rule is, and what it is asked.

use std::fmt::Debug;
use std::time::Duration;

use super::cost::Cost;
use super::lock_free::LockFree;
use super::packed::Packed;
use super::ready::Ready;
use crate::error::ExceedsCapacity;
use crate::part::{Kind, Part};
use crate::units::{Nanos, Rate};

/// A rule by which permits are granted, as arithmetic on a small state.
///
/// The policy holds the parameters; its [`State`](Policy::State) holds the history. It has no clock and no
/// lock: time is an argument. A custom rule works with all methods of
/// [`RateLimiter`](crate::RateLimiter) and [`KeyedRateLimiter`](crate::KeyedRateLimiter), and composes with
/// others as part of a tuple, an array or [`Same`](crate::Same).
///
/// # A custom rule
///
/// A fixed delay after each request, whatever its cost. Only five methods are required, so this is the whole
/// rule (`examples/custom_policy.rs` is a larger example):
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
/// # Requirements for every rule
///
/// - **Time alone never takes readiness away.** A cost that is ready at one time is ready at all later times
///   as long as nothing is charged. So several rules together are ready at the latest of their times.
/// - [`charge`](Policy::charge) accepts a cost that is not ready, because
///   [`settle`](crate::Grant::settle) charges the difference. It also accepts a time somewhat before the
///   last one, and this must not create permits.
/// - Methods return quickly and do not wait, because they run under a lock.
///
/// # Panics
///
/// A method must not panic. A panic reaches the caller whose call met it, or the clock's thread, which goes on; but what
/// the method was about to change may be changed in part, and permits or places may be lost.
///
/// # Optional methods
///
/// | method | without it |
/// |---|---|
/// | [`refund`](Policy::refund) | refunds, settlements and dropped futures give nothing back |
/// | [`idle`](Policy::idle), [`idle_at`](Policy::idle_at) | keys are never dropped; the quota has no reset; with places in flight, [`drain`](crate::Limiter::drain) never resolves |
/// | [`pause`](Policy::pause) | unused time in a pause is stored |
/// | [`HELD`](Policy::HELD), [`release`](Policy::release) | a dropped grant gives nothing back |
/// | [`catch_up`](Policy::catch_up) | a late timer costs throughput |
/// | [`check_debt`](Policy::check_debt) | a settlement is never too large |
/// | [`refused`](Policy::refused) | refusals change nothing |
/// | [`room_at`](Policy::room_at) | any number may wait |
/// | [`window`](Policy::window) | the quota has no window |
/// | [`limited_by`](Policy::limited_by) | a composed rule does not name its slowest part |
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
    /// The cost of a request: a number of permits, or a tuple of numbers for a tuple of policies.
    type Cost: Cost;
    /// The state that a limiter, or a key, keeps between calls: plain data.
    type State: Clone + Debug + Send + 'static;
    /// The data about a charge that a refund needs.
    type Receipt: Clone + Debug + Send + Sync + 'static;

    /// The state of a new limiter.
    fn start(&self, now: Nanos) -> Self::State;

    /// The state of a limiter after a long idle time, and of an absent key of a
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter). Default: the state of a new limiter.
    fn idle(&self, now: Nanos) -> Self::State {
        self.start(now)
    }

    /// The time from which the state behaves like [`idle`](Self::idle) if nothing happens before; the key can be
    /// dropped then. `None`, the default: never.
    fn idle_at(&self, state: &Self::State) -> Option<Nanos> {
        let _ = state;
        None
    }

    /// The time at which `cost` may be charged if nothing else happens before.
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

    /// Charges `cost` at the time `at`, whether it is ready or not.
    fn charge(&self, state: &mut Self::State, at: Nanos, cost: Self::Cost) -> Self::Receipt;

    /// Checks that `cost` may be charged although it is not ready: for a settlement, whose cost is already spent.
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

    /// Whether a grant is held, like a place in flight. If so, dropping it calls [`release`](Self::release).
    const HELD: bool = false;

    /// Called when a grant of `cost` is dropped, even after a [`refund`](Self::refund).
    fn release(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) {
        let _ = (state, now, cost);
    }

    /// Pauses the limiter until `until`: settles the time before, so that no credit accrues in the pause. Default:
    /// nothing, which is right for a rule that stores no unused time.
    fn pause(&self, state: &mut Self::State, now: Nanos, until: Nanos) {
        let _ = (state, now, until);
    }

    /// Converts a state of the policy `old` into a state of this policy. Idle time up to now counts at the old
    /// rate.
    fn migrate(&self, old: &Self, state: &mut Self::State, now: Nanos);

    /// The permits that can be acquired now without a wait for the next caller.
    fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost;

    /// The time in which the steady rate yields `permits`, or one permit if `permits` is zero. For `limit` permits
    /// in a window this is the window; a composed rule takes as long as its slowest part. `None`, the default:
    /// permits do not come with time alone. See [`Quota::window`].
    fn window(&self, permits: Self::Cost) -> Option<Duration> {
        let _ = permits;
        None
    }

    /// Called when a request for `cost` is refused. Returns whether the refusal changed the state. For rules
    /// with a penalty.
    fn refused(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) -> bool {
        let _ = (state, now, cost);
        false
    }

    /// The part of a composed rule that limits `cost` now.
    fn limited_by(&self, state: &Self::State, now: Nanos, cost: Self::Cost) -> Option<Part> {
        let _ = (state, now, cost);
        None
    }

    /// The maximum wake-up lateness that is credited back: a grant counts from its due time, but at most this
    /// long before now. Default: zero, which rules that record the times of grants need. With zero, a rule with
    /// a rate loses throughput.
    fn catch_up(&self) -> Duration {
        Duration::ZERO
    }

    /// The time from which `cost` fits in the queue behind `queued` permits of others. Default: `now`, so the
    /// queue is not bounded by the policy.
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

    /// What makes the rules of this crate faster; not covered by semantic versioning.
    #[doc(hidden)]
    const HOOKS: Hooks<Self> = Hooks::none();
}

/// What makes the rules of this crate faster, and reports more of them. No hook changes a decision.
///
/// A table and not methods of [`Policy`], so that an author of a rule need not know it. It is a constant, so a call
/// through it is a direct call, and inlined as one.
#[derive(Debug)]
#[non_exhaustive]
#[allow(clippy::type_complexity)] // the signatures of methods
pub struct Hooks<P: Policy> {
    /// The time at which a caller is ready behind `ahead` permits of several callers, each charged as soon as it is
    /// ready, from `now` on. `None` if the time depends on the individual costs: the queue then visits the waiters one
    /// by one.
    pub ready_behind: fn(&P, &P::State, Nanos, u64, P::Cost) -> Option<Nanos>,
    /// A copy of the state for a projection: it is exact while it is charged with no more than this in all, each cost
    /// when it is ready.
    pub fork: fn(&P, &P::State, <P::Cost as Cost>::Sum) -> P::State,
    /// Whether a cost is ready at `now`. Same result as [`ready_at`](Policy::ready_at), in fewer steps where this
    /// pays off.
    pub ready_now: fn(&P, &P::State, Nanos, P::Cost) -> bool,
    /// As [`charge`](Policy::charge), while no other receipt of this state can be given back: keeps no record for
    /// refunds of others.
    pub charge_alone: fn(&P, &mut P::State, Nanos, P::Cost) -> P::Receipt,
    /// No receipt of this state can be given back any more: drops what is kept for that.
    pub forget_receipts: fn(&P, &mut P::State),
    /// The state becomes a new limiter's, except for the places in flight of grants that live.
    pub renew: fn(&P, &mut P::State, Nanos),
    /// Whether no result depends on time. If so, the clock is not read while no caller waits.
    pub(crate) timeless: bool,
    /// Whether [`release`](Policy::release) ignores the time.
    pub(crate) timeless_release: bool,
    /// Whether receipts are small enough for registers.
    pub(crate) small: bool,
    /// Visits each limit of this policy that counts the same cost, in order: the limits of the parts of a composed
    /// rule. Any other rule is one limit, and so is a tuple, whose parts have costs of their own.
    pub(crate) limits: fn(&P, &P::State, Asked<P::Cost>, &mut dyn FnMut(Limit<P::Cost>)),
    /// Which rule of this crate it is.
    pub(crate) kind: fn(&P) -> Option<Kind>,
    /// Its steady rate.
    pub(crate) rate: fn(&P) -> Option<Rate>,
    /// The part of a composed rule with this index.
    pub(crate) part: fn(&P, usize) -> Option<Part>,
    /// The functions to decide without a lock; only for policies whose state is one position.
    pub(crate) lock_free: Option<LockFree<P, P::State, P::Receipt>>,
    /// The functions to keep the state of a key in one word; only for policies whose state is mostly one position.
    pub(crate) packed: Option<Packed<P, P::State, P::Cost, P::Receipt>>,
}

impl<P: Policy> Hooks<P> {
    /// What holds for any policy.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            ready_behind: |_, _, _, _, _| None,
            fork: |_, state, _| state.clone(),
            ready_now: |policy, state, now, cost| {
                policy.ready_at(state, now, cost).is_ok_and(|ready| ready.has_come(now))
            },
            charge_alone: P::charge,
            forget_receipts: |_, _| (),
            renew: |policy, state, now| *state = policy.start(now),
            timeless: false,
            timeless_release: !P::HELD,
            small: false,
            limits: |policy, state, asked, visit| visit(Limit::of(policy, state, asked)),
            kind: |_| None,
            rate: |_| None,
            part: |_, _| None,
            lock_free: None,
            packed: None,
        }
    }

    /// The hooks of a policy whose type has no name here.
    pub(crate) const fn of(_: &P) -> Self {
        P::HOOKS
    }
}

/// The limit and its remaining permits, as in a `RateLimit` header.
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
/// assert_eq!(quota.window, Some(Duration::from_secs(60)));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Quota<C> {
    /// The permits of an unused limiter.
    pub limit: C,
    /// The permits that can be acquired now without a wait for the next caller.
    pub remaining: C,
    /// The time until the whole limit is available again if no permit is taken. `None` if this does not depend on
    /// time alone.
    pub reset_after: Option<Duration>,
    /// The time in which `limit` permits arrive, so `limit / window` is the steady rate:
    ///
    /// | rule | window |
    /// |---|---|
    /// | windows and logs | the window |
    /// | buckets and rates | the time in which the rate yields `limit` permits: 12 s for 20 at 100 a minute |
    /// | a rate that stores nothing, whose `limit` is 0 | the time of one permit |
    /// | [`InFlight`](crate::InFlight) | `None`: a permit comes back when its grant is dropped |
    /// | several rules | the longest of all parts, each for its part of `limit` |
    ///
    /// A client that takes at most `limit` permits in any `window` is not refused by full buckets, alone or
    /// together, nor by a log alone. For 20 at once, 100 a minute, and 1000 an hour this is 20 in 72 s.
    pub window: Option<Duration>,
}

impl<C: Cost> Quota<C> {
    pub(crate) fn of<P: Policy<Cost = C>>(policy: &P, state: &P::State, now: Nanos) -> Self {
        let limit = policy.available(&policy.idle(now), now);
        Self {
            limit,
            remaining: policy.available(state, now),
            reset_after: policy.idle_at(state).map(|time| time.since(now)),
            window: policy.window(limit),
        }
    }
}

/// A question about the limits of a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<C> {
    pub(crate) now: Nanos,
    /// The cost of the request that asks.
    pub(crate) cost: C,
    /// When a new caller is granted at the earliest, whatever the limit: behind a pause, a lock or a queue.
    pub(crate) opens: Ready,
}

impl<C> Asked<C> {
    /// Nothing but the limits holds callers back.
    #[cfg(feature = "redis")]
    pub(crate) fn now(now: Nanos, cost: C) -> Self {
        Self { now, cost, opens: Ready::At(Nanos::ZERO) }
    }
}

/// One limit of a policy as it is now.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit<C> {
    /// The permits of an unused limiter.
    pub limit: C,
    /// The permits that can be acquired now, one by one or together.
    pub remaining: C,
    /// The time until more than `remaining` can be acquired, and at least the cost that was asked for, if no
    /// permit is taken before. `None` if that does not depend on time alone, or exceeds the limit.
    pub more_after: Option<Duration>,
    /// See [`Quota::window`].
    pub window: Option<Duration>,
    /// Whether permits come back when their grants are dropped.
    pub is_held: bool,
}

impl<C: Cost> Limit<C> {
    fn of<P: Policy<Cost = C>>(policy: &P, state: &P::State, asked: Asked<C>) -> Self {
        let Asked { now, cost, opens } = asked;
        let limit = policy.available(&policy.idle(now), now);
        let is_open = opens.has_come(now);
        let remaining = if is_open { policy.available(state, now) } else { C::default() };
        let more = remaining.each(C::ONE, u32::saturating_add).each(cost, u32::max);
        let ready = policy.ready_at(state, now, more).ok();
        Self {
            limit,
            remaining,
            more_after: ready.and_then(|ready| ready.and(opens).wait(now)),
            window: policy.window(limit),
            is_held: P::HELD,
        }
    }

    /// How long a request for `cost` waits for all of `limits`, which are those for this cost. `None` if that is
    /// unpredictable.
    #[cfg(feature = "redis")]
    pub(crate) fn wait(limits: &[Self], cost: C) -> Option<Duration> {
        limits.iter().try_fold(Duration::ZERO, |longest, limit| {
            let is_there = cost.saturating_sub(limit.remaining).is_zero();
            Some(longest.max(if is_there { Duration::ZERO } else { limit.more_after? }))
        })
    }

    /// All limits of a policy.
    pub(crate) fn all<P: Policy<Cost = C>>(
        policy: &P,
        state: &P::State,
        asked: Asked<C>,
    ) -> Vec<Self> {
        let mut all = Vec::new();
        (P::HOOKS.limits)(policy, state, asked, &mut |limit| all.push(limit));
        all
    }
}
