//! Writes requests and reads replies: the Rust side of `take.lua` and `change.lua`.

use std::time::Duration;

use super::parts::Scripts;
use super::policies::Scripted;
use crate::policy::Cost;
use crate::redis::connection::{NUMBER, Reply};

/// The format of the keys: the upper half of the first byte. The next three bytes are a hash of the policy's kind. A key
/// with others is foreign.
const FORMAT: u8 = 1;

/// What the processes that use a key agree on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Terms {
    pub(crate) parameters: Vec<f64>,
    /// Whether an absent key is an idle limiter.
    pub(crate) idle: bool,
}

impl Terms {
    pub(crate) fn new<P: Scripted>(policy: &P, idle: bool) -> Self {
        let mut parameters = Vec::new();
        policy.write(&mut parameters);
        Self { parameters, idle }
    }
}

/// The higher rank is in force: the version that the code gives, then the generation of the policy that was set.
pub(crate) type Rank = (u32, u32);

/// The policy in a request.
#[derive(Clone, Debug)]
pub(crate) struct PolicyHeader {
    pub(crate) terms: Terms,
    pub(crate) rank: Rank,
    /// The first argument of all scripts: calls go before the last `ends`.
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: usize,
}

impl PolicyHeader {
    /// `grace`: zero for the policy of this process; else after how many seconds without a call by a
    /// process with this policy the reply is a mismatch. `keep`: the least time a key lives.
    pub(crate) fn new(
        scripts: &Scripts,
        terms: Terms,
        rank: Rank,
        grace: u32,
        keep: Duration,
    ) -> Self {
        let short = scripts.alone.as_ref().is_some_and(|own| own.is_short(&terms.parameters));
        let parameters = || terms.parameters.iter().flat_map(|parameter| parameter.to_le_bytes());
        let (version, generation) = rank;
        let more =
            if version | generation | grace > 0 { &[version, generation, grace][..] } else { &[] };
        let flags = 4 * u8::from(terms.idle) + 2 * u8::from(short) + u8::from(!more.is_empty());
        let mut bytes = vec![16 * FORMAT + flags];
        bytes.extend(kind_bytes(&scripts.kind));
        // With the first four bytes it is read as one float, which must not be NaN.
        bytes.extend((hash(parameters()) & !(1 << 30)).to_le_bytes());
        bytes.extend(micros(keep).to_le_bytes());
        bytes.resize(NUMBER.end, 0);
        bytes.extend(parameters());
        bytes.extend(more.iter().flat_map(|number| number.to_le_bytes()));
        Self { ends: bytes.len() - 4 * more.len(), terms, rank, bytes }
    }
}

fn kind_bytes(kind: &str) -> [u8; 3] {
    let [a, b, c, _] = hash(kind.bytes()).to_le_bytes();
    [a, b, c]
}

/// FNV-1a of 64 bits, folded.
#[allow(clippy::cast_possible_truncation)] // both halves
fn hash(bytes: impl Iterator<Item = u8>) -> u32 {
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as u32 ^ hash as u32
}

/// The policy of the key, where it differs from the request's.
#[derive(Clone, Debug)]
pub(crate) struct KeyPolicy {
    pub(crate) terms: Terms,
    pub(crate) rank: Rank,
    /// The seconds since a process that has it in its code last used the key.
    pub(crate) quiet: u32,
    /// The seconds since the process that took the key over started.
    pub(crate) since: u32,
}

impl KeyPolicy {
    /// `None` if it is malformed.
    pub(crate) fn of(scripts: &Scripts, generation: i64, bytes: &[u8]) -> Option<Self> {
        let (stamp, rest) = bytes.split_at_checked(4)?;
        let (numbers, parameters) = rest.split_at_checked(12)?;
        let stamp = stamp[0];
        let mut numbers = numbers
            .chunks_exact(4)
            .map(|number| u32::from_le_bytes(number.try_into().unwrap_or_default()));
        let (version, quiet, since) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let parameters = match &scripts.alone {
            Some(own) if stamp & 2 > 0 => own.read_short(parameters)?,
            _ => doubles(parameters),
        };
        let terms = Terms { parameters, idle: stamp & 4 > 0 };
        Some(Self { terms, rank: (version, u32::try_from(generation).ok()?), quiet, since })
    }
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    let double = |chunk: &[u8]| f64::from_le_bytes(chunk.try_into().unwrap_or_default());
    bytes.chunks_exact(8).map(double).collect()
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

impl<C> Call<C> {
    /// How far ahead it may be booked, as it is sent.
    fn limit(&self) -> f64 {
        micros(self.limit).min(FARTHEST)
    }

    /// Whether it may get this answer.
    fn may_get(&self, answer: &Answer) -> bool {
        match answer.verdict {
            Verdict::Booked(_) => answer.wait.is_some_and(|wait| micros(wait) <= self.limit()),
            Verdict::Later => self.patience != Some(Duration::ZERO),
            Verdict::Refused | Verdict::Full => true,
        }
    }
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

/// Writes calls in their order, in runs of equal ones. The first run goes behind the header, the others into the second
/// argument, if there are any.
pub(crate) fn calls<P: Scripted>(header: &PolicyHeader, calls: &[Call<P::Cost>]) -> Vec<Vec<u8>> {
    let (start, end) = header.bytes.split_at(header.ends);
    let mut runs = calls.chunk_by(PartialEq::eq);
    let mut first = start.to_vec();
    runs.by_ref().take(1).for_each(|run| put_run::<P>(run, &mut first));
    first.extend(end);
    let mut others = Vec::new();
    runs.for_each(|run| put_run::<P>(run, &mut others));
    if others.is_empty() { vec![first] } else { vec![first, others] }
}

fn put_run<P: Scripted>(run: &[Call<P::Cost>], bytes: &mut Vec<u8>) {
    let call = run[0];
    put_cost(call.cost, bytes);
    bytes.extend(u32::try_from(run.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(call.limit().to_le_bytes());
    bytes.extend(call.patience.map_or(ENDLESS, micros).to_le_bytes());
    bytes.push(u8::from(call.fresh));
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

/// The answers to calls, each with its part if `parts`. `None` if the reply is malformed.
pub(crate) fn answers<C>(reply: &Reply, calls: &[Call<C>], parts: bool) -> Option<Vec<Answer>> {
    let answers = match reply {
        Reply::Number(value) => vec![answer_alone(*value)],
        Reply::Numbers(values) => several(values, parts).take(calls.len() + 1).collect(),
        Reply::PolicyMismatch(..) => return None,
    };
    let mut blocked = answers.iter().skip_while(|answer| answer.verdict != Verdict::Later);
    // No call is booked behind one that must wait.
    let in_order = blocked.all(|answer| !matches!(answer.verdict, Verdict::Booked(_)));
    let fits = answers.len() == calls.len()
        && answers.iter().zip(calls).all(|(answer, call)| call.may_get(answer));
    (fits && in_order).then_some(answers)
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
    // The lower bits.
    let mut sequence = u32::try_from(before & 0xffff_ffff).unwrap_or_default();
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

/// Adds a refund to the changes for `change.lua`.
pub(crate) fn put_refund<P: Scripted>(
    bytes: &mut Vec<u8>,
    part: P::Cost,
    all: P::Cost,
    ago: f64,
    sequence: u32,
) {
    bytes.push(b'R');
    put_cost(part, bytes);
    put_cost(all, bytes);
    bytes.extend((ago / 1e3).to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.push(u8::from(part == all));
}

pub(crate) fn put_settle<P: Scripted>(bytes: &mut Vec<u8>, more: P::Cost) {
    bytes.push(b'S');
    put_cost(more, bytes);
}

/// A claim to the policy of the key, by a process that started `age` seconds ago: by the rule of the fleet, or,
/// with the terms that it replaces, for a policy that was set.
pub(crate) fn claim(age: u32, replaced: Option<&Terms>) -> Vec<u8> {
    let mut bytes = vec![1 + u8::from(replaced.is_some())];
    bytes.extend(age.to_le_bytes());
    if let Some(Terms { parameters, idle }) = replaced {
        bytes.push(u8::from(*idle));
        bytes.extend(parameters.iter().flat_map(|parameter| parameter.to_le_bytes()));
    }
    bytes
}

/// Adds a question for each limit, as it is for a request of `cost`.
pub(crate) fn put_detail<P: Scripted>(bytes: &mut Vec<u8>, cost: P::Cost) {
    bytes.push(b'D');
    put_cost(cost, bytes);
}

pub(crate) fn put_pause(bytes: &mut Vec<u8>, duration: Duration) {
    bytes.push(b'P');
    bytes.extend(micros(duration).to_le_bytes());
}
