//! Writes requests and reads replies: the Rust side of `limit.lua`, which says what they contain.

use std::time::Duration;

use super::policies::{Rules, Scripted, kind};
use crate::policy::Cost;

/// The higher rank is in force: the version that the code gives, then the generation of the policy that was set.
pub(crate) type Rank = (u32, u32);

/// A policy in requests.
#[derive(Clone, Debug)]
pub(crate) struct PolicyHeader {
    pub(crate) rules: Rules,
    stamp: f64,
    pub(crate) rank: Rank,
}

impl PolicyHeader {
    pub(crate) fn of<P: Scripted>(policy: &P, rank: Rank) -> Self {
        let rules = Rules::of(policy);
        Self { stamp: rules.stamp(), rules, rank }
    }

    /// A request with changes, or for calls, in their order. `id`: of the process; `keep`: the least time a key lives; `idle`:
    /// whether an absent key is an idle limiter. `lease`: the permits that this process holds, by the number of the
    /// cost; how long that counts; and how long the process counts as waiting. `sets`: whether the policy is replaced by
    /// another one.
    pub(crate) fn request<C: Cost>(
        &self,
        (id, keep, idle): (f64, Duration, bool),
        (held, spans): (&[u64], [Duration; 2]),
        (changes, sets): (&[u8], bool),
        calls: &[Call<C>],
    ) -> Vec<u8> {
        let list = &self.rules.list;
        let mut bytes = vec![0; 8]; // the number of the request
        put_numbers(&[self.stamp], &mut bytes);
        let runs: Vec<_> = calls.chunk_by(PartialEq::eq).collect();
        let is_usual = runs.len() == 1 && self.rank == (0, 0);
        bytes.push(match list[..] {
            [rule] if is_usual && kind::ALONE.contains(&rule.kind) => match calls {
                [_] => rule.kind,
                _ => rule.kind.to_ascii_uppercase(),
            },
            _ => b'-',
        });
        bytes.extend(changes);
        for run in runs {
            let call = run[0];
            bytes.push(b'T');
            let patience = call.patience.map_or(ENDLESS, micros);
            put_numbers(&[patience, micros(call.limit).min(FARTHEST)], &mut bytes);
            put_cost(call.cost, &mut bytes);
            bytes.push(u8::from(call.fresh));
            bytes.extend(u16::try_from(run.len()).unwrap_or(u16::MAX).to_le_bytes());
        }
        bytes.push(0);
        for rule in list {
            let mut parameters = rule.parameters;
            if rule.kind == kind::IN_FLIGHT {
                let held = held.get(usize::from(rule.share) - 1).copied().unwrap_or_default();
                #[allow(clippy::cast_precision_loss)] // nothing holds 2^53 permits
                let held = held as f64;
                parameters = [parameters[0], held, micros(spans[0]), micros(spans[1])];
            }
            put_numbers(&parameters, &mut bytes);
        }
        bytes.extend(list.iter().flat_map(|rule| [rule.kind, rule.share]));
        put_numbers(&[micros(keep), id], &mut bytes);
        bytes.extend([self.rank.0, self.rank.1].map(u32::to_le_bytes).as_flattened());
        let count = u8::try_from(list.len()).unwrap_or(u8::MAX);
        bytes.extend([u8::from(idle), u8::from(sets), self.rules.width(), count]);
        bytes
    }

    /// Sets this policy.
    pub(crate) fn set(&self) -> Vec<u8> {
        let mut bytes = vec![b'N'];
        put_numbers(&[self.stamp], &mut bytes);
        self.rules.list.iter().for_each(|rule| put_numbers(&rule.parameters, &mut bytes));
        bytes
    }
}

fn put_numbers(numbers: &[f64], bytes: &mut Vec<u8>) {
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

/// What a reply says if the key has a policy of a higher rank than the request's: that policy, or `None` if the key holds
/// something else.
pub(crate) fn mismatch<P: Scripted>(
    reply: &[f64],
    rules: &Rules,
    policy: &P,
) -> Option<Option<(P, Rank)>> {
    match *reply {
        [-2.0, version, generation, ref parameters @ ..] => {
            let policy = rules.read(policy.clone(), parameters);
            Some(policy.map(|policy| (policy, (whole(version), whole(generation)))))
        }
        [first, ..] if first < 0.0 => Some(None),
        _ => None,
    }
}

/// A number of four bytes.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
pub(crate) fn whole(number: f64) -> u32 {
    number as u32
}

/// Longer than any wait: 142 years in microseconds.
const ENDLESS: f64 = 4_503_599_627_370_496.0;

/// One call as the script takes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Call<C> {
    pub(crate) cost: C,
    /// How far ahead it may be booked.
    pub(crate) limit: Duration,
    /// Its timeout; `None` without one.
    pub(crate) patience: Option<Duration>,
    /// Whether Redis has not answered for it before.
    pub(crate) fresh: bool,
}

/// The farthest booking that a reply has room for: 17 years ahead.
const FARTHEST: f64 = 562_949_953_421_310.0;

fn micros(duration: Duration) -> f64 {
    // Rounded up, as waits are: a timeout of exactly the wait is enough.
    #[allow(clippy::cast_precision_loss)]
    (duration.as_nanos().div_ceil(1_000) as f64).min(ENDLESS)
}

fn put_cost(cost: impl Cost, bytes: &mut Vec<u8>) {
    bytes.extend(cost.numbers().flat_map(u32::to_le_bytes));
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    /// `None` if unpredictable.
    pub(crate) wait: Option<Duration>,
    /// The part of a composed policy that limits.
    pub(crate) part: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// With this sequence.
    Booked(u32),
    Later,
    Refused,
    Full,
}

const UNKNOWN: u64 = 1 << 49;

/// The answers to calls. `None` if the reply is malformed.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole numbers
pub(crate) fn answers<C>(reply: &[f64], calls: &[Call<C>], rules: &Rules) -> Option<Vec<Answer>> {
    let (&before, values) = reply.split_first()?;
    // Of one refused call it may be the only number.
    let values = if values.is_empty() && before as u64 & 3 == 2 { reply } else { values };
    // The lower bits.
    let mut sequence = before as u64 as u32;
    // Of several rules, with the one that limits.
    let step = if rules.list.len() > 1 { 2 } else { 1 };
    let answer = |answer: &[f64]| {
        let (value, rule) = (answer[0] as u64, answer.get(1).map_or(0, |&rule| rule as usize));
        let wait = value >> 2;
        let wait = (wait < UNKNOWN).then(|| Duration::from_micros(wait));
        let verdict = match value & 3 {
            0 => {
                sequence = sequence.wrapping_add(1);
                Verdict::Booked(sequence)
            }
            1 => Verdict::Later,
            2 => Verdict::Refused,
            _ => Verdict::Full,
        };
        Answer { verdict, wait, part: rules.part(rule) }
    };
    let answers: Vec<_> = values.chunks(step).map(answer).collect();
    let mut blocked = answers.iter().skip_while(|answer| answer.verdict != Verdict::Later);
    // No call is booked behind one that must wait.
    let in_order = blocked.all(|answer| !matches!(answer.verdict, Verdict::Booked(_)));
    // A limit is rounded up, as waits are.
    let after = |limit: Duration| limit.saturating_add(Duration::from_micros(1));
    let fits = values.len() == step * calls.len()
        && answers.iter().zip(calls).all(|(answer, call)| match answer.verdict {
            Verdict::Booked(_) => answer.wait.is_some_and(|wait| wait < after(call.limit)),
            Verdict::Later => call.patience != Some(Duration::ZERO),
            Verdict::Refused | Verdict::Full => true,
        });
    (fits && in_order).then_some(answers)
}

/// Adds a refund. `ago`: how long ago the charge was due, in nanoseconds.
pub(crate) fn put_refund<C: Cost>(bytes: &mut Vec<u8>, part: C, all: C, ago: f64, sequence: u32) {
    bytes.push(b'R');
    put_cost(part, bytes);
    put_cost(all, bytes);
    bytes.extend((ago / 1e3).to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.push(u8::from(part == all));
}

/// A change with a cost: `S` charges it, and `D` asks how each limit is for it.
pub(crate) fn with_cost(letter: u8, cost: impl Cost) -> Vec<u8> {
    let mut bytes = vec![letter];
    put_cost(cost, &mut bytes);
    bytes
}

pub(crate) fn pause(duration: Duration) -> Vec<u8> {
    [&b"P"[..], &micros(duration).to_le_bytes()].concat()
}
