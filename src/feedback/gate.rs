//! The server's own limit, as a policy.
//!
//! A unit of which `cap` remained when a server last said so allows calls as long as those that it may not have
//! counted yet are no more: a place in flight for each permit. A call that was answered gives its places back
//! after `cap` has been set to what the answer says. From the reset on, `cap` is `opening`.
//!
//! After a refusal nothing passes until a time, whatever remains.
//!
//! Ready: at once if `out + n <= cap(now)`, where `cap(t)` is `cap` before the reset and `max(cap, opening)` from
//! it on; or rises from one to the other, if the server restores permits steadily; and in each case at most
//! `most`. A call for more than `most` goes alone; one for more than `cap` ever is goes alone after the reset: the
//! server decides.

use crate::error::ExceedsCapacity;
use crate::policy::{Hooks, Policy, Ready};
use crate::units::Nanos;

/// Requests, tokens, input tokens, output tokens.
pub(super) type Units = (u32, u32, u32, u32);

pub(super) fn array((a, b, c, d): Units) -> [u32; 4] {
    [a, b, c, d]
}

/// What is known of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cap {
    pub(super) cap: u64,
    pub(super) opening: u64,
    /// From when on `cap` is there, and when it becomes `opening`.
    pub(super) since: Nanos,
    pub(super) reset: Nanos,
    /// Whether it rises meanwhile.
    pub(super) rises: bool,
    /// No more are under way at a time, whatever remains.
    pub(super) most: u64,
}

impl Cap {
    pub(super) const UNKNOWN: Self = Self {
        cap: u64::MAX,
        opening: u64::MAX,
        since: Nanos::ZERO,
        reset: Nanos::ZERO,
        rises: false,
        most: u64::MAX,
    };

    fn remaining_at(&self, now: Nanos) -> u64 {
        if now >= self.reset {
            return self.cap.max(self.opening);
        }
        if now < self.since {
            return 0;
        }
        let span = self.reset.since(self.since).as_nanos();
        if !self.rises || span == 0 {
            return self.cap;
        }
        let more = u128::from(self.opening.saturating_sub(self.cap));
        let risen = more * now.since(self.since).as_nanos() / span;
        self.cap + u64::try_from(risen).unwrap_or(u64::MAX)
    }

    /// When it is `needed`, at the latest at the reset.
    fn reached(&self, needed: u64) -> Nanos {
        if needed <= self.cap {
            return self.since;
        }
        let more = u128::from(self.opening.saturating_sub(self.cap));
        let lacks = u128::from(needed.saturating_sub(self.cap));
        if !self.rises || lacks >= more {
            return self.reset;
        }
        let span = self.reset.since(self.since).as_nanos();
        let nanos = u64::try_from((lacks * span).div_ceil(more)).unwrap_or(u64::MAX);
        Nanos::new(self.since.get().saturating_add(nanos)).min(self.reset)
    }

    fn ready_at(&self, out: u64, now: Nanos, n: u64) -> Ready {
        let needed = out.saturating_add(n);
        let is_over = now >= self.reset;
        let by_window = if needed <= self.remaining_at(now) || is_over && out == 0 {
            Ready::At(now)
        } else if is_over {
            Ready::NotBefore(now)
        } else if out == 0 || needed <= self.cap.max(self.opening) {
            Ready::At(self.reached(needed).max(now))
        } else {
            Ready::NotBefore(self.reset)
        };
        let has_room = out == 0 || needed <= self.most;
        by_window.and(if has_room { Ready::At(now) } else { Ready::NotBefore(now) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gate {
    pub(super) caps: [Cap; 4],
    /// The server has refused: nothing passes before.
    pub(super) shut_until: Nanos,
}

impl Policy for Gate {
    type Cost = Units;
    /// What is in flight.
    type State = [u64; 4];
    type Receipt = ();

    const HOOKS: Hooks<Self> = Hooks { infallible: true, ..Hooks::none() };

    fn start(&self, _: Nanos) -> [u64; 4] {
        [0; 4]
    }

    fn ready_at(&self, out: &[u64; 4], now: Nanos, cost: Units) -> Result<Ready, ExceedsCapacity> {
        let each = self.caps.iter().zip(out).zip(array(cost));
        let asked = each.filter(|&(_, n)| n > 0);
        let ready = asked.map(|((cap, &out), n)| cap.ready_at(out, now, n.into()));
        Ok(ready.fold(Ready::At(now.max(self.shut_until)), Ready::and))
    }

    fn charge(&self, out: &mut [u64; 4], _: Nanos, cost: Units) {
        for (out, n) in out.iter_mut().zip(array(cost)) {
            *out = out.saturating_add(n.into());
        }
    }

    const HELD: bool = true;

    fn release(&self, out: &mut [u64; 4], _: Nanos, cost: Units) {
        for (out, n) in out.iter_mut().zip(array(cost)) {
            *out = out.saturating_sub(n.into());
        }
    }

    fn migrate(&self, _: &Self, _: &mut [u64; 4], _: Nanos) {}

    fn available(&self, out: &[u64; 4], now: Nanos) -> Units {
        let left = |unit: usize| {
            let Cap { most, .. } = self.caps[unit];
            let at = if now < self.shut_until { 0 } else { self.caps[unit].remaining_at(now) };
            u32::try_from(at.min(most).saturating_sub(out[unit])).unwrap_or(u32::MAX)
        };
        (left(0), left(1), left(2), left(3))
    }
}
