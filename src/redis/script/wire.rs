//! Writes requests and reads replies: the Rust side of `take.lua` and `change.lua`.

use std::time::Duration;

use super::policies::Scripted;
use crate::redis::connection::Reply;

/// The policy in a request: a mark, the generation, whether an absent key is idle, and the parameters.
#[derive(Clone, Debug)]
pub(crate) struct PolicyHeader {
    pub(crate) mark: u32,
    pub(crate) generation: u32,
    pub(crate) bytes: Vec<u8>,
}

impl PolicyHeader {
    /// The first argument of all scripts. The mark tells policies of all kinds and generations apart: ten
    /// bits for the kind, 21 for the rest; the top bit is the driver's.
    pub(crate) fn new<P: Scripted>(kind: &str, policy: &P, generation: u32, idle: bool) -> Self {
        let mut parameters = Vec::new();
        policy.write(&mut parameters);
        let parameters: Vec<u8> =
            parameters.iter().flat_map(|parameter| parameter.to_le_bytes()).collect();
        Self::of(kind, &parameters, generation, idle)
    }

    pub(crate) fn of(kind: &str, parameters: &[u8], generation: u32, idle: bool) -> Self {
        let policy = generation.to_le_bytes().into_iter().chain(parameters.iter().copied());
        let mark = (hash(kind.bytes()) & 0x7fe0_0000) | (hash(policy) >> 11);
        let mut bytes = Vec::with_capacity(9 + parameters.len());
        bytes.extend(mark.to_le_bytes());
        bytes.extend(generation.to_le_bytes());
        bytes.push(u8::from(idle));
        bytes.extend(parameters);
        Self { mark, generation, bytes }
    }

    pub(crate) fn parameters(&self) -> &[u8] {
        &self.bytes[9..]
    }

    /// The policy before the first change, for `change.lua`.
    pub(crate) fn base(&self) -> Vec<u8> {
        [&self.mark.to_le_bytes()[..], self.parameters()].concat()
    }
}

/// FNV-1a.
fn hash(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Parameters as another process has written them.
pub(crate) fn floats(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    bytes.chunks_exact(8).map(|chunk| f64::from_le_bytes(chunk.try_into().unwrap_or_default()))
}

/// Longer than any wait: 142 years in microseconds.
const ENDLESS: f64 = 4_503_599_627_370_496.0;

/// One call as `take.lua` takes it.
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

fn put_cost<P: Scripted>(cost: P::Cost, numbers: &mut Vec<u32>, bytes: &mut Vec<u8>) {
    numbers.clear();
    P::write_cost(cost, numbers);
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}

/// Callers ahead who need no answer, as they know that they have to ask later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ahead<C> {
    /// How many calls come before them.
    pub(crate) behind: usize,
    /// What each of them asks for, or the first if `sum` stands for all.
    pub(crate) cost: C,
    pub(crate) count: usize,
    /// What all of them ask for, if one charge for it is the same as one for each.
    pub(crate) sum: Option<u64>,
}

fn put_ahead<P: Scripted>(ahead: Ahead<P::Cost>, numbers: &mut Vec<u32>, bytes: &mut Vec<u8>) {
    let count = if ahead.sum.is_some() { 1 } else { ahead.count };
    put_cost::<P>(ahead.cost, numbers, bytes);
    bytes.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
    #[allow(clippy::cast_precision_loss)] // 2^53 permits
    bytes.extend((ahead.sum.unwrap_or(0) as f64).to_le_bytes());
    bytes.extend([0; 8]);
    bytes.push(4);
}

/// Writes calls in their order; calls that differ only in cost form a run. The first run goes behind the
/// header, the others into the second argument, if there are any.
pub(crate) fn calls<P: Scripted>(
    header: &PolicyHeader,
    ahead: Option<Ahead<P::Cost>>,
    calls: impl Iterator<Item = Call<P::Cost>>,
) -> Vec<Vec<u8>> {
    let mut arguments = vec![Vec::new()];
    let mut bytes = Vec::with_capacity(header.bytes.len() + 64);
    bytes.extend(&header.bytes);
    let (mut numbers, mut costs) = (Vec::new(), Vec::new());
    let mut close = |bytes: &mut Vec<u8>| {
        if arguments[0].is_empty() {
            arguments[0] = std::mem::take(bytes);
        }
    };
    let mut calls = calls.enumerate().peekable();
    while let Some((index, call)) = calls.next() {
        if let Some(ahead) = ahead.filter(|ahead| ahead.behind == index) {
            put_ahead::<P>(ahead, &mut numbers, &mut bytes);
            close(&mut bytes);
        }
        costs.clear();
        costs.push(call.cost);
        let like = |(index, next): &(usize, Call<P::Cost>)| {
            Call { cost: call.cost, ..*next } == call
                && ahead.is_none_or(|ahead| ahead.behind != *index)
        };
        while let Some((_, next)) = calls.next_if(like) {
            costs.push(next.cost);
        }
        let mixed = costs.iter().any(|&cost| cost != call.cost);
        put_cost::<P>(call.cost, &mut numbers, &mut bytes);
        bytes.extend(u32::try_from(costs.len()).unwrap_or(u32::MAX).to_le_bytes());
        bytes.extend(micros(call.limit).min(FARTHEST).to_le_bytes());
        bytes.extend(call.patience.map_or(ENDLESS, micros).to_le_bytes());
        bytes.push(u8::from(call.fresh) + 2 * u8::from(mixed));
        for &cost in costs.iter().skip(1).filter(|_| mixed) {
            put_cost::<P>(cost, &mut numbers, &mut bytes);
        }
        close(&mut bytes);
    }
    if !bytes.is_empty() {
        arguments.push(bytes);
    }
    arguments
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    /// `None` if unpredictable.
    pub(crate) wait: Option<Duration>,
    /// The part of a composed policy that decided.
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

fn answer(value: i64, sequence: u32, part: Option<usize>) -> Answer {
    let value = value.unsigned_abs();
    let verdict = match value & 3 {
        0 => Verdict::Booked(sequence),
        1 => Verdict::Later,
        2 => Verdict::Refused,
        _ => Verdict::Full,
    };
    let wait = value >> 2;
    let wait = (wait < UNKNOWN).then(|| Duration::from_micros(wait));
    Answer { verdict, wait, part }
}

/// The answers to `calls` calls, each with its part if `parts`. `None` if the reply is malformed.
pub(crate) fn answers(reply: &Reply, calls: usize, parts: bool) -> Option<Vec<Answer>> {
    let answers = match reply {
        Reply::Number(value) => vec![answer_alone(*value)],
        Reply::Numbers(values) => several(values, parts).take(calls + 1).collect(),
        Reply::PolicyMismatch(..) => return None,
    };
    let mut blocked = answers.iter().skip_while(|answer| answer.verdict != Verdict::Later);
    // No call is booked behind one that must wait.
    let in_order = blocked.all(|answer| !matches!(answer.verdict, Verdict::Booked(_)));
    (answers.len() == calls && in_order).then_some(answers)
}

/// The answer to a lone call.
fn answer_alone(value: i64) -> Answer {
    let bits = value.unsigned_abs();
    if bits & 3 == 0 {
        let sequence = u32::try_from(bits >> 20).unwrap_or_default();
        return answer(value & 0xf_ffff, sequence, None);
    }
    answer(value, 0, None)
}

/// The answers to several calls.
fn several(values: &[i64], parts: bool) -> impl Iterator<Item = Answer> {
    let (&[before, at_once], values) = values.split_first_chunk().unwrap_or((&[0, 0], &[]));
    let mut sequence = u32::try_from(before).unwrap_or_default();
    let at_once = usize::try_from(at_once).unwrap_or_default();
    let step = if parts { 2 } else { 1 };
    let others = values.chunks_exact(step).map(|chunk| {
        (chunk[0], chunk.get(1).and_then(|&part| usize::try_from(part).ok()?.checked_sub(1)))
    });
    let all = std::iter::repeat_n((0, None), at_once).chain(others);
    all.map(move |(value, part)| {
        if value & 3 == 0 {
            sequence = sequence.wrapping_add(1);
        }
        answer(value, sequence, part)
    })
}

/// Adds a refund to what `change.lua` is to do.
pub(crate) fn put_refund<P: Scripted>(
    bytes: &mut Vec<u8>,
    part: P::Cost,
    all: P::Cost,
    ago: f64,
    sequence: u32,
) {
    let mut numbers = Vec::new();
    bytes.push(b'R');
    put_cost::<P>(part, &mut numbers, bytes);
    put_cost::<P>(all, &mut numbers, bytes);
    bytes.extend((ago / 1e3).to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.push(u8::from(part == all));
}

pub(crate) fn put_settle<P: Scripted>(bytes: &mut Vec<u8>, more: P::Cost) {
    bytes.push(b'S');
    put_cost::<P>(more, &mut Vec::new(), bytes);
}

pub(crate) fn put_pause(bytes: &mut Vec<u8>, duration: Duration) {
    bytes.push(b'P');
    bytes.extend(micros(duration).to_le_bytes());
}
