//! The laws that every policy keeps, each a property over random scripts.
//!
//! What is compared against is slow and obvious, and shares no code with the crate: a policy in
//! exact fractions or in Guava's own formulas ([`oracle`], [`bursty`], [`warming_up`]), and a `Vec`
//! for a line ([`line`]). A further policy joins by an `impl Conforms` and one line at the end of
//! this file.
//!
//! Law 2 holds the limiter against the oracle, call by call. The other laws are stated without it,
//! so that a mistake in the oracle cannot hide one in the crate.

#[path = "laws/bursty.rs"]
mod bursty;
#[path = "laws/driver.rs"]
mod driver;
#[path = "laws/line.rs"]
mod line;
#[path = "laws/oracle.rs"]
mod oracle;
#[path = "laws/script.rs"]
mod script;
#[path = "laws/splits.rs"]
mod splits;
#[path = "laws/trace.rs"]
mod trace;
#[path = "laws/twins.rs"]
mod twins;
#[path = "laws/utilisation.rs"]
mod utilisation;
#[path = "laws/warming_up.rs"]
mod warming_up;
#[path = "laws/windows.rs"]
mod windows;

macro_rules! conformance {
    ($name:ident: $policy:ty) => {
        mod $name {
            use super::*;

            #[test]
            fn law_1_no_span_grants_more_than_its_share() {
                windows::no_span_grants_more_than_its_share::<$policy>();
            }

            #[test]
            fn law_2_who_is_granted_and_when_is_what_the_oracle_says() {
                trace::the_oracle_agrees::<$policy>();
            }

            #[test]
            fn law_3_a_refusal_changes_nothing() {
                twins::a_refusal_changes_nothing::<$policy>();
            }

            #[test]
            fn law_3_a_leaver_makes_nobody_later() {
                twins::a_leaver_makes_nobody_later::<$policy>();
            }

            #[test]
            fn law_4_with_leavers_the_whole_rate_is_used() {
                utilisation::the_whole_rate_is_used::<$policy>();
            }

            #[test]
            fn law_5_looking_and_polling_change_nothing() {
                twins::looking_and_polling_change_nothing::<$policy>();
            }

            #[test]
            fn law_6_two_charges_are_one_charge_of_their_sum() {
                splits::two_charges_are_one_charge_of_their_sum::<$policy>();
            }

            #[test]
            fn law_7_refunds_and_changes_mint_nothing() {
                windows::refunds_and_changes_mint_nothing::<$policy>();
            }

            #[test]
            fn law_7_time_going_back_mints_nothing() {
                windows::time_going_back_mints_nothing::<$policy>();
            }

            #[test]
            fn law_7_a_pause_leaves_no_credit() {
                windows::a_pause_leaves_no_credit::<$policy>();
            }

            #[test]
            fn law_7_a_refund_at_another_rate_mints_nothing() {
                windows::a_refund_at_another_rate_mints_nothing::<$policy>();
            }

            #[test]
            fn law_7_halving_the_rate_before_a_refund_mints_nothing() {
                windows::halving_the_rate_before_a_refund_mints_nothing::<$policy>();
            }

            #[test]
            fn law_7_the_last_grant_comes_back_at_its_price() {
                trace::the_last_grant_comes_back_at_its_price::<$policy>();
            }

            #[test]
            fn law_7_a_refund_in_a_pause_leaves_no_credit_at_its_end() {
                windows::a_refund_in_a_pause_leaves_no_credit_at_its_end::<$policy>();
            }

            #[test]
            fn law_7_a_refund_after_time_went_back_mints_nothing() {
                windows::a_refund_after_time_went_back_mints_nothing::<$policy>();
            }
        }
    };
}

conformance!(smooth_bursty: tollgate::SmoothBursty);
conformance!(smooth_warming_up: tollgate::SmoothWarmingUp);
