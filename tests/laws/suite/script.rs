//! Random scripts, in units of the time between two permits, and their steps.

use std::fmt::Debug;

use proptest::prelude::*;
use tollgate::Cost;

use crate::line::Line;
use crate::oracle::{Conforms, Setup, Time, time};
use crate::turns::{Rank, Tenant};

/// One operation. Times are in eighths of the time between two permits; indices are taken modulo
/// the number of candidates.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Arrive {
        n: u32,
        patience: Patience,
        ahead: u32,
        tenant: Option<Tenant>,
    },
    Leave(usize),
    Refund(usize),
    Drop(usize),
    Advance {
        eighths: u32,
        nanos: u32,
    },
    SetPolicy(usize),
    Pause(u32),
    /// Ends a pause.
    Resume,
    /// To a percentage of what was asked for.
    Settle(usize, u32),
    SetBack(u32),
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Endless,
    /// A place is reserved, but not polled.
    Reserved,
    Eighths(u32),
    /// Exactly the wait that is predicted.
    Enough,
    /// One nanosecond less.
    TooLittle,
}

/// The operations in a script besides arrivals and time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kinds {
    pub(crate) timeouts: bool,
    pub(crate) leaves: bool,
    pub(crate) refunds: bool,
    pub(crate) changes: bool,
    pub(crate) drops: bool,
    pub(crate) pauses: bool,
    /// Pauses that end early.
    pub(crate) resumes: bool,
    /// Grants that are settled.
    pub(crate) settles: bool,
    pub(crate) back: bool,
    /// Callers that enter ahead of others.
    pub(crate) ahead: bool,
    /// Callers of tenants.
    pub(crate) tenants: bool,
}

impl Kinds {
    /// All operations for a clock that only goes forward.
    pub(crate) const FORWARD: Self = Self {
        timeouts: true,
        leaves: true,
        refunds: true,
        changes: true,
        drops: true,
        pauses: true,
        resumes: false,
        settles: false,
        back: false,
        ahead: true,
        tenants: false,
    };
}

pub(crate) fn scripts(kinds: Kinds) -> impl Strategy<Value = Vec<Op>> {
    let n = prop_oneof![8 => 1u32..4, 2 => 4u32..30, 1 => Just(0u32), 1 => 100u32..300];
    let on = u32::from;
    let timeouts = u32::from(kinds.timeouts);
    let patience = some_of(vec![
        (6, Just(Patience::Endless).boxed()),
        (2, Just(Patience::Reserved).boxed()),
        (2 * timeouts, (0u32..160).prop_map(Patience::Eighths).boxed()),
        (timeouts, Just(Patience::Eighths(0)).boxed()),
        (2 * timeouts, Just(Patience::Enough).boxed()),
        (timeouts, Just(Patience::TooLittle).boxed()),
    ]);
    let ahead = if kinds.ahead {
        prop_oneof![4 => Just(0), 1 => 0u32..100, 1 => Just(40), 1 => Just(10_000)].boxed()
    } else {
        Just(0).boxed()
    };
    let tenant = if kinds.tenants {
        let tenant = (0u8..4, 0u32..3).prop_map(|(id, power)| Tenant { id, weight: 1 << power });
        prop_oneof![2 => Just(None), 8 => tenant.prop_map(Some)].boxed()
    } else {
        Just(None).boxed()
    };
    let advance = prop_oneof![(0u32..40, 0u32..3), (0u32..40, Just(0)), (0u32..400, Just(0))];
    let op = some_of(vec![
        (
            10,
            (n, patience, ahead, tenant)
                .prop_map(|(n, patience, ahead, tenant)| Op::Arrive { n, patience, ahead, tenant })
                .boxed(),
        ),
        (9, advance.prop_map(|(eighths, nanos)| Op::Advance { eighths, nanos }).boxed()),
        (3 * on(kinds.leaves), any::<usize>().prop_map(Op::Leave).boxed()),
        (2 * on(kinds.refunds), any::<usize>().prop_map(Op::Refund).boxed()),
        (2 * on(kinds.drops), any::<usize>().prop_map(Op::Drop).boxed()),
        (on(kinds.changes), any::<usize>().prop_map(Op::SetPolicy).boxed()),
        (on(kinds.pauses), (0u32..60).prop_map(Op::Pause).boxed()),
        (on(kinds.resumes), Just(Op::Resume).boxed()),
        (
            2 * on(kinds.settles),
            (any::<usize>(), 0u32..200).prop_map(|(id, n)| Op::Settle(id, n)).boxed(),
        ),
        (2 * on(kinds.back), (0u32..400).prop_map(Op::SetBack).boxed()),
    ]);
    prop::collection::vec(op, 1..60)
}

/// One of several, by weight. An option without weight must not appear even in a shrunk script, so
/// it is left out.
fn some_of<T: Debug>(mut options: Vec<(u32, BoxedStrategy<T>)>) -> impl Strategy<Value = T> {
    options.retain(|&(weight, _)| weight > 0);
    prop::strategy::Union::new_weighted(options)
}

/// One thing to do to a limiter. Callers have the numbers of their arrivals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Arrive {
        n: u32,
        timeout: Option<Time>,
        polled: bool,
        rank: Rank,
    },
    /// In a twin, in place of an arrival in the other.
    NoArrival,
    /// Gives up a place, or a grant.
    Leave(usize),
    /// Drops a grant that is no longer needed.
    Drop(usize),
    Advance(Time),
    SetPolicy(usize),
    Pause(Time),
    Resume,
    /// To what the call has really cost.
    Settle(usize, u32),
    SetBack(Time),
    /// Reads the limiter; the bits say which methods.
    Look(u8),
}

/// Which grants a script may give back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GiveBack {
    Any,
    /// Only those since the last change, pause or late refund.
    Fresh,
    /// Only the last one, after any events since.
    Last,
}

/// Plays a script to the oracle. Where the oracle and a limiter round differently, time goes on by
/// some nanoseconds first, so that no event falls where rounding decides.
pub(crate) fn play<P: Conforms>(
    setup: &Setup<P>,
    script: &[Op],
    give_back: GiveBack,
) -> (Line, Vec<Step>) {
    let line = Line::new(setup.oracle(), time(setup.catch_up), setup.tolerance());
    let line = line.counting(|n| P::cost(n).permits());
    let mut play = Play { setup, line, steps: Vec::new() };
    for &op in script {
        play.step_off_the_edge(if let Op::Arrive { n, .. } = op { n } else { 0 });
        if let Some(step) = play.settle(op, give_back) {
            play.take(step);
        }
    }
    // All callers get their turn; some more calls then show the final state.
    for round in 0..4 {
        play.finish(0);
        for n in [round, 1] {
            play.step_off_the_edge(n);
            play.take(Step::Arrive { n, timeout: None, polled: true, rank: Rank::default() });
        }
    }
    play.finish(setup.tolerance());
    (play.line, play.steps)
}

struct Play<'a, P: Conforms> {
    setup: &'a Setup<P>,
    line: Line,
    steps: Vec<Step>,
}

impl<P: Conforms> Play<'_, P> {
    /// The step for an operation in the current state.
    fn settle(&self, op: Op, give_back: GiveBack) -> Option<Step> {
        let line = &self.line;
        let eighths = |eighths| self.setup.scale.rate.eighths(eighths);
        let chosen = |index: usize, choose: &dyn Fn(usize) -> bool| {
            let ids: Vec<usize> = (0..line.callers.len()).filter(|&id| choose(id)).collect();
            (!ids.is_empty()).then(|| ids[index % ids.len()])
        };
        Some(match op {
            Op::Arrive { n, patience, ahead, tenant } => {
                let rank =
                    Rank { ahead: if tenant.is_none() { eighths(ahead) } else { 0 }, tenant };
                let due = line.projected(n, rank).at - line.now;
                let timeout = match patience {
                    Patience::Endless | Patience::Reserved => None,
                    Patience::Eighths(n) => Some(eighths(n)),
                    Patience::Enough => Some(due.max(0)),
                    Patience::TooLittle => Some((due - 1).max(0)),
                };
                let timeout = timeout.map(|timeout| line.settle_timeout(n, rank, timeout));
                Step::Arrive { n, timeout, polled: !matches!(patience, Patience::Reserved), rank }
            }
            Op::Leave(index) => Step::Leave(chosen(index, &|id| line.queue.contains(&id))?),
            Op::Refund(index) => Step::Leave(chosen(index, &|id| {
                let caller = &line.callers[id];
                caller.has_grant()
                    && match give_back {
                        GiveBack::Any => true,
                        GiveBack::Fresh => caller.age == line.age,
                        GiveBack::Last => line.last_grant() == Some(id),
                    }
            })?),
            Op::Drop(index) => Step::Drop(chosen(index, &|id| line.callers[id].has_grant())?),
            Op::Advance { eighths: n, nanos } => Step::Advance(eighths(n) + i128::from(nanos)),
            Op::SetPolicy(index) => Step::SetPolicy(index % self.setup.versions.len()),
            Op::Pause(n) => Step::Pause(eighths(n).max(1)),
            Op::Resume => Step::Resume,
            Op::Settle(..) | Op::SetBack(_) => return None,
        })
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Arrive { n, timeout, rank, .. } => {
                self.line.arrive(n, rank, timeout);
            }
            Step::Leave(id) => self.line.leave(id),
            Step::Drop(id) => self.line.drop_grant(id),
            Step::Advance(span) => self.line.advance(span),
            Step::SetPolicy(index) => self.line.set_policy(index),
            Step::Pause(span) => self.line.pause(span),
            Step::Resume => self.line.resume(),
            Step::NoArrival | Step::Settle(..) | Step::SetBack(_) | Step::Look(_) => {}
        }
        self.steps.push(step);
    }

    fn step_off_the_edge(&mut self, n: u32) {
        while self.line.on_the_edge(n) {
            self.take(Step::Advance(2 * self.setup.tolerance() + 1));
        }
    }

    /// Runs until no waiter can be granted. Grants are dropped if waiters need that.
    fn finish(&mut self, extra: Time) {
        loop {
            while let Some(event) = self.line.next_event() {
                self.take(Step::Advance(event + extra - self.line.now));
            }
            let callers = &self.line.callers;
            let held = (0..callers.len()).find(|&id| callers[id].has_grant());
            match held.filter(|_| !self.line.queue.is_empty()) {
                Some(id) => self.take(Step::Drop(id)),
                None => break,
            }
        }
    }
}

/// The steps of a script without an oracle: leavers may have left already, and time may go back.
pub(crate) fn steps<P: Conforms>(setup: &Setup<P>, script: &[Op]) -> Vec<Step> {
    let eighths = |eighths| setup.scale.rate.eighths(eighths);
    // What each caller asks for.
    let mut costs = Vec::new();
    let mut now = 0;
    let mut steps = Vec::new();
    for &op in script {
        // Mostly a late one.
        let came = costs.len();
        let late = |index: usize| (came > 0).then(|| came - 1 - index % came.min(8));
        steps.push(match op {
            Op::Arrive { n, patience, ahead, tenant } => {
                costs.push(n);
                let rank =
                    Rank { ahead: if tenant.is_none() { eighths(ahead) } else { 0 }, tenant };
                let timeout = match patience {
                    Patience::Eighths(n) => Some(eighths(n)),
                    _ => None,
                };
                Step::Arrive { n, timeout, polled: true, rank }
            }
            Op::Leave(index) | Op::Refund(index) => match late(index) {
                Some(id) => Step::Leave(id),
                None => continue,
            },
            Op::Drop(index) => match late(index) {
                Some(id) => Step::Drop(id),
                None => continue,
            },
            Op::Advance { eighths: n, nanos } => {
                let span = eighths(n) + i128::from(nanos);
                now += span;
                Step::Advance(span)
            }
            Op::SetPolicy(index) => Step::SetPolicy(index % setup.versions.len()),
            Op::Pause(n) => Step::Pause(eighths(n).max(1)),
            Op::Resume => Step::Resume,
            Op::Settle(index, percent) => match late(index) {
                Some(id) => Step::Settle(id, costs[id] * percent / 100),
                None => continue,
            },
            Op::SetBack(n) => {
                now = (now - eighths(n)).max(0);
                Step::SetBack(now)
            }
        });
    }
    steps
}
