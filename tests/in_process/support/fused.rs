//! A policy that panics in any of its methods.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tollgate::state::Hooks;
use tollgate::{Cost, ExceedsCapacity, Nanos, Policy, Ready};

/// Panics at one call of all that it counts.
#[derive(Debug, Default)]
pub(crate) struct Fuse {
    /// The call that panics; none if it is zero.
    calls: AtomicUsize,
    /// Whether the method has done its work by then.
    after: AtomicBool,
}

impl Fuse {
    pub(crate) fn set(&self, calls: usize, after: bool) {
        self.calls.store(calls, Relaxed);
        self.after.store(after, Relaxed);
    }

    pub(crate) fn has_blown(&self) -> bool {
        self.calls.load(Relaxed) == 0
    }

    fn around<R>(&self, method: impl FnOnce() -> R) -> R {
        let left = self.calls.load(Relaxed);
        self.calls.store(left.saturating_sub(1), Relaxed);
        let after = self.after.load(Relaxed);
        // Without a message: there are thousands.
        if left == 1 && !after {
            resume_unwind(Box::new("before the work, on purpose"));
        }
        let result = method();
        if left == 1 {
            resume_unwind(Box::new("after the work, on purpose"));
        }
        result
    }
}

/// A policy with a fuse in each method.
#[derive(Clone, Debug)]
pub(crate) struct Fused<P>(pub(crate) P, pub(crate) Arc<Fuse>);

impl<P: Policy> Policy for Fused<P> {
    type Cost = P::Cost;
    type State = P::State;
    type Receipt = P::Receipt;

    const HELD: bool = P::HELD;

    fn start(&self, now: Nanos) -> P::State {
        self.1.around(|| self.0.start(now))
    }

    fn idle(&self, now: Nanos) -> P::State {
        self.1.around(|| self.0.idle(now))
    }

    fn idle_at(&self, state: &P::State) -> Option<Nanos> {
        self.1.around(|| self.0.idle_at(state))
    }

    fn ready_at(&self, state: &P::State, now: Nanos, n: P::Cost) -> Result<Ready, ExceedsCapacity> {
        self.1.around(|| self.0.ready_at(state, now, n))
    }

    fn charge(&self, state: &mut P::State, at: Nanos, n: P::Cost) -> P::Receipt {
        self.1.around(|| self.0.charge(state, at, n))
    }

    fn check_debt(&self, state: &P::State, now: Nanos, n: P::Cost) -> Result<(), ExceedsCapacity> {
        self.1.around(|| self.0.check_debt(state, now, n))
    }

    fn refund(
        &self,
        state: &mut P::State,
        now: Nanos,
        part: P::Cost,
        receipt: P::Receipt,
    ) -> P::Receipt {
        self.1.around(|| self.0.refund(state, now, part, receipt))
    }

    fn release(&self, state: &mut P::State, now: Nanos, n: P::Cost) {
        self.1.around(|| self.0.release(state, now, n));
    }

    fn pause(&self, state: &mut P::State, now: Nanos, until: Nanos) {
        self.1.around(|| self.0.pause(state, now, until));
    }

    fn migrate(&self, old: &Self, state: &mut P::State, now: Nanos) {
        self.1.around(|| self.0.migrate(&old.0, state, now));
    }

    fn available(&self, state: &P::State, now: Nanos) -> P::Cost {
        self.1.around(|| self.0.available(state, now))
    }

    fn window(&self, permits: P::Cost) -> Option<Duration> {
        self.1.around(|| self.0.window(permits))
    }

    fn refused(&self, state: &mut P::State, now: Nanos, n: P::Cost) -> bool {
        self.1.around(|| self.0.refused(state, now, n))
    }

    fn limited_by(&self, state: &P::State, now: Nanos, n: P::Cost) -> Option<tollgate::Part> {
        self.1.around(|| self.0.limited_by(state, now, n))
    }

    fn catch_up(&self) -> Duration {
        self.1.around(|| self.0.catch_up())
    }

    fn room_at(
        &self,
        state: &P::State,
        now: Nanos,
        queued: <P::Cost as Cost>::Sum,
        n: P::Cost,
    ) -> Nanos {
        self.1.around(|| self.0.room_at(state, now, queued, n))
    }

    const HOOKS: Hooks<Self> = {
        let mut hooks = Hooks::none();
        hooks.ready_behind = |Self(policy, fuse), state, now, ahead, n| {
            fuse.around(|| (P::HOOKS.ready_behind)(policy, state, now, ahead, n))
        };
        hooks.fork =
            |Self(policy, fuse), state, most| fuse.around(|| (P::HOOKS.fork)(policy, state, most));
        hooks.ready_now = |Self(policy, fuse), state, now, n| {
            fuse.around(|| (P::HOOKS.ready_now)(policy, state, now, n))
        };
        hooks.charge_alone = |Self(policy, fuse), state, at, n| {
            fuse.around(|| (P::HOOKS.charge_alone)(policy, state, at, n))
        };
        hooks.forget_receipts = |Self(policy, fuse), state| {
            fuse.around(|| (P::HOOKS.forget_receipts)(policy, state));
        };
        hooks
    };
}
