//! What happens at a time, in order; and the time of what is decided under one lock.

use std::mem;

use crate::units::Nanos;

/// A number at a time. Those of one time are in the order of their ranks.
// As one number, which is compared at each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timed(u128);

#[allow(clippy::cast_possible_truncation)] // it takes a word apart
impl Timed {
    pub(crate) fn new(time: u64, rank: u32, id: u32) -> Self {
        Self(u128::from(time) << 64 | u128::from(rank) << 32 | u128::from(id))
    }

    pub(crate) fn time(self) -> u64 {
        (self.0 >> 64) as u64
    }

    pub(crate) fn id(self) -> u32 {
        self.0 as u32
    }

    /// The same at a later time.
    pub(crate) fn later(self, by: u64) -> Self {
        let time = self.time().saturating_add(by);
        Self(u128::from(time) << 64 | u128::from(self.0 as u64))
    }
}

/// The most numbers of a run.
const RUN: usize = 128;

/// Numbers in order. In runs, so that a change moves few of them: the library's ordered set adds 20 KB to a program, and takes
/// twice the memory of waiters in FIFO order.
#[derive(Debug, Default)]
pub(crate) struct TimeOrder {
    /// Apart from the others, because it is often the only one, and is asked for most.
    first: Option<Timed>,
    /// None is empty.
    runs: Vec<Vec<Timed>>,
    len: usize,
}

impl TimeOrder {
    /// Where one behind the first is or would be: the run, and the place in it.
    #[inline(never)]
    fn place(&self, timed: Timed) -> (usize, usize) {
        // Most come in order.
        if let Some(run) = self.runs.last().filter(|run| run.last() < Some(&timed)) {
            return (self.runs.len() - 1, run.len());
        }
        let begins = |run: &Vec<Timed>| run.first() <= Some(&timed);
        let run = self.runs.partition_point(begins).saturating_sub(1);
        let is_before = |other: &Timed| *other < timed;
        (run, self.runs.get(run).map_or(0, |run| run.partition_point(is_before)))
    }

    pub(crate) fn insert(&mut self, timed: Timed) {
        self.len += 1;
        match &mut self.first {
            Some(first) => {
                let other = if timed < *first { mem::replace(first, timed) } else { timed };
                self.insert_other(other);
            }
            None => self.first = Some(timed),
        }
    }

    #[inline(never)]
    fn insert_other(&mut self, timed: Timed) {
        let (mut index, mut at) = self.place(timed);
        let is_last = index + 1 == self.runs.len();
        match self.runs.get_mut(index) {
            None => self.runs.push(Vec::new()),
            Some(run) if run.len() == RUN => {
                // Numbers that come in order fill each run.
                let half = if is_last { at.max(RUN / 2) } else { RUN / 2 };
                let behind = run.split_off(half);
                self.runs.insert(index + 1, behind);
                if at >= half {
                    (index, at) = (index + 1, at - half);
                }
            }
            Some(_) => {}
        }
        self.runs[index].insert(at, timed);
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&mut self, timed: Timed) -> bool {
        let is_here = if self.first == Some(timed) {
            self.first = self.remove_other(0, 0);
            true
        } else {
            !self.runs.is_empty() && {
                let (index, at) = self.place(timed);
                let is_here = self.runs[index].get(at) == Some(&timed);
                is_here && self.remove_other(index, at).is_some()
            }
        };
        self.len -= usize::from(is_here);
        is_here
    }

    fn remove_other(&mut self, index: usize, at: usize) -> Option<Timed> {
        let run = self.runs.get_mut(index)?;
        let timed = run.remove(at);
        if run.len() < RUN / 2 {
            self.join(index);
            self.join(index.wrapping_sub(1));
            if self.runs.last().is_some_and(Vec::is_empty) {
                self.runs.pop();
            }
        }
        Some(timed)
    }

    /// Two small neighbours become one, so that few runs are small.
    #[inline(never)]
    fn join(&mut self, index: usize) {
        if let Some([run, next, ..]) = self.runs.get_mut(index..)
            && (run.is_empty() || run.len() + next.len() < RUN / 2)
        {
            run.append(next);
            self.runs.remove(index + 1);
        }
    }

    pub(crate) fn first(&self) -> Option<Timed> {
        self.first
    }

    pub(crate) fn last(&self) -> Option<Timed> {
        self.runs.last().and_then(|run| run.last()).copied().or(self.first)
    }

    /// The one behind another.
    pub(crate) fn after(&self, timed: Timed) -> Option<Timed> {
        if self.first.is_some_and(|first| timed < first) {
            return self.first;
        }
        let (run, at) = self.place(Timed(timed.0 + 1));
        let next = self.runs.get(run)?.get(at);
        next.or_else(|| self.runs.get(run + 1)?.first()).copied()
    }

    /// Shows those before `end`, or all, in order, as long as `visit` says to go on.
    pub(crate) fn visit(&self, end: Option<Timed>, visit: &mut dyn FnMut(Timed) -> bool) {
        _ = self.iter().all(|timed| end.is_none_or(|end| timed < end) && visit(timed));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Timed> {
        self.first.into_iter().chain(self.runs.iter().flatten().copied())
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

/// Time that does not go back, in the order of the decisions under one lock: the clock may be read before the lock
/// is taken, and on several processors.
#[derive(Debug)]
pub(crate) struct Monotone {
    latest: Nanos,
}

impl Monotone {
    pub(crate) fn new(now: Nanos) -> Self {
        Self { latest: now }
    }

    #[inline]
    pub(crate) fn latest(&self) -> Nanos {
        self.latest
    }

    /// The time, when the clock shows `now`.
    #[inline]
    pub(crate) fn read(&mut self, now: Nanos) -> Nanos {
        self.latest = self.latest.max(now);
        self.latest
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Joined in groups, in and against their order, and left in any.
        #[test]
        fn it_is_an_ordered_set(steps in prop::collection::vec((any::<bool>(), 0..900u64, 1..300u64), 1..40)) {
            let (mut order, mut set) = (TimeOrder::default(), BTreeSet::new());
            for (joins, from, count) in steps {
                for number in from..from + count {
                    let number = if count % 2 == 0 { 1200 - number } else { number * 7 % 1200 };
                    let timed = Timed::new(number, 0, 0);
                    if joins && set.insert(timed) {
                        order.insert(timed);
                    } else if !joins {
                        prop_assert_eq!(order.remove(timed), set.remove(&timed));
                    }
                }
                let mut all = Vec::new();
                order.visit(None, &mut |timed| { all.push(timed); true });
                prop_assert!(all.iter().eq(&set) && order.len() == set.len());
                prop_assert_eq!((order.first(), order.last()), (set.first().copied(), set.last().copied()));
                let after = Timed::new(from, 0, 0);
                prop_assert_eq!(order.after(after), set.range(after.later(1)..).next().copied());
                prop_assert!(order.runs.windows(2).all(|two| two[0].len() + two[1].len() >= RUN / 2));
            }
        }
    }
}
