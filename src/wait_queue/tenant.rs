//! The tenants of a queue.

use std::num::NonZeroU32;
use std::time::Duration;

/// The fraction of a permit in which prices are counted.
const PRICE_BITS: u32 = 32;

/// The tenant for which a caller comes, and the weight of its permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenant {
    pub(super) id: u64,
    pub(super) weight: NonZeroU32,
}

impl Tenant {
    pub(crate) fn with_weight(self, weight: NonZeroU32) -> Self {
        Self { weight, ..self }
    }

    /// `None` for callers without a tenant.
    pub(super) fn id(tenant: Option<Self>) -> Option<u64> {
        tenant.map(|tenant| tenant.id)
    }

    /// What permits cost a tenant, rounded up, so never nothing.
    pub(super) fn price(tenant: Option<Self>, permits: u64) -> u128 {
        let weight = tenant.map_or(1, |tenant| tenant.weight.get());
        (u128::from(permits.max(1)) << PRICE_BITS).div_ceil(u128::from(weight))
    }
}

/// What a caller claims when it enters a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Claim {
    /// A place in FIFO order.
    InOrder,
    /// The place of a caller that came this much earlier.
    Ahead(Duration),
    /// The turn of a tenant.
    TurnOf(Tenant),
}

impl Claim {
    pub(crate) fn ahead(self) -> Duration {
        match self {
            Self::Ahead(ahead) => ahead,
            Self::InOrder | Self::TurnOf(_) => Duration::ZERO,
        }
    }

    pub(crate) fn tenant(self) -> Option<Tenant> {
        match self {
            Self::TurnOf(tenant) => Some(tenant),
            Self::InOrder | Self::Ahead(_) => None,
        }
    }
}
