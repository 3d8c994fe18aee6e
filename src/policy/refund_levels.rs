//! How much of a charge may still be given back: the lowest levels of a store since each charge.
//!
//! The *level* of a store is how much is missing from it. Had a charge been smaller by `e`, the level would have been
//! lower by `e`, until the store would have been full. So `min(e, lowest level since the charge)` is given back, and the
//! history is then the one with the true cost. The lowest levels are those that charges find, and only those below all
//! later ones count. At most [`PLACES`] are kept: of more, the two neighbours whose ratio is smallest become one, with the
//! lower level, so that a refund returns less than it might, never more. `docs/design.md` says why these.
//!
//! A charge that finds the store full leaves nothing to the charges before it. This takes no place, and a store that is
//! full whenever a caller comes has no levels on the heap.

/// With two, a client whose estimates are twice too high does not use its quota in full:
/// `tests/in_process/true_cost.rs`.
const PLACES: usize = 4;

/// The lowest levels since each charge, in units of a [`Schedule`](super::schedule::Schedule), from the first charge on
/// that finds permits missing. While there are none, only the last charge can come back.
///
/// Both marks and levels rise. The first level is zero: of charges before its mark nothing comes back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::box_collection)] // a word, as few states have levels
pub(crate) struct RefundLevels(Option<Box<Vec<Low>>>);

/// A level that was the lowest for all charges before a mark and after that of the low before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Low {
    /// Counts for receipts with a mark before this one.
    mark: u64,
    level: u64,
}

/// Whether a mark is later than another one. Marks may wrap.
fn is_after(mark: u64, other: u64) -> bool {
    mark.wrapping_sub(other).cast_signed() > 0
}

impl RefundLevels {
    pub(crate) const NONE: Self = Self(None);

    fn lows(&self) -> &[Low] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// A charge of `units` found `level`, and the mark after it is `mark`.
    #[inline(always)]
    pub(crate) fn note(&mut self, units: u64, mark: u64, level: i128) {
        let level = level_of(level);
        if level > 0 || self.0.is_some() {
            self.keep(units, mark, level);
        }
    }

    /// Nothing was charged, but of no charge so far more than `level` can come back. `last` is the mark.
    pub(crate) fn bound(&mut self, last: u64, level: i128) {
        self.keep(1, last.wrapping_add(1), level_of(level));
    }

    // Not inlined, to keep call sites small.
    #[inline(never)]
    fn keep(&mut self, units: u64, mark: u64, level: u64) {
        let lows = self.0.get_or_insert_default();
        if lows.is_empty() {
            lows.reserve_exact(2 + PLACES);
            lows.push(Low { mark: mark.wrapping_sub(units), level: 0 });
        }
        drop_from(lows, level);
        // Without a charge between them the lower level counts.
        if lows.last().is_none_or(|last| last.mark != mark) {
            lows.push(Low { mark, level });
        }
        if lows.len() > 1 + PLACES {
            // The two neighbours whose ratio is smallest become one. Ratios are multiplied crosswise: divisions would take
            // longer than the rest of a charge.
            let level = |at: usize| u128::from(lows[at].level.max(1));
            let ratio =
                |&a: &usize, &b: &usize| (level(a + 1) * level(b)).cmp(&(level(b + 1) * level(a)));
            let nearest = (1..=PLACES).min_by(ratio).unwrap_or(1);
            lows[nearest].mark = lows[nearest + 1].mark;
            lows.remove(nearest + 1);
        }
    }

    /// The lowest level since the charge of a receipt with this mark. `last` is the mark of the state.
    pub(crate) fn since(&self, last: u64, mark: u64) -> u64 {
        if self.0.is_none() && is_after(last, mark) {
            return 0;
        }
        self.lows().iter().find(|low| is_after(low.mark, mark)).map_or(u64::MAX, |low| low.level)
    }

    /// Permits of a charge came back: the levels since then would have been lower by as much. `back` is at most
    /// the lowest of them.
    pub(crate) fn lower(&mut self, mark: u64, back: u64) {
        let Some(lows) = &mut self.0 else { return };
        for Low { mark: end, level } in std::mem::take(&mut **lows) {
            let level = if is_after(end, mark) { level.saturating_sub(back) } else { level };
            drop_from(lows, level);
            lows.push(Low { mark: end, level });
        }
    }

    /// The same levels in other units.
    pub(crate) fn convert(&mut self, convert: impl Fn(u64) -> u64) {
        for low in self.0.iter_mut().flat_map(|lows| lows.iter_mut()) {
            low.level = convert(low.level);
        }
    }
}

/// Higher levels before this one do not count any more.
fn drop_from(lows: &mut Vec<Low>, level: u64) {
    while lows.pop_if(|last| last.level >= level).is_some() {}
}

/// A level, which is zero if the store has been full. Of one that is beyond all bounds the low bits are left:
/// less, so that no more comes back.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // intended
#[inline(always)]
fn level_of(level: i128) -> u64 {
    if level < 0 { 0 } else { level as u64 & (u64::MAX >> 1) }
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
            let (mut lows, mut all) = (RefundLevels::NONE, Vec::<(u64, u64)>::new());
            let mut is_exact = true;
            let mut mark = u64::MAX - 20;
            let first = mark;
            for step in steps {
                let time = mark.wrapping_sub(first);
                match step {
                    Step::Charge { level } => {
                        mark = mark.wrapping_add(1);
                        lows.note(1, mark, level.into());
                        all.push((time + 1, level));
                    }
                    Step::Refund { index, part } => {
                        let charged = time.saturating_sub(index as u64);
                        let receipt = first.wrapping_add(charged);
                        let back = part.min(lows.since(mark, receipt));
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
                    let told = lows.since(mark, first.wrapping_add(charged));
                    prop_assert!(told <= exact, "{told} since {charged}, not {exact}");
                    prop_assert!(!is_exact || told == exact, "{told} since {charged}, not {exact}");
                }
            }
        }
    }

    /// Only charges have receipts, so of two bounds without a charge between them the lower one counts. Neither a
    /// second one nor a full store may take a place that a charge needs.
    #[test]
    fn changes_without_charges_take_no_place() {
        let mut lows = RefundLevels::NONE;
        lows.bound(0, 0);
        for (mark, level) in [(2, 10), (3, 100), (4, 1_000)] {
            lows.note(1, mark, level);
        }
        lows.bound(4, 2_000);
        lows.bound(4, 30_000);
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|mark| lows.since(4, mark)),
            [0, 10, 100, 1_000, 2_000, u64::MAX]
        );
    }
}
