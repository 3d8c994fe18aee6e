//! What is kept of a key: a word, a state, or a limiter.
//!
//! The state of a policy with one steady rate fits a word of 63 bits, while no receipt of it can be given back. All
//! else has a slot, and the word is its number: the state of another policy, a policy of the key's own, or the limiter
//! of a key at which a caller waits or a grant is kept. A key goes back to a state when its limiter has nothing to do.

use std::sync::Arc;

use slab::Slab;

use crate::line::Line;
use crate::policy::packed::Attempt;
use crate::policy::{Cost, Policy};
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::AfterUnlock;

/// Where the policy of a key comes from.
pub(super) enum Rule<K, P> {
    One(P),
    /// A function of the key.
    Each(Box<dyn Fn(&K) -> P + Send + Sync>),
}

impl<K, P> Rule<K, P> {
    /// The key's own policy, to be kept with it; `None` if all keys share one policy.
    pub(super) fn own(&self, key: &K) -> Option<Box<P>> {
        match self {
            Self::One(_) => None,
            Self::Each(policy_of) => Some(Box::new(policy_of(key))),
        }
    }

    #[inline]
    pub(super) fn policy<'a>(&'a self, own: &'a Option<Box<P>>) -> &'a P {
        match (own, self) {
            (Some(policy), _) => policy,
            (None, Self::One(policy)) => policy,
            (None, Self::Each(_)) => unreachable!("each key has its own"),
        }
    }
}

/// A state in 63 bits, or the number of a slot.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

const SLOT: u64 = 1 << 63;

impl Word {
    /// The state, or the number of the slot.
    #[inline]
    fn read(self) -> Result<u64, usize> {
        if self.0 < SLOT {
            Ok(self.0)
        } else {
            Err(usize::try_from(self.0 ^ SLOT).unwrap_or(usize::MAX))
        }
    }
}

enum Slot<P: Policy> {
    /// With the key's own policy, if each key has one.
    Quiet(P::State, Option<Box<P>>),
    Busy(Arc<Line<P>>),
}

/// The states of the keys of a shard.
#[repr(C)]
pub(super) struct States<K, P: Policy> {
    pub(super) rule: Arc<Rule<K, P>>,
    slots: Slab<Slot<P>>,
}

impl<K, P: Policy> States<K, P> {
    pub(super) fn new(rule: Arc<Rule<K, P>>) -> Self {
        Self { rule, slots: Slab::new() }
    }

    /// Keeps a state, which no receipt can change any more.
    pub(super) fn add(&mut self, mut state: P::State, own: Option<Box<P>>, now: Nanos) -> Word {
        let policy = self.rule.policy(&own);
        (P::HOOKS.forget_receipts)(policy, &mut state);
        let word = if own.is_none() { pack(policy, &state, now) } else { None };
        word.unwrap_or_else(|| self.add_slot(Slot::Quiet(state, own)))
    }

    fn add_slot(&mut self, slot: Slot<P>) -> Word {
        Word(self.slots.insert(slot) as u64 | SLOT)
    }

    /// Takes out the state of a word that is not read again; `rule` has been in force until now. `None`: it has a
    /// limiter.
    fn take(&mut self, word: Word, rule: &Rule<K, P>) -> Option<(P::State, Option<Box<P>>)> {
        match word.read() {
            Ok(packed) => Some((unpack(rule.policy(&None), packed), None)),
            Err(slot) if matches!(self.slots[slot], Slot::Busy(_)) => None,
            Err(slot) => match self.slots.remove(slot) {
                Slot::Quiet(state, own) => Some((state, own)),
                Slot::Busy(_) => unreachable!("looked at just now"),
            },
        }
    }

    /// The key goes.
    pub(super) fn remove(&mut self, word: Word) {
        if let Err(slot) = word.read() {
            self.slots.remove(slot);
        }
    }

    /// Gives memory back after keys went.
    pub(super) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
    }

    /// Decides by a word, if it is enough: the same decision as by its state, in fewer steps.
    #[inline(always)]
    pub(super) fn attempt(
        &self,
        word: &mut Word,
        now: Nanos,
        cost: P::Cost,
    ) -> Attempt<P::Receipt> {
        let (Some(packed), Rule::One(policy)) = (P::HOOKS.packed, &*self.rule) else {
            return Attempt::Undecided;
        };
        if word.0 >= SLOT || cost.is_zero() {
            return Attempt::Undecided;
        }
        match (packed.attempt)(policy, word.0, now, cost) {
            Attempt::Granted((state, receipt)) => {
                *word = Word(state);
                Attempt::Granted(receipt)
            }
            Attempt::NotBefore(due) => Attempt::NotBefore(due),
            Attempt::Undecided => Attempt::Undecided,
        }
    }

    /// Uses a state with its policy. `None`: the key has a limiter.
    #[inline]
    pub(super) fn with<R>(
        &mut self,
        word: &mut Word,
        now: Nanos,
        act: impl FnOnce(&P, &mut P::State) -> R,
    ) -> Option<R> {
        match word.read() {
            Ok(packed) => {
                let policy = self.rule.policy(&None);
                let mut state = unpack(policy, packed);
                let result = act(policy, &mut state);
                *word = match pack(policy, &state, now) {
                    Some(word) => word,
                    None => self.add_slot(Slot::Quiet(state, None)),
                };
                Some(result)
            }
            Err(slot) => match &mut self.slots[slot] {
                Slot::Quiet(state, own) => Some(act(self.rule.policy(own), state)),
                Slot::Busy(_) => None,
            },
        }
    }

    fn busy(&self, word: Word) -> Option<&Arc<Line<P>>> {
        match self.slots.get(word.read().err()?) {
            Some(Slot::Busy(line)) => Some(line),
            _ => None,
        }
    }

    /// The limiter of a key, made by `new` if it has none.
    pub(super) fn line(
        &mut self,
        word: &mut Word,
        new: impl FnOnce(P, P::State) -> Arc<Line<P>>,
    ) -> Arc<Line<P>> {
        if let Some(line) = self.busy(*word) {
            return Arc::clone(line);
        }
        let rule = Arc::clone(&self.rule);
        let Some((state, own)) = self.take(*word, &rule) else { unreachable!("it has no limiter") };
        let line = new(rule.policy(&own).clone(), state);
        *word = self.add_slot(Slot::Busy(Arc::clone(&line)));
        line
    }

    /// All limiters.
    pub(super) fn lines(&self) -> impl Iterator<Item = &Arc<Line<P>>> {
        self.slots.iter().filter_map(|(_, slot)| match slot {
            Slot::Busy(line) => Some(line),
            Slot::Quiet(..) => None,
        })
    }

    /// Puts a key back into as little as it needs: its limiter may have nothing left to do.
    pub(super) fn settle(&mut self, word: &mut Word, now: Nanos, stats: &mut Stats) {
        let Err(slot) = word.read() else { return };
        match &self.slots[slot] {
            // No one else can get at a limiter that this table alone has.
            Slot::Busy(line) if Arc::strong_count(line) == 1 => {
                let Some((state, counts)) = line.quiet_state(now) else { return };
                let own = matches!(*self.rule, Rule::Each(_)).then(|| Box::new(line.policy()));
                stats.add(counts);
                self.slots.remove(slot);
                *word = self.add(state, own, now);
            }
            Slot::Quiet(state, own @ None) => {
                if let Some(packed) = pack(self.rule.policy(own), state, now) {
                    self.slots.remove(slot);
                    *word = packed;
                }
            }
            _ => {}
        }
    }

    /// Puts a key under the rule in force, after `old`. `after` gets what is left to do without a lock.
    pub(super) fn renew(
        &mut self,
        word: &mut Word,
        own: Option<Box<P>>,
        old: &Rule<K, P>,
        now: Nanos,
        after: &mut Vec<AfterUnlock>,
    ) {
        let rule = Arc::clone(&self.rule);
        let policy = rule.policy(&own);
        if let Some(line) = self.busy(*word) {
            after.push(line.set_policy_quietly(policy.clone()));
        } else if let Some((mut state, old_own)) = self.take(*word, old) {
            policy.migrate(old.policy(&old_own), &mut state, now);
            *word = self.add(state, own, now);
        }
    }
}

/// A state as a word, if nothing is lost.
#[inline(always)]
fn pack<P: Policy>(policy: &P, state: &P::State, now: Nanos) -> Option<Word> {
    (P::HOOKS.packed?.pack)(policy, state, now).map(Word)
}

#[inline(always)]
fn unpack<P: Policy>(policy: &P, word: u64) -> P::State {
    let Some(packed) = P::HOOKS.packed else { unreachable!("packed by this table") };
    (packed.unpack)(policy, word)
}
