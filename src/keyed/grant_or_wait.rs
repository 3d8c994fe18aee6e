//! A call at a key: its grant, or its place in the key's queue.

use std::borrow::Borrow;
use std::hash::Hash;
use std::time::Duration;

use super::table::{KeyAdmission, Table};
use super::to_key::ToKey;
use crate::error::Error;
use crate::limiter::{Acquire, Grant, GrantOwner, KeyGuard};
use crate::policy::Policy;

/// The outcome of a call at a key.
pub(crate) enum GrantOrWait<'a, P: Policy> {
    Granted(Grant<'a, P>),
    Waiting(Acquire<'static, P>),
}

impl<P: Policy> GrantOrWait<'_, P> {
    /// The same without a borrow of the table.
    pub(super) fn into_owned(self) -> GrantOrWait<'static, P> {
        match self {
            Self::Granted(grant) => GrantOrWait::Granted(grant.into_owned()),
            Self::Waiting(acquire) => GrantOrWait::Waiting(acquire),
        }
    }
}

impl<K: Hash + Eq + Send + 'static, P: Policy> Table<K, P> {
    pub(super) fn grant_or_wait<Q>(
        &self,
        key: &Q,
        cost: P::Cost,
        max_wait: Option<Duration>,
        ahead: Duration,
    ) -> Result<GrantOrWait<'_, P>, Error>
    where
        K: Borrow<Q>,
        Q: ToKey<K> + ?Sized,
    {
        let (admission, is_time_to_sweep) = self.arrive(key, cost, max_wait);
        // The guard is created before the sweep, which may panic at another key.
        let outcome = admission.map(|admission| match admission {
            KeyAdmission::Granted(entry, charge) => {
                let guard = KeyGuard::new(self, entry);
                GrantOrWait::Granted(Grant::new(GrantOwner::key(guard), cost, charge))
            }
            KeyAdmission::Line(line) => {
                let acquire = Acquire::new(GrantOwner::owned(line), cost, max_wait);
                GrantOrWait::Waiting(acquire.ahead_by(ahead))
            }
        });
        self.sweep_in_turn(is_time_to_sweep);
        outcome
    }
}
