//! The operations of a run: made from a seed, and then data, so that a failure can be shrunk.

use std::time::Duration;

use crate::random::Random;
use crate::stage::{Form, INTERVAL, MOST, Plan, Rule};
use crate::subject::{Ask, Said};

/// The world in which operations happen.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) plans: Vec<Plan>,
    /// Alarms may be late.
    pub(crate) is_late: bool,
    /// Wakers panic.
    pub(crate) panics: bool,
    /// Waiters and grants are leaked.
    pub(crate) leaks: bool,
    /// The load of years: callers come and go for hours, and no limit is changed.
    pub(crate) is_long: bool,
}

/// One operation. Stages, tasks and grants are numbers modulo those that there are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Arrive {
        stage: usize,
        ask: Ask,
        how: How,
    },
    /// Runs work that is polled `steps` times, and costs `actual` in the end, or panics.
    Run {
        stage: usize,
        n: u32,
        steps: u8,
        actual: Option<u32>,
    },
    /// The executor polls a task that was woken.
    Poll(usize),
    /// It polls one that was perhaps not woken.
    PollEarly(usize),
    /// A task goes on with another waker.
    Move(usize),
    /// The waker of a task will panic.
    Poison(usize),
    Leave(usize),
    Leak(usize),
    Use {
        grant: usize,
        by: Use,
    },
    Advance(Duration),
    ToNextAlarm,
    CatchUp,
    Pause(usize, Duration),
    Resume(usize),
    Change(usize, u32),
    Reset(usize),
    Look(usize),
    /// Takes what is there.
    TakeRest(usize),
    Crowd(usize, u8),
    Close(usize),
    Drain(usize),
    /// All grants are dropped, and time moves on until no caller waits.
    Quiet,
}

/// How a caller comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Polled,
    /// It is polled when the executor gets to it.
    Spawned,
    Reserved,
}

/// What becomes of a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Use {
    Drop,
    Refund,
    SettleUp(u32),
    SettleDown(u32),
    Meter(u32),
    Leak,
    Hear(Said),
}

impl Setup {
    pub(crate) fn new(chance: &mut Random) -> Self {
        let stages = 1 + chance.below(4);
        let panics = chance.below(4) == 0;
        let plans = (0..stages).map(|_| plan(chance)).collect();
        let (is_late, leaks) = (chance.below(3) == 0, chance.below(4) == 0);
        Self { plans, is_late, panics, leaks, is_long: false }
    }

    /// A limiter of each form, at rates that no binary fraction is equal to.
    pub(crate) fn years() -> Self {
        let paces = [(1_000, 7), (300, 1), (10_000, 49), (7, 3600)];
        let plans = Form::ALL.into_iter().zip(paces.into_iter().cycle()).map(|(form, pace)| {
            let pace = (pace.0, pace.1 * 1_000_000_000);
            Plan {
                form,
                rule: Rule::Hoard,
                other: Rule::Hoard,
                has_ranks: false,
                max_waiters: usize::MAX,
                pace,
            }
        });
        Self { plans: plans.collect(), is_late: false, panics: false, leaks: false, is_long: true }
    }

    pub(crate) fn ops(&self, chance: &mut Random, steps: usize) -> Vec<Op> {
        let op = |_| if self.is_long { self.long_op(chance) } else { self.op(chance) };
        (0..steps).map(op).collect()
    }

    /// Of callers that come and go for hours. None changes a limit, or gives back what cannot be counted.
    fn long_op(&self, chance: &mut Random) -> Op {
        let hours =
            |chance: &mut Random| Duration::from_nanos(chance.below(16 * 3_600_000_000_000));
        let scale = |stage: usize| self.plans[stage].scale();
        match self.op(chance) {
            Op::Arrive { stage, mut ask, how } => {
                ask.n = ask.n.min(MOST) * scale(stage);
                ask.timeout = ask.timeout.map(|timeout| timeout * 100_000);
                Op::Arrive { stage, ask, how }
            }
            Op::Run { stage, n, steps, actual } => {
                let actual = Some(actual.unwrap_or(n) * scale(stage));
                Op::Run { stage, n: n * scale(stage), steps, actual }
            }
            Op::Use { by: Use::Hear(_), grant } => Op::Use { grant, by: Use::Hear(Said::Accepted) },
            Op::Use { by: Use::SettleUp(n), grant } => Op::Use { grant, by: Use::SettleUp(n * 99) },
            // The next alarm may be that at which an idle key is forgotten.
            Op::Advance(_) | Op::ToNextAlarm => Op::Advance(hours(chance)),
            Op::Leak(pick) => Op::Look(pick % self.plans.len()),
            Op::CatchUp => Op::Quiet,
            Op::Poison(pick) => Op::Poll(pick),
            op => op,
        }
    }

    fn op(&self, chance: &mut Random) -> Op {
        let pick = usize::try_from(chance.next() >> 32).expect("32 bits");
        let stage = pick % self.plans.len();
        let n = chance.cost(MOST);
        let kinds = if self.is_long { 905 } else { 1000 };
        match chance.below(kinds) {
            // What no caller took, or it would be full in the end.
            230..250 if self.is_long => Op::TakeRest(stage),
            0..250 => Op::Arrive { stage, ask: self.ask(stage, n, chance), how: how(chance) },
            250..280 => {
                let actual = (chance.below(8) > 0).then(|| chance.cost(n + 2) - 1);
                let steps = u8::try_from(chance.below(4)).expect("few");
                Op::Run { stage, n, steps, actual }
            }
            280..480 => Op::Poll(pick),
            480..520 => Op::PollEarly(pick),
            520..540 => Op::Move(pick),
            540..545 => Op::Poison(pick),
            545..590 => Op::Leave(pick),
            590..595 => Op::Leak(pick),
            595..715 => Op::Use { grant: pick, by: by(chance) },
            715..850 => Op::Advance(span(chance)),
            850..890 => Op::ToNextAlarm,
            890..905 => Op::CatchUp,
            905..920 => Op::Pause(stage, span(chance)),
            920..930 => Op::Resume(stage),
            930..945 => Op::Change(stage, u32::try_from(chance.below(4)).expect("few")),
            945..950 => Op::Reset(stage),
            950..970 => Op::Look(stage),
            970..980 => Op::Crowd(stage, u8::try_from(chance.below(12)).expect("few")),
            980..983 => Op::Close(stage),
            983..986 => Op::Drain(stage),
            986..992 => Op::Look(stage),
            _ => Op::Quiet,
        }
    }

    fn ask(&self, stage: usize, n: u32, chance: &mut Random) -> Ask {
        let timeout = match chance.below(8) {
            0..4 => None,
            4..6 => Some(Duration::ZERO),
            _ => Some(span(chance)),
        };
        let n = match chance.below(40) {
            0 => 0,
            1 if !self.plans[stage].rules().any(Rule::is_smooth) => 100,
            _ => n,
        };
        let mut ask = Ask { n, timeout, ahead: Duration::ZERO, tenant: None };
        if self.plans[stage].has_ranks {
            match chance.below(4) {
                0 => ask.ahead = span(chance),
                1 => {}
                _ => ask.tenant = Some((small(chance, 4), u32::from(1 + small(chance, 3)))),
            }
        }
        ask
    }
}

fn small(chance: &mut Random, end: u64) -> u8 {
    u8::try_from(chance.below(end)).expect("small")
}

fn plan(chance: &mut Random) -> Plan {
    let mut rule = || Rule::ALL[usize::from(small(chance, Rule::ALL.len() as u64))];
    let (rule, other) = (rule(), rule());
    let form = Form::ALL[usize::from(small(chance, Form::ALL.len() as u64))];
    let max_waiters = if chance.below(4) == 0 { 4 } else { usize::MAX };
    let has_ranks = chance.below(3) == 0;
    let pace =
        [(100, 1_000_000_000), (7, 100_000_003), (1, 9_999_991)][usize::from(small(chance, 3))];
    Plan { form, rule, other, has_ranks, max_waiters, pace }
}

fn how(chance: &mut Random) -> How {
    match chance.below(10) {
        0..5 => How::Polled,
        5..7 => How::Spawned,
        _ => How::Reserved,
    }
}

fn by(chance: &mut Random) -> Use {
    let n = chance.cost(MOST) - 1;
    match chance.below(20) {
        0..8 => Use::Drop,
        8..11 => Use::Refund,
        11..12 => Use::SettleUp(n),
        12..14 => Use::SettleDown(n),
        14..15 => Use::Meter(n),
        15..16 => Use::Leak,
        _ => Use::Hear(match chance.below(10) {
            0..6 => Said::Accepted,
            6..7 => Said::Refused(None),
            7..8 => Said::Refused(Some(span(chance))),
            8..9 => Said::Failed,
            _ => Said::Remaining(n, u32::from(small(chance, 4))),
        }),
    }
}

/// Often of some permits, seldom of hours.
fn span(chance: &mut Random) -> Duration {
    let permit = u64::try_from(INTERVAL.as_nanos()).expect("short");
    match chance.below(40) {
        0 => Duration::from_secs(chance.below(7200)),
        1..12 => INTERVAL * u32::from(small(chance, 12)),
        _ => Duration::from_nanos(chance.span(3 * permit)),
    }
}
