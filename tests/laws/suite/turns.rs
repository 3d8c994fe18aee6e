//! Tenants that take turns, as the design states it: each has a start, and the earliest is next. Written as a walk through
//! all waiters for each question.

use std::collections::{BTreeMap, BTreeSet};

use crate::oracle::Time;

/// A tenant, and the weight of one of its calls: a divisor of [`WEIGHTS`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tenant {
    pub(crate) id: u8,
    pub(crate) weight: u32,
}

/// What a caller claims.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rank {
    /// By how much it enters ahead of others.
    pub(crate) ahead: Time,
    pub(crate) tenant: Option<Tenant>,
}

/// Powers of two, which share a permit without rounding.
pub(crate) const WEIGHTS: Time = 4;

/// The start, and when the tenant began to wait.
type Turn = (Time, usize);

/// The tenant of a waiter, and its price.
pub(crate) type Waiter = (Option<u8>, Time);

pub(crate) fn waiter(rank: Rank, permits: u64) -> Waiter {
    let weight = rank.tenant.map_or(1, |tenant| tenant.weight);
    (rank.tenant.map(|tenant| tenant.id), Time::from(permits) * WEIGHTS / Time::from(weight))
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Turns {
    of_tenants: BTreeMap<Option<u8>, Turn>,
    charged: BTreeSet<Option<u8>>,
    /// The start and the price of the last grant.
    last: (Time, Time),
    began: usize,
}

impl Turns {
    /// The turns of waiters; those of one tenant are in order.
    fn turns(&self, waiters: &[Waiter]) -> Vec<Turn> {
        let mut turns = self.of_tenants.clone();
        let take = |&(tenant, price): &Waiter| {
            let turn = turns.get_mut(&tenant).expect("it waits");
            let taken = *turn;
            turn.0 += price;
            taken
        };
        waiters.iter().map(take).collect()
    }

    /// The turn of one more.
    fn turn(&self, waiters: &[Waiter], (tenant, price): Waiter) -> Turn {
        let known = self.of_tenants.get(&tenant);
        if waiters.iter().any(|&(other, _)| other == tenant) {
            let own = waiters.iter().filter(|&&(other, _)| other == tenant);
            let &(start, since) = known.expect("it waits");
            (start + own.map(|&(_, price)| price).sum::<Time>(), since)
        } else {
            let begin = self.last.0 + self.last.1.min(price);
            (known.map_or(begin, |&(start, _)| start.max(begin)), self.began)
        }
    }

    /// The place of one more behind all others of its tenant.
    pub(crate) fn place(&self, waiters: &[Waiter], new: Waiter) -> usize {
        let turn = self.turn(waiters, new);
        self.turns(waiters).iter().filter(|&&other| other < turn).count()
    }

    /// Before it joins.
    pub(crate) fn join(&mut self, waiters: &[Waiter], new: Waiter) {
        let turn = self.turn(waiters, new);
        if !waiters.iter().any(|&(tenant, _)| tenant == new.0) {
            self.of_tenants.insert(new.0, turn);
            self.began += 1;
        }
    }

    /// The first waiter is granted, or a caller that goes ahead of all of them.
    pub(crate) fn grant(&mut self, waiters: &[Waiter], (tenant, price): Waiter) {
        let turn = match self.of_tenants.get(&tenant) {
            Some(&turn) if waiters.iter().any(|&(other, _)| other == tenant) => turn,
            _ => self.turn(waiters, (tenant, price)),
        };
        self.last = (turn.0, price);
        self.charged.insert(tenant);
        self.of_tenants.insert(tenant, (turn.0 + price, turn.1));
    }

    /// A waiter has left: a tenant that was never charged is forgotten.
    pub(crate) fn forget(&mut self, waiters: &[Waiter]) {
        let Self { of_tenants, charged, last, .. } = self;
        let waits = |tenant: &Option<u8>| waiters.iter().any(|waiter| waiter.0 == *tenant);
        of_tenants
            .retain(|tenant, turn| waits(tenant) || charged.contains(tenant) && turn.0 > last.0);
        charged.retain(|tenant| of_tenants.contains_key(tenant));
    }

    /// The indices of all waiters in order.
    pub(crate) fn order(&self, waiters: &[Waiter]) -> Vec<usize> {
        let turns = self.turns(waiters);
        let mut order: Vec<_> = (0..waiters.len()).collect();
        order.sort_by_key(|&index| turns[index]);
        order
    }
}
