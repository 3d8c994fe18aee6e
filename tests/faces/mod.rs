//! What every limiter does, whatever it is made of: one suite for all faces of the front desk.
//!
//! A face is one line of `faces!`. It runs all laws, each of which belongs to an ability. What a face cannot do, its
//! line says with the reason, and `docs/abilities.md` is made of these lines.
// Each program uses a part of it.
#![allow(dead_code)]

pub(crate) mod laws;
pub(crate) mod table;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tollgate::redis::Scripted;
use tollgate::{Limiter, ManualClock};

/// A policy that the laws use.
pub(crate) trait TestPolicy: Scripted<Cost = u32> + fmt::Debug {}
impl<P: Scripted<Cost = u32> + fmt::Debug> TestPolicy for P {}

/// A kind of limiter.
pub(crate) trait Face: 'static {
    const TITLE: &str;
    /// What it does otherwise, and why: each law of the ability fails.
    const REFUSALS: &[(Ability, &str)];
    /// Laws of other abilities that use what it does otherwise.
    const OUT_OF_REACH: &[&str];

    /// Its name is "face".
    fn made<P: TestPolicy>(policy: P, clock: ManualClock) -> impl Limiter<Cost = u32> + 'static;
}

/// Why it does an ability otherwise.
pub(crate) fn refusal(of: &[(Ability, &'static str)], ability: Ability) -> Option<&'static str> {
    of.iter().find(|(refused, _)| *refused == ability).map(|&(_, refusal)| refusal)
}

macro_rules! abilities {
    ($($ability:ident $title:literal,)+) => {
        /// What a limiter can do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Ability {
            $($ability),+
        }

        impl Ability {
            pub(crate) const ALL: &[(Self, &str)] = &[$((Self::$ability, $title)),+];
        }
    };
}

abilities! {
    Acquire "`acquire`, in the order of arrival",
    Try "`try_acquire`",
    Timeout "`try_acquire_timeout`",
    Cancel "a dropped future costs nothing",
    Blocking "`blocking_*`, `blocking_wait`",
    Reserve "`reserve`",
    Delay "`delay` follows those ahead at once",
    Ahead "`ahead_by`",
    Tenants "`acquire_for`, `for_tenant`, `weight`",
    Settle "`settle`",
    Stream "`throttle` of a stream",
    Run "`run`, `run_metered`",
    Refund "`refund`",
    Metered "`metered`",
    LimitedBy "rules together, `limited_by`",
    Places "places in flight",
    Quota "`quota`, `available`",
    WouldWait "`would_wait`",
    Pause "`pause_for`, `resume`",
    Reset "`reset`",
    Close "`close`, `drain`",
    Counts "`queue_len`, `queued_permits`, `waits`",
    Stats "`stats` count every call",
    NameAndClock "`name`, `clock`",
    Erased "as an `AnyRateLimiter`",
    Taught "in a `Feedback`",
}

/// The laws, each with its ability.
macro_rules! each_law {
    ($($then:tt)*) => {
        $($then)* {
            Acquire: a_future_joins_at_its_first_poll,
            Acquire: grants_come_in_the_order_of_arrival,
            Acquire: a_waiter_is_woken_when_it_is_granted,
            Acquire: nothing_is_granted_at_once_and_too_much_refused,
            Acquire: clones_share_the_limit_and_grants_outlive_it,
            Try: a_call_that_does_not_wait_does_not_overtake,
            Timeout: a_timeout_that_is_too_short_fails_at_once_and_names_the_wait,
            Timeout: no_timed_grant_is_late,
            Cancel: those_behind_a_caller_that_leaves_move_up,
            Cancel: a_grant_that_was_not_taken_comes_back,
            Blocking: threads_get_what_tasks_get,
            Blocking: a_thread_is_woken_at_its_grant,
            Reserve: a_reservation_has_its_place_at_once,
            Reserve: a_reservation_is_granted_without_being_polled,
            Reserve: a_reservation_that_is_dropped_gives_its_place_up,
            Reserve: a_reservation_with_a_timeout_keeps_it,
            Delay: a_delay_is_shorter_when_those_ahead_have_left,
            Delay: a_delay_is_longer_when_others_have_entered_ahead,
            Ahead: a_caller_enters_ahead_of_those_that_came_less_before,
            Tenants: tenants_take_turns,
            Tenants: a_tenant_of_greater_weight_gets_more,
            Settle: what_was_used_beyond_the_estimate_is_owed,
            Settle: what_was_not_used_comes_back_once,
            Settle: what_comes_back_is_for_those_that_wait,
            Stream: items_wait_for_permits_and_none_is_lost,
            Run: what_runs_is_charged_and_settled_by_its_output,
            Run: what_runs_and_is_cancelled_or_panics_stays_charged,
            Refund: a_refund_gives_back_what_was_taken,
            Refund: a_grant_that_is_dropped_stays_charged,
            Metered: a_metered_grant_settles_when_it_is_dropped,
            LimitedBy: a_grant_and_a_refusal_name_their_rule,
            Places: places_come_back_when_their_grants_are_dropped,
            Places: a_place_comes_back_once,
            Places: places_beyond_the_limit_come_back,
            Places: the_wait_for_a_place_is_not_known,
            Quota: what_is_left_is_told,
            WouldWait: a_wait_is_known_before_it_begins,
            Pause: a_pause_delays_those_that_wait,
            Pause: a_pause_is_part_of_the_wait_that_is_told,
            Pause: a_pause_that_is_ended_is_over_at_once,
            Reset: a_limiter_that_is_reset_owes_nothing,
            Reset: a_reset_grants_those_that_wait,
            Places: places_stay_taken_after_a_reset,
            Close: those_that_wait_are_refused_when_it_closes,
            Close: a_blocked_thread_is_refused_when_it_closes,
            Close: a_pause_and_its_end_open_nothing,
            Close: a_drained_limiter_serves_its_queue,
            Close: a_drain_that_is_dropped_goes_on_until_it_is_closed,
            Places: a_limiter_is_drained_when_its_places_are_back,
            Places: a_place_comes_back_to_a_closed_limiter,
            Counts: those_that_wait_are_counted,
            Stats: every_call_counts_once,
            NameAndClock: the_name_and_the_clock_are_those_of_the_builder,
            Erased: a_limiter_without_its_type_is_the_same_limiter,
            Taught: a_refusal_of_a_server_holds_the_limiter_back,
        }
    };
}
pub(crate) use each_law;

/// One law for one face.
pub(crate) fn check<F: Face>(ability: Ability, name: &str, law: fn()) {
    let is_out_of_reach = F::OUT_OF_REACH.contains(&name);
    let refusal = refusal(F::REFUSALS, ability);
    match refusal.or(is_out_of_reach.then_some("the law asks for it")) {
        None => law(),
        Some(reason) => {
            let broken = catch_unwind(AssertUnwindSafe(law));
            assert!(
                broken.is_err(),
                "{} can do it now, so this is out of date: {reason}",
                F::TITLE
            );
        }
    }
}

macro_rules! tests_of_face {
    ($($ability:ident: $law:ident,)+) => {
        $(
            #[test]
            fn $law() {
                check::<Subject>(Ability::$ability, stringify!($law), laws::$law::<Subject>);
            }
        )+
    };
}
pub(crate) use tests_of_face;

/// For a program that shows a face in the table, while another one tests it.
#[allow(unused_macros)]
macro_rules! no_tests {
    ($($law:tt)*) => {};
}
#[allow(unused_imports)]
pub(crate) use no_tests;

/// Limiters that keep all laws, except for what they refuse, and for laws that use that.
macro_rules! faces {
    ($(
        $(#[$if:meta])*
        $face:ident $title:literal: |$policy:ident, $clock:ident| $make:expr
        $(, $ability:ident $reason:expr)*
        $(=> not $($law:ident)+)?;
    )+) => {
        $(
            $(#[$if])*
            mod $face {
                use super::*;

                pub(super) struct Subject;

                impl Face for Subject {
                    const TITLE: &str = $title;
                    const REFUSALS: &[(Ability, &str)] = &[$((Ability::$ability, $reason)),*];
                    const OUT_OF_REACH: &[&str] = &[$($(stringify!($law)),+)?];

                    fn made<P: TestPolicy>(
                        $policy: P,
                        $clock: ManualClock,
                    ) -> impl Limiter<Cost = u32> + 'static {
                        $make
                    }
                }

                each_law!(tests_of!);
            }
        )+

        #[allow(dead_code)]
        pub(crate) const COLUMNS: &[table::Column] =
            &[$($(#[$if])* table::Column::of::<$face::Subject>()),+];
    };
}
pub(crate) use faces;

/// It has heard an answer: before the first, few calls go.
pub(crate) fn taught<L: Limiter + 'static>(limiter: L) -> tollgate::feedback::Feedback<L> {
    let feedback = tollgate::feedback::Feedback::new(limiter);
    feedback.sent(Default::default()).accepted();
    feedback
}
