//! The state that all clones share, and the calls that touch more than their thread's hand.

use std::sync::atomic::{AtomicU32, Ordering};

use super::slots::{Held, Slots};
use super::source::Source;
use super::thread;
use crate::error::Error;
use crate::policy::Policy;
use crate::rate_limiter::RateLimiter;
use crate::sync::Mutex;

/// What all clones share.
pub(super) struct Shared<P: Policy<Cost = u32>> {
    pub(super) slots: Slots,
    pub(super) limiter: RateLimiter<P>,
    /// How many permits a thread may hold.
    pub(super) each: AtomicU32,
    /// How many it may hold at most, whatever the policy.
    pub(super) most_each: u32,
    /// The policy that the limiter and the threads keep together.
    pub(super) whole: Mutex<P>,
}

/// How much of a policy each thread may hold, and the policy of the limiter beside them.
pub(super) fn share<P: Policy>(policy: &P, threads: usize, each: u32) -> (u32, P) {
    let threads = u32::try_from(threads).unwrap_or(u32::MAX);
    let each = (P::HOOKS.most_held)(policy).checked_div(threads).unwrap_or(0).min(each);
    (each, (P::HOOKS.beside)(policy, each * threads))
}

impl<P: Policy<Cost = u32>> Shared<P> {
    /// Takes `n` permits that this thread does not have in hand.
    #[cold]
    #[inline(never)]
    pub(super) fn try_otherwise(
        &self,
        thread: impl FnOnce() -> usize,
        n: u32,
    ) -> Result<(), Error> {
        self.take_otherwise(thread, n).map(drop)
    }

    /// As [`try_otherwise`](Self::try_otherwise), for a grant.
    #[cold]
    #[inline(never)]
    pub(super) fn take_otherwise(
        &self,
        thread: impl FnOnce() -> usize,
        n: u32,
    ) -> Result<Source<'_, P>, Error> {
        if n == 0 && !self.limiter.is_closed() {
            return Ok(Source::LOST);
        }
        let answer = match self.slots.empty(thread()) {
            Some(held) => {
                // Read after the epoch: permits of this epoch are of this number or less.
                let each = self.each.load(Ordering::Relaxed);
                let (answer, held) = self.draw(n, held, each);
                self.slots.fill(held);
                answer
            }
            None => self.limiter.try_acquire(n).map(Source::limiter),
        };
        match answer {
            Err(Error::Denied { .. }) if self.slots.claim(n, thread::Number::take) => {
                Ok(Source::LOST)
            }
            answer => answer,
        }
    }

    /// Takes `n` permits from what a thread holds and from the limiter, and up to `each` more. Returns what the
    /// thread holds afterwards.
    fn draw(&self, n: u32, held: Held, each: u32) -> (Result<Source<'_, P>, Error>, Held) {
        if n <= held.permits {
            return (Ok(Source::held(held.origin)), held.with(held.permits - n));
        }
        if n > each {
            return (self.limiter.try_acquire(n).map(Source::limiter), held);
        }
        let missing = n - held.permits;
        // All that is missing or nothing: a permit taken on credit would put off the others, and with them the time
        // that the refusal names.
        match self.limiter.take_between(missing, missing.saturating_add(each)) {
            Ok(grant) => {
                let held = held.drawn(grant.cost().saturating_sub(missing));
                (Ok(Source::limiter(grant.of_at_most(n))), held)
            }
            Err(error) => (Err(error), held),
        }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut P)) {
        let mut whole = self.whole.lock();
        change(&mut whole);
        let (each, policy) = share(&*whole, self.slots.len(), self.most_each);
        self.each.store(each, Ordering::Relaxed);
        self.limiter.set_policy(policy);
        // What was drawn under the old policy, or to be held in the old number, is of an earlier epoch.
        self.slots.discard();
    }
}
