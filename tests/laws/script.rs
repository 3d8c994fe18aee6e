//! Random scripts, in units of the time between two permits, and what they come to: a list of
//! steps.

use std::fmt::Debug;

use proptest::prelude::*;

use crate::line::{Fate, Line};
use crate::oracle::{Conforms, Fraction, Oracle, Setup, Time, time};

/// One thing that happens. Times are in eighths of the time between two permits; indices are taken
/// modulo what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Arrive { n: u32, patience: Patience },
    Leave(usize),
    Refund(usize),
    Advance { eighths: u32, nanos: u32 },
    SetRate(usize),
    Pause(u32),
    SetBack(u32),
}

/// How long a caller waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Endless,
    /// A place is taken, but nobody looks at it.
    Reserved,
    Eighths(u32),
    /// As long as it takes, as things stand.
    Enough,
    /// One nanosecond less.
    TooLittle,
}

/// What happens in a script besides arrivals and time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kinds {
    pub(crate) timeouts: bool,
    pub(crate) leaves: bool,
    pub(crate) refunds: bool,
    pub(crate) rates: bool,
    pub(crate) pauses: bool,
    pub(crate) back: bool,
}

impl Kinds {
    /// All that a clock that goes forward allows.
    pub(crate) const FORWARD: Self = Self {
        timeouts: true,
        leaves: true,
        refunds: true,
        rates: true,
        pauses: true,
        back: false,
    };
}

pub(crate) fn scripts(kinds: Kinds) -> impl Strategy<Value = Vec<Op>> {
    let n = prop_oneof![8 => 1u32..4, 2 => 4u32..30, 1 => Just(0u32), 1 => 100u32..300];
    let timeouts = u32::from(kinds.timeouts);
    let patience = some_of(vec![
        (6, Just(Patience::Endless).boxed()),
        (2, Just(Patience::Reserved).boxed()),
        (2 * timeouts, (0u32..160).prop_map(Patience::Eighths).boxed()),
        (timeouts, Just(Patience::Eighths(0)).boxed()),
        (2 * timeouts, Just(Patience::Enough).boxed()),
        (timeouts, Just(Patience::TooLittle).boxed()),
    ]);
    let advance = prop_oneof![(0u32..40, 0u32..3), (0u32..40, Just(0)), (0u32..400, Just(0))];
    let on = u32::from;
    let op = some_of(vec![
        (10, (n, patience).prop_map(|(n, patience)| Op::Arrive { n, patience }).boxed()),
        (9, advance.prop_map(|(eighths, nanos)| Op::Advance { eighths, nanos }).boxed()),
        (3 * on(kinds.leaves), any::<usize>().prop_map(Op::Leave).boxed()),
        (2 * on(kinds.refunds), any::<usize>().prop_map(Op::Refund).boxed()),
        (on(kinds.rates), any::<usize>().prop_map(Op::SetRate).boxed()),
        (on(kinds.pauses), (0u32..60).prop_map(Op::Pause).boxed()),
        (2 * on(kinds.back), (0u32..400).prop_map(Op::SetBack).boxed()),
    ]);
    prop::collection::vec(op, 1..60)
}

/// One of several, by weight. What has no weight must not appear even in a shrunk script, so it is
/// left out.
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
    },
    /// In a twin, for an arrival that the other has not.
    NobodyCame,
    /// Gives up a place, or a grant.
    Leave(usize),
    Advance(Time),
    SetRate(Fraction),
    Pause(Time),
    SetBack(Time),
    /// Looks without touching; the number says at what.
    Look(u8),
}

fn eighths(setup: &Setup, eighths: u32) -> Time {
    i128::from(setup.rates[0].nanos) * i128::from(eighths) / i128::from(setup.rates[0].permits) / 8
}

/// Which grants a script may give back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GiveBack {
    Any,
    /// Those since the last change, pause or late refund only.
    Fresh,
    /// The last one only, whatever happened since.
    Last,
}

/// Plays a script to the oracle. Where the oracle and a limiter round differently, time goes on by
/// some nanoseconds first, so that no event falls where rounding decides.
pub(crate) fn play<P: Conforms>(
    setup: &Setup,
    script: &[Op],
    give_back: GiveBack,
) -> (Line<P::Oracle>, Vec<Step>) {
    let mut line = Line::new(P::oracle(setup), time(setup.catch_up), setup.tolerance);
    let mut steps = Vec::new();
    for &op in script {
        step_off_the_edge(setup, &mut line, &mut steps);
        if let Some(step) = settle(setup, &line, op, give_back) {
            take(&mut line, step);
            steps.push(step);
        }
    }
    // All get their turn; what is left of the state shows in some more calls.
    for _ in 0..4 {
        while let Some(event) = line.next_event() {
            let step = Step::Advance(event - line.now);
            take(&mut line, step);
            steps.push(step);
        }
        step_off_the_edge(setup, &mut line, &mut steps);
        for _ in 0..2 {
            let step = Step::Arrive { n: 3, timeout: None, polled: true };
            take(&mut line, step);
            steps.push(step);
        }
    }
    while let Some(event) = line.next_event() {
        let step = Step::Advance(event + setup.tolerance - line.now);
        take(&mut line, step);
        steps.push(step);
    }
    (line, steps)
}

fn step_off_the_edge<O: Oracle>(setup: &Setup, line: &mut Line<O>, steps: &mut Vec<Step>) {
    while line.on_the_edge() {
        let step = Step::Advance(2 * setup.tolerance + 1);
        take(line, step);
        steps.push(step);
    }
}

/// What an op comes to as things stand.
fn settle<O: Oracle>(setup: &Setup, line: &Line<O>, op: Op, give_back: GiveBack) -> Option<Step> {
    let chosen = |index: usize, choose: &dyn Fn(usize) -> bool| {
        let ids: Vec<usize> = (0..line.callers.len()).filter(|&id| choose(id)).collect();
        (!ids.is_empty()).then(|| ids[index % ids.len()])
    };
    Some(match op {
        Op::Arrive { n, patience } => {
            let due = line.projected(None) - line.now;
            let timeout = match patience {
                Patience::Endless | Patience::Reserved => None,
                Patience::Eighths(n) => Some(eighths(setup, n)),
                Patience::Enough => Some(due),
                Patience::TooLittle => Some((due - 1).max(0)),
            };
            let timeout = timeout.map(|timeout| line.settle_timeout(timeout));
            Step::Arrive { n, timeout, polled: !matches!(patience, Patience::Reserved) }
        }
        Op::Leave(index) => Step::Leave(chosen(index, &|id| line.queue.contains(&id))?),
        Op::Refund(index) => Step::Leave(chosen(index, &|id| {
            let caller = &line.callers[id];
            matches!(caller.fate, Fate::Granted { .. })
                && !caller.given_back
                && match give_back {
                    GiveBack::Any => true,
                    GiveBack::Fresh => caller.age == line.age,
                    GiveBack::Last => line.last_grant() == Some(id),
                }
        })?),
        Op::Advance { eighths: n, nanos } => Step::Advance(eighths(setup, n) + i128::from(nanos)),
        Op::SetRate(index) => Step::SetRate(setup.rates[index % setup.rates.len()]),
        Op::Pause(n) => Step::Pause(eighths(setup, n)),
        Op::SetBack(_) => return None,
    })
}

fn take<O: Oracle>(line: &mut Line<O>, step: Step) {
    match step {
        Step::Arrive { n, timeout, .. } => {
            line.arrive(n, timeout);
        }
        Step::Leave(id) => line.leave(id),
        Step::Advance(span) => line.advance(span),
        Step::SetRate(rate) => line.set_rate(rate),
        Step::Pause(span) => line.pause(span),
        Step::NobodyCame | Step::SetBack(_) | Step::Look(_) => {}
    }
}

/// The steps of a script without an oracle: leavers may have left already, and time may go back.
pub(crate) fn steps(setup: &Setup, script: &[Op]) -> Vec<Step> {
    let mut arrivals = 0;
    let mut now = 0;
    let mut steps = Vec::new();
    for &op in script {
        steps.push(match op {
            Op::Arrive { n, patience } => {
                arrivals += 1;
                let timeout = match patience {
                    Patience::Eighths(n) => Some(eighths(setup, n)),
                    _ => None,
                };
                Step::Arrive { n, timeout, polled: true }
            }
            Op::Leave(_) | Op::Refund(_) if arrivals == 0 => continue,
            // Mostly a late one.
            Op::Leave(index) | Op::Refund(index) => {
                Step::Leave(arrivals - 1 - index % arrivals.min(8))
            }
            Op::Advance { eighths: n, nanos } => {
                let span = eighths(setup, n) + i128::from(nanos);
                now += span;
                Step::Advance(span)
            }
            Op::SetRate(index) => Step::SetRate(setup.rates[index % setup.rates.len()]),
            Op::Pause(n) => Step::Pause(eighths(setup, n)),
            Op::SetBack(n) => {
                now = (now - eighths(setup, n)).max(0);
                Step::SetBack(now)
            }
        });
    }
    steps
}
