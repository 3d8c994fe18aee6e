//! Arguments from everywhere in their ranges.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::state::PolicyExt;
use tollgate::{Nanos, Policy, Rated, SmoothBursty, SmoothWarmingUp};

use crate::oracle::{Conforms, Fraction, Oracle, TICKS, Time, When, prove, time};
use crate::policies::{bursty, warming_up};

/// A policy with arbitrary parameters.
pub(crate) trait Extreme: Conforms<Policy = Self> + Rated + Policy<Cost = u32> {
    fn of(rate: Fraction, setup: &Setup) -> Self::Version;

    /// How much unused time a store is worth.
    fn stored_time(setup: &Setup) -> Time;
}

impl Extreme for SmoothBursty {
    fn of(rate: Fraction, setup: &Setup) -> bursty::Version {
        bursty::Version { rate, max_burst: time(setup.max_burst) }
    }

    fn stored_time(setup: &Setup) -> Time {
        time(setup.max_burst)
    }
}

impl Extreme for SmoothWarmingUp {
    fn of(rate: Fraction, setup: &Setup) -> warming_up::Version {
        let (warm_up, cold_factor) = (time(setup.warm_up), setup.cold_factor);
        warming_up::Version { rate, warm_up, cold_factor }
    }

    fn stored_time(_: &Setup) -> Time {
        0
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    rates: [Fraction; 2],
    max_burst: Duration,
    warm_up: Duration,
    cold_factor: f64,
}

impl Setup {
    fn versions<P: Extreme>(&self) -> [P::Version; 2] {
        self.rates.map(|rate| P::of(rate, self))
    }
}

/// One call of a policy. Times are in any order.
#[derive(Clone, Copy, Debug)]
enum Call {
    Charge { at: u64, n: u32 },
    Ask { now: u64, n: u32 },
    Pause { now: u64, span: u64 },
    SetRate { now: u64, which: bool },
    Refund { now: u64, which: usize, part: u32 },
}

/// From 1 to `most`, all sizes alike.
fn sizes(most: u64) -> impl Strategy<Value = u64> {
    let random = (0..=most.ilog2(), any::<u64>())
        .prop_map(move |(bits, rest)| ((1 << bits) + rest % (1 << bits)).min(most));
    prop_oneof![8 => random, 1 => Just(1), 1 => Just(most)]
}

/// All times that a clock can show.
fn times() -> impl Strategy<Value = u64> {
    prop_oneof![6 => sizes(Nanos::END.get()), 1 => Just(0)]
}

fn costs() -> impl Strategy<Value = u32> {
    let any_size = sizes(u64::from(u32::MAX)).prop_map(|n| u32::try_from(n).expect("a cost"));
    prop_oneof![1 => Just(0), 8 => any_size, 1 => Just(u32::MAX)]
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let refund = (times(), any::<usize>(), costs());
    let call = prop_oneof![
        4 => (times(), costs()).prop_map(|(at, n)| Call::Charge { at, n }),
        4 => (times(), costs()).prop_map(|(now, n)| Call::Ask { now, n }),
        1 => (times(), sizes(1 << 62)).prop_map(|(now, span)| Call::Pause { now, span }),
        1 => (times(), any::<bool>()).prop_map(|(now, which)| Call::SetRate { now, which }),
        2 => refund.prop_map(|(now, which, part)| Call::Refund { now, which, part }),
    ];
    prop::collection::vec(call, 1..40)
}

/// From 1e9 a second to one a day.
fn rates() -> impl Strategy<Value = Fraction> {
    (1u64..=16, sizes(86_400_000_000_000))
        .prop_map(|(permits, each)| Fraction { permits, nanos: each * permits })
        .prop_flat_map(|slow| {
            (Just(slow), 0..slow.permits).prop_map(|(Fraction { permits, nanos }, less)| Fraction {
                permits,
                nanos: (nanos - less).max(permits),
            })
        })
}

fn setups() -> impl Strategy<Value = Setup> {
    let bursts = prop_oneof![
        1 => Just(Duration::ZERO),
        4 => sizes(u64::MAX).prop_map(Duration::from_nanos),
        1 => Just(Duration::MAX),
    ];
    let warm_ups = sizes(1 << 62).prop_map(Duration::from_nanos);
    let cold_factors = prop_oneof![1 => Just(1.0), 4 => (0.0f64..9.0).prop_map(|e| 10f64.powf(e))];
    (rates(), rates(), bursts, warm_ups, cold_factors).prop_map(
        |(first, second, max_burst, warm_up, cold_factor)| Setup {
            rates: [first, second],
            // A store larger than the horizon counts as that.
            max_burst: max_burst.min(Nanos::HORIZON),
            warm_up,
            cold_factor,
        },
    )
}

fn due(oracle: &dyn Oracle) -> Time {
    match oracle.ready(0, 0) {
        When::At(at) => at,
        other => unreachable!("a rule of a rate is ready at some time, not {other:?}"),
    }
}

/// No call panics, nothing is ready before (or after) the oracle says so, and only what reaches
/// beyond the horizon is refused. Both sides together keep `bits` bits of a time.
pub(crate) fn any_arguments_are_never_early<P: Extreme>(bits: u32) {
    prove(3000, &(setups(), calls()), |(setup, calls)| {
        let versions = setup.versions::<P>();
        let mut policy = P::policy(&versions[0], Duration::ZERO);
        let mut oracle = P::oracle(&versions);
        let mut state = policy.start(Nanos::ZERO);
        let mut rate = setup.rates[0];
        let mut greatest = time(setup.warm_up);
        for call in calls {
            match call {
                Call::Charge { at, n } => {
                    policy.charge(&mut state, Nanos::new(at), n);
                    oracle.charge(0, at.into(), n);
                }
                Call::Pause { now, span } => {
                    let until = now.saturating_add(span);
                    policy.pause(&mut state, Nanos::new(now), Nanos::new(until));
                    oracle.pause(now.into(), until.into());
                }
                Call::SetRate { now, which } => {
                    if due(&*oracle) - i128::from(now) > 1 << 63 {
                        // More than 292 years ahead, which no limiter books; a change of the rate
                        // may cut that.
                        return Ok(());
                    }
                    rate = setup.rates[usize::from(which)];
                    let old = policy.clone();
                    policy = policy.with_rate(rate.rate());
                    policy.migrate(&old, &mut state, Nanos::new(now));
                    oracle.set_policy(usize::from(which), now.into());
                }
                Call::Ask { now, n } => {
                    let due = due(&*oracle);
                    greatest = greatest.max(due).max(now.into());
                    let tolerance = 8 + (greatest >> bits);
                    // The horizon counts from the caller's turn.
                    let past_horizon = rate.interval() * i128::from(n) / TICKS - (1 << 62);
                    // Asked at the origin, for the exact time: it may be ready since before `now`.
                    match policy.ready_at(&state, Nanos::ZERO, n) {
                        Ok(ready) => {
                            let ready = Time::from(ready.earliest().get());
                            let theirs = due.clamp(0, Time::from(u64::MAX));
                            prop_assert!(
                                (ready - theirs).abs() <= tolerance,
                                "ready at {ready}, the oracle says {theirs}"
                            );
                            prop_assert!(past_horizon <= tolerance, "{past_horizon} too far");
                        }
                        Err(_) => prop_assert!(past_horizon >= -tolerance, "{past_horizon}"),
                    }
                    policy.available(&state, Nanos::new(now));
                    policy.ready_behind(&state, Nanos::new(now), u64::from(n) << 31, n);
                }
                Call::Refund { .. } => {}
            }
        }
        Ok(())
    });
}

/// Refunds too, in any order and of any part, after any change: nothing overflows, and nothing that
/// is given back makes a store fuller than it can be.
pub(crate) fn any_refund_is_taken<P: Extreme>() {
    prove(3000, &(setups(), calls()), |(setup, calls)| {
        let mut policy = P::policy(&setup.versions::<P>()[0], Duration::ZERO);
        let mut state = policy.start(Nanos::ZERO);
        let mut receipts = Vec::new();
        for call in calls {
            match call {
                Call::Charge { at, n } => {
                    receipts.push((n, policy.charge(&mut state, Nanos::new(at), n)));
                }
                Call::Pause { now, span } => {
                    let until = now.saturating_add(span);
                    policy.pause(&mut state, Nanos::new(now), Nanos::new(until));
                }
                Call::SetRate { now, which } => {
                    let old = policy.clone();
                    policy = policy.with_rate(setup.rates[usize::from(which)].rate());
                    policy.migrate(&old, &mut state, Nanos::new(now));
                }
                Call::Ask { now, n } => {
                    let _ = policy.ready_at(&state, Nanos::new(now), n);
                    policy.ready_behind(&state, Nanos::new(now), u64::from(n), n);
                    policy.available(&state, Nanos::new(now));
                }
                Call::Refund { now, which, part } if !receipts.is_empty() => {
                    let (n, receipt) = receipts.swap_remove(which % receipts.len());
                    policy.refund(&mut state, Nanos::new(now), part.min(n), receipt);
                }
                Call::Refund { .. } => {}
            }
        }
        // However much was refunded, a request for more than the store holds must wait.
        let now = Nanos::END;
        let stored = P::stored_time(&setup) + time(setup.warm_up);
        let (n, end) = (u32::MAX, Nanos::END.get());
        policy.charge(&mut state, now, n);
        let ready = policy.ready_at(&state, Nanos::ZERO, 0);
        let ready = ready.map_or(u64::MAX, |ready| ready.earliest().get());
        let worth = rate_worth::<P>(&policy, n);
        let least = i128::from(end) + worth - stored - (worth >> 50) - 8;
        prop_assert!(i128::from(ready) >= least.min(i128::from(u64::MAX)), "{ready} < {least}");
        Ok(())
    });
}

/// How long `n` permits take at the rate of `policy`, in nanoseconds, at least.
#[allow(clippy::cast_possible_truncation)] // rounds down, as said
fn rate_worth<P: Rated>(policy: &P, n: u32) -> Time {
    (f64::from(n) / policy.rate().as_per_second() * 1e9 * (1.0 - 1e-12)) as Time
}
