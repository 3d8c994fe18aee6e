//! The laws that every policy keeps, each a property over random scripts.
//!
//! The oracle is slow and obvious, and shares no code with the crate: a policy in exact fractions,
//! in Guava's own formulas or as a list of all grants ([`policies`]), and a `Vec` for a queue
//! ([`line`]). Law 2 compares the limiter with the oracle, call by call. The other laws do not use
//! the oracle, so that a mistake in it cannot hide one in the crate.
//!
//! **A further policy** joins by one file in `laws/suite/policies/`, with its `Oracle` and an `impl
//! Conforms`, and one line at the end of this file: `conformance!(name: Policy)`, followed by the
//! laws that do not hold for every policy.
//!
//! The laws test a [`subject::Subject`], such as a limiter. Another kind of limiter joins by an
//! `impl Subject` and a module in `conformance!`, like `limiter` there. If it counts in other units
//! or lacks a feature, it needs a test program of its own with another [`measure`], as
//! `tests/redis_laws/` has.

mod exactness;
mod forgetting;
mod measure;
mod ready_now;
mod splits;
mod tenants;
#[macro_use]
mod suite;

// Its files name each other from here, as they do in the other program.
use suite::*;

use oracle::Conforms;
use policies::{Aligned, Meter, Stepwise};
use tollgate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, RateLimiter, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

/// All tests of one policy: those of the policy itself, and for each kind of subject those that go
/// through its methods.
macro_rules! conformance {
    ($name:ident: $policy:ty $(, $law:ident)*) => {
        mod $name {
            use super::*;

            type Policy = $policy;

            #[test]
            fn law_7_a_forgotten_state_is_an_idle_one() {
                forgetting::a_forgotten_state_is_an_idle_one::<Policy>();
            }

            mod limiter {
                use super::*;

                type Subject = RateLimiter<<Policy as Conforms>::Policy>;

                shared_laws!();
                law_2_tenants!();
                law_7_back!();
                $($law!();)*
            }

            mod key {
                use super::*;

                type Subject = subject::Key<<Policy as Conforms>::Policy>;

                shared_laws!();
                law_7_back!();
                $($law!();)*
            }
        }
    };
}

/// For limiters that tenants share.
macro_rules! law_2_tenants {
    () => {
        laws! {
            law_2_tenants_take_turns_as_the_oracle_does: trace::the_oracle_agrees_about_tenants;
            law_1_no_span_grants_more_than_its_share_to_tenants:
                windows::no_span_grants_more_than_its_share_to_tenants;
        }
    };
}

/// For policies that grant on credit.
macro_rules! law_6 {
    () => {
        #[test]
        fn law_6_two_charges_are_one_charge_of_their_sum() {
            splits::two_charges_are_one_charge_of_their_sum::<Policy>();
        }
    };
}

#[test]
fn law_10_the_true_costs_keep_the_limit_and_little_is_lost() {
    corrections::the_true_costs_keep_the_limit::<RateLimiter<_>, RateLimiter<_>, RateLimiter<_>>();
    corrections::the_true_costs_keep_the_limit::<subject::Key<_>, subject::Key<_>, subject::Key<_>>(
    );
}

conformance!(smooth_bursty: SmoothBursty, law_4, law_6);
conformance!(smooth_warming_up: SmoothWarmingUp, law_4, law_6);
conformance!(token_bucket: TokenBucket, law_4);
conformance!(token_bucket_stepwise: Stepwise);
conformance!(gcra: Gcra, law_4);
conformance!(leaky_bucket: LeakyBucket, law_4);
conformance!(leaky_bucket_meter: Meter, law_4);
conformance!(fixed_window: FixedWindow);
conformance!(fixed_window_aligned: Aligned);
conformance!(sliding_window_log: SlidingWindowLog);
conformance!(sliding_window_counter: SlidingWindowCounter);
conformance!(in_flight: InFlight);
conformance!(lock_out_of_fixed_window: LockOut<FixedWindow>);
conformance!(lock_out_of_token_bucket: LockOut<TokenBucket>);
conformance!(log_bucket_and_in_flight: (SlidingWindowLog, TokenBucket, InFlight), law_9);
conformance!(window_and_bursty: (FixedWindow, SmoothBursty), law_9);
conformance!(two_logs: Same<(SlidingWindowLog, SlidingWindowLog)>, law_9);
conformance!(bucket_and_log_of_one_cost: Same<(TokenBucket, SlidingWindowLog)>, law_9);
