//! Compositions of rules. A request is granted when all parts would grant it, and is then charged in all
//! parts at the same time; otherwise it is charged in none.
//!
//! A tuple has a cost for each part, for example "1 request, 800 tokens, 1 in flight". An array, or [`Same`]
//! of a tuple, has one cost for all parts, for example "10 a second and 1000 an hour". Because time alone
//! never takes readiness away ([`Policy`]), all parts are ready at the latest of their times. A part of a
//! tuple with a cost of zero is always ready and not charged.

use super::cost::sealed::Sealed;
use super::{Asked, Cost, Hooks, Limit, Policy, Ready, lowest};
use crate::error::ExceedsCapacity;
use crate::part::Part;
use crate::units::Nanos;
use std::time::Duration;

/// Several rules with one cost: every permit counts in each of them.
///
/// For quotas with more than one span, such as "10 a second and 1000 an hour". Rules of one type can form an
/// array instead; rules with separate costs form a tuple.
///
/// ```
/// use tollgate::{ManualClock, Rate, RateLimiter, Same, SlidingWindowLog, TokenBucket};
/// use std::time::Duration;
///
/// let second = TokenBucket::new(Rate::per_second(10.0), 10);
/// let hour = SlidingWindowLog::new(12, Duration::from_secs(3600));
/// let limiter = RateLimiter::with_clock(Same((second, hour)), ManualClock::auto_advance());
/// let mut waits = Vec::new();
/// for n in [10, 2, 1] {
///     let grant = limiter.blocking_acquire(n)?;
///     waits.push((grant.waited().as_millis(), grant.limited_by().map(|part| part.to_string())));
/// }
/// assert_eq!(waits[1], (200, Some("limit 1 of 2, token-bucket".into())));
/// assert_eq!(waits[2], (3_599_800, Some("limit 2 of 2, sliding-window-log".into())));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Same<P>(pub P);

/// The part that is ready last, of those that are not ready at `now`. A part whose time is unpredictable
/// counts as later than all others.
pub(super) fn last_of(parts: impl IntoIterator<Item = Option<Ready>>, now: Nanos) -> Option<usize> {
    let waits = parts.into_iter().enumerate().filter_map(|(part, ready)| {
        let ready = ready.filter(|ready| !ready.has_come(now))?;
        Some((matches!(ready, Ready::NotBefore(_)), ready.earliest(), std::cmp::Reverse(part)))
    });
    waits.max().map(|(_, _, part)| part.0)
}

/// The smaller of two costs.
pub(super) fn least<C: Cost>(one: C, other: C) -> C {
    one.saturating_sub(one.saturating_sub(other))
}

/// Implements `Policy` for a composition. Each part is given with its index, its path from the whole, and the
/// path of its cost from the whole cost.
macro_rules! compose {
    (
        [$($generics:tt)*] $whole:ty, $cost:ty, { $($own:item)+ } { $($hooks:tt)* }:
        $($part:ident $index:tt ($($way:tt)*) ($($of:tt)*)),+
    ) => {
        impl<$($generics)*> Policy for $whole {
            type Cost = $cost;
            type State = ($($part::State,)+);
            type Receipt = ($(Option<$part::Receipt>,)+);

            const HELD: bool = $($part::HELD)||+;

            const HOOKS: Hooks<Self> = Hooks {
                timeless_release: $($part::HOOKS.timeless_release)&&+,
                small: [$($index),+].len() <= 2,
                ready_now: |whole, state, now, cost| {
                    $((cost$($of)*.is_zero()
                        || ($part::HOOKS.ready_now)(&whole$($way)*, &state.$index, now, cost$($of)*)))&&+
                },
                charge_alone: |whole, state, at, cost| ($(
                    (!cost$($of)*.is_zero()).then(|| {
                        ($part::HOOKS.charge_alone)(&whole$($way)*, &mut state.$index, at, cost$($of)*)
                    }),
                )+),
                fork: |whole, state, most| {
                    ($(($part::HOOKS.fork)(&whole$($way)*, &state.$index, most$($of)*),)+)
                },
                forget_receipts: |whole, state| {
                    $(($part::HOOKS.forget_receipts)(&whole$($way)*, &mut state.$index);)+
                },
                renew: |whole, state, now| {
                    $(($part::HOOKS.renew)(&whole$($way)*, &mut state.$index, now);)+
                },
                part: |whole, index| {
                    let kinds = [$(($part::HOOKS.kind)(&whole$($way)*)),+];
                    Some(Part::new(index, kinds.len()).of_kind(*kinds.get(index)?))
                },
                $($hooks)*
                ..Hooks::none()
            };

            fn start(&self, now: Nanos) -> Self::State {
                ($(self$($way)*.start(now),)+)
            }

            fn idle(&self, now: Nanos) -> Self::State {
                ($(self$($way)*.idle(now),)+)
            }

            fn idle_at(&self, state: &Self::State) -> Option<Nanos> {
                let mut at = Nanos::ZERO;
                $(at = at.max(self$($way)*.idle_at(&state.$index)?);)+
                Some(at)
            }

            fn ready_at(
                &self,
                state: &Self::State,
                now: Nanos,
                cost: Self::Cost,
            ) -> Result<Ready, ExceedsCapacity> {
                let mut ready = Ready::At(Nanos::ZERO);
                $(if !cost$($of)*.is_zero() {
                    let part = self$($way)*.ready_at(&state.$index, now, cost$($of)*);
                    ready = ready.and(part.map_err(|error| error.in_part((Self::HOOKS.part)(self, $index)))?);
                })+
                Ok(ready)
            }

            fn check_debt(
                &self,
                state: &Self::State,
                now: Nanos,
                cost: Self::Cost,
            ) -> Result<(), ExceedsCapacity> {
                $(if !cost$($of)*.is_zero() {
                    let part = self$($way)*.check_debt(&state.$index, now, cost$($of)*);
                    part.map_err(|error| error.in_part((Self::HOOKS.part)(self, $index)))?;
                })+
                Ok(())
            }

            #[inline(always)]
            fn charge(&self, state: &mut Self::State, at: Nanos, cost: Self::Cost) -> Self::Receipt {
                ($(
                    (!cost$($of)*.is_zero())
                        .then(|| self$($way)*.charge(&mut state.$index, at, cost$($of)*)),
                )+)
            }

            fn refund(
                &self,
                state: &mut Self::State,
                now: Nanos,
                part: Self::Cost,
                mut receipt: Self::Receipt,
            ) -> Self::Receipt {
                $(if !part$($of)*.is_zero() {
                    receipt.$index = receipt.$index.map(|receipt| {
                        self$($way)*.refund(&mut state.$index, now, part$($of)*, receipt)
                    });
                })+
                receipt
            }

            fn release(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) {
                $(if !cost$($of)*.is_zero() {
                    self$($way)*.release(&mut state.$index, now, cost$($of)*);
                })+
            }

            fn pause(&self, state: &mut Self::State, now: Nanos, until: Nanos) {
                $(self$($way)*.pause(&mut state.$index, now, until);)+
            }

            fn migrate(&self, old: &Self, state: &mut Self::State, now: Nanos) {
                $(self$($way)*.migrate(&old$($way)*, &mut state.$index, now);)+
            }

            fn refused(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) -> bool {
                let mut changed = false;
                $(if !cost$($of)*.is_zero() {
                    changed |= self$($way)*.refused(&mut state.$index, now, cost$($of)*);
                })+
                changed
            }

            fn limited_by(&self, state: &Self::State, now: Nanos, cost: Self::Cost) -> Option<Part> {
                let parts = [$(
                    (!cost$($of)*.is_zero())
                        .then(|| self$($way)*.ready_at(&state.$index, now, cost$($of)*).ok())
                        .flatten(),
                )+];
                (Self::HOOKS.part)(self, last_of(parts, now)?)
            }

            /// The longest one of all parts.
            fn window(&self, permits: Self::Cost) -> Option<Duration> {
                let mut longest = None;
                $(longest = longest.max(self$($way)*.window(permits$($of)*));)+
                longest
            }

            /// The smallest one of all parts.
            fn catch_up(&self) -> Duration {
                let mut least = Duration::MAX;
                $(least = least.min(self$($way)*.catch_up());)+
                least
            }

            fn room_at(
                &self,
                state: &Self::State,
                now: Nanos,
                queued: <Self::Cost as Cost>::Sum,
                cost: Self::Cost,
            ) -> Nanos {
                let mut at = now;
                $(if !cost$($of)*.is_zero() {
                    let (queued, cost) = (queued$($of)*, cost$($of)*);
                    at = at.max(self$($way)*.room_at(&state.$index, now, queued, cost));
                })+
                at
            }

            $($own)+
        }
    };
}

/// Hands the parts of each tuple, from two to six, to a macro.
macro_rules! each_tuple {
    ($then:ident) => {
        $then!(A 0, B 1);
        $then!(A 0, B 1, C 2);
        $then!(A 0, B 1, C 2, D 3);
        $then!(A 0, B 1, C 2, D 3, E 4);
        $then!(A 0, B 1, C 2, D 3, E 4, F 5);
    };
}
pub(crate) use each_tuple;

/// Implements a tuple, with a cost for each part, and [`Same`] of it, with one cost for all parts.
macro_rules! tuple {
    ($first:ident 0, $($part:ident $index:tt),+) => {
        impl<$first: Cost, $($part: Cost),+> Sealed for ($first, $($part),+) {}

        impl<$first: Cost, $($part: Cost),+> Cost for ($first, $($part),+) {
            const ONE: Self = ($first::ONE, $($part::ONE),+);

            type Sum = ($first::Sum, $($part::Sum),+);

            fn add_to(self, sum: Self::Sum) -> Self::Sum {
                (self.0.add_to(sum.0), $(self.$index.add_to(sum.$index)),+)
            }

            fn take_from(self, sum: Self::Sum) -> Self::Sum {
                (self.0.take_from(sum.0), $(self.$index.take_from(sum.$index)),+)
            }

            fn fits(self, sum: Self::Sum) -> bool {
                self.0.fits(sum.0) $(&& self.$index.fits(sum.$index))+
            }

            fn is_zero(self) -> bool {
                self.0.is_zero() $(&& self.$index.is_zero())+
            }

            /// The sum over all parts.
            fn permits(self) -> u64 {
                self.0.permits()$(.saturating_add(self.$index.permits()))+
            }

            const NUMBERS: usize = $first::NUMBERS $(+ $part::NUMBERS)+;

            fn number(self, mut index: usize) -> u32 {
                match index.checked_sub($first::NUMBERS) {
                    Some(rest) => index = rest,
                    None => return self.0.number(index),
                }
                $(match index.checked_sub($part::NUMBERS) {
                    Some(rest) => index = rest,
                    None => return self.$index.number(index),
                })+
                panic!("a cost has no number {index}")
            }

            #[inline]
            fn from_numbers(number: impl Fn(usize) -> u32) -> Self {
                let mut from = $first::NUMBERS;
                let mut skip = |numbers: usize| {
                    from += numbers;
                    from - numbers
                };
                let number = &number;
                ($first::from_numbers(number), $({
                    let from = skip($part::NUMBERS);
                    $part::from_numbers(move |index| number(from + index))
                }),+)
            }
        }

        compose!(
            [$first: Policy, $($part: Policy),+]
            ($first, $($part),+), ($first::Cost, $($part::Cost),+),
            {
                fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost {
                    (self.0.available(&state.0, now), $(self.$index.available(&state.$index, now)),+)
                }
            }
            {
                rate: |whole| ($first::HOOKS.rate)(&whole.0)
                    $(.or_else(|| ($part::HOOKS.rate)(&whole.$index)))+,
            }:
            $first 0 (.0) (.0), $($part $index (.$index) (.$index)),+
        );

        compose!(
            [$first: Policy, $($part: Policy<Cost = $first::Cost>),+]
            Same<($first, $($part),+)>, $first::Cost,
            {
                fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost {
                    let available = self.0.0.available(&state.0, now);
                    $(let available = least(available, self.0.$index.available(&state.$index, now));)+
                    available
                }
            }
            {
                rate: |whole| {
                    let rest = [$(($part::HOOKS.rate)(&whole.0.$index)),+];
                    lowest(rest.into_iter().chain([($first::HOOKS.rate)(&whole.0.0)]))
                },
                limits: |whole, state, asked, visit| {
                    ($first::HOOKS.limits)(&whole.0.0, &state.0, asked, visit);
                    $(($part::HOOKS.limits)(&whole.0.$index, &state.$index, asked, visit);)+
                },
            }:
            $first 0 (.0 .0) (), $($part $index (.0 .$index) ()),+
        );
    };
}

each_tuple!(tuple);

/// The parts of one type, each with its state.
pub(super) fn each<'a, P: Policy>(
    parts: &'a [P],
    states: &'a [P::State],
) -> impl Iterator<Item = (&'a P, &'a P::State)> {
    assert_eq!(parts.len(), states.len(), "the state belongs to another policy");
    parts.iter().zip(states)
}

pub(super) fn each_mut<'a, P: Policy>(
    parts: &'a [P],
    states: &'a mut [P::State],
) -> impl Iterator<Item = (&'a P, &'a mut P::State)> {
    assert_eq!(parts.len(), states.len(), "the state belongs to another policy");
    parts.iter().zip(states)
}

/// [`Hooks::ready_now`] of parts with one cost.
#[inline(always)]
pub(super) fn ready_now<P: Policy>(
    parts: &[P],
    states: &[P::State],
    now: Nanos,
    cost: P::Cost,
) -> bool {
    each(parts, states).all(|(part, state)| (P::HOOKS.ready_now)(part, state, now, cost))
}

/// [`Hooks::part`] of parts of one type.
pub(super) fn part_of<P: Policy>(parts: &[P], index: usize) -> Option<Part> {
    let part = parts.get(index)?;
    Some(Part::new(index, parts.len()).of_kind((P::HOOKS.kind)(part)))
}

/// [`Hooks::renew`] of parts of one type.
pub(super) fn renew<P: Policy>(parts: &[P], states: &mut [P::State], now: Nanos) {
    each_mut(parts, states).for_each(|(part, state)| (P::HOOKS.renew)(part, state, now));
}

/// [`Hooks::limits`] of parts with one cost.
pub(super) fn limits<P: Policy>(
    parts: &[P],
    states: &[P::State],
    asked: Asked<P::Cost>,
    visit: &mut dyn FnMut(Limit<P::Cost>),
) {
    each(parts, states).for_each(|(part, state)| (P::HOOKS.limits)(part, state, asked, visit));
}

/// The methods of a whole whose parts have one type and share one cost, where they do not depend on how receipts
/// and states are stored. The parts, and their states, are the whole itself or its field.
macro_rules! slice {
    ($($parts:ident)?) => {
        fn idle_at(&self, state: &Self::State) -> Option<Nanos> {
            let mut each =
                each(&self$(.$parts)?[..], &state$(.$parts)?[..]).map(|(part, state)| part.idle_at(state));
            each.try_fold(Nanos::ZERO, |latest, at| Some(latest.max(at?)))
        }

        fn ready_at(
            &self,
            state: &Self::State,
            now: Nanos,
            cost: Self::Cost,
        ) -> Result<Ready, ExceedsCapacity> {
            let mut each = each(&self$(.$parts)?[..], &state$(.$parts)?[..]).enumerate();
            each.try_fold(Ready::At(Nanos::ZERO), |ready, (index, (part, state))| {
                let part = part.ready_at(state, now, cost);
                Ok(ready.and(part.map_err(|error| error.in_part((Self::HOOKS.part)(self, index)))?))
            })
        }

        fn check_debt(
            &self,
            state: &Self::State,
            now: Nanos,
            cost: Self::Cost,
        ) -> Result<(), ExceedsCapacity> {
            let mut each = each(&self$(.$parts)?[..], &state$(.$parts)?[..]).enumerate();
            each.try_for_each(|(index, (part, state))| {
                part.check_debt(state, now, cost).map_err(|error| error.in_part((Self::HOOKS.part)(self, index)))
            })
        }

        fn release(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) {
            each_mut(&self$(.$parts)?[..], &mut state$(.$parts)?[..])
                .for_each(|(part, state)| part.release(state, now, cost));
        }

        fn pause(&self, state: &mut Self::State, now: Nanos, until: Nanos) {
            each_mut(&self$(.$parts)?[..], &mut state$(.$parts)?[..])
                .for_each(|(part, state)| part.pause(state, now, until));
        }

        fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost {
            let each = each(&self$(.$parts)?[..], &state$(.$parts)?[..]);
            each.map(|(part, state)| part.available(state, now)).reduce(least).unwrap_or_default()
        }

        fn refused(&self, state: &mut Self::State, now: Nanos, cost: Self::Cost) -> bool {
            each_mut(&self$(.$parts)?[..], &mut state$(.$parts)?[..])
                .fold(false, |changed, (part, state)| part.refused(state, now, cost) || changed)
        }

        fn limited_by(&self, state: &Self::State, now: Nanos, cost: Self::Cost) -> Option<Part> {
            let each = each(&self$(.$parts)?[..], &state$(.$parts)?[..]);
            let ready = each.map(|(part, state)| part.ready_at(state, now, cost).ok());
            (Self::HOOKS.part)(self, last_of(ready, now)?)
        }

        fn window(&self, permits: Self::Cost) -> Option<Duration> {
            self$(.$parts)?.iter().filter_map(|part| part.window(permits)).max()
        }

        fn catch_up(&self) -> Duration {
            self$(.$parts)?.iter().map(Policy::catch_up).min().unwrap_or_default()
        }

        fn room_at(
            &self,
            state: &Self::State,
            now: Nanos,
            queued: <Self::Cost as Cost>::Sum,
            cost: Self::Cost,
        ) -> Nanos {
            each(&self$(.$parts)?[..], &state$(.$parts)?[..])
                .fold(now, |at, (part, state)| at.max(part.room_at(state, now, queued, cost)))
        }
    };
}

pub(super) use slice;

impl<P: Policy, const N: usize> Policy for [P; N] {
    type Cost = P::Cost;
    type State = [P::State; N];
    type Receipt = [P::Receipt; N];

    const HELD: bool = P::HELD;

    const HOOKS: Hooks<Self> = Hooks {
        timeless_release: P::HOOKS.timeless_release,
        ready_now: |parts, states, now, cost| ready_now(parts, states, now, cost),
        charge_alone: |parts, states, at, cost| {
            std::array::from_fn(|part| {
                (P::HOOKS.charge_alone)(&parts[part], &mut states[part], at, cost)
            })
        },
        fork: |parts, states, most| {
            std::array::from_fn(|part| (P::HOOKS.fork)(&parts[part], &states[part], most))
        },
        forget_receipts: |parts, states| {
            each_mut(parts, states)
                .for_each(|(part, state)| (P::HOOKS.forget_receipts)(part, state));
        },
        rate: |parts| lowest(parts.iter().map(P::HOOKS.rate)),
        renew: |parts, states, now| renew(parts, states, now),
        part: |parts, index| part_of(parts, index),
        limits: |parts, states, asked, visit| limits(parts, states, asked, visit),
        ..Hooks::none()
    };

    slice!();

    fn start(&self, now: Nanos) -> Self::State {
        const { assert!(N > 0, "a policy array must not be empty") };
        std::array::from_fn(|part| self[part].start(now))
    }

    fn idle(&self, now: Nanos) -> Self::State {
        std::array::from_fn(|part| self[part].idle(now))
    }

    #[inline(always)]
    fn charge(&self, states: &mut Self::State, at: Nanos, cost: P::Cost) -> Self::Receipt {
        std::array::from_fn(|part| self[part].charge(&mut states[part], at, cost))
    }

    fn refund(
        &self,
        states: &mut Self::State,
        now: Nanos,
        part: P::Cost,
        receipts: Self::Receipt,
    ) -> Self::Receipt {
        let mut each = each_mut(self, states);
        receipts.map(|receipt| match each.next() {
            Some((policy, state)) => policy.refund(state, now, part, receipt),
            None => receipt,
        })
    }

    fn migrate(&self, old: &Self, states: &mut Self::State, now: Nanos) {
        for (index, state) in states.iter_mut().enumerate() {
            self[index].migrate(&old[index], state, now);
        }
    }
}
