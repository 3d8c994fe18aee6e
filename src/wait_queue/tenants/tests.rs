use std::num::NonZeroU32;

use super::*;

fn tenant(id: u64) -> Option<Tenant> {
    Some(Tenant { id, weight: NonZeroU32::MIN })
}

fn waiter(number: usize) -> Timed {
    WaiterId::new(number).at(1, u32::try_from(number).expect("small"))
}

fn join(tenants: &mut Tenants, number: usize, id: u64, permits: u64) {
    tenants.join((waiter(number), tenant(id), permits));
}

/// Grants the first waiter. `permits`: what each of them asks for.
fn grant(tenants: &mut Tenants, permits: impl Fn(usize) -> u64) -> usize {
    let waiter = tenants.first().expect("a waiter");
    let id = WaiterId::of(waiter);
    tenants.grant(id, permits(id.place()));
    tenants.leave(waiter);
    id.place()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn tenants_that_do_not_wait_are_forgotten_once_others_have_caught_up() {
    let mut tenants = Tenants::default();
    for number in 0..1_000 {
        join(&mut tenants, number, number as u64, 1);
    }
    // Of two callers the first asks for ten times as much as others.
    join(&mut tenants, 1_000, 1_000, 10);
    join(&mut tenants, 1_001, 1_001, 1);
    (1_002..1_100).for_each(|number| join(&mut tenants, number, 1_001, 1));
    assert_eq!(tenants.lanes.len(), 1_002);
    let permits = |number| if number == 1_000 { 10 } else { 1 };
    let round: Vec<_> = (0..1_002).map(|_| grant(&mut tenants, permits)).collect();
    assert_eq!(round, (0..1_002).collect::<Vec<_>>());
    // Those that were granted one are one ahead.
    grant(&mut tenants, permits);
    assert_eq!((tenants.lanes.len(), tenants.idle.len()), (2, 1));
    (0..8).for_each(|_| _ = grant(&mut tenants, permits));
    assert_eq!(tenants.idle.len(), 1);
    grant(&mut tenants, permits);
    assert_eq!((tenants.lanes.len(), tenants.idle.len(), tenants.waiting.len()), (1, 0, 1));
}

/// It has had less than the others by then, and does not come before them for that.
#[test]
fn a_tenant_that_comes_back_begins_where_a_new_one_does() {
    let mut tenants = Tenants::default();
    let permits = |number| [4, 10, 10][number];
    for (number, id) in [(0, 1), (1, 2), (2, 2)] {
        join(&mut tenants, number, id, permits(number));
    }
    assert_eq!([grant(&mut tenants, permits), grant(&mut tenants, permits)], [0, 1]);
    assert_eq!(tenants.idle.len(), 1, "the first tenant is remembered");
    let price = price(None, 8);
    assert_eq!(tenants.begin(Some(1), price), tenants.begin(Some(3), price));
}

#[test]
fn what_is_ahead_of_a_place_is_what_is_granted_before_it() {
    let asks = [(1, 3), (2, 1), (1, 3), (3, 7), (2, 2), (1, 3), (3, 7), (4, 1), (2, 5), (4, 1)];
    let permits = |number: usize| asks.get(number).map_or(2, |&(_, permits)| permits);
    let mut tenants = Tenants::default();
    for (number, (id, permits)) in asks.into_iter().enumerate() {
        join(&mut tenants, number, id, permits);
    }
    // A caller that joins last stands behind those that are ahead of its place.
    for id in 1..6 {
        let of = |id: WaiterId| permits(id.place());
        let place = (waiter(asks.len()), tenant(id), 2);
        let ahead: Vec<_> = tenants.ahead_of(Some(place), of).map(WaiterId::place).collect();
        assert_eq!(ahead.is_empty(), tenants.is_first(place));
        tenants.join(place);
        let all: Vec<_> = tenants.ahead_of(None, of).map(WaiterId::place).collect();
        assert_eq!(all[..ahead.len()], ahead);
        assert_eq!(all[ahead.len()], asks.len());
        tenants.leave(waiter(asks.len()));
    }
    let order: Vec<_> = tenants.ahead_of(None, |id| permits(id.place())).collect();
    for id in order {
        assert_eq!(grant(&mut tenants, permits), id.place());
    }
    assert!(tenants.first().is_none());
}

#[test]
fn starts_that_would_overflow_are_counted_anew() {
    let mut tenants = Tenants::default();
    (0..40).for_each(|number| join(&mut tenants, number, number as u64 % 2, u64::MAX));
    for number in 0..40 {
        assert_eq!(grant(&mut tenants, |_| u64::MAX), number);
    }
    assert!(tenants.start < LAST_START && tenants.first().is_none());
}
