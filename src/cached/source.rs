//! Where the permits of a call came from.

use super::slots::Origin;
use crate::policy::Policy;
use crate::rate_limiter::Grant;

/// Where permits came from.
pub(super) struct Source<'a, P: Policy<Cost = u32>> {
    /// Those of the limiter.
    pub(super) limiter: Option<Grant<'a, P>>,
    /// Where the others return to: `None` if they are lost.
    pub(super) origin: Option<Origin>,
}

impl<'a, P: Policy<Cost = u32>> Source<'a, P> {
    pub(super) const LOST: Self = Self { limiter: None, origin: None };

    pub(super) fn limiter(grant: Grant<'a, P>) -> Self {
        Self { limiter: Some(grant), origin: None }
    }

    #[inline]
    pub(super) fn held(origin: Origin) -> Self {
        Self { limiter: None, origin: Some(origin) }
    }
}
