//! A call at a key: its grant, or its place in the key's queue.

use std::hash::{BuildHasher, Hash};
use std::time::Duration;

use super::attempt::{Opened, Undecided};
use super::table::Table;
use super::to_key::ToKey;
use crate::error::Error;
use crate::limiter::Ask;
use crate::line::Charge;
use crate::policy::Policy;
use crate::rate_limiter::{Grant, RateLimiter};

/// The outcome of a call at a key.
pub(crate) enum GrantOrWait<'a, P: Policy> {
    Granted(Grant<'a, P>),
    /// In the queue of the key, which the caller has still to join.
    Waiting(RateLimiter<P>),
}

impl<P: Policy> GrantOrWait<'_, P> {
    /// The same without a borrow of the table.
    pub(super) fn into_owned(self) -> GrantOrWait<'static, P> {
        match self {
            Self::Granted(grant) => GrantOrWait::Granted(grant.into_owned()),
            Self::Waiting(limiter) => GrantOrWait::Waiting(limiter),
        }
    }
}

impl<K, P, S> Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Grants or refuses without a wait.
    // As `Line::decide`.
    #[inline(always)]
    pub(super) fn try_at<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        cost: P::Cost,
    ) -> Result<Grant<'_, P>, Error> {
        match self.attempt(key, cost, Some(Duration::ZERO)) {
            Ok(opened) => opened.map(|opened| self.granted_by_word(cost, opened)),
            Err(undecided) => self.try_at_slowly(undecided, key, cost),
        }
    }

    #[inline(never)]
    fn try_at_slowly<Q: ToKey<K> + ?Sized>(
        &self,
        undecided: Undecided<'_, K, P>,
        key: &Q,
        cost: P::Cost,
    ) -> Result<Grant<'_, P>, Error> {
        let ask = Ask::new(cost, Some(Duration::ZERO));
        match self.grant_or_wait_slowly(undecided, key, &ask)? {
            GrantOrWait::Granted(grant) => Ok(grant),
            GrantOrWait::Waiting(limiter) => limiter.take_now(cost),
        }
    }

    /// Grants or refuses, or sends the caller to the queue of the key.
    #[inline]
    pub(super) fn grant_or_wait<Q: ToKey<K> + ?Sized>(
        &self,
        key: &Q,
        ask: &Ask<P::Cost>,
    ) -> Result<GrantOrWait<'_, P>, Error> {
        match self.attempt(key, ask.cost, ask.max_wait) {
            Ok(opened) => {
                opened.map(|opened| GrantOrWait::Granted(self.granted_by_word(ask.cost, opened)))
            }
            Err(undecided) => self.grant_or_wait_slowly(undecided, key, ask),
        }
    }

    #[inline(never)]
    fn grant_or_wait_slowly<Q: ToKey<K> + ?Sized>(
        &self,
        undecided: Undecided<'_, K, P>,
        key: &Q,
        ask: &Ask<P::Cost>,
    ) -> Result<GrantOrWait<'_, P>, Error> {
        let (outcome, is_time_to_sweep) = self.arrive(undecided, key, ask.cost, ask.max_wait);
        self.sweep_in_turn(is_time_to_sweep);
        outcome
    }

    #[inline(always)]
    fn granted_by_word<'a>(
        &'a self,
        cost: P::Cost,
        (id, open, receipt): Opened<'a, P>,
    ) -> Grant<'a, P> {
        let charge = Charge { waited: 0, receipt: Some(receipt), limited_by: None };
        self.granted((id, open), cost, charge)
    }
}
