//! When the head is asked for, how many waiters with it, and how far ahead they may be booked.

use std::time::Duration;

use super::roster::BATCH;
use crate::part::Part;
use crate::policy::Cost;
use crate::redis::context::Context;
use crate::redis::health::{about, whole};
use crate::redis::script::Scripted;
use crate::units::Nanos;

/// After this part of the horizon, on average, a process asks again for a head that was passed over. The time is
/// random, so that processes do not keep step.
const PACE: u32 = 16;

/// The least reach of a request. The reach is limited because a "later" costs the server, too.
const FEW: usize = 8;

/// A head that was passed over this many times reaches the whole horizon.
const STEPS: u32 = 8;

/// How far ahead a waiter for a place in flight is booked at most, besides two round trips.
const HELD_AHEAD: Duration = Duration::from_millis(5);

/// The pause before a process asks again for a head whose time is unpredictable: a few milliseconds, and more the
/// longer it waits, so that a free place stays empty for a small part of that time.
fn poll_pause(passed: u32) -> Duration {
    Duration::from_millis(u64::from(4 + passed / 2).min(64))
}

pub(super) struct Pacing<C> {
    /// The head cannot be booked before this. `None`: it is asked for at once.
    pub(super) ask_at: Option<Nanos>,
    /// Until then the last reply about the head, or about the last refused caller, counts. Then a request hears
    /// what other processes have changed.
    refresh_at: Nanos,
    /// How many times other processes were quicker than the head.
    pub(super) passed: u32,
    /// How many waiters a request asks for.
    pub(super) reach: usize,
    pub(super) refusal: Option<Refusal<C>>,
    /// How long the last request took.
    pub(super) trip: Duration,
}

/// The last refusal: its cost, when that will be ready, and the part that limits it.
pub(super) struct Refusal<C> {
    pub(super) cost: C,
    pub(super) due: Nanos,
    pub(super) part: Option<Part>,
}

/// What the waiters within reach got in a reply.
pub(super) struct Batch {
    pub(super) within: usize,
    pub(super) booked: usize,
    pub(super) first_due: Option<Nanos>,
    pub(super) last_due: Nanos,
}

/// What a reply says of the head.
#[derive(Clone, Copy)]
pub(super) enum Head<C> {
    /// All within reach have an outcome.
    Served,
    /// It was not asked for.
    Unasked,
    /// It has to wait; how long, if that is known. `passed`: how many times it was passed over before, if it was.
    Later { cost: C, wait: Option<Duration>, passed: Option<u32> },
}

impl<C: Cost> Pacing<C> {
    pub(super) fn new() -> Self {
        let (ask_at, refresh_at, passed, refusal, trip) = Default::default();
        Self { ask_at, refresh_at, passed, reach: BATCH, refusal, trip }
    }

    /// When the head is asked for. `None`: at once.
    pub(super) fn asks_at(&self) -> Option<Nanos> {
        self.ask_at.map(|at| at.min(self.refresh_at))
    }

    /// How many waiters a request asks for now, from the head on.
    pub(super) fn reach(&self, now: Nanos) -> usize {
        let is_time = self.asks_at().is_none_or(|at| at <= now);
        if is_time { self.reach } else { 0 }
    }

    /// Permits may have come back: plans a request at once.
    pub(super) fn ask_again(&mut self) {
        self.ask_at = None;
        self.passed = 0;
        self.refusal = None;
    }

    /// Whether a refusal may still answer a caller.
    pub(super) fn remembers_refusal(&self, now: Nanos) -> bool {
        self.refusal.as_ref().is_some_and(|refusal| refusal.due.min(self.refresh_at) > now)
    }

    /// What the last refusal says of a caller that cannot wait longer than until `deadline`, if it refuses it: when
    /// its cost is ready, and the part that limits it.
    pub(super) fn refuses(
        &self,
        now: Nanos,
        cost: C,
        deadline: Nanos,
    ) -> Option<(Nanos, Option<Part>)> {
        let refusal = self.refusal.as_ref().filter(|_| now < self.refresh_at)?;
        let is_for = refusal.cost == cost && deadline < refusal.due;
        is_for.then_some((refusal.due, refusal.part))
    }

    /// How far ahead a waiter may be booked when other processes have been quicker than the head `passed` times:
    /// from three quarters of the horizon step by step to all of it, so that a process that was passed over is
    /// quicker the next time. A large head may need more than the horizon yields.
    ///
    /// A booking of places in flight holds them from now on, so these are booked only milliseconds ahead.
    pub(super) fn ahead<P: Scripted>(
        &self,
        context: &Context<P>,
        cost: P::Cost,
        is_head: bool,
    ) -> Duration {
        let (horizon, passed) = (context.options.horizon, self.passed);
        if P::HELD {
            return horizon.min(HELD_AHEAD + 2 * self.trip);
        }
        if is_head && passed > 0 && cost.permits() > 1 {
            return horizon.saturating_mul(1 << passed.min(30));
        }
        horizon / (4 * STEPS) * (3 * STEPS + passed.min(STEPS))
    }

    /// How long a process that has waiters counts as waiting: until its next request is long overdue.
    pub(super) fn counts_as_waiting(&self) -> Duration {
        4 * poll_pause(self.passed) + Duration::from_millis(50)
    }

    /// Plans the next request after a reply.
    pub(super) fn plan<P: Scripted<Cost = C>>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        batch: &Batch,
        head: Head<C>,
    ) {
        let &Batch { within, booked, first_due, last_due } = batch;
        // Where a window begins, all bookings are due at the same time: a process does not take the whole window
        // in one request, and leaves the other processes time for theirs before its next.
        let at_once = booked > 1 && first_due == Some(last_due);
        let ahead = whole(last_due.since(now) / 2);
        let pause = if at_once { context.options.horizon / 4 } else { Duration::ZERO };
        // If all were booked there may be room for more, otherwise for about the same number.
        self.reach = match booked == within {
            true if ahead >= pause && at_once => self.reach,
            true => 2 * self.reach.max(booked),
            false if at_once => booked / 2,
            false => 2 * booked,
        };
        self.reach = self.reach.clamp(FEW, BATCH);
        let refresh = context.options.refresh;
        self.refresh_at = now.saturating_add((refresh / 4).saturating_add(about(refresh / 2)));
        let pause = match head {
            Head::Served => Some(about(pause).min(ahead)).filter(|pause| !pause.is_zero()),
            Head::Unasked => None,
            Head::Later { cost, wait, passed } => {
                self.passed = passed.map_or(self.passed, |passed| passed + 1);
                Some(self.pause_for_head(context, cost, wait))
            }
        };
        self.ask_at = pause.map(|pause| now.saturating_add(pause));
    }

    fn pause_for_head<P: Scripted<Cost = C>>(
        &mut self,
        context: &Context<P>,
        cost: C,
        wait: Option<Duration>,
    ) -> Duration {
        let Some(wait) = wait else {
            // It is unpredictable when permits come back: ask again, at growing intervals.
            return about(poll_pause(self.passed));
        };
        // It can be booked this far ahead.
        let ahead = self.ahead(context, cost, true);
        let pace = if P::HELD { ahead / 2 } else { context.options.horizon / PACE };
        wait.saturating_sub(ahead).max(about(pace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InFlight, Rate, TokenBucket};

    fn at(ms: u64) -> Nanos {
        Nanos::new(ms * 1_000_000)
    }

    /// Twice as many if all were booked, else twice what was; and of a window that has just begun no more than before,
    /// with a pause for the others.
    #[test]
    fn the_next_request_reaches_about_as_many_as_were_booked() {
        let context = &*Context::with(TokenBucket::new(Rate::per_second(5.0), 10));
        let plan = |within, booked, first_due, last_due| {
            let mut pacing = Pacing::<u32>::new();
            pacing.reach = 16;
            let batch =
                Batch { within, booked, first_due: Some(at(first_due)), last_due: at(last_due) };
            pacing.plan(context, at(0), &batch, Head::Served);
            assert!((at(500)..=at(1_000)).contains(&pacing.refresh_at));
            (pacing.reach, pacing.ask_at)
        };
        assert_eq!(plan(16, 16, 100, 200), (32, None));
        assert_eq!(plan(16, 10, 100, 200), (20, None));
        assert_eq!(plan(16, 1, 200, 200), (FEW, None));
        assert_eq!(plan(16, 900, 100, 200).0, BATCH);
        // A quarter of the horizon of 250 ms, or so, is waited.
        let (reach, pause) = plan(16, 16, 200, 200);
        assert_eq!(reach, 16);
        assert!(pause.is_some_and(|pause| (at(31)..at(94)).contains(&pause)), "{pause:?}");
        assert_eq!(plan(16, 16, 100, 100).0, 32);
        assert_eq!(plan(40, 20, 200, 200).0, 10);
    }

    /// And is asked for again after half of that time, or so.
    #[test]
    fn a_place_is_booked_ahead_by_milliseconds_and_two_trips() {
        let context = &*Context::with(InFlight::new(1));
        let mut pacing = Pacing::<u32>::new();
        pacing.trip = Duration::from_millis(10);
        assert_eq!(pacing.ahead(context, 1, true), Duration::from_millis(25));
        let batch = Batch { within: 1, booked: 0, first_due: None, last_due: at(0) };
        let head = Head::Later { cost: 1, wait: Some(Duration::ZERO), passed: None };
        pacing.plan(context, at(0), &batch, head);
        let asks_at = pacing.ask_at.expect("later");
        assert!((at(6)..at(19)).contains(&asks_at), "{asks_at:?}");
    }
}
