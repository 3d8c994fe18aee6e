//! The laws of `tests/laws/` over Redis: the same suite with the same oracles, on real servers that
//! decide by a manual clock.
#![cfg(unix)]

mod ahead;
mod closing;
mod crowd;
mod deploys;
#[path = "../faces/mod.rs"]
mod faces;
#[path = "../faces/in_process.rs"]
mod faces_in_process;
#[path = "../faces/redis.rs"]
mod faces_over_redis;
mod feedback;
mod heard;
mod keys;
#[path = "../redis/manual.rs"]
mod manual;
mod measure;
mod priorities;
// Others use more of it.
#[allow(dead_code)]
#[path = "../random.rs"]
mod random;
mod reports;
mod settled;
mod shares;
// One key of many is not tested here.
#[allow(dead_code)]
#[macro_use]
#[path = "../laws/suite/mod.rs"]
mod suite;

use faces::no_tests as tests_in_process;
// Its files name each other from here.
use suite::*;

use oracle::Conforms;
use policies::{Aligned, Meter, Stepwise};
use tollgate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

#[test]
fn the_abilities_of_all_limiters_are_as_documented() {
    faces::table::check(&[faces_in_process::COLUMNS, faces_over_redis::COLUMNS].concat());
}

/// All laws of one policy that hold between a process and a server. Law 6 and the law of forgetting
/// are not here: they test the policy itself, in Rust.
macro_rules! conformance {
    ($name:ident: $policy:ty $(, $law:ident)*) => {
        mod $name {
            use super::*;

            type Policy = $policy;
            type Subject = ahead::Ahead<<Policy as Conforms>::Policy, 0>;

            shared_laws!();
            $($law!();)*
        }
    };
}

/// Callers that are booked ahead are granted at the same times. Not for policies that lock out: a
/// refusal caused by a booking locks out other callers, but not those booked.
macro_rules! law_8 {
    () => {
        #[test]
        fn law_8_callers_booked_ahead_are_granted_at_the_same_times() {
            type Subject = ahead::Ahead<<Policy as Conforms>::Policy, 250>;
            let kinds = script::Kinds { timeouts: true, ..Default::default() };
            // Less may be known of the callers ahead, so the times of refusals may differ.
            trace::agree::<Policy, Subject>(oracle::CASES, kinds, script::GiveBack::Any, false);
        }
    };
}

#[test]
fn law_10_the_true_costs_keep_the_limit_and_little_is_lost() {
    use ahead::Ahead;
    corrections::the_true_costs_keep_the_limit::<Ahead<_, 0>, Ahead<_, 0>, Ahead<_, 0>>();
}

conformance!(smooth_bursty: SmoothBursty, law_4, law_8, law_7_back);
conformance!(smooth_warming_up: SmoothWarmingUp, law_4, law_8, law_7_back);
conformance!(token_bucket: TokenBucket, law_4, law_8, law_7_back);
conformance!(token_bucket_stepwise: Stepwise, law_8, law_7_back);
conformance!(gcra: Gcra, law_4, law_8, law_7_back);
conformance!(leaky_bucket: LeakyBucket, law_4, law_8, law_7_back);
conformance!(leaky_bucket_meter: Meter, law_4, law_8, law_7_back);
conformance!(fixed_window: FixedWindow, law_8, law_7_back);
// Its windows are those of the server's clock, so they do not hold by another clock if that one
// goes back.
conformance!(fixed_window_aligned: Aligned, law_8);
conformance!(sliding_window_log: SlidingWindowLog, law_8, law_7_back);
conformance!(sliding_window_counter: SlidingWindowCounter, law_8, law_7_back);
conformance!(in_flight: InFlight, law_8, law_7_back);
conformance!(lock_out_of_fixed_window: LockOut<FixedWindow>, law_7_back);
conformance!(lock_out_of_token_bucket: LockOut<TokenBucket>, law_7_back);
conformance!(log_bucket_and_in_flight: (SlidingWindowLog, TokenBucket, InFlight), law_9, law_8, law_7_back);
conformance!(window_and_bursty: (FixedWindow, SmoothBursty), law_9, law_8, law_7_back);
conformance!(two_logs: Same<(SlidingWindowLog, SlidingWindowLog)>, law_9, law_8, law_7_back);
conformance!(bucket_and_log_of_one_cost: Same<(TokenBucket, SlidingWindowLog)>, law_9, law_8, law_7_back);
