//! How much of a charge may still be given back: the lowest levels of a store since each charge.
//!
//! The *level* of a store is how much is missing from it. Time lowers it at the rate, a charge raises it, and
//! at zero the store is full and further permits are lost. Had a charge been smaller by `e`, the level would
//! have been lower by `e` from then on, until the store would have been full: the difference that is left is
//! `min(e, lowest level since the charge)`. Given back, the history is the one with the true cost. (This is the
//! reflection of a queue at zero: the difference between two queues with the same service falls only while one
//! of them is empty.) The lowest levels are those right before charges, and what a charge finds is all that
//! must be kept.
//!
//! Only a level that is lower than all later ones counts, so those that are kept rise with time. At most
//! [`PLACES`] are kept. If there are more, the two neighbours whose ratio is smallest become one, with the lower
//! level of the two: a refund then returns less than it might, never more. Their ratio and not their difference,
//! because a level matters only if it is less than an excess: of calls that begin together the first finds a
//! full store, and the others find only a few levels that are low.

/// With two, a client whose estimates are twice too high does not use its quota in full:
/// `tests/in_process/true_cost.rs`.
const PLACES: usize = 4;

/// The lowest levels since each charge, in units of a [`Schedule`](super::schedule::Schedule). What is behind
/// the first free place means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lows([Low; PLACES]);

/// A level that was the lowest for all charges before a mark and after that of the low before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Low {
    /// Counts for receipts with a mark before this one.
    mark: u64,
    level: u64,
}

const UNUSED: Low = Low { mark: 0, level: u64::MAX };

/// Whether a mark is later than another one. Marks may wrap.
fn is_after(mark: u64, other: u64) -> bool {
    mark.wrapping_sub(other).cast_signed() > 0
}

impl Lows {
    pub(crate) const NONE: Self = Self([UNUSED; PLACES]);

    /// A level that was found; it counts for all charges before `mark`, which is later than all marks so far.
    /// It is below 2^63.
    #[inline]
    pub(crate) fn note(&mut self, mark: u64, level: u64) {
        let Self(lows) = self;
        let low = Low { mark, level };
        if level <= lows[0].level {
            lows[0] = low;
            lows[1].level = UNUSED.level;
        } else {
            self.note_higher(low);
        }
    }

    // Not inlined, to keep call sites small.
    #[inline(never)]
    fn note_higher(&mut self, low: Low) {
        let Self(lows) = self;
        // No place in use is above the greatest level, and those behind the first that is free are free.
        let mut used = lows.iter().take_while(|other| other.level < low.level).count();
        if used == PLACES {
            used -= 1;
            let next = |at: usize| lows.get(at + 1).copied().unwrap_or(low);
            let ratio = |&at: &usize| {
                (u128::from(next(at).level) << 32) / u128::from(lows[at].level.max(1))
            };
            let nearest = (0..PLACES).min_by_key(ratio);
            let nearest = nearest.unwrap_or(used);
            if nearest == used {
                lows[nearest].mark = low.mark;
                return;
            }
            lows[nearest].mark = lows[nearest + 1].mark;
            lows.copy_within(nearest + 2.., nearest + 1);
        }
        lows[used] = low;
        if let Some(next) = lows.get_mut(used + 1) {
            next.level = UNUSED.level;
        }
    }

    fn used(&mut self) -> impl Iterator<Item = &mut Low> {
        self.0.iter_mut().take_while(|low| low.level != UNUSED.level)
    }

    /// The lowest level since the charge of a receipt with this mark.
    pub(crate) fn since(&self, mark: u64) -> u64 {
        let later = self.0.iter().find(|low| low.level == UNUSED.level || is_after(low.mark, mark));
        later.map_or(UNUSED.level, |low| low.level)
    }

    /// Permits of a charge came back: the levels since then would have been lower by as much. `back` is at most
    /// the lowest of them.
    pub(crate) fn lower(&mut self, mark: u64, back: u64) {
        let mut kept = Self::NONE;
        let mut used = 0;
        for &mut low in self.used() {
            let back = if is_after(low.mark, mark) { back } else { 0 };
            let low = Low { level: low.level.saturating_sub(back), ..low };
            while used > 0 && kept.0[used - 1].level >= low.level {
                used -= 1;
            }
            kept.0[used] = low;
            used += 1;
        }
        if let Some(next) = kept.0.get_mut(used) {
            next.level = UNUSED.level;
        }
        *self = kept;
    }

    /// The last mark was `last` and is now `mark`, which is earlier: its charge, or a part of it, is undone.
    pub(crate) fn undo(&mut self, last: u64, mark: u64) {
        for low in self.used().filter(|low| is_after(low.mark, mark)) {
            low.mark = mark.wrapping_add(u64::from(is_after(low.mark, last)));
        }
    }

    /// The same levels in other units.
    pub(crate) fn convert(&mut self, convert: impl Fn(u64) -> u64) {
        for low in self.used() {
            low.level = convert(low.level).min(UNUSED.level - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Charge { level: u64 },
        Refund { index: usize, part: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let charge = (0..1000u64).prop_map(|level| Step::Charge { level });
        let refund = (0..8usize, 1..300u64).prop_map(|(index, part)| Step::Refund { index, part });
        proptest::collection::vec(prop_oneof![2 => charge, 1 => refund], 1..60)
    }

    /// All levels that were found, each with the mark of its charge.
    fn lowest(all: &[(u64, u64)], mark: u64) -> u64 {
        let later = all.iter().filter(|low| low.0 > mark).map(|low| low.1);
        later.min().unwrap_or(u64::MAX)
    }

    proptest! {
        /// Never above the lowest level, and equal to it while there are places for all.
        #[test]
        fn they_are_the_lowest_levels(steps in steps()) {
            let (mut lows, mut all) = (Lows::NONE, Vec::<(u64, u64)>::new());
            let mut is_exact = true;
            let mut mark = u64::MAX - 20;
            let first = mark;
            for step in steps {
                let time = mark.wrapping_sub(first);
                match step {
                    Step::Charge { level } => {
                        mark = mark.wrapping_add(1);
                        lows.note(mark, level);
                        all.push((time + 1, level));
                    }
                    Step::Refund { index, part } => {
                        let charged = time.saturating_sub(index as u64);
                        let receipt = first.wrapping_add(charged);
                        let back = part.min(lows.since(receipt));
                        prop_assert!(back <= lowest(&all, charged));
                        lows.lower(receipt, back);
                        for low in all.iter_mut().filter(|low| low.0 > charged) {
                            low.1 -= back;
                        }
                    }
                }
                let time = mark.wrapping_sub(first);
                let suffixes: Vec<_> = (0..=time).map(|mark| lowest(&all, mark)).collect();
                let mut distinct = suffixes.clone();
                distinct.dedup();
                // The last is that of charges to come.
                is_exact &= distinct.len() <= PLACES + 1;
                for (charged, &exact) in (0..=time).zip(&suffixes) {
                    let told = lows.since(first.wrapping_add(charged));
                    prop_assert!(told <= exact, "{told} since {charged}, not {exact}");
                    prop_assert!(!is_exact || told == exact, "{told} since {charged}, not {exact}");
                }
            }
        }
    }

    /// Of 90 and 100 the lower one stays, and 10 stays apart.
    #[test]
    fn neighbours_of_about_the_same_level_become_one() {
        let mut lows = Lows::NONE;
        for (mark, level) in [(1, 10), (2, 40), (3, 90), (4, 100), (5, 200)] {
            lows.note(mark, level);
        }
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|mark| lows.since(mark)),
            [10, 40, 90, 90, 200, u64::MAX]
        );
    }
}
