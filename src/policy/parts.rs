//! Compositions of rules. A request is granted when all parts would grant it, and is then charged in all parts at the same
//! time; otherwise it is charged in none.
//!
//! A tuple has a cost for each part, for example "1 request, 800 tokens, 1 in flight". [`Same`] of a tuple has
//! one cost for all parts, for example "10 a second and 1000 an hour". Because time alone never takes readiness away
//! ([`Policy`]), all parts are ready at the latest of their times. A part of a tuple with a cost of zero is always ready
//! and not charged.

use super::cost::sealed::Sealed;
use super::rule::{Asked, Facts, Limit, PolicyExt, RuleEvent};
use super::{Cost, Policy, Ready};
use crate::error::ExceedsCapacity;
use crate::part::Part;
use crate::units::Nanos;

/// Several rules with one cost: every permit counts in each of them.
///
/// For quotas with more than one span, such as "10 a second and 1000 an hour". Rules with separate costs form a
/// tuple; any number of rules, known at run time, an [`AllOf`](crate::AllOf).
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

/// Names a part of a composed rule.
pub(super) fn part_of<P: Policy>(index: usize, of: usize, policy: &P) -> Part {
    Part::new(index, of).of_kind(policy.facts(0).kind)
}

/// Implements `Policy` for a composition. Each part is given with its index, its path from the whole, and the
/// path of its cost from the whole cost. `$costs`: whether all have `one`, or `each` its own.
macro_rules! compose {
    (
        [$($generics:tt)*] $whole:ty, $cost:ty, $costs:ident:
        $($part:ident $index:tt ($($way:tt)*) ($($of:tt)*)),+
    ) => {
        impl<$($generics)*> Policy for $whole {
            type Cost = $cost;
            type State = ($($part::State,)+);
            type Receipt = ($(Option<$part::Receipt>,)+);

            const HELD: bool = $($part::HELD)||+;
            const TIMED: bool = $($part::TIMED)||+;
            const RELEASE_TIMED: bool = $($part::RELEASE_TIMED)||+;

            fn start(&self, now: Nanos) -> Self::State {
                ($(self$($way)*.start(now),)+)
            }

            fn idle_at(&self, state: &Self::State) -> Option<Nanos> {
                let mut at = Nanos::ZERO;
                $(at = at.max(self$($way)*.idle_at(&state.$index)?);)+
                Some(at)
            }

            #[inline]
            fn ready_at(
                &self,
                state: &Self::State,
                now: Nanos,
                cost: Self::Cost,
            ) -> Result<Ready, ExceedsCapacity> {
                const OF: usize = [$($index),+].len();
                let mut ready = Ready::At(Nanos::ZERO);
                $(if !cost$($of)*.is_zero() {
                    let part = self$($way)*.ready_at(&state.$index, now, cost$($of)*);
                    ready = ready.and(part.map_err(|error| {
                        error.in_part(Some(part_of($index, OF, &self$($way)*)))
                    })?);
                })+
                Ok(ready)
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

            fn migrate(&self, old: &Self, state: &mut Self::State, now: Nanos) {
                $(self$($way)*.migrate(&old$($way)*, &mut state.$index, now);)+
            }

            // All that is left of a release are the parts with places.
            #[inline(always)]
            fn event(&self, state: &mut Self::State, now: Nanos, event: RuleEvent<Self::Cost>) -> Nanos {
                let mut at = now;
                $(if let Some(event) = event.of(|cost| cost$($of)*) {
                    at = at.max(self$($way)*.tell(&mut state.$index, now, event));
                })+
                at
            }

            fn limits(
                &self,
                state: &Self::State,
                asked: Asked<Self::Cost>,
                visit: &mut dyn FnMut(Limit<Self::Cost>),
            ) {
                const OF: usize = [$($index),+].len();
                if Self::Cost::NUMBERS > 1 && !asked.brief {
                    return visit(Limit::of(self, state, asked));
                }
                $(if !(asked.brief && asked.cost$($of)*.is_zero()) {
                    let part = part_of($index, OF, &self$($way)*);
                    let asked = asked.of(asked.cost$($of)*);
                    let mut visit = |limit| visit(Limit::of_part(limit, part));
                    self$($way)*.limits(&state.$index, asked, &mut visit);
                })+
            }

            of_costs!($costs $($part $index ($($way)*)),+);
        }
    };
}

/// What differs between one cost and a cost for each part.
macro_rules! of_costs {
    (each $($part:ident $index:tt ($($way:tt)*)),+) => {
        fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost {
            ($(self$($way)*.available(&state.$index, now),)+)
        }

        /// Of the part with this number.
        #[inline]
        #[allow(unused_assignments)] // of the last part
        fn facts(&self, number: usize) -> Facts {
            let mut from = 0;
            $(let to = from + $part::Cost::NUMBERS;
            if number < to {
                return Facts { kind: None, ..self$($way)*.facts(number - from) };
            }
            from = to;)+
            Facts::default()
        }
    };
    (one $($part:ident $index:tt ($($way:tt)*)),+) => {
        fn available(&self, state: &Self::State, now: Nanos) -> Self::Cost {
            let each = [$(self$($way)*.available(&state.$index, now)),+];
            let least = |one: Self::Cost, other| one.each(other, u32::min);
            each.into_iter().reduce(least).unwrap_or_default()
        }

        /// Of the slowest part.
        #[inline]
        fn facts(&self, number: usize) -> Facts {
            let each = [$(self$($way)*.facts(number)),+];
            each.into_iter().reduce(Facts::and).unwrap_or_default()
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
#[cfg(feature = "redis")]
pub(crate) use each_tuple;

/// Implements a tuple, with a cost for each part, and [`Same`] of it, with one cost for all parts.
macro_rules! tuple {
    ($first:ident 0, $($part:ident $index:tt),+) => {
        impl<$first: Cost, $($part: Cost),+> Sealed for ($first, $($part),+) {}

        impl<$first: Cost, $($part: Cost),+> Cost for ($first, $($part),+) {
            const ONE: Self = ($first::ONE, $($part::ONE),+);

            const NUMBERS: usize = $first::NUMBERS $(+ $part::NUMBERS)+;

            #[inline]
            fn map(self, number: &mut impl FnMut(u32) -> u32) -> Self {
                (self.0.map(number), $(self.$index.map(number)),+)
            }
        }

        compose!(
            [$first: Policy, $($part: Policy),+]
            ($first, $($part),+), ($first::Cost, $($part::Cost),+), each:
            $first 0 (.0) (.0), $($part $index (.$index) (.$index)),+
        );

        compose!(
            [$first: Policy, $($part: Policy<Cost = $first::Cost>),+]
            Same<($first, $($part),+)>, $first::Cost, one:
            $first 0 (.0 .0) (), $($part $index (.0 .$index) ()),+
        );
    };
}

each_tuple!(tuple);
