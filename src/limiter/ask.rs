//! What a caller asks for.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::wait_queue::{Claim, Tenant};

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<C> {
    pub(crate) cost: C,
    pub(crate) max_wait: Option<Duration>,
    pub(crate) claim: Claim,
}

impl<C> Ask<C> {
    #[inline]
    pub(crate) fn new(cost: C, max_wait: Option<Duration>) -> Self {
        Self { cost, max_wait, claim: Claim::InOrder }
    }

    pub(super) fn ahead_by(&mut self, ahead: Duration) {
        self.claim = Claim::Ahead(ahead);
    }

    pub(super) fn for_tenant(&mut self, tenant: Tenant) {
        self.claim = Claim::TurnOf(tenant);
    }

    pub(super) fn weight(&mut self, weight: NonZeroU32) {
        if let Claim::TurnOf(tenant) = self.claim {
            self.claim = Claim::TurnOf(tenant.with_weight(weight));
        }
    }
}
