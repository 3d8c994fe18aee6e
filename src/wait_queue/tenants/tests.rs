use super::*;

fn tenant(id: u64) -> Option<Tenant> {
    Some(Tenant { id, ..Tenant::new(&()) })
}

fn waiter(number: usize) -> Timed {
    let number = u32::try_from(number).expect("small");
    Timed::new(1, number, number)
}

fn join(tenants: &mut Tenants, number: usize, id: u64, permits: u64) {
    tenants.join((waiter(number), tenant(id), permits));
}

/// Grants the first waiter. `of`: for which tenant each of them asks, and for how much.
fn grant(tenants: &mut Tenants, of: impl Fn(usize) -> (u64, u64)) -> usize {
    let waiter = tenants.first().expect("a waiter");
    let number = waiter.id() as usize;
    let (id, permits) = of(number);
    tenants.grant(tenant(id), permits);
    tenants.leave(waiter, tenant(id));
    number
}

#[test]
fn a_tenant_that_leaves_ungranted_is_forgotten_and_one_that_was_granted_is_not() {
    let mut tenants = Tenants::default();
    join(&mut tenants, 0, 0, 1);
    for number in 1..100 {
        join(&mut tenants, number, number as u64, 1);
        tenants.leave(waiter(number), tenant(number as u64));
    }
    assert_eq!(tenants.lanes.len(), 1);
    // It owes for what it got.
    tenants.grant(tenant(1), 9);
    join(&mut tenants, 1, 1, 1);
    tenants.leave(waiter(1), tenant(1));
    assert_eq!((tenants.lanes.len(), tenants.idle.len()), (2, 1));
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
    let of = |number: usize| (number.min(1_001) as u64, if number == 1_000 { 10 } else { 1 });
    let round: Vec<_> = (0..1_002).map(|_| grant(&mut tenants, of)).collect();
    assert_eq!(round, (0..1_002).collect::<Vec<_>>());
    // Those that were granted one are one ahead.
    grant(&mut tenants, of);
    assert_eq!((tenants.lanes.len(), tenants.idle.len()), (2, 1));
    (0..8).for_each(|_| _ = grant(&mut tenants, of));
    assert_eq!(tenants.idle.len(), 1);
    grant(&mut tenants, of);
    assert_eq!((tenants.lanes.len(), tenants.idle.len(), tenants.waiting.len()), (1, 0, 1));
}

/// It has had less than the others by then, and does not come before them for that.
#[test]
fn a_tenant_that_comes_back_begins_where_a_new_one_does() {
    let mut tenants = Tenants::default();
    let of = |number: usize| [(1, 4), (2, 10), (2, 10)][number];
    for number in 0..3 {
        let (id, permits) = of(number);
        join(&mut tenants, number, id, permits);
    }
    assert_eq!([grant(&mut tenants, of), grant(&mut tenants, of)], [0, 1]);
    assert_eq!(tenants.idle.len(), 1, "the first tenant is remembered");
    let price = price(None, 8);
    assert_eq!(tenants.begin(Some(1), price), tenants.begin(Some(3), price));
}

#[test]
fn starts_that_would_overflow_are_counted_anew() {
    let mut tenants = Tenants::default();
    (0..40).for_each(|number| join(&mut tenants, number, number as u64 % 2, u64::MAX));
    for number in 0..40 {
        assert_eq!(grant(&mut tenants, |number| (number as u64 % 2, u64::MAX)), number);
    }
    assert!(tenants.start < LAST_START && tenants.first().is_none());
}
