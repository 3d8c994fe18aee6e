use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::super::WaiterId;
use super::super::tenant::Tenant;
use super::{TakeTurns, Turns};

fn tenant(id: u64) -> Option<Tenant> {
    Some(Tenant { id, weight: std::num::NonZeroU32::MIN })
}

fn join(turns: &mut Turns, waiter: usize, id: u64, permits: u64) {
    turns.join(WaiterId::new(waiter), tenant(id), permits, None);
}

/// Grants the first waiter, and forgets it.
fn grant(turns: &mut Turns) -> usize {
    let waiter = turns.front().expect("a waiter");
    turns.grant(waiter);
    turns.unlink(waiter);
    turns.remove(waiter);
    waiter.place()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn tenants_that_do_not_wait_are_forgotten_once_others_have_caught_up() {
    let mut turns = Turns::default();
    for id in 0..1_000 {
        join(&mut turns, usize::try_from(id).expect("small"), id, 1);
    }
    // Of two callers the first asks for ten times as much as others.
    join(&mut turns, 1_000, 1_000, 10);
    join(&mut turns, 1_001, 1_001, 1);
    (1_002..1_100).for_each(|waiter| join(&mut turns, waiter, 1_001, 1));
    assert_eq!((turns.lanes.len(), turns.by_tenant.len()), (1_002, 1_002));
    let round: Vec<_> = (0..1_002).map(|_| grant(&mut turns)).collect();
    assert_eq!(round, (0..1_002).collect::<Vec<_>>());
    // Those that were granted one are one ahead.
    grant(&mut turns);
    assert_eq!((turns.lanes.len(), turns.idle.len(), turns.by_tenant.len()), (2, 1, 2));
    (0..8).for_each(|_| _ = grant(&mut turns));
    assert_eq!(turns.idle.len(), 1);
    grant(&mut turns);
    assert_eq!((turns.lanes.len(), turns.idle.len(), turns.waiting.len()), (1, 0, 1));
}

/// It has had less than the others by then, and does not come before them for that.
#[test]
fn a_tenant_that_comes_back_begins_where_a_new_one_does() {
    let mut turns = Turns::default();
    for (waiter, id, permits) in [(0, 1, 4), (1, 2, 10), (2, 2, 10)] {
        join(&mut turns, waiter, id, permits);
    }
    assert_eq!([grant(&mut turns), grant(&mut turns)], [0, 1]);
    assert_eq!(turns.idle.len(), 1, "the first tenant is remembered");
    assert_eq!(turns.turn(tenant(1), 8), turns.turn(tenant(3), 8));
}

#[test]
fn what_is_before_a_turn_is_what_is_granted_before_it() {
    let mut turns = Turns::default();
    let asks = [(1, 3), (2, 1), (1, 3), (3, 7), (2, 2), (1, 3), (3, 7), (4, 1), (2, 5), (4, 1)];
    for (waiter, (id, permits)) in asks.into_iter().enumerate() {
        join(&mut turns, waiter, id, permits);
    }
    while turns.front().is_some() {
        for id in 1..6 {
            let turn = turns.turn(tenant(id), 2);
            let before: u64 = turns.order(Some(turn)).map(|waiter| asks[waiter.place()].1).sum();
            assert_eq!(turns.permits_before(turn, &|_| true), before);
        }
        let order: Vec<_> = turns.order(None).collect();
        assert_eq!(order[0].place(), grant(&mut turns));
        assert_eq!(turns.order(None).collect::<Vec<_>>(), order[1..]);
    }
    assert!(turns.lanes.iter().all(|(_, lane)| lane.len == 0));
}

/// What a queue of tenants does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Join {
        id: u64,
        permits: u64,
    },
    /// Ahead of a waiter, for its tenant.
    JoinAhead {
        of: usize,
        permits: u64,
    },
    Grant,
    GrantAtOnce {
        id: u64,
    },
    Leave(usize),
    Count {
        id: u64,
        enough: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (id, waiter, permits) = (0u64..300, 0usize..1_000, 1u64..4);
    prop_oneof![
        8 => (id.clone(), permits.clone()).prop_map(|(id, permits)| Step::Join { id, permits }),
        1 => (waiter.clone(), permits).prop_map(|(of, permits)| Step::JoinAhead { of, permits }),
        4 => Just(Step::Grant),
        1 => id.clone().prop_map(|id| Step::GrantAtOnce { id }),
        2 => waiter.prop_map(Step::Leave),
        6 => (id, 0u64..700).prop_map(|(id, enough)| Step::Count { id, enough }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn a_count_that_is_kept_is_never_too_high(steps in prop::collection::vec(step(), 1..400)) {
        let mut turns = Turns::default();
        (0..300).for_each(|waiter| join(&mut turns, waiter, waiter as u64, 1));
        let mut permits_of = vec![1; 300];
        let mut waiting: Vec<_> = (0..300).map(WaiterId::new).collect();
        for step in steps {
            let waiter = WaiterId::new(permits_of.len());
            match step {
                Step::Join { id, permits } => {
                    turns.join(waiter, tenant(id), permits, None);
                    permits_of.push(permits);
                    waiting.push(waiter);
                }
                Step::JoinAhead { of, permits } => {
                    let next = waiting[of % waiting.len()];
                    turns.join(waiter, turns.tenant(next), permits, Some(next));
                    permits_of.push(permits);
                    waiting.push(waiter);
                }
                Step::Grant if waiting.len() > 1 => {
                    let granted = grant(&mut turns);
                    waiting.retain(|waiter| waiter.place() != granted);
                }
                Step::Leave(place) if waiting.len() > 1 => {
                    turns.unlink(waiting.swap_remove(place % waiting.len()));
                }
                Step::GrantAtOnce { id } => turns.grant_at_once(tenant(id), 2),
                Step::Count { id, enough } => {
                    let turn = turns.turn(tenant(id), 1);
                    let before = turns.order(Some(turn)).map(|waiter| permits_of[waiter.place()]);
                    let before: u64 = before.sum();
                    let counted = turns.permits_before(turn, &|permits| permits >= enough);
                    prop_assert!(counted <= before, "{counted}, but {before} are before {turn:?}");
                    prop_assert!(counted >= before.min(enough), "{counted} of {before} for {enough}");
                }
                _ => {}
            }
        }
    }
}
