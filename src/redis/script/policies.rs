//! A policy as the script takes it: a list of rules, without nesting; and how each policy is written and read.

use std::time::Duration;

use crate::policy::any::AnyPolicy;
use crate::policy::parameters::{Kind, Parameter, Type, Value};
use crate::policy::parts::each_tuple;
use crate::policy::sliding_window::Span;
use crate::units::saturating_nanos;
use crate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Nanos, Policy, Rate, Rated, Same,
    SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

/// The kinds of rules, as `limit.lua` names them.
pub(super) mod kind {
    pub(crate) const BURSTY: u8 = b'b';
    pub(crate) const WARMING: u8 = b'w';
    pub(crate) const BUCKET: u8 = b't';
    pub(crate) const FIXED: u8 = b'f';
    pub(crate) const SLIDING: u8 = b's';
    pub(crate) const IN_FLIGHT: u8 = b'p';
    pub(crate) const LOCK_OUT: u8 = b'o';
    pub(crate) const IN_ORDER: u8 = b'i';

    /// Those for which the script has a short way.
    pub(crate) const ALONE: [u8; 4] = [BURSTY, WARMING, BUCKET, FIXED];

    /// The last parameter of a smooth rule that is a queue, and of a bucket that is a meter.
    pub(crate) const QUEUE: f64 = 1.0;
    pub(crate) const METER: f64 = -1.0;
}

use kind::{BUCKET, BURSTY, IN_ORDER, LOCK_OUT, METER, QUEUE, SLIDING};

/// The rules of a policy. A part of several limits is one or more of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    pub(super) list: Vec<Rule>,
    /// The number of the cost that the next rule counts, from one; in the end, one more than there are.
    next_share: u8,
    /// Whether the parts that come next have one cost.
    pub(super) is_one_cost: bool,
    /// The part that the next rule belongs to.
    part: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) kind: u8,
    /// The number of the cost that counts there, from one; zero for none.
    pub(super) share: u8,
    pub(super) part: Option<usize>,
    pub(super) parameters: [f64; 4],
}

impl Rule {
    fn is_queue(&self) -> bool {
        self.kind == BURSTY && self.parameters[3] == QUEUE
    }

    /// Whether the policy is the other one of two that are one rule of the script.
    fn is_other(&self) -> bool {
        match self.kind {
            SLIDING => self.parameters[2] == 0.001,
            BUCKET => self.parameters[3] == METER,
            _ => self.is_queue(),
        }
    }
}

impl Rules {
    pub(crate) fn of<P: Scripted>(policy: &P) -> Self {
        let mut rules = Self { list: Vec::new(), next_share: 1, is_one_cost: false, part: None };
        policy.write(&mut rules);
        rules
    }

    /// The same policy with the parameters in a reply.
    pub(super) fn read<P: Scripted>(&self, policy: P, parameters: &[f64]) -> Option<P> {
        let (parameters, rest) = parameters.as_chunks::<4>();
        if parameters.len() != self.list.len() || !rest.is_empty() {
            return None;
        }
        let rules = self.list.iter().zip(parameters);
        let mut rules = rules.filter(|(rule, _)| rule.kind != kind::IN_ORDER).map(|(_, it)| *it);
        policy.read(&mut rules)
    }

    /// A rule that counts a number of the cost.
    pub(super) fn push(&mut self, kind: u8, parameters: &[f64]) {
        let share = self.next_share;
        self.next_share += 1;
        self.add(kind, share, parameters);
    }

    fn add(&mut self, kind: u8, share: u8, parameters: &[f64]) {
        let parameters = std::array::from_fn(|at| parameters.get(at).copied().unwrap_or_default());
        self.list.push(Rule { kind, share, part: self.part, parameters });
    }

    /// A lock for the rules that `write` pushes.
    pub(super) fn push_lock(&mut self, duration: f64, write: impl FnOnce(&mut Self)) {
        let (at, first) = (self.list.len(), self.next_share);
        self.add(LOCK_OUT, 0, &[]);
        write(self);
        let span = u32::try_from(self.list.len() - at - 1).unwrap_or(u32::MAX);
        let [first, last] = [first, self.next_share - 1].map(f64::from);
        self.list[at].parameters = [duration, f64::from(span), first, last];
    }

    /// Several limits. The parts inside of a part count as that.
    pub(super) fn push_parts(&mut self, parts: &[&dyn Fn(&mut Self)]) {
        let (is_one_cost, outer) = (std::mem::take(&mut self.is_one_cost), self.part);
        if self.list.iter().all(|rule| rule.kind != IN_ORDER) {
            self.add(IN_ORDER, 0, &[]);
        }
        let first = self.next_share;
        for (index, write) in parts.iter().enumerate() {
            if is_one_cost {
                self.next_share = first;
            }
            self.part = outer.or(Some(index));
            write(self);
        }
        self.part = outer;
    }

    /// How many numbers a cost has.
    pub(super) fn width(&self) -> u8 {
        self.next_share - 1
    }

    /// Whether newcomers may be refused as queue full.
    pub(crate) fn has_room(&self) -> bool {
        self.list.iter().any(Rule::is_queue)
    }

    /// Whether a refusal changes anything.
    pub(crate) fn punishes(&self) -> bool {
        self.list.iter().any(|rule| rule.kind == LOCK_OUT)
    }

    /// Whether a new limiter equals one that was idle for long.
    pub(crate) fn start_idle(&self) -> bool {
        self.list.iter().all(|&Rule { kind, parameters: [_, full, first, _], .. }| match kind {
            BURSTY => full == 0.0,
            BUCKET => first >= full,
            _ => true,
        })
    }

    /// The part that a rule belongs to, by its number in a reply, which is zero for a pause.
    pub(super) fn part(&self, rule: usize) -> Option<usize> {
        self.list.get(rule.checked_sub(1)?)?.part
    }

    /// The kinds and a hash of the parameters, as a whole number.
    pub(super) fn stamp(&self) -> f64 {
        let kinds = |rule: &Rule| [rule.kind, rule.share, u8::from(rule.is_other())];
        let kinds = self.list.iter().flat_map(kinds);
        let parameters = self.list.iter().flat_map(|rule| rule.parameters.map(f64::to_le_bytes));
        // The format of the keys counts as a kind.
        let kind = hash([4].into_iter().chain(kinds)) % (1 << 20);
        f64::from(kind) * 8_589_934_592.0 + f64::from(hash(parameters.flatten())) * 2.0
    }
}

/// FNV-1a of 64 bits, folded.
#[allow(clippy::cast_possible_truncation)] // both halves
fn hash(bytes: impl Iterator<Item = u8>) -> u32 {
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash >> 32) as u32 ^ hash as u32
}

/// A [`Policy`] that also runs in a Redis server: all policies of this crate but
/// [`Unlimited`](crate::Unlimited), [`AnyPolicy`] and [`AllOf`](crate::AllOf).
///
/// It exists in Rust and in Lua, and both decide the same to a microsecond. The trait is sealed: a custom policy
/// has no script.
///
/// ```
/// use tollgate::redis::Scripted;
/// use tollgate::{InFlight, Rate, TokenBucket};
///
/// fn shared(_: impl Scripted) {}
///
/// shared((TokenBucket::new(Rate::per_second(5.0), 10), InFlight::new(3)));
/// ```
#[diagnostic::on_unimplemented(note = "`AnyPolicy`, `AllOf` and `Unlimited` have no script")]
pub trait Scripted: Policy {
    /// Appends the rules as the script takes them: spans in microseconds, rates per second. No other crate can name
    /// `Rules`.
    #[doc(hidden)]
    fn write(&self, rules: &mut Rules);

    /// The same policy with the parameters of rules that another process has written. `None` if they are none.
    #[doc(hidden)]
    #[must_use]
    fn read(self, rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<Self>;
}

/// A rule whose parameters are the listed ones; `most` is how many permits come within the horizon.
macro_rules! listed {
    ($kind:expr, $policy:ident, $most:expr) => {
        fn write(&self, rules: &mut Rules) {
            let most: fn(&Self) -> u64 = $most;
            rules.push($kind, &written(&self.clone().into(), most(self)));
        }

        fn read(self, rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<Self> {
            match read_listed(&self.into(), &rules.next()?)? {
                AnyPolicy::$policy(policy) => Some(policy),
                _ => None,
            }
        }
    };
}

/// The parameters that a script takes, in its order.
fn listed(kind: Kind) -> impl Iterator<Item = Parameter> {
    kind.parameters().filter(|&parameter| parameter != Parameter::CatchUp)
}

fn written(policy: &AnyPolicy, most: u64) -> Vec<f64> {
    let parameters = policy.parameters(true);
    let listed = policy.kind().into_iter().flat_map(listed);
    let values = listed.filter_map(|parameter| parameters.get(parameter));
    let written = values.map(|value| match value {
        Value::Rate(rate) => rate.as_per_second(),
        Value::Number(number) => capacity(most, number),
        Value::Time(time) => micros(time.min(Nanos::HORIZON).as_nanos()),
        Value::Factor(factor) => factor,
        // Without a grid.
        Value::Epoch(epoch) => epoch.map_or(-1.0, |epoch| micros(epoch.as_nanos())),
        Value::Flag(flag) => f64::from(u8::from(flag)),
    });
    written.collect()
}

fn read_listed(policy: &AnyPolicy, arguments: &[f64; 4]) -> Option<AnyPolicy> {
    let (kind, mut parameters) = (policy.kind()?, policy.parameters(true));
    for (parameter, &argument) in listed(kind).zip(arguments) {
        let value = match parameter.kind() {
            Type::Rate => Value::Rate(Rate::try_per_second(argument).ok()?),
            Type::Number | Type::Permits => Value::Number(number(argument)?),
            Type::Epoch if argument < 0.0 => Value::Epoch(None),
            Type::Epoch => Value::Epoch(Some(span(argument)?)),
            Type::Span if argument != 0.0 || kind.needs(parameter) => {
                Value::Time(window(argument)?)
            }
            Type::Time | Type::Span => Value::Time(span(argument)?),
            Type::Factor if !(1.0..=1e9).contains(&argument) => return None,
            Type::Factor => Value::Factor(argument),
            Type::Flag => Value::Flag(argument != 0.0),
        };
        parameters.set(parameter, value);
    }
    kind.make(&parameters)
}

#[allow(clippy::cast_precision_loss)] // beyond 2^53 us, 285 years, nothing is exact
fn micros(nanos: u128) -> f64 {
    nanos as f64 / 1e3
}

fn span(micros: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(micros / 1e6).ok()
}

fn number(number: f64) -> Option<u32> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked
    (0.0..=f64::from(u32::MAX)).contains(&number).then_some(number as u32)
}

/// A window, which must not be empty.
fn window(micros: f64) -> Option<Duration> {
    span(micros).filter(|span| !span.is_zero() && *span <= Nanos::HORIZON)
}

/// A capacity as far as it comes within the horizon.
#[allow(clippy::cast_precision_loss)] // at most a capacity of u32
fn capacity(most: u64, capacity: u32) -> f64 {
    most.min(u64::from(capacity)) as f64
}

impl Scripted for SmoothBursty {
    listed!(kind::BURSTY, SmoothBursty, |_| u64::MAX);
}

impl Scripted for SmoothWarmingUp {
    listed!(kind::WARMING, SmoothWarmingUp, |_| u64::MAX);
}

impl Scripted for TokenBucket {
    listed!(kind::BUCKET, TokenBucket, |bucket| bucket.schedule.most);
}

/// A token bucket in other words.
impl Scripted for Gcra {
    fn write(&self, rules: &mut Rules) {
        TokenBucket::new(self.rate, self.max_burst.saturating_add(1)).write(rules);
    }

    fn read(self, rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<Self> {
        let bucket = TokenBucket::new(self.rate, 0).read(rules)?;
        // Otherwise it is another bucket.
        let is_gcra = bucket.initial == bucket.capacity && bucket.schedule.period == 0;
        let max_burst = bucket.capacity.checked_sub(1).filter(|_| is_gcra)?;
        Some(Self { max_burst, ..self }.with_rate(bucket.rate))
    }
}

/// A queue is a smooth rule without a store, and a meter a token bucket; the last parameter tells them apart.
impl Scripted for LeakyBucket {
    fn write(&self, rules: &mut Rules) {
        let rate = self.rate.as_per_second();
        let capacity = capacity(self.schedule.most, self.capacity);
        match self.meter {
            true => rules.push(kind::BUCKET, &[rate, capacity, capacity, kind::METER]),
            false => rules.push(kind::BURSTY, &[rate, 0.0, capacity, kind::QUEUE]),
        }
    }

    fn read(self, rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<Self> {
        let [rate, _, capacity, mark] = rules.next()?;
        let (new, ours): (fn(Rate, u32) -> Self, f64) = match self.meter {
            true => (Self::meter, kind::METER),
            false => (Self::new, kind::QUEUE),
        };
        let rate = Rate::try_per_second(rate).ok().filter(|_| mark == ours)?;
        Some(new(rate, number(capacity)?).with_catch_up(self.catch_up))
    }
}

/// The grid is given by how far into one of its windows the epoch was; -1 if there is no grid.
impl Scripted for FixedWindow {
    listed!(kind::FIXED, FixedWindow, |_| u64::MAX);
}

/// Limit, window, the length of a part of it.
fn write_sliding(limit: u32, Span { part, window }: Span, rules: &mut Rules) {
    let span = |nanos| micros(u128::from(nanos));
    rules.push(kind::SLIDING, &[f64::from(limit), span(window), span(part)]);
}

/// A part of no length is left to the caller: neither policy has one.
fn read_sliding(rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<(u32, Span)> {
    let [limit, length, part, _] = rules.next()?;
    let window = saturating_nanos(window(length)?);
    Some((number(limit)?, Span { part: saturating_nanos(span(part)?), window }))
}

impl Scripted for SlidingWindowLog {
    fn write(&self, rules: &mut Rules) {
        write_sliding(self.limit, self.span, rules);
    }

    fn read(self, rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<Self> {
        // With longer parts it is a counter.
        let (limit, span) = read_sliding(rules).filter(|(_, span)| span.part == 1)?;
        Some(Self { limit, span })
    }
}

impl Scripted for SlidingWindowCounter {
    fn write(&self, rules: &mut Rules) {
        write_sliding(self.limit, self.span, rules);
    }

    fn read(self, rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<Self> {
        let (limit, span) = read_sliding(rules).filter(|(_, span)| span.part > 1)?;
        Some(Self { limit, span })
    }
}

impl Scripted for InFlight {
    listed!(kind::IN_FLIGHT, InFlight, |_| u64::MAX);
}

impl<P: Scripted> Scripted for LockOut<P> {
    fn write(&self, rules: &mut Rules) {
        rules.push_lock(micros(self.duration.as_nanos()), |rules| self.policy.write(rules));
    }

    fn read(self, rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<Self> {
        let duration = span(rules.next()?[0])?;
        Some(Self::new(self.policy.read(rules)?, duration))
    }
}

macro_rules! tuple {
    ($first:ident 0, $($part:ident $index:tt),+) => {
        impl<$first: Scripted, $($part: Scripted),+> Scripted for ($first, $($part),+) {
            fn write(&self, rules: &mut Rules) {
                rules.push_parts(&[&|rules| self.0.write(rules), $(&|rules| self.$index.write(rules)),+]);
            }

            fn read(self, rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<Self> {
                Some((self.0.read(rules)?, $(self.$index.read(rules)?),+))
            }
        }
    };
}

each_tuple!(tuple);

/// As the policy inside, with one cost for all parts.
impl<P: Scripted> Scripted for Same<P>
where
    Self: Policy,
{
    fn write(&self, rules: &mut Rules) {
        rules.is_one_cost = true;
        self.0.write(rules);
    }

    fn read(self, rules: &mut dyn Iterator<Item = [f64; 4]>) -> Option<Self> {
        self.0.read(rules).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parameters of each rule, as `Scripted::read` takes them. The one for the order has none.
    fn parameters(rules: &Rules) -> impl Iterator<Item = [f64; 4]> {
        let rules = rules.list.iter().filter(|rule| rule.kind != kind::IN_ORDER);
        rules.map(|rule| rule.parameters)
    }

    fn gcra_of(permits: u32) -> Gcra {
        Gcra::new(permits, 5, Duration::from_secs(1))
    }

    /// What another process has written, which may have another rule of the same script.
    #[test]
    fn parameters_are_read_if_they_are_those_of_the_rule() {
        fn read<P: Scripted>(policy: P, parameters: &[f64]) -> Option<P> {
            let rule = std::array::from_fn(|at| parameters.get(at).copied().unwrap_or_default());
            policy.read(&mut [rule].into_iter())
        }
        let second = Duration::from_secs(1);
        let gcra = Gcra::new(9, 5, second);
        assert_eq!(read(gcra.clone(), &[7.0, 4.0, 4.0, 0.0]), Some(Gcra::new(3, 7, second)));
        for other in
            [[7.0, 4.0, 2.0, 0.0], [7.0, 4.0, 4.0, 9.0], [7.0, 4.0, 2.0, 9.0], [7.0, 0.0, 0.0, 0.0]]
        {
            assert_eq!(read(gcra.clone(), &other), None, "{other:?}");
        }
        let log = SlidingWindowLog::new(9, second);
        let counter = SlidingWindowCounter::new(9, second, 4);
        let of_log = [7.0, 2e6, 0.001];
        let of_counter = [7.0, 2e6, 5e5];
        assert_eq!(read(log.clone(), &of_log), Some(SlidingWindowLog::new(7, 2 * second)));
        assert_eq!(read(log.clone(), &of_counter), None);
        let longer = SlidingWindowCounter::new(7, 2 * second, 4);
        assert_eq!(read(counter.clone(), &of_counter), Some(longer));
        assert_eq!(read(counter.clone(), &of_log), None);
        for none in
            [[7.0, 2e6, 0.0], [7.0, 0.0, 5e5], [-1.0, 2e6, 5e5], [4_294_967_296.0, 2e6, 5e5]]
        {
            assert_eq!(read(counter.clone(), &none), None, "{none:?}");
            assert_eq!(read(log.clone(), &none), None, "{none:?}");
        }
        // A constructor would panic at a window of no length, or beyond the horizon.
        let window = FixedWindow::new(9, second);
        assert_eq!(read(window.clone(), &[7.0, 1e6, -1.0]), Some(FixedWindow::new(7, second)));
        assert_eq!(read(window, &[7.0, 0.0, -1.0]), None);
        let bucket = TokenBucket::new(Rate::per_second(1.0), 9);
        let longer = TokenBucket::new(Rate::per_second(2.0), 7);
        let read_bucket = |period| read(bucket.clone(), &[2.0, 7.0, 7.0, period]);
        assert_eq!(read_bucket(0.0), Some(longer.clone()));
        assert_eq!(read_bucket(1e6), Some(longer.refill_every(second)));
        assert_eq!(read_bucket(1e18), None);
        // On a grid that begins with the epoch, and without one.
        let aligned = FixedWindow::new(7, second).aligned(Duration::ZERO);
        assert_eq!(read(FixedWindow::new(9, second), &[7.0, 1e6, 0.0]), Some(aligned));
        let leaky = LeakyBucket::new(Rate::per_second(1.0), 9);
        let rate = Rate::per_second(2.0);
        let meter = LeakyBucket::meter(Rate::per_second(1.0), 9);
        let (of_queue, of_meter) = ([2.0, 0.0, 7.0, 1.0], [2.0, 7.0, 7.0, -1.0]);
        assert_eq!(read(leaky.clone(), &of_queue), Some(LeakyBucket::new(rate, 7)));
        assert_eq!(read(meter.clone(), &of_meter), Some(LeakyBucket::meter(rate, 7)));
        assert_eq!((read(leaky, &of_meter), read(meter, &of_queue)), (None, None));
        let warm = SmoothWarmingUp::new(rate, second).cold_factor(4.0);
        let mut warmth = parameters(&Rules::of(&warm)).next().expect("one");
        assert_eq!(read(warm.clone(), &warmth), Some(warm.clone()));
        let factor = warmth.iter_mut().find(|parameter| **parameter == 4.0);
        *factor.expect("the cold factor") = 0.5;
        assert_eq!(read(warm, &warmth), None);
        // Several of one kind, one behind the other.
        let two = (gcra_of(9), gcra_of(7));
        let rules = Rules::of(&two);
        let others = (gcra_of(1), gcra_of(2));
        assert_eq!(others.read(&mut parameters(&rules)), Some(two.clone()));
        assert_eq!(two.read(&mut parameters(&rules).skip(1)), None);
    }

    /// As all its parts do.
    #[test]
    fn a_limit_begins_idle_unless_it_stores_what_it_does_not_begin_with() {
        fn starts_idle(policy: &impl Scripted) -> bool {
            Rules::of(policy).start_idle()
        }
        let rate = Rate::per_second(1.0);
        let full = TokenBucket::new(rate, 9);
        let empty = full.clone().initial(0);
        assert!(starts_idle(&full) && !starts_idle(&empty));
        for (other, is_idle) in [(full.clone(), true), (empty, false)] {
            assert_eq!(starts_idle(&(full.clone(), other.clone())), is_idle);
            assert_eq!(starts_idle(&Same((full.clone(), other))), is_idle);
        }
        assert!(starts_idle(&SmoothWarmingUp::new(rate, Duration::from_secs(1))));
        assert!(starts_idle(&gcra_of(9)) && starts_idle(&LeakyBucket::new(rate, 5)));
        let stores = SmoothBursty::new(rate);
        assert!(starts_idle(&SmoothBursty::evenly_spaced(rate)) && !starts_idle(&stores));
        assert!(starts_idle(&LockOut::new(gcra_of(9), Duration::from_secs(1))));
        assert!(!starts_idle(&LockOut::new(stores, Duration::from_secs(1))));
    }
}
