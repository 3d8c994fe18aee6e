//! The laws: those of every policy, and those of some. Only the `measure` is each program's own.

pub(crate) mod corrections;
pub(crate) mod driver;
pub(crate) mod history;
pub(crate) mod line;
pub(crate) mod oracle;
pub(crate) mod policies;
pub(crate) mod script;
pub(crate) mod subject;
pub(crate) mod trace;
pub(crate) mod turns;
pub(crate) mod twins;
pub(crate) mod utilisation;
pub(crate) mod windows;

macro_rules! shared_laws {
    () => {
        laws! {
            law_1_no_span_grants_more_than_its_share: windows::no_span_grants_more_than_its_share;
            law_2_grants_and_their_times_are_those_of_the_oracle: trace::the_oracle_agrees;
            law_2_pauses_that_end_early_are_those_of_the_oracle:
                trace::the_oracle_agrees_about_pauses_that_end_early;
            law_3_a_refusal_changes_nothing: twins::a_refusal_changes_nothing;
            law_3_a_leaver_delays_no_other_caller: twins::a_leaver_delays_no_other_caller;
            law_5_looking_and_polling_change_nothing: twins::looking_and_polling_change_nothing;
            law_7_refunds_and_changes_mint_nothing: windows::refunds_and_changes_mint_nothing;
            law_7_settlements_mint_nothing_and_all_comes_back:
                windows::settlements_mint_nothing_and_all_comes_back;
            law_7_a_pause_leaves_no_credit: windows::a_pause_leaves_no_credit;
            law_7_a_refund_at_another_rate_mints_nothing:
                windows::a_refund_at_another_rate_mints_nothing;
            law_7_halving_the_rate_before_a_refund_mints_nothing:
                windows::halving_the_rate_before_a_refund_mints_nothing;
            law_7_the_last_grant_comes_back_at_its_price:
                trace::the_last_grant_comes_back_at_its_price;
            law_7_a_refund_in_a_pause_leaves_no_credit_at_its_end:
                windows::a_refund_in_a_pause_leaves_no_credit_at_its_end;
        }
    };
}

/// For clocks that may go back.
macro_rules! law_7_back {
    () => {
        laws! {
            law_7_time_going_back_mints_nothing: windows::time_going_back_mints_nothing;
            law_7_a_refund_after_time_went_back_mints_nothing:
                windows::a_refund_after_time_went_back_mints_nothing;
        }
    };
}

macro_rules! laws {
    ($($name:ident: $($law:ident)::+;)+) => {
        $(
            #[test]
            fn $name() {
                $($law)::+::<Policy, Subject>();
            }
        )+
    };
}

/// For policies with a steady rate; for the others law 2 is law 4.
macro_rules! law_4 {
    () => {
        laws! {
            law_4_with_leavers_the_whole_rate_is_used: utilisation::the_whole_rate_is_used;
        }
    };
}

/// For several policies together.
macro_rules! law_9 {
    () => {
        laws! {
            law_9_granted_exactly_when_all_would_grant: policies::together::granted_when_all_would;
        }
    };
}
