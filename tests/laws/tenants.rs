//! Laws of tenants that share one limiter. They count permits and times, and know no turns.

use std::collections::VecDeque;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::{ManualClock, Rate, RateLimiter, Reservation, SmoothBursty, block_on};

use crate::oracle::prove;

const MS: Duration = Duration::from_millis(1);

/// One permit a millisecond, in debt for the first.
fn limiter() -> (ManualClock, RateLimiter<SmoothBursty>) {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(1_000.0)).max_burst(Duration::ZERO);
    let limiter = RateLimiter::with_clock(policy, &clock);
    limiter.try_acquire(1).expect("a new limiter grants at once");
    (clock, limiter)
}

/// A tenant: when it comes, its weight, and the costs that its calls have in turn.
type Tenant = (u64, u32, Vec<u32>);

fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let costs = prop::collection::vec(prop_oneof![4 => 1u32..5, 1 => 5u32..40], 1..5);
    prop::collection::vec((0u64..200, 1u32..6, costs), 2..7)
}

/// The permits granted to each tenant in each millisecond. Each waits from the time at which it comes to the end, and
/// some of its callers leave.
fn grants(tenants: &[Tenant], leave: usize) -> Vec<Vec<u64>> {
    let (clock, limiter) = limiter();
    // Those that wait, in order.
    let mut waiting: Vec<VecDeque<(u32, Reservation<_>)>> = Vec::new();
    waiting.resize_with(tenants.len(), VecDeque::new);
    // So that grants stay grants.
    let mut granted = Vec::new();
    let mut table = Vec::new();
    for now in 0..600 {
        for (id, (comes, weight, costs)) in tenants.iter().enumerate() {
            if *comes == now {
                let place = |&n: &u32| {
                    let call = limiter.acquire_for(&id, n).weight(*weight);
                    (n, block_on(call.reserve()).expect("a place"))
                };
                waiting[id] = costs.iter().cycle().take(900).map(place).collect();
            }
        }
        let at = usize::try_from(now).expect("small");
        let some = &mut waiting[at % tenants.len()];
        if some.len() > 1 {
            let _leaves = some.remove((leave + 7 * at) % (some.len() - 1));
        }
        clock.advance(MS);
        let permits = |(id, waiting): (usize, &mut VecDeque<_>)| {
            let count = waiting.len() - limiter.queue_len_for(&id);
            let first: Vec<_> = waiting.drain(..count).collect();
            let permits = first.iter().map(|&(n, _)| u64::from(n)).sum();
            granted.extend(first);
            permits
        };
        table.push(waiting.iter_mut().enumerate().map(permits).collect());
    }
    assert!(waiting.iter().all(|waiting| !waiting.is_empty()), "all wait to the end");
    table
}

#[test]
fn tenants_that_wait_are_never_further_apart_than_a_call_of_each() {
    prove(40, &(tenants(), any::<usize>()), |(tenants, leave)| {
        let table = grants(&tenants, leave % 1_000);
        for (i, one) in tenants.iter().enumerate() {
            for (j, other) in tenants.iter().enumerate().skip(i + 1) {
                let both = usize::try_from(one.0.max(other.0)).expect("small");
                // In units of a permit by 60, which all weights divide.
                let ahead = |row: &Vec<u64>| {
                    let share = |id: usize| i128::from(row[id]) * 60 / i128::from(tenants[id].1);
                    share(i) - share(j)
                };
                let largest = |(_, weight, costs): &Tenant| {
                    i128::from(*costs.iter().max().expect("one")) * 60 / i128::from(*weight)
                };
                // The greatest difference of any span is that of its ends. Not from the millisecond in which the second comes: a
                // call of the first may have been granted just before.
                let (mut sum, mut least, mut most) = (0, 0, 0);
                for row in &table[both + 1..] {
                    sum += ahead(row);
                    (least, most) = (sum.min(least), sum.max(most));
                }
                prop_assert!(
                    most - least <= largest(one) + largest(other),
                    "{one:?} and {other:?} are {} apart",
                    most - least
                );
            }
        }
        // No time is lost: what was granted before the last grant is paid for.
        let all: Vec<u64> = table.iter().map(|row| row.iter().sum()).collect();
        let first = tenants.iter().map(|tenant| tenant.0).min().expect("some");
        let last = all.iter().rposition(|&permits| permits > 0).expect("some");
        let before: u64 = all[..last].iter().sum();
        prop_assert_eq!(before + first.max(1), last as u64 + 1);
        Ok(())
    });
}

/// Callers of others: when each comes, its tenant and its cost.
type Other = (u64, u8, u32);

/// How long each of them waits beside a flood of `flood` calls.
fn waits(others: &[Other], flood: usize) -> Vec<u128> {
    let (clock, limiter) = limiter();
    let place =
        |tenant: u8, n| block_on(limiter.acquire_for(&tenant, n).reserve()).expect("a place");
    let _flood: Vec<_> = (0..flood).map(|_| place(0, 2)).collect();
    let mut places = Vec::new();
    for now in 0..100 {
        let come = others.iter().filter(|(comes, ..)| *comes == now);
        places.extend(come.map(|&(_, tenant, n)| place(tenant, n)));
        clock.advance(MS);
    }
    clock.advance(10_000 * MS);
    let waited = |place: Reservation<RateLimiter<SmoothBursty>>| {
        place.blocking_wait().expect("a grant").waited()
    };
    places.into_iter().map(|place| waited(place).as_millis()).collect()
}

#[test]
fn the_flood_of_a_tenant_delays_only_itself() {
    let others = prop::collection::vec((0u64..100, 1u8..6, 1u32..4), 1..60);
    prove(60, &others, |others| {
        let mut others = others;
        others.sort_by_key(|&(comes, ..)| comes);
        let (few, many) = (waits(&others, 400), waits(&others, 4_000));
        // Ten times the flood delays no other caller.
        prop_assert_eq!(&few, &many);
        for (index, &(comes, tenant, n)) in others.iter().enumerate() {
            // Each of the five others and the flood gets as much as this one asked for before, a step, and a call.
            let own = others[..index].iter().filter(|&&(_, other, _)| other == tenant);
            let own: u128 = own.map(|&(_, _, n)| u128::from(n)).sum();
            let most = own + 6 * (own + 3 + 3);
            prop_assert!(many[index] <= most, "{n} at {comes}: {}, at most {most}", many[index]);
        }
        Ok(())
    });
}

#[test]
fn among_many_tenants_a_timeout_is_refused_only_if_it_is_too_short() {
    // How many tenants wait with how many callers, of what cost; and how many of the new caller's own.
    let crowd = prop::collection::vec((1usize..300, 1usize..4, 1u32..4), 1..8);
    prove(40, &(crowd, 0usize..4, 1u32..4, 1u32..1_000), |(crowd, own, n, part)| {
        let queue = || {
            let (clock, limiter) = limiter();
            let mut places = Vec::new();
            for (group, &(tenants, callers, n)) in crowd.iter().enumerate() {
                for tenant in (0..tenants * callers).map(|caller| (group, caller % tenants)) {
                    places.push(
                        block_on(limiter.acquire_for(&tenant, n).reserve()).expect("a place"),
                    );
                }
            }
            for _ in 0..own {
                places.push(block_on(limiter.acquire_for(&"own", 1).reserve()).expect("a place"));
            }
            (clock, limiter, places)
        };
        let (clock, limiter, _places) = queue();
        let place = block_on(limiter.acquire_for(&"own", n).reserve()).expect("a place");
        clock.advance(20_000 * MS);
        let wait = place.blocking_wait().expect("a grant").waited();

        let (_clock, limiter, _places) = queue();
        let ask = |timeout| {
            block_on(limiter.try_acquire_timeout(n, timeout).for_tenant(&"own").reserve())
        };
        for timeout in [wait * part / 1_000, wait - Duration::from_nanos(1)] {
            let retry_after = ask(timeout).expect_err("too short").retry_after().expect("a time");
            prop_assert!(
                timeout < retry_after && retry_after <= wait,
                "{timeout:?}: {retry_after:?}"
            );
        }
        prop_assert!(ask(wait).is_ok(), "{wait:?} is enough");
        Ok(())
    });
}
