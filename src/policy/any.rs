//! Rules chosen at run time.
//!
//! [`AnyPolicy`] is one rule of this crate, and each of its methods is the method of the rule inside. Two things are added,
//! for changes of the kind: the state counts the permits in grants that have not been dropped, so that a later
//! [`InFlight`](crate::InFlight) knows them; and a receipt carries an epoch, so that a refund is ignored if the state it
//! was charged to is gone.

use std::sync::Arc;

use super::lock_out::LockOutState;
use super::parts::part_of;
use super::rule::{Asked, Facts, Limit, PolicyExt, RuleEvent};
use super::{Policy, Ready};
use crate::LockOut;
use crate::error::ExceedsCapacity;
use crate::part::each_rule;
use crate::units::Nanos;

/// What an [`AnyPolicy`] remembers.
#[derive(Clone, Debug)]
pub struct AnyState {
    /// The permits in grants that have not been dropped.
    held: u64,
    /// How many changes of the kind there were, so that no receipt of an earlier kind is taken.
    epoch: u64,
    /// Nothing is granted before: the rule before a change was not ready.
    opens: Nanos,
    kind: KindState,
}

/// What a refund must know of a charge of an [`AnyPolicy`].
#[derive(Clone, Debug)]
pub struct AnyReceipt {
    epoch: u64,
    kind: KindReceipt,
}

macro_rules! kinds {
    ($($kind:ident $name:literal),+) => {
        /// A policy of this crate, chosen at run time: parsed from a [text](#impl-FromStr-for-AnyPolicy), or with
        /// the feature `serde` read from a [file](crate::Limits#in-a-file).
        ///
        /// It answers as the policy inside does. [`AllOf`] makes several of them one policy.
        ///
        /// - [`set_policy`](crate::RateLimiter::set_policy) may change the kind. The new rule starts with
        ///   no more permits than the old one had, and not before the old one was ready. Permits in flight still
        ///   count; refunds of earlier grants give nothing back.
        /// - Because it may be an [`InFlight`](crate::InFlight), each call takes a lock, and so does the drop of a grant. Each
        ///   key of a [`KeyedRateLimiter`](crate::KeyedRateLimiter) in use takes about as much memory as a
        ///   limiter. A program that knows its policy should use its type.
        /// - There are no Redis scripts for it yet.
        ///
        /// ```
        /// use std::time::Duration;
        /// use tollgate::{AnyPolicy, FixedWindow, ManualClock, Rate, RateLimiter, TokenBucket};
        ///
        /// fn read(kind: &str) -> AnyPolicy {
        ///     match kind {
        ///         "window" => FixedWindow::new(100, Duration::from_secs(60)).into(),
        ///         _ => TokenBucket::new(Rate::per_second(5.0), 10).into(),
        ///     }
        /// }
        /// let limiter = RateLimiter::with_clock(read("bucket"), ManualClock::new());
        /// limiter.try_acquire(10)?;
        /// assert_eq!(limiter.try_acquire(1).unwrap_err().retry_after(), Some(Duration::from_millis(200)));
        /// # Ok::<(), tollgate::Error>(())
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum AnyPolicy {
            $(
                #[doc = concat!("See [`", stringify!($kind), "`](crate::", stringify!($kind), ").")]
                $kind(crate::$kind),
            )+
            /// See [`LockOut`].
            LockOut(Box<LockOut<AnyPolicy>>),
        }

        #[derive(Clone, Debug)]
        enum KindState {
            $($kind(<crate::$kind as Policy>::State),)+
            LockOut(Box<LockOutState<AnyState>>),
        }

        #[derive(Clone, Debug)]
        enum KindReceipt {
            $($kind(<crate::$kind as Policy>::Receipt),)+
            LockOut(Box<AnyReceipt>),
        }

        $(
            impl From<crate::$kind> for AnyPolicy {
                fn from(policy: crate::$kind) -> Self {
                    Self::$kind(policy)
                }
            }
        )+

        /// Asks the rule inside, and its state.
        macro_rules! ask {
            ($policy:expr, $state:expr, $inner:ident, $inner_state:ident => $answer:expr) => {
                match ($policy, $state) {
                    $((AnyPolicy::$kind($inner), KindState::$kind($inner_state)) => $answer,)+
                    (AnyPolicy::LockOut($inner), KindState::LockOut($inner_state)) => $answer,
                    _ => foreign(),
                }
            };
        }

        impl Policy for AnyPolicy {
            type Cost = u32;
            type State = AnyState;
            type Receipt = AnyReceipt;

            const HELD: bool = true;
            const RELEASE_TIMED: bool = false;

            fn start(&self, now: Nanos) -> AnyState {
                let kind = match self {
                    $(Self::$kind(policy) => KindState::$kind(policy.start(now)),)+
                    Self::LockOut(policy) => KindState::LockOut(policy.start(now).into()),
                };
                AnyState { held: 0, epoch: 0, opens: Nanos::ZERO, kind }
            }

            fn charge(&self, state: &mut AnyState, at: Nanos, n: u32) -> AnyReceipt {
                state.held += u64::from(n);
                let kind = match (self, &mut state.kind) {
                    $((Self::$kind(policy), KindState::$kind(state)) => {
                        KindReceipt::$kind(policy.charge(state, at, n))
                    })+
                    (Self::LockOut(policy), KindState::LockOut(state)) => {
                        KindReceipt::LockOut(policy.charge(state, at, n).into())
                    }
                    _ => foreign(),
                };
                AnyReceipt { epoch: state.epoch, kind }
            }

            fn refund(&self, state: &mut AnyState, now: Nanos, part: u32, it: AnyReceipt) -> AnyReceipt {
                let AnyReceipt { epoch, kind } = it;
                if epoch != state.epoch {
                    return AnyReceipt { epoch, kind };
                }
                let kind = match (self, &mut state.kind, kind) {
                    $((Self::$kind(policy), KindState::$kind(state), KindReceipt::$kind(kind)) => {
                        KindReceipt::$kind(policy.refund(state, now, part, kind))
                    })+
                    (Self::LockOut(policy), KindState::LockOut(state), KindReceipt::LockOut(kind)) => {
                        KindReceipt::LockOut(policy.refund(state, now, part, *kind).into())
                    }
                    (.., kind) => kind,
                };
                AnyReceipt { epoch, kind }
            }

            fn migrate(&self, old: &Self, state: &mut AnyState, now: Nanos) {
                match (self, old, &mut state.kind) {
                    $((Self::$kind(new), Self::$kind(old), KindState::$kind(state)) => {
                        new.migrate(old, state, now);
                    })+
                    (Self::LockOut(new), Self::LockOut(old), KindState::LockOut(state)) => {
                        new.migrate(old, state, now);
                    }
                    _ => self.replace(old, state, now),
                }
            }

            fn available(&self, state: &AnyState, now: Nanos) -> u32 {
                if state.opens > now {
                    return 0;
                }
                ask!(self, &state.kind, policy, state => policy.available(state, now))
            }

            fn idle_at(&self, state: &AnyState) -> Option<Nanos> {
                let idle = ask!(self, &state.kind, policy, state => policy.idle_at(state))?;
                Some(idle.max(state.opens))
            }

            fn ready_at(&self, state: &AnyState, now: Nanos, n: u32) -> Result<Ready, ExceedsCapacity> {
                let ready = ask!(self, &state.kind, policy, state => policy.ready_at(state, now, n))?;
                Ok(ready.and(Ready::At(state.opens)))
            }

            fn event(&self, state: &mut AnyState, now: Nanos, event: RuleEvent<u32>) -> Nanos {
                match event {
                    RuleEvent::Released(n) => state.held = state.held.saturating_sub(u64::from(n)),
                    // The receipts of before are of another epoch, and give nothing back.
                    RuleEvent::Reset => {
                        *state = self.begin(now, state.held, u32::MAX, state.epoch + 1);
                        return now;
                    }
                    _ => {}
                }
                ask!(self, &mut state.kind, policy, state => policy.event(state, now, event))
            }

            fn facts(&self, number: usize) -> Facts {
                match self {
                    $(Self::$kind(policy) => policy.facts(number),)+
                    Self::LockOut(policy) => policy.facts(number),
                }
            }

            fn limits(&self, state: &AnyState, asked: Asked<u32>, visit: &mut dyn FnMut(Limit<u32>)) {
                let asked = Asked { opens: asked.opens.and(Ready::At(state.opens)), ..asked };
                ask!(self, &state.kind, policy, state => policy.limits(state, asked, visit));
            }
        }
    };
}

each_rule!(kinds);

fn foreign() -> ! {
    panic!("the state belongs to another policy; `migrate` it first")
}

impl<P: Into<AnyPolicy>> From<LockOut<P>> for AnyPolicy {
    fn from(lock_out: LockOut<P>) -> Self {
        let LockOut { policy, duration } = lock_out;
        Self::LockOut(Box::new(LockOut { policy: policy.into(), duration }))
    }
}

impl AnyPolicy {
    /// A new state, with `held` permits in flight and at most `available` ready.
    fn begin(&self, now: Nanos, held: u64, available: u32, epoch: u64) -> AnyState {
        let mut state = AnyState { epoch, ..self.start(now) };
        match (self, &mut state.kind) {
            (Self::InFlight(_), KindState::InFlight(out)) => *out = held,
            (Self::LockOut(lock_out), KindState::LockOut(lock)) => {
                lock.state = lock_out.policy.begin(now, held, available, epoch);
            }
            _ => {
                let excess = self.available(&state, now).saturating_sub(available);
                if excess > 0 {
                    self.charge(&mut state, now, excess);
                }
            }
        }
        AnyState { held, ..state }
    }

    /// Begins in place of a policy of another kind: with no more permits than it had, and not before it was ready.
    fn replace(&self, old: &Self, state: &mut AnyState, now: Nanos) {
        let available = old.available(state, now);
        let ready = old.ready_at(state, now, 1);
        *state = self.begin(now, state.held, available, state.epoch + 1);
        // Without a limit nothing is owed.
        if let Ok(Ready::At(until)) = ready
            && until > now
            && !matches!(self, Self::Unlimited(_))
        {
            state.opens = until;
            self.pause(state, now, until);
        }
    }
}

/// Several rules chosen at run time, with one cost: a request is charged in all of them or in none, as with
/// [`Same`](crate::Same).
///
/// At most [eight](Self::MAX_PARTS) rules: each grant carries a receipt for each of them. Locks, keys and Redis are as for [`AnyPolicy`].
///
/// [`set_policy`](crate::RateLimiter::set_policy) goes part by part, in order. A part that is added
/// starts as a new limiter does, with the permits in flight counted.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{AllOf, FixedWindow, InFlight, ManualClock, Rate, RateLimiter, TokenBucket};
///
/// let mut rules = vec![TokenBucket::new(Rate::per_second(10.0), 10).into()];
/// rules.push(FixedWindow::new(12, Duration::from_secs(3600)).into());
/// rules.push(InFlight::new(100).into());
/// let limiter = RateLimiter::with_clock(AllOf::new(rules), ManualClock::auto_advance());
/// let mut waits = Vec::new();
/// for n in [10, 2, 1] {
///     let grant = limiter.blocking_acquire(n)?;
///     waits.push((grant.waited().as_millis(), grant.limited_by().map(|part| part.to_string())));
/// }
/// assert_eq!(waits[1], (200, Some("limit 1 of 3, token-bucket".into())));
/// assert_eq!(waits[2], (3_599_800, Some("limit 2 of 3, fixed-window".into())));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllOf(Arc<[AnyPolicy]>);

/// What an [`AllOf`] remembers: a state for each part.
#[derive(Clone, Debug)]
pub struct AllOfState {
    parts: Vec<AnyState>,
    /// The number of changes, so that no part that is added has an old epoch.
    changes: u64,
}

/// What a refund must know of a charge of an [`AllOf`]: a receipt of each part.
#[derive(Clone, Debug)]
pub struct AllOfReceipt(Vec<AnyReceipt>);

impl AllOf {
    /// The maximum number of rules.
    pub const MAX_PARTS: usize = 8;

    /// All of these rules.
    ///
    /// # Panics
    ///
    /// If there is none, or more than [`MAX_PARTS`](Self::MAX_PARTS).
    #[must_use]
    #[track_caller]
    pub fn new(parts: impl IntoIterator<Item = AnyPolicy>) -> Self {
        let (parts, max) = (Arc::from_iter(parts), Self::MAX_PARTS);
        let (given, is_few) = (parts.len(), parts.len() <= max);
        assert!(is_few && given > 0, "{given} rules given, but a policy is made of 1 to {max}");
        Self(parts)
    }

    /// The rules, in order.
    #[must_use]
    pub fn parts(&self) -> &[AnyPolicy] {
        &self.0
    }
}

impl From<AnyPolicy> for AllOf {
    fn from(policy: AnyPolicy) -> Self {
        Self::new([policy])
    }
}

impl Policy for AllOf {
    type Cost = u32;
    type State = AllOfState;
    type Receipt = AllOfReceipt;

    const HELD: bool = true;
    const RELEASE_TIMED: bool = false;

    fn start(&self, now: Nanos) -> AllOfState {
        AllOfState { parts: self.0.iter().map(|part| part.start(now)).collect(), changes: 0 }
    }

    fn idle_at(&self, state: &AllOfState) -> Option<Nanos> {
        let mut each = self.0.iter().zip(&state.parts);
        each.try_fold(Nanos::ZERO, |latest, (part, state)| Some(latest.max(part.idle_at(state)?)))
    }

    fn ready_at(&self, state: &AllOfState, now: Nanos, n: u32) -> Result<Ready, ExceedsCapacity> {
        let mut each = self.0.iter().zip(&state.parts).enumerate();
        each.try_fold(Ready::At(Nanos::ZERO), |ready, (index, (part, state))| {
            let in_part =
                |error: ExceedsCapacity| error.in_part(Some(part_of(index, self.0.len(), part)));
            Ok(ready.and(part.ready_at(state, now, n).map_err(in_part)?))
        })
    }

    fn charge(&self, state: &mut AllOfState, at: Nanos, n: u32) -> AllOfReceipt {
        let each = self.0.iter().zip(&mut state.parts);
        AllOfReceipt(each.map(|(part, state)| part.charge(state, at, n)).collect())
    }

    fn refund(&self, state: &mut AllOfState, now: Nanos, n: u32, of: AllOfReceipt) -> AllOfReceipt {
        // Receipts of parts that have gone since are of no use.
        let each = self.0.iter().zip(&mut state.parts).zip(of.0);
        AllOfReceipt(each.map(|((part, state), of)| part.refund(state, now, n, of)).collect())
    }

    fn migrate(&self, old: &Self, state: &mut AllOfState, now: Nanos) {
        let held = state.parts.first().map_or(0, |part| part.held);
        state.changes += 1;
        state.parts.truncate(self.0.len());
        for (index, part) in self.0.iter().enumerate() {
            match (old.0.get(index), state.parts.get_mut(index)) {
                (Some(old), Some(state)) => part.migrate(old, state, now),
                _ => state.parts.push(part.begin(now, held, u32::MAX, state.changes << 32)),
            }
        }
    }

    fn available(&self, state: &AllOfState, now: Nanos) -> u32 {
        let each = self.0.iter().zip(&state.parts);
        each.map(|(part, state)| part.available(state, now)).min().unwrap_or_default()
    }

    fn event(&self, state: &mut AllOfState, now: Nanos, event: RuleEvent<u32>) -> Nanos {
        let each = self.0.iter().zip(&mut state.parts);
        each.fold(now, |at, (part, state)| at.max(part.event(state, now, event)))
    }

    fn facts(&self, number: usize) -> Facts {
        let each = self.0.iter().map(|part| part.facts(number));
        each.reduce(Facts::and).map_or(Facts::default(), |facts| Facts { kind: None, ..facts })
    }

    fn limits(&self, state: &AllOfState, asked: Asked<u32>, visit: &mut dyn FnMut(Limit<u32>)) {
        for (index, (part, state)) in self.0.iter().zip(&state.parts).enumerate() {
            let name = part_of(index, self.0.len(), part);
            part.limits(state, asked, &mut |limit| visit(Limit::of_part(limit, name)));
        }
    }
}
