//! What the policies with one steady rate share.

pub(super) use super::prelude::*;
pub(super) use super::rule::OneRate;
pub(super) use super::schedule::{RateReceipt, RateState, Schedule};

/// Implements all that follows from the schedule of a type with a `rate`, a `catch_up` and a `schedule`.
///
/// - `$schedule`: made of its other parameters
/// - `$start`: the state of a new limiter
/// - `$migrate`: what does not change with the parameters
macro_rules! scheduled {
    (
        $policy:ident,
        schedule: |$it:ident| $schedule:expr,
        start: |$this:ident, $now:ident| $start:expr,
        migrate: $migrate:expr
    ) => {
        impl $policy {
            /// The maximum wake-up lateness that is credited back, 2 ms by default. At high rates
            /// `rate x catch_up` permits may be granted closer together than the rate allows. Of a bucket it matters
            /// only if fewer permits fit than arrive in this time.
            #[must_use]
            pub fn with_catch_up(self, catch_up: Duration) -> Self {
                Self { catch_up, ..self }
            }

            /// The same with the schedule of its parameters.
            pub(super) fn scheduled(self) -> Self {
                let $it = &self;
                Self { schedule: $schedule, ..self }
            }
        }

        impl Policy for $policy {
            type Cost = u32;
            type State = RateState;
            type Receipt = RateReceipt;

            const ONE_RATE: Option<OneRate<Self>> = Some(OneRate {
                // Only a bucket has steps: other rules are spared the code for them.
                schedule: |policy| {
                    let steps = matches!(Kind::$policy, Kind::TokenBucket);
                    Some(&policy.schedule).filter(|schedule| !steps || schedule.period == 0)
                },
                state: |state| state,
                state_mut: |state| state,
                from_state: |state| state,
                receipt: |receipt| receipt,
            });

            fn start(&self, $now: Nanos) -> RateState {
                let $this = self;
                $start
            }

            fn idle_at(&self, state: &RateState) -> Option<Nanos> {
                Some(self.schedule.full_at(state))
            }

            #[inline]
            fn ready_at(
                &self,
                state: &RateState,
                now: Nanos,
                n: u32,
            ) -> Result<Ready, ExceedsCapacity> {
                self.schedule.ready_at(state, now, n)
            }

            #[inline(always)]
            fn charge(&self, state: &mut RateState, at: Nanos, n: u32) -> RateReceipt {
                self.schedule.charge(state, at, u64::from(n))
            }

            fn refund(
                &self,
                state: &mut RateState,
                now: Nanos,
                part: u32,
                receipt: RateReceipt,
            ) -> RateReceipt {
                self.schedule.refund(state, now, u64::from(part), receipt)
            }

            fn migrate(&self, old: &Self, state: &mut RateState, now: Nanos) {
                let migrate: fn(&Self, &Self, &mut RateState, Nanos) = $migrate;
                migrate(self, old, state, now);
            }

            fn available(&self, state: &RateState, now: Nanos) -> u32 {
                self.schedule.stored(state.position, self.schedule.last_step(state, now))
            }

            #[inline]
            fn event(&self, state: &mut RateState, now: Nanos, event: RuleEvent<u32>) -> Nanos {
                match event {
                    RuleEvent::Paused(until) => self.schedule.pause(state, until),
                    RuleEvent::Idle => *state = self.schedule.idle(now),
                    RuleEvent::Joins { queued, cost } if self.schedule.is_queue => {
                        return self.schedule.room_at(state, now, queued.into(), cost);
                    }
                    _ => {}
                }
                now
            }

            #[inline]
            fn facts(&self, _: usize) -> Facts {
                Facts {
                    kind: Some(Kind::$policy),
                    catch_up: self.catch_up,
                    ..Facts::rate(self.rate)
                }
            }
        }

        impl Rated for $policy {
            fn rate(&self) -> Rate {
                self.rate
            }

            fn with_rate(self, rate: Rate) -> Self {
                Self { rate, ..self }.scheduled()
            }
        }
    };
}

pub(super) use scheduled;
