//! A queue in which tenants take [turns](super::turns): from the first caller for a tenant that has to wait until the
//! queue is empty.

use std::iter;
use std::task::Waker;

use super::take_turns::{self, Turn};
use super::tenant::Tenant;
use super::{Arrival, Arrived, WaitQueue, WaiterId};
use crate::units::Nanos;

impl<T: Arrived> WaitQueue<T> {
    /// The waiters that are here count as callers without a tenant.
    pub(crate) fn take_turns(&mut self, permits: impl Fn(&T) -> u64) {
        if self.turns.is_none() {
            let mut turns = take_turns::new();
            self.fifo
                .iter()
                .for_each(|(id, entry)| turns.join(id, None, permits(&entry.value), None));
            self.turns = Some(turns);
        }
    }

    /// The turn of one more caller, if tenants take turns.
    pub(crate) fn turn(&self, tenant: Option<Tenant>, permits: u64) -> Option<Turn> {
        self.turns.as_ref().map(|turns| turns.turn(tenant, permits))
    }

    /// Whether it is before those of all waiters.
    pub(crate) fn is_first(&self, turn: Turn) -> bool {
        let first = self.turns.as_ref().and_then(|turns| turns.first());
        first.is_none_or(|first| turn < first)
    }

    /// A caller joins, behind all others of its tenant.
    pub(crate) fn push_in_turn(
        &mut self,
        tenant: Option<Tenant>,
        permits: u64,
        value: T,
        deadline: Option<Nanos>,
        waker: Option<Waker>,
    ) -> WaiterId {
        if tenant.is_some() {
            // The queue is empty, or this has been done to find its place.
            self.turns.get_or_insert_with(take_turns::new);
        }
        let id = self.push(value, deadline, waker);
        if let Some(turns) = &mut self.turns {
            turns.join(id, tenant, permits, None);
        }
        id
    }

    /// A caller without a tenant has joined ahead of another one.
    pub(crate) fn join_turn_ahead_of(&mut self, next: WaiterId, id: WaiterId, permits: u64) {
        if let Some(turns) = &mut self.turns {
            turns.join(id, None, permits, Some(next));
        }
    }

    /// The first waiter that a caller ahead of others goes ahead of: one without a tenant. Beside tenants it visits all of
    /// these.
    pub(crate) fn overtaken_in_turn(&self, arrival: Arrival) -> Option<WaiterId> {
        match &self.turns {
            Some(turns) => turns.without_tenant().find(|&id| self[id].arrival() > arrival),
            None => self.overtaken(arrival, self.fifo.front()),
        }
    }

    /// Whether tenants take turns.
    pub(crate) fn is_fair(&self) -> bool {
        self.turns.is_some()
    }

    /// The front of the queue is granted; then it is unlinked.
    pub(crate) fn grant_turn(&mut self, id: WaiterId) {
        if let Some(turns) = &mut self.turns {
            turns.grant(id);
        }
    }

    /// A caller is granted that goes ahead of all waiters.
    pub(crate) fn grant_turn_at_once(&mut self, tenant: Option<Tenant>, permits: u64) {
        if let Some(turns) = &mut self.turns {
            turns.grant_at_once(tenant, permits);
        }
    }

    pub(crate) fn tenant(&self, id: WaiterId) -> Option<Tenant> {
        self.turns.as_ref()?.tenant(id)
    }

    /// How many callers of a tenant wait.
    pub(crate) fn len_of(&self, tenant: Tenant) -> usize {
        self.turns.as_ref().map_or(0, |turns| turns.len_of(Some(tenant)))
    }

    /// How many permits are granted before `turn`, or a smaller number that `is_enough`.
    pub(crate) fn permits_before(&mut self, turn: Turn, is_enough: impl Fn(u64) -> bool) -> u64 {
        self.turns.as_mut().map_or(0, |turns| turns.permits_before(turn, &is_enough))
    }

    /// The waiters in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (WaiterId, &T)> {
        self.iter_before(None)
    }

    /// The waiters in the order in which they will be granted, those before `turn` or all of them.
    pub(crate) fn iter_before(&self, turn: Option<Turn>) -> impl Iterator<Item = (WaiterId, &T)> {
        let mut order = self.turns.as_ref().map(|turns| turns.order(turn));
        let mut next = self.fifo.front();
        iter::from_fn(move || {
            let id = match &mut order {
                Some(order) => order.next()?,
                None => next?,
            };
            next = self.fifo.behind(id);
            Some((id, &self[id]))
        })
    }
}
