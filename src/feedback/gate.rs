//! The server's quota, as a policy.
//!
//! **Quotas.** If so much of a unit remained by the newest answer, calls pass while the calls in flight cost no more than
//! that: each may or may not be counted in it. An answer first sets the [`Cap`] and then gives the places of its call back.
//! The cap changes when the first permits are back and at the reset, or rises steadily. After the reset one call passes
//! alone in any case, and the server decides.
//!
//! **Pauses.** After a refusal nothing passes until a time.
//!
//! **The learned rate.** Each call takes a permit of a small bucket at that pace.

use std::time::Duration;

use super::learner::Pace;
use crate::error::ExceedsCapacity;
use crate::part::{Kind, Part};
use crate::policy::prelude::TWO_TICKS;
use crate::policy::state::Facts;
use crate::policy::{Asked, Limit, Policy, Ready, RuleEvent};
use crate::units::Nanos;

/// Requests, tokens, input tokens, output tokens.
pub(super) type Units = (u32, u32, u32, u32);

pub(super) fn array((a, b, c, d): Units) -> [u32; 4] {
    [a, b, c, d]
}

/// The parts of the policy: the server's statements, and the learned rate.
pub(super) const STATED: usize = 0;
pub(super) const LEARNED: usize = 1;

/// The capacity of the bucket. More would exceed servers without a burst; fewer would delay calls that arrive together by
/// chance.
const BURST: f64 = 4.0;

/// How many calls go before the first answer, and how long the others wait for it.
const FIRST: u64 = 4;
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// One permit, less the rounding of sums.
const ONE: f64 = 1.0 - 1e-9;

/// The bound of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cap {
    /// How much may be in flight from a time on: from now on, when the first permits are back, and from the reset on. None
    /// before.
    pub(super) steps: [(Nanos, u64); 3],
    /// Whether it rises steadily in between.
    pub(super) is_refilling: bool,
    /// From when on a call passes if no other is in flight: the stated reset. The last step may be later.
    pub(super) alone: Nanos,
}

impl Cap {
    pub(super) const UNKNOWN: Self =
        Self { steps: [(Nanos::ZERO, u64::MAX); 3], is_refilling: false, alone: Nanos::ZERO };

    /// When the bound is at least `needed`, at the latest at the reset.
    pub(super) fn reached(&self, needed: u64) -> Nanos {
        let step = self.steps.iter().position(|&(_, most)| needed <= most).unwrap_or(2);
        let (next, most) = self.steps[step];
        let Some(&(at, least)) = self.steps[..step].last().filter(|_| self.is_refilling) else {
            return next;
        };
        let more = u128::from(most.saturating_sub(least));
        let lacks = u128::from(needed.saturating_sub(least));
        if lacks >= more {
            return next;
        }
        let nanos = (lacks * next.since(at).as_nanos()).div_ceil(more);
        at.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))).min(next)
    }

    fn ready_at(&self, out: u64, now: Nanos, n: u64) -> Ready {
        let needed = out.saturating_add(n);
        let [.., (reset, most)] = self.steps;
        if out == 0 {
            Ready::At(self.reached(needed).min(self.alone))
        } else if needed <= most {
            Ready::At(self.reached(needed))
        } else {
            Ready::NotBefore(reset.max(now))
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gate {
    pub(super) caps: [Cap; 4],
    /// Nothing passes before, after a refusal.
    pub(super) shut_until: Nanos,
    pub(super) pace: Pace,
    /// How often the gate has closed.
    pub(super) closed: u64,
    /// No answer has arrived yet.
    pub(super) is_new: bool,
    /// How many requests may be in flight, as learned.
    pub(super) places: u64,
}

/// The calls in flight, and the bucket of the learned rate.
#[derive(Clone, Debug)]
pub(super) struct Passed {
    out: [u64; 4],
    /// When the first of the calls in flight passed.
    began: Nanos,
    level: f64,
    at: Nanos,
}

impl Gate {
    /// Lets everything pass.
    pub(super) const OPEN: Self = Self {
        caps: [Cap::UNKNOWN; 4],
        shut_until: Nanos::ZERO,
        pace: Pace::NONE,
        closed: 0,
        is_new: false,
        places: u64::MAX,
    };

    /// Whether the change from `old` closes the gate: a call that has passed and was not sent asks again.
    pub(super) fn closes(&self, old: &Self) -> bool {
        let caps = self.caps.iter().zip(&old.caps);
        self.shut_until > old.shut_until || self.pace.cuts > old.pace.cuts || { caps }
            .any(|(cap, old)| cap.steps[0].1 == 0 && old.steps[0].1 > 0)
    }

    /// When all pauses are over.
    fn opens(&self) -> Nanos {
        self.shut_until.max(self.pace.until)
    }

    /// The level of the bucket. During a pause it stores one call.
    fn level(&self, passed: &Passed, now: Nanos) -> f64 {
        let come = |from: Nanos, to: Nanos| self.pace.rate * to.since(from).as_secs_f64();
        let opens = self.opens();
        if now <= passed.at {
            return passed.level;
        }
        if passed.at >= opens {
            return (passed.level + come(passed.at, now)).min(BURST);
        }
        let stored = (passed.level + come(passed.at, now.min(opens))).min(1.0);
        if now <= opens { stored } else { (stored + come(opens, now)).min(BURST) }
    }

    /// When the bucket has a permit. May be in the past.
    fn paced(&self, passed: &Passed) -> Nanos {
        let from = self.opens().max(passed.at);
        let level = self.level(passed, from);
        if self.pace.is_none() || level >= ONE {
            return self.opens();
        }
        let wait = Duration::try_from_secs_f64((1.0 - level) / self.pace.rate);
        from.saturating_add(wait.unwrap_or(Nanos::HORIZON)).saturating_add(Duration::from_nanos(1))
    }

    fn stated(&self, passed: &Passed, now: Nanos, cost: Units) -> Ready {
        let units = array(cost);
        let asked = (0..4).filter(|&unit| units[unit] > 0);
        let ready =
            asked.map(|unit| self.caps[unit].ready_at(passed.out[unit], now, units[unit].into()));
        let ready = ready.fold(Ready::At(self.first(passed, cost)), Ready::and);
        let requests = passed.out[0].saturating_add(cost.0.into());
        let is_full = passed.out[0] > 0 && requests > self.places;
        if is_full { ready.and(Ready::NotBefore(now)) } else { ready }
    }

    /// Few calls go until the first answer: it may say that the quota is small.
    fn first(&self, passed: &Passed, cost: Units) -> Nanos {
        let requests = passed.out[0] + u64::from(cost.0);
        let is_held = self.is_new && passed.out[0] > 0 && requests > FIRST;
        if is_held { passed.began.saturating_add(FIRST_ANSWER) } else { self.shut_until }
    }
}

impl Policy for Gate {
    type Cost = Units;
    type State = Passed;
    /// How often it had closed. `None` after a refund.
    type Receipt = Option<u64>;

    fn start(&self, now: Nanos) -> Passed {
        Passed { out: [0; 4], began: now, level: BURST, at: now }
    }

    /// Calls in flight hold places, and nothing else does.
    fn idle_at(&self, passed: &Passed) -> Option<Nanos> {
        passed.out.iter().all(|&out| out == 0).then_some(Nanos::ZERO)
    }

    fn ready_at(&self, passed: &Passed, now: Nanos, cost: Units) -> Result<Ready, ExceedsCapacity> {
        let stated = self.stated(passed, now, cost);
        Ok(if self.pace.is_none() { stated } else { stated.and(Ready::At(self.paced(passed))) })
    }

    fn charge(&self, passed: &mut Passed, at: Nanos, cost: Units) -> Option<u64> {
        if passed.out[0] == 0 {
            passed.began = at;
        }
        for (out, n) in passed.out.iter_mut().zip(array(cost)) {
            *out = out.saturating_add(n.into());
        }
        if !self.pace.is_none() {
            // Calls that did not ask at the gate are no growing debt.
            let level = self.level(passed, at) - 1.0 + f64::from(self.pace.jitter);
            (passed.level, passed.at) = (level.max(-1.0), at.max(passed.at));
        }
        Some(self.closed)
    }

    fn refund(&self, passed: &mut Passed, _: Nanos, _: Units, charged: Option<u64>) -> Option<u64> {
        if charged == Some(self.closed) {
            passed.level = (passed.level + 1.0).min(BURST);
        }
        None
    }

    const HELD: bool = true;
    const RELEASE_TIMED: bool = false;

    fn event(&self, passed: &mut Passed, now: Nanos, event: RuleEvent<Units>) -> Nanos {
        match event {
            RuleEvent::Released(cost) => {
                for (out, n) in passed.out.iter_mut().zip(array(cost)) {
                    *out = out.saturating_sub(n.into());
                }
            }
            RuleEvent::Reset => *passed = self.start(now),
            _ => {}
        }
        now
    }

    fn migrate(&self, old: &Self, passed: &mut Passed, now: Nanos) {
        if self.pace.is_none() {
            return;
        }
        let level = if old.pace.is_none() { BURST } else { old.level(passed, now) };
        let is_void = self.pace.cuts > old.pace.cuts;
        (passed.level, passed.at) = (if is_void { level.min(0.0) } else { level }, now);
    }

    /// Not asked: the state of the server says what remains.
    fn available(&self, _: &Passed, _: Nanos) -> Units {
        Units::default()
    }

    fn limits(&self, passed: &Passed, asked: Asked<Units>, visit: &mut dyn FnMut(Limit<Units>)) {
        let stated = self.stated(passed, asked.now, asked.cost);
        let learned = Ready::At(if self.pace.is_none() { Nanos::ZERO } else { self.paced(passed) });
        for (part, ready) in [(STATED, stated), (LEARNED, learned)] {
            let part = Some(Part::new(part, 2).of_kind(Some(Kind::Server)));
            visit(Limit { part, ready: Some(ready), ..Limit::default() });
        }
    }

    /// A late alarm costs no throughput.
    fn facts(&self, _: usize) -> Facts {
        let catch_up = if self.pace.is_none() { Duration::ZERO } else { TWO_TICKS };
        Facts { catch_up, ..Facts::default() }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const NONE: Passed = Passed { out: [0; 4], began: Nanos::ZERO, level: BURST, at: Nanos::ZERO };

    fn at(seconds: u64) -> Nanos {
        Nanos::new(seconds * 1_000_000_000)
    }

    fn rising(is_refilling: bool) -> Cap {
        Cap { steps: [(at(10), 5), (at(20), 7), (at(30), 10)], alone: at(30), is_refilling }
    }

    fn paced(rate: f64, cuts: u32) -> Gate {
        Gate { pace: Pace { rate, cuts, ..Pace::NONE }, ..Gate::OPEN }
    }

    #[test]
    fn what_remains_changes_at_the_knee_and_at_the_reset_or_rises_between_them() {
        for (needed, steps, rises) in
            [(0, 10, 10), (5, 10, 10), (6, 20, 15), (7, 20, 20), (10, 30, 30)]
        {
            let reached = [false, true].map(|is_refilling| rising(is_refilling).reached(needed));
            assert_eq!(reached, [at(steps), at(rises)], "{needed}");
        }
    }

    #[test]
    fn a_call_waits_for_no_unit_that_it_does_not_take() {
        let mut gate = Gate::OPEN;
        gate.caps[1] = rising(false);
        gate.caps[1].steps[0].1 = 0;
        let out = Passed { out: [0, 3, 0, 0], ..NONE };
        let now = |cost| gate.ready_at(&out, at(10), cost).map(|ready| ready.has_come(at(10)));
        assert_eq!((now((1, 0, 0, 0)), now((1, 1, 0, 0))), (Ok(true), Ok(false)));
        assert_eq!((gate.idle_at(&out), gate.idle_at(&NONE)), (None, Some(Nanos::ZERO)));
    }

    #[test]
    fn four_calls_go_before_the_first_answer_and_the_others_a_second_later() {
        let mut gate = Gate { is_new: true, ..Gate::OPEN };
        let mut passed = Passed { began: at(10), ..NONE };
        let mut ready = |gate: &Gate, out, n| {
            passed.out[0] = out;
            gate.ready_at(&passed, at(10), (n, 0, 0, 0))
        };
        let (now, later) = (Ok(Ready::At(Nanos::ZERO)), Ok(Ready::At(at(11))));
        assert_eq!([(3, 1), (4, 1)].map(|(out, n)| ready(&gate, out, n)), [now, later]);
        // One large call is not split.
        assert_eq!([(0, 9), (1, 9)].map(|(out, n)| ready(&gate, out, n)), [now, later]);
        gate.is_new = false;
        assert_eq!(ready(&gate, 4, 1), now);
    }

    #[test]
    fn a_gate_closes_by_a_pause_a_cut_or_when_nothing_remains() {
        let closes = |change: fn(&mut Gate)| {
            let mut old = paced(1.0, 1);
            old.caps[0].steps[0].1 = 2;
            let mut new = old;
            change(&mut new);
            new.closes(&old)
        };
        let closed: [fn(&mut Gate); 3] = [
            |gate| gate.shut_until = at(1),
            |gate| gate.pace.cuts = 2,
            |gate| gate.caps[0].steps[0].1 = 0,
        ];
        assert_eq!(closed.map(closes), [true; 3]);
        let goes_on: [fn(&mut Gate); 3] =
            [|_| (), |gate| gate.pace.rate = 2.0, |gate| gate.caps[0].steps[0].1 = 1];
        assert_eq!(goes_on.map(closes), [false; 3]);
    }

    #[test]
    fn what_is_stored_outlives_a_change_of_the_pace_but_not_a_cut() {
        let empty = || Passed { level: 0.0, ..NONE };
        let level = |old: Gate, new: Gate| {
            let mut passed = empty();
            new.migrate(&old, &mut passed, at(2));
            passed.level
        };
        assert_eq!(level(paced(1.0, 1), paced(10.0, 1)), 2.0);
        assert_eq!(level(paced(1.0, 1), paced(10.0, 2)), 0.0);
        assert_eq!(level(Gate::OPEN, paced(10.0, 0)), BURST);
        assert_eq!(level(paced(1.0, 1), Gate::OPEN), 0.0);
        assert_eq!(paced(1.0, 0).facts(0).catch_up, TWO_TICKS);
        assert_eq!(Gate::OPEN.facts(0).catch_up, Duration::ZERO);
    }
}
