//! What is kept of a key: a word, a state, or a limiter.
//!
//! The state of a policy with one steady rate fits a word of 63 bits, while no receipt of it can be given back. All
//! else has a slot, and the word is its number: the state of another policy, or the limiter of a key at which a caller
//! waits, a grant is kept, or the policy is the key's own. A key goes back to a state when its limiter has nothing to do.

use std::sync::Arc;

use slab::Slab;

use crate::line::Line;
use crate::policy::packed::Attempt;
use crate::policy::{Cost, Policy};
use crate::stats::Stats;
use crate::units::Nanos;
use crate::wait_queue::NEVER;

/// Where the policy of a key comes from.
pub(super) enum Rule<K, P> {
    One(P),
    /// A function of the key.
    Each(Box<dyn Fn(&K) -> P + Send + Sync>),
}

impl<K, P: Clone> Rule<K, P> {
    pub(super) fn policy_of(&self, key: &K) -> P {
        match self {
            Self::One(policy) => policy.clone(),
            Self::Each(policy_of) => policy_of(key),
        }
    }
}

/// A state in 63 bits, or the number of a slot.
#[derive(Clone, Copy)]
pub(super) struct Word(u64);

const SLOT: u64 = 1 << 63;

impl Word {
    fn of(slot: usize) -> Self {
        Self(slot as u64 | SLOT)
    }

    #[inline]
    fn slot(self) -> Option<usize> {
        (self.0 >= SLOT).then(|| usize::try_from(self.0 ^ SLOT).unwrap_or(usize::MAX))
    }
}

enum Slot<P: Policy> {
    State(P::State),
    Line(Arc<Line<P>>),
}

/// What is kept of the keys of a shard.
pub(super) struct States<K, P: Policy> {
    pub(super) rule: Arc<Rule<K, P>>,
    slots: Slab<Slot<P>>,
}

impl<K, P: Policy> States<K, P> {
    pub(super) fn new(rule: Arc<Rule<K, P>>) -> Self {
        Self { rule, slots: Slab::new() }
    }

    /// The policy of all keys.
    pub(super) fn one(&self) -> &P {
        let Rule::One(policy) = &*self.rule else { unreachable!("each key has a limiter") };
        policy
    }

    pub(super) fn add_line(&mut self, line: Arc<Line<P>>) -> Word {
        Word::of(self.slots.insert(Slot::Line(line)))
    }

    pub(super) fn add_state(&mut self, policy: &P, state: P::State, now: Nanos) -> Word {
        keep(&mut self.slots, policy, state, now)
    }

    /// The limiter of a key.
    pub(super) fn line(&self, word: Word) -> Option<&Arc<Line<P>>> {
        match self.slots.get(word.slot()?) {
            Some(Slot::Line(line)) => Some(line),
            _ => None,
        }
    }

    /// Takes out the state of a word that is not read again. `None`: the key has a limiter.
    pub(super) fn take(&mut self, word: Word) -> Option<P::State> {
        match word.slot() {
            None => Some(unpack(self.one(), word)),
            Some(_) if self.line(word).is_some() => None,
            Some(slot) => match self.slots.remove(slot) {
                Slot::State(state) => Some(state),
                Slot::Line(_) => unreachable!("looked at just now"),
            },
        }
    }

    /// The key goes. What its limiter has counted stays.
    pub(super) fn remove(&mut self, word: Word, stats: &mut Stats) {
        let slot = word.slot().map(|slot| self.slots.remove(slot));
        if let Some(Slot::Line(line)) = slot {
            stats.add(line.stats());
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
    pub(super) fn with<R>(
        &mut self,
        word: &mut Word,
        now: Nanos,
        act: impl FnOnce(&P, &mut P::State) -> R,
    ) -> Option<R> {
        let Self { rule, slots } = self;
        let Rule::One(policy) = &**rule else { return None };
        match word.slot().map(|slot| &mut slots[slot]) {
            Some(Slot::Line(_)) => None,
            Some(Slot::State(state)) => Some(act(policy, state)),
            None => {
                let mut state = unpack(policy, *word);
                let result = act(policy, &mut state);
                *word = keep(slots, policy, state, now);
                Some(result)
            }
        }
    }

    /// From when on a key is idle; `None` while it is in use. A limiter that has nothing to do becomes a state again.
    pub(super) fn idle_at(
        &mut self,
        word: &mut Word,
        now: Nanos,
        stats: &mut Stats,
    ) -> Option<Nanos> {
        if let Some(line) = self.line(*word) {
            // No one else can get at a limiter that this table alone has.
            let is_alone = Arc::strong_count(line) == 1;
            let (state, _) = line.quiet_state(now).filter(|_| is_alone)?;
            let Rule::One(policy) = &*self.rule else {
                return Some(line.policy().idle_at(&state).unwrap_or(NEVER));
            };
            let kept = keep(&mut self.slots, policy, state, now);
            self.remove(std::mem::replace(word, kept), stats);
        }
        self.with(word, now, |policy, state| policy.idle_at(state).unwrap_or(NEVER))
    }
}

fn keep<P: Policy>(slots: &mut Slab<Slot<P>>, policy: &P, state: P::State, now: Nanos) -> Word {
    pack(policy, &state, now).unwrap_or_else(|| Word::of(slots.insert(Slot::State(state))))
}

/// A state as a word, if nothing is lost.
fn pack<P: Policy>(policy: &P, state: &P::State, now: Nanos) -> Option<Word> {
    (P::HOOKS.packed?.pack)(policy, state, now).map(Word)
}

fn unpack<P: Policy>(policy: &P, word: Word) -> P::State {
    let Some(packed) = P::HOOKS.packed else { unreachable!("packed by this table") };
    (packed.unpack)(policy, word.0)
}
