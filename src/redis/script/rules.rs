//! A policy as the script takes it: a list of rules, without nesting.

use super::policies::kind::{BUCKET, BURSTY, IN_ORDER, LOCK_OUT, METER, QUEUE, SLIDING};

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
    pub(super) const NONE: Self =
        Self { list: Vec::new(), next_share: 1, is_one_cost: false, part: None };

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
        let kind = hash([3].into_iter().chain(kinds)) % (1 << 20);
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
