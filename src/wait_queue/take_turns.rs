//! The order of grants among tenants. A queue has a pointer to it, so that a program without tenants has no code of it.

use std::fmt;
use std::sync::OnceLock;

use super::WaiterId;
use super::tenant::Tenant;

/// Makes an order. [`Tenant::new`] sets it, so it is set where there is a tenant.
pub(super) static NEW: OnceLock<fn() -> Box<dyn TakeTurns>> = OnceLock::new();

pub(super) fn new() -> Box<dyn TakeTurns> {
    NEW.get().unwrap_or_else(|| unreachable!("there is a tenant"))()
}

/// A place in the order: the start, and for equal ones when the tenant began to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(super) start: u128,
    pub(super) since: u64,
}

impl Turn {
    pub(super) fn after(self, price: u128) -> Self {
        Self { start: self.start.saturating_add(price), ..self }
    }
}

/// The order of grants among tenants.
pub(super) trait TakeTurns: fmt::Debug + Send + Sync {
    /// The waiter that is next.
    fn front(&self) -> Option<WaiterId>;

    /// The turn of the waiter that is next.
    fn first(&self) -> Option<Turn>;

    /// How many callers of a tenant wait.
    fn len_of(&self, tenant: Option<Tenant>) -> usize;

    /// The tenant of a waiter.
    fn tenant(&self, waiter: WaiterId) -> Option<Tenant>;

    /// The turn of one more caller.
    fn turn(&self, tenant: Option<Tenant>, permits: u64) -> Turn;

    /// A caller joins, behind all others of its tenant, or ahead of `next`, which is one of them.
    fn join(
        &mut self,
        waiter: WaiterId,
        tenant: Option<Tenant>,
        permits: u64,
        next: Option<WaiterId>,
    );

    /// The waiter that is next is granted; then it is unlinked.
    fn grant(&mut self, waiter: WaiterId);

    /// A caller is granted before it waits, ahead of all that do.
    fn grant_at_once(&mut self, tenant: Option<Tenant>, permits: u64);

    /// Takes a waiter out of the order. Its place stays until it is removed.
    fn unlink(&mut self, waiter: WaiterId);

    /// A waiter is removed.
    fn remove(&mut self, waiter: WaiterId);

    /// How many permits are granted before `turn`, or of many tenants a smaller number that `is_enough`; then each greater
    /// number is, too. Visits each tenant that waits, and each of its waiters only if they ask for different numbers;
    /// none if an earlier count shows enough.
    fn permits_before(&mut self, turn: Turn, is_enough: &dyn Fn(u64) -> bool) -> u64;

    /// The waiters in the order in which they will be granted, those before `turn` or all of them.
    fn order(&self, turn: Option<Turn>) -> Box<dyn Iterator<Item = WaiterId> + '_>;

    /// The waiters without a tenant, in order.
    fn without_tenant(&self) -> Box<dyn Iterator<Item = WaiterId> + '_>;
}
