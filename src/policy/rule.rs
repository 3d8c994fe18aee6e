//! What a rule is, and what it is asked.

use std::fmt::Debug;
use std::time::Duration;

use super::cost::Cost;
use super::ready::Ready;
use super::schedule::{RateReceipt, RateState, Schedule};
use crate::error::ExceedsCapacity;
use crate::part::{Kind, Part};
use crate::units::text::duration;
use crate::units::{Nanos, Rate, saturating_nanos};

/// A rule by which permits are granted, as arithmetic on a small state.
///
/// The policy holds the parameters; its [`State`](Policy::State) holds the history. It has no clock and no
/// lock: time is an argument. A custom rule works with all methods of
/// [`RateLimiter`](crate::RateLimiter) and [`KeyedRateLimiter`](crate::KeyedRateLimiter), and composes with
/// others as part of a tuple or [`Same`](crate::Same).
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
/// - [`ready_at`](Policy::ready_at) may be asked for a time before the present, by up to the rule's `catch_up`, or after it, as
///   the end of a pause. So it must not keep when it was asked.
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
/// | [`idle_at`](Policy::idle_at) | keys are never dropped; the quota has no reset; with places in flight, [`drain`](crate::Limiter::drain) never resolves |
/// | [`event`](Policy::event) | a dropped grant gives nothing back, and no reset does; unused time in a pause is stored; refusals change nothing; any number may wait |
/// | [`facts`](Policy::facts) | the quota has no window; a late timer costs throughput |
/// | [`limits`](Policy::limits) | a composed rule is shown as one limit, and does not name its slowest part |
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a policy",
    label = "not a policy",
    note = "a policy is a rule such as `TokenBucket`, a tuple or `Same((..))` of rules, or a text: `\"100/min\".parse::<AllOf>()?`"
)]
pub trait Policy: Clone + Debug + Send + Sync + 'static {
    /// The cost of a request: a number of permits, or a tuple of numbers for a tuple of policies.
    type Cost: Cost;
    /// The state that a limiter, or a key, keeps between calls: plain data.
    type State: Clone + Debug + Send + 'static;
    /// The data about a charge that a refund needs.
    type Receipt: Clone + Debug + Send + Sync + 'static;

    /// Whether a grant is held, like a place in flight. If so, dropping it is an
    /// [event](crate::state::RuleEvent::Released).
    const HELD: bool = false;

    /// Whether an answer depends on the time. If not, the clock is not read while no caller waits.
    const TIMED: bool = true;

    /// Whether a [release](crate::state::RuleEvent::Released) depends on the time. If not, dropping a grant does not read the
    /// clock.
    const RELEASE_TIMED: bool = Self::HELD && Self::TIMED;

    /// The state of a new limiter.
    fn start(&self, now: Nanos) -> Self::State;

    /// The time at which `cost` may be charged if nothing else happens before: `now` or any time before if it is ready.
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

    /// Charges `cost` at the time `at`, whether it is ready or not. A settlement to more charges the difference; its receipt is
    /// dropped, and a later refund comes with the receipt of the call.
    fn charge(&self, state: &mut Self::State, at: Nanos, cost: Self::Cost) -> Self::Receipt;

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

    /// Converts a state of the policy `old` into a state of this policy. Idle time up to now counts at the old
    /// rate.
    fn migrate(&self, old: &Self, state: &mut Self::State, now: Nanos);

    /// The permits that can be acquired now without a wait for the next caller.
    fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost;

    /// The time from which the state behaves like a long idle limiter if nothing happens before; the key can
    /// be dropped then. `None`, the default: never.
    fn idle_at(&self, state: &Self::State) -> Option<Nanos> {
        let _ = state;
        None
    }

    /// Something happened that is no charge. Returns the time from which callers are let in again: `now`, the
    /// default, unless the [event](RuleEvent) says otherwise.
    fn event(&self, state: &mut Self::State, now: Nanos, event: RuleEvent<Self::Cost>) -> Nanos {
        let _ = (state, event);
        now
    }

    /// What does not depend on the state, for the number with this index of the cost: always zero unless the cost is
    /// a tuple.
    fn facts(&self, number: usize) -> Facts {
        let _ = number;
        Facts::default()
    }

    /// Visits the limits of which this rule is made, in order. Default: it is one limit.
    #[inline]
    fn limits(
        &self,
        state: &Self::State,
        asked: Asked<Self::Cost>,
        visit: &mut dyn FnMut(Limit<Self::Cost>),
    ) {
        visit(Limit::of(self, state, asked));
    }

    /// How a rule with one steady rate is kept in a word; not covered by semantic versioning.
    #[doc(hidden)]
    const ONE_RATE: Option<OneRate<Self>> = None;
}

/// What happens to a limiter besides charges.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RuleEvent<C: Cost> {
    /// A grant of this cost was dropped, even after a [`refund`](Policy::refund). Only for [`HELD`](Policy::HELD) grants.
    Released(C),
    /// The limiter is paused until this time. No credit may accrue in the pause.
    Paused(Nanos),
    /// A request for this cost is refused. A rule with a penalty returns its end.
    Refused(C),
    /// A caller is about to join the queue. A rule that bounds the queue returns when there is room.
    Joins {
        /// The permits of all waiters.
        queued: C,
        /// The permits of the caller.
        cost: C,
    },
    /// No call came for a long time: a [new](Policy::start) state becomes an unused one.
    Idle,
    /// The limiter begins anew, and only the places in flight stay. Only for rules whose grants are
    /// [held](Policy::HELD); others start again.
    Reset,
}

impl<C: Cost> RuleEvent<C> {
    /// The same for a part of a rule. `None` if the part has nothing to do with it.
    #[inline(always)]
    pub(super) fn of<D: Cost>(self, part: impl Fn(C) -> D) -> Option<RuleEvent<D>> {
        let asked = |cost| Some(part(cost)).filter(|cost| !cost.is_zero());
        Some(match self {
            Self::Released(cost) => RuleEvent::Released(asked(cost)?),
            Self::Refused(cost) => RuleEvent::Refused(asked(cost)?),
            Self::Joins { queued, cost } => {
                RuleEvent::Joins { queued: part(queued), cost: asked(cost)? }
            }
            Self::Paused(until) => RuleEvent::Paused(until),
            Self::Idle => RuleEvent::Idle,
            Self::Reset => RuleEvent::Reset,
        })
    }
}

/// What a rule is, whatever has happened. The default knows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// The maximum wake-up lateness that is credited back: a grant counts from its due time, but at most this
    /// long before now. Zero is right for a rule that records the times of grants. With zero, a rule with a rate loses
    /// throughput. Of several rules the least counts; `Duration::MAX` is right for one that depends on no time.
    pub catch_up: Duration,
    /// A number of permits, and the nanoseconds in which they come.
    pub(crate) steady: Option<(u64, u128)>,
    /// Whether a debt takes time to pay off. Then one of more than 146 years is refused. A window forgets it.
    pub(crate) is_owed: bool,
    pub(crate) kind: Option<Kind>,
}

impl Facts {
    /// Permits come at this rate.
    #[inline]
    #[must_use]
    pub fn rate(rate: Rate) -> Self {
        Self { steady: Some(rate.fraction()), is_owed: true, ..Self::default() }
    }

    /// `limit` permits come in each window.
    #[inline]
    #[must_use]
    pub fn window(limit: u32, window: Duration) -> Self {
        let steady = (limit.into(), saturating_nanos(window).into());
        Self { steady: Some(steady).filter(|_| limit > 0), ..Self::default() }
    }

    /// The time of `permits`, at least one; rounded up.
    fn time_of(&self, permits: u32) -> Option<Duration> {
        let (count, nanos) = self.steady?;
        let time = u128::from(permits.max(1)).saturating_mul(nanos).div_ceil(count.into());
        Some(duration(time).unwrap_or(Duration::MAX))
    }

    /// The most permits that may be owed: as many as come within the horizon.
    fn most_owed(&self) -> u64 {
        let Some((count, nanos)) = self.steady.filter(|_| self.is_owed) else { return u64::MAX };
        let most = Nanos::HORIZON.as_nanos() * u128::from(count) / nanos;
        u64::try_from(most).unwrap_or(u64::MAX)
    }

    /// Of two rules with one cost: the slower one's.
    #[inline]
    pub(super) fn and(self, other: Self) -> Self {
        #[allow(clippy::cast_precision_loss)]
        // either of two rates that are nearly the same will do
        let of_one = |(count, nanos)| nanos as f64 / count as f64;
        let is_slower = other.steady.map(of_one) > self.steady.map(of_one);
        Self {
            catch_up: self.catch_up.min(other.catch_up),
            steady: if is_slower { other.steady } else { self.steady },
            is_owed: self.is_owed || other.is_owed,
            kind: None,
        }
    }
}

/// What can be asked of any policy.
pub trait PolicyExt: Policy {
    /// The state of a limiter after a long idle time, and of an absent key of a
    /// [`KeyedRateLimiter`](crate::KeyedRateLimiter).
    fn idle(&self, now: Nanos) -> Self::State {
        let mut state = self.start(now);
        self.event(&mut state, now, RuleEvent::Idle);
        state
    }

    /// A grant of `cost` was dropped.
    #[inline(always)]
    fn release(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) {
        self.event(state, now, RuleEvent::Released(cost));
    }

    /// No credit accrues until `until`.
    fn pause(&self, state: &mut Self::State, now: Nanos, until: Nanos) {
        self.event(state, now, RuleEvent::Paused(until));
    }

    /// Returns whether a refusal changed the state.
    fn refused(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) -> bool {
        self.event(state, now, RuleEvent::Refused(cost)) > now
    }

    /// [Resets](RuleEvent::Reset) the state. Passes on any other event.
    fn tell(&self, state: &mut Self::State, now: Nanos, event: RuleEvent<Self::Cost>) -> Nanos {
        if !Self::HELD && matches!(event, RuleEvent::Reset) {
            *state = self.start(now);
            return now;
        }
        self.event(state, now, event)
    }

    /// Whether `cost` is ready at `now`.
    #[inline]
    fn is_ready(&self, state: &Self::State, now: Nanos, cost: Self::Cost) -> bool {
        self.ready_at(state, now, cost).is_ok_and(|ready| ready.has_come(now))
    }

    /// The time at which a caller is ready behind `ahead` permits of several callers, each charged as soon as it is
    /// ready, from `now` on. `None` if that depends on each of their costs.
    fn ready_behind(
        &self,
        state: &Self::State,
        now: Nanos,
        ahead: u64,
        cost: Self::Cost,
    ) -> Option<Nanos> {
        // With steps, a waiter that cannot be granted before a step loses time if the bucket is full by then.
        let one = Self::ONE_RATE?;
        let schedule = (one.schedule)(self)?;
        Some(schedule.ready_behind((one.state)(state), now, ahead, cost.number(0)))
    }

    /// The part of a composed rule that is ready last, of those that are not ready at `now`. A part whose time is
    /// unpredictable counts as later than all others.
    #[inline]
    fn limited_by(&self, state: &Self::State, now: Nanos, cost: Self::Cost) -> Option<Part> {
        // A rule that holds no other rule has no parts.
        if self.facts(0).kind.is_some_and(|kind| kind != Kind::LockOut) {
            return None;
        }
        let mut last = None;
        let asked = Asked { brief: true, ..Asked::now(now, cost) };
        self.limits(state, asked, &mut |limit| {
            let ready = limit.ready.filter(|ready| !ready.has_come(now));
            if let Some((ready, part)) = ready.zip(limit.part) {
                let rank = (matches!(ready, Ready::NotBefore(_)), ready.earliest());
                last = last.filter(|&(latest, _)| rank <= latest).or(Some((rank, part)));
            }
        });
        last.map(|(_, part)| part)
    }

    /// The part of a composed rule with this index.
    fn part(&self, index: usize) -> Option<Part> {
        let mut found = None;
        let asked = Asked { brief: true, ..Asked::now(Nanos::ZERO, Self::Cost::ONE) };
        self.limits(&self.idle(Nanos::ZERO), asked, &mut |limit| {
            found = found.or(limit.part.filter(|part| part.index() == index));
        });
        found
    }

    /// The maximum wake-up lateness that is credited back: of several rules the smallest.
    #[inline]
    fn catch_up(&self) -> Duration {
        let first = self.facts(0).catch_up;
        (1..Self::Cost::NUMBERS).fold(first, |least, number| least.min(self.facts(number).catch_up))
    }

    /// The steady rate: of several rules with one cost the lowest, of a tuple the first.
    fn steady_rate(&self) -> Option<Rate> {
        let steady = (0..Self::Cost::NUMBERS).find_map(|number| self.facts(number).steady);
        steady.and_then(|(count, nanos)| Rate::from_fraction(count, nanos).ok())
    }

    /// The time in which the steady rate yields `permits`, or one permit if `permits` is zero: of several rules the
    /// longest. See [`Quota::window`].
    fn window(&self, permits: Self::Cost) -> Option<Duration> {
        let numbers = permits.numbers().enumerate();
        numbers.filter_map(|(number, permits)| self.facts(number).time_of(permits)).max()
    }

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
        // A composed rule is always ready for nothing.
        let ready = |cost| self.ready_at(state, now, cost).map_or(Nanos::ZERO, Ready::earliest);
        let paid_off = Some(ready(Self::Cost::default())).filter(|&at| at > Nanos::ZERO);
        let owed = paid_off.unwrap_or_else(|| ready(Self::Cost::ONE)).since(now);
        for (number, permits) in cost.numbers().enumerate() {
            let most = if owed > Nanos::HORIZON { 0 } else { self.facts(number).most_owed() };
            if u64::from(permits) > most {
                return Err(ExceedsCapacity::new(permits, most).in_part(self.part(number)));
            }
        }
        Ok(())
    }
}

impl<P: Policy> PolicyExt for P {}

/// A policy with one steady rate: its limiter has [`set_rate`](crate::RateLimiter::set_rate).
///
/// ```
/// use tollgate::{Rate, Rated, SmoothBursty};
///
/// let policy = SmoothBursty::new(Rate::per_second(5.0)).with_rate(Rate::per_second(7.0));
/// assert_eq!(policy.rate(), Rate::per_second(7.0));
/// ```
#[diagnostic::on_unimplemented(note = "windows and compositions change by `set_policy`")]
pub trait Rated: Policy {
    /// The rate of permits when no permits are stored.
    fn rate(&self) -> Rate;

    /// The same policy at another rate.
    #[must_use]
    fn with_rate(self, rate: Rate) -> Self;
}

/// A rule with one steady rate, whose state is one position: a limiter keeps it in an atomic word, and a table of keys in
/// 63 bits. Functions in a constant, so that no other rule has code of the words.
#[derive(Debug)]
pub struct OneRate<P: Policy> {
    /// `None` if these parameters need the mutex.
    pub(crate) schedule: fn(&P) -> Option<&Schedule>,
    pub(crate) state: fn(&P::State) -> &RateState,
    pub(crate) state_mut: fn(&mut P::State) -> &mut RateState,
    pub(crate) from_state: fn(RateState) -> P::State,
    pub(crate) receipt: fn(RateReceipt) -> P::Receipt,
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

    /// Of two limits that both hold.
    pub(crate) fn and(self, second: Self) -> Self {
        Self {
            limit: self.limit.each(second.limit, u32::min),
            remaining: self.remaining.each(second.remaining, u32::min),
            reset_after: self.reset_after.zip(second.reset_after).map(|(a, b)| a.max(b)),
            window: self.window.max(second.window),
        }
    }
}

/// A question about the limits of a policy.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Asked<C> {
    /// The time.
    pub now: Nanos,
    /// The cost of the request that asks.
    pub cost: C,
    /// When a new caller is granted at the earliest, whatever the limit: behind a pause, a lock or a queue.
    pub opens: Ready,
    /// Whether only [`part`](Limit::part) and [`ready`](Limit::ready) are asked for.
    pub brief: bool,
}

impl<C: Copy> Asked<C> {
    /// Nothing but the limits holds callers back.
    pub(crate) fn now(now: Nanos, cost: C) -> Self {
        Self { now, cost, opens: Ready::At(Nanos::ZERO), brief: false }
    }

    /// The question for a part of a rule.
    #[must_use]
    pub fn of<D>(self, cost: D) -> Asked<D> {
        let Self { now, opens, brief, .. } = self;
        Asked { now, cost, opens, brief }
    }
}

/// One limit of a policy as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
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
    /// The part of a composed rule.
    pub part: Option<Part>,
    /// When the cost is ready. `None` if it exceeds the limit.
    pub ready: Option<Ready>,
}

impl<C: Cost> Limit<C> {
    pub(super) fn of<P: Policy<Cost = C>>(policy: &P, state: &P::State, asked: Asked<C>) -> Self {
        let Asked { now, cost, opens, brief } = asked;
        if brief {
            let ready = policy.ready_at(state, now, cost).ok().map(|ready| ready.and(opens));
            return Self { ready, ..Self::default() };
        }
        let limit = policy.available(&policy.idle(now), now);
        let remaining =
            if opens.has_come(now) { policy.available(state, now) } else { C::default() };
        let more = remaining.each(C::ONE, u32::saturating_add).each(cost, u32::max);
        let ready = policy.ready_at(state, now, more).ok();
        Self {
            limit,
            remaining,
            more_after: ready.and_then(|ready| ready.and(opens).wait(now)),
            window: policy.window(limit),
            is_held: P::HELD,
            ..Self::default()
        }
    }

    /// The limit of a part that shares the numbers of its rule, or is not asked for them.
    pub(super) fn of_part<D: Cost>(limit: Limit<D>, part: Part) -> Self {
        let number =
            |cost: D| C::from_numbers(|at| if at < D::NUMBERS { cost.number(at) } else { 0 });
        let Limit { more_after, window, is_held, ready, .. } = limit;
        let (limit, remaining, part) = (number(limit.limit), number(limit.remaining), Some(part));
        Self { limit, remaining, more_after, window, is_held, part, ready }
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
        policy.limits(state, asked, &mut |limit| all.push(limit));
        all
    }
}
