//! What all clones of a limiter share, and what a caller holds of it.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::clock::{Alarm, Clock, Steady, Turn};
use crate::error::Error;
use crate::line::{Aftermath, Bounds, Change, Inner, Line};
use crate::policy::{Policy, Quota};
use crate::stats::Stats;
use crate::units::Nanos;

/// What all clones of a limiter share.
pub(crate) struct Shared<P: Policy> {
    pub(super) clock: Clock,
    pub(super) line: Line<P>,
}

impl<P: Policy> Shared<P> {
    pub(super) fn new(clock: Clock, line: impl FnOnce(Steady, Alarm) -> Line<P>) -> Arc<Self> {
        Arc::new_cyclic(|shared: &Weak<Self>| {
            let alarm = clock.alarm(shared.clone());
            let line = line(Steady::new(clock.now(), clock.step()), alarm);
            Self { clock, line }
        })
    }

    /// The line of a key.
    pub(crate) fn of_key(
        policy: P,
        state: P::State,
        clock: &Clock,
        bounds: Bounds,
        since: Nanos,
    ) -> Arc<Self> {
        let shared =
            Self::new(clock.clone(), |time, alarm| Line::new(policy, state, time, alarm, None));
        shared.touch(|inner, _| {
            inner.set_bounds(|all| *all = bounds);
            inner.moved(since);
        });
        shared
    }

    pub(crate) fn touch<R>(&self, act: impl FnOnce(&mut Inner<P>, Nanos) -> R) -> R {
        self.line.touch(|| self.clock.now(), act)
    }

    pub(crate) fn change(&self, change: Change<P>) -> Result<Option<P::Receipt>, Error> {
        self.touch(|inner, now| inner.change(now, change))
    }

    pub(crate) fn quota(&self) -> Quota<P::Cost> {
        self.touch(|inner, now| inner.quota(now))
    }

    pub(crate) fn stats(&self) -> Stats {
        self.line.stats(|| self.clock.now())
    }

    /// As `RateLimiter::set_policy`, for who holds a lock.
    pub(crate) fn set_policy_quietly(&self, policy: P) -> Aftermath {
        let set = |inner: &mut Inner<P>, now| inner.set_policy(now, policy);
        self.line.touch_quietly(|| self.clock.now(), set).1
    }

    pub(crate) fn quiet_state(&self, now: Nanos) -> Option<(P::State, Stats)> {
        self.line.quiet_state(now)
    }
}

impl<P: Policy> Turn for Shared<P> {
    fn turn(&self) {
        self.line.turn(|| self.clock.now());
    }

    fn wake_all(&self) {
        self.line.wake_all();
    }
}

/// What a caller holds of a limiter: a borrow on the fast path, so that no reference is counted,
/// or a share of it.
pub(crate) enum Handle<'a, P: Policy> {
    Borrowed(&'a Arc<Shared<P>>),
    Owned(Arc<Shared<P>>),
}

impl<P: Policy> Clone for Handle<'_, P> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(shared) => Self::Borrowed(shared),
            Self::Owned(shared) => Self::Owned(Arc::clone(shared)),
        }
    }
}

impl<P: Policy> Handle<'_, P> {
    pub(super) fn to_owned(&self) -> Handle<'static, P> {
        match self {
            Self::Borrowed(shared) => Handle::Owned(Arc::clone(shared)),
            Self::Owned(shared) => Handle::Owned(Arc::clone(shared)),
        }
    }
}

impl<P: Policy> Deref for Handle<'_, P> {
    type Target = Shared<P>;

    fn deref(&self) -> &Shared<P> {
        match self {
            Self::Borrowed(shared) => shared,
            Self::Owned(shared) => shared,
        }
    }
}
