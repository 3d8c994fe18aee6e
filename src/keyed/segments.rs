//! The entries of a shard: hash tables of bounded size, so that no call moves many entries.
//!
//! Linear hashing: when the tables hold [`MEAN`] entries each, on average, the next one in turn is split in two. The
//! number of tables follows the number of entries alone, so keys with equal hashes make one table long, but split
//! nothing for ever.

use hashbrown::HashTable;
use smallvec::SmallVec;

/// The mean number of entries of a table from which on one is split. A table that is due to be split holds twice
/// that number, which one call may have to move.
const MEAN: usize = 320;

/// How many tables may be joined at a time. They hold a quarter of [`MEAN`] on average, and most of them are empty when many
/// entries go; then a round that has removed these from all tables joins as many.
const JOINS: usize = 4;

pub(super) struct Segments<T> {
    /// One of them is in the shard itself.
    tables: SmallVec<[HashTable<T>; 1]>,
    /// Of the bits of a hash that choose the table.
    mask: usize,
    len: usize,
}

/// Where an entry is, until the next entry is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    table: u32,
    bucket: u32,
}

/// A place of a round through all tables, which misses no entry that is there all the while. The last table comes first,
/// because a join takes its entries to an earlier one; what splits take to further tables meanwhile comes at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    pub(super) place: Place,
    /// The way down leads from the table before `end` to `first`, and the next one from what is then the last to `end`.
    first: u32,
    end: u32,
}

/// A place is valid until the lock is released.
const FOUND: &str = "found under this lock";

impl<T> Segments<T> {
    pub(super) fn new() -> Self {
        Self { tables: SmallVec::from_iter([HashTable::new()]), mask: 0, len: 0 }
    }

    /// The table of a hash. The tables themselves use its low bits and its highest ones, and the shards those between.
    #[inline]
    fn table_of(&self, hash: u64) -> usize {
        let bits = (low(hash) >> 12) & self.mask;
        if bits < self.tables.len() { bits } else { bits & (self.mask >> 1) }
    }

    #[inline]
    pub(super) fn find(&self, hash: u64, is_it: impl Fn(&T) -> bool) -> Option<Place> {
        let table = self.table_of(hash);
        let bucket = self.tables[table].find_bucket_index(hash, is_it)?;
        Some(Place { table: short(table), bucket: short(bucket) })
    }

    #[inline(always)]
    pub(super) fn find_mut(
        &mut self,
        hash: u64,
        is_it: impl Fn(&T) -> bool,
    ) -> Option<(Place, &mut T)> {
        let table = self.table_of(hash);
        let entry = self.tables[table].find_entry(hash, is_it).ok()?;
        let place = Place { table: short(table), bucket: short(entry.bucket_index()) };
        Some((place, entry.into_mut()))
    }

    #[inline]
    pub(super) fn get(&self, place: Place) -> &T {
        self.tables[long(place.table)].get_bucket(long(place.bucket)).expect(FOUND)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: Place) -> &mut T {
        self.tables[long(place.table)].get_bucket_mut(long(place.bucket)).expect(FOUND)
    }

    pub(super) fn insert(&mut self, hash: u64, entry: T, hash_of: impl Fn(&T) -> u64) -> Place {
        if self.len >= MEAN * self.tables.len() {
            self.split(&hash_of);
        }
        let table = self.table_of(hash);
        let bucket = self.tables[table].insert_unique(hash, entry, &hash_of).bucket_index();
        self.len += 1;
        Place { table: short(table), bucket: short(bucket) }
    }

    pub(super) fn remove(&mut self, place: Place) -> T {
        let table = &mut self.tables[long(place.table)];
        let Ok(entry) = table.get_bucket_entry(long(place.bucket)) else { unreachable!("{FOUND}") };
        self.len -= 1;
        entry.remove().0
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.tables.iter().flat_map(HashTable::iter)
    }

    pub(super) fn places(&self) -> impl Iterator<Item = Place> {
        (0..self.tables.len()).flat_map(|table| {
            let buckets = 0..self.tables[table].num_buckets();
            let places =
                buckets.map(move |bucket| Place { table: short(table), bucket: short(bucket) });
            places.filter(|&place| self.is_taken(place))
        })
    }

    pub(super) fn is_taken(&self, place: Place) -> bool {
        let table = self.tables.get(long(place.table));
        table.is_some_and(|table| table.get_bucket(long(place.bucket)).is_some())
    }

    /// Where a round begins.
    pub(super) fn first(&self) -> Option<Visit> {
        self.way_down(0)
    }

    /// The next place of the round, whether it is taken or not; `None` at its end.
    pub(super) fn next(&self, visit: Visit) -> Option<Visit> {
        let Visit { place: Place { table, bucket }, first, end } = visit;
        let buckets = self.tables.get(long(table)).map_or(0, HashTable::num_buckets);
        if long(bucket) + 1 < buckets {
            return Some(Visit { place: Place { table, bucket: bucket + 1 }, ..visit });
        }
        self.below(table, first, end).or_else(|| self.way_down(end))
    }

    fn way_down(&self, first: u32) -> Option<Visit> {
        let end = short(self.tables.len());
        self.below(end, first, end)
    }

    fn below(&self, table: u32, first: u32, end: u32) -> Option<Visit> {
        let table = (first..table.min(short(self.tables.len()))).next_back()?;
        Some(Visit { place: Place { table, bucket: 0 }, first, end })
    }

    /// Gives memory back after a table was swept, in steps that are as short as those of growth.
    pub(super) fn tidy(&mut self, table: u32, hash_of: impl Fn(&T) -> u64) {
        if let Some(swept) = self.tables.get_mut(long(table))
            && swept.len() < swept.num_buckets() / 8
        {
            swept.shrink_to(2 * swept.len(), &hash_of);
        }
        for _ in 0..JOINS {
            if self.tables.len() > 1 && self.len < MEAN / 4 * self.tables.len() {
                self.join(&hash_of);
            }
        }
    }

    /// Divides the next table in turn.
    fn split(&mut self, hash_of: impl Fn(&T) -> u64) {
        let count = self.tables.len();
        let level = 1 << count.ilog2();
        let turn = count - level;
        self.mask = 2 * level - 1;
        let old = std::mem::take(&mut self.tables[turn]);
        let half = || HashTable::with_capacity(old.len() / 2);
        let (mut stay, mut go) = (half(), half());
        for entry in old {
            let hash = hash_of(&entry);
            let half = if (low(hash) >> 12) & level == 0 { &mut stay } else { &mut go };
            half.insert_unique(hash, entry, &hash_of);
        }
        self.tables[turn] = stay;
        self.tables.push(go);
    }

    /// Undoes the last split.
    fn join(&mut self, hash_of: impl Fn(&T) -> u64) {
        let Some(last) = self.tables.pop() else { return };
        let count = self.tables.len();
        let level = 1 << count.ilog2();
        self.mask = if count == level { level - 1 } else { 2 * level - 1 };
        let into = &mut self.tables[count - level];
        for entry in last {
            into.insert_unique(hash_of(&entry), entry, &hash_of);
        }
    }
}

impl Place {
    pub(super) fn table(self) -> u32 {
        self.table
    }
}

#[allow(clippy::cast_possible_truncation)] // the low bits are meant
#[inline]
fn low(hash: u64) -> usize {
    hash as usize
}

#[inline]
fn short(index: usize) -> u32 {
    u32::try_from(index).expect("a table is much shorter")
}

#[inline]
fn long(index: u32) -> usize {
    index as usize
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::keyed::hash::NumberHasher;
    use hashbrown::HashSet;
    use std::hash::BuildHasher;

    /// Whether all of `keys` are there, and nothing else.
    fn holds(segments: &Segments<u64>, hash_of: &impl Fn(&u64) -> u64, keys: &HashSet<u64>) {
        assert_eq!((segments.len, segments.iter().count()), (keys.len(), keys.len()));
        assert_eq!(segments.places().count(), keys.len());
        for key in keys {
            let place = segments.find(hash_of(key), |other| other == key).expect("it is there");
            assert_eq!(segments.get(place), key);
        }
    }

    /// All places, as a sweep visits them.
    fn round(segments: &mut Segments<u64>, mut visit: impl FnMut(&mut Segments<u64>, Visit)) {
        let mut next = segments.first();
        while let Some(place) = next {
            visit(segments, place);
            next = segments.next(place);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn it_grows_and_shrinks_by_a_table_at_a_time() {
        let hasher = NumberHasher::default();
        let hash_of = |key: &u64| hasher.hash_one(key);
        let (mut segments, mut keys) = (Segments::new(), HashSet::new());
        for key in 0..50_000 {
            let place = segments.insert(hash_of(&key), key, hash_of);
            assert_eq!(segments.get(place), &key);
            keys.insert(key);
            if key % 7_000 == 0 {
                holds(&segments, &hash_of, &keys);
            }
        }
        holds(&segments, &hash_of, &keys);
        assert_eq!(segments.tables.len(), 50_000_usize.div_ceil(MEAN));
        assert!(segments.tables.iter().all(|table| table.num_buckets() <= 1024));
        // All but each hundredth go, and the tables with them.
        round(&mut segments, |segments, visit| {
            let Visit { place, .. } = visit;
            if segments.is_taken(place) && segments.get(place) % 100 != 0 {
                keys.remove(&segments.remove(place));
            }
            if segments.next(visit).is_none_or(|next| next.place.table != place.table) {
                segments.tidy(place.table, hash_of);
            }
        });
        assert_eq!(keys.len(), 500, "all were visited");
        holds(&segments, &hash_of, &keys);
        assert!(segments.tables.len() <= 8, "{} tables", segments.tables.len());
        let buckets: usize = segments.tables.iter().map(HashTable::num_buckets).sum();
        assert!(buckets <= 4096, "{buckets} buckets for {} keys", keys.len());
        // Down to one table.
        for &key in &keys.clone() {
            let place = segments.find(hash_of(&key), |other| *other == key).expect("it is there");
            keys.remove(&segments.remove(place));
            segments.tidy(place.table(), hash_of);
            holds(&segments, &hash_of, &keys);
        }
        assert_eq!(segments.tables.len(), 1);
        assert!(segments.tables[0].num_buckets() < 8);
    }

    #[test]
    fn a_table_shrinks_to_twice_what_it_holds_and_joins_below_a_quarter_of_the_mean() {
        let hasher = NumberHasher::default();
        let hash_of = |key: &u64| hasher.hash_one(key);
        let mut segments = Segments::new();
        let fill = |segments: &mut Segments<u64>, keys: std::ops::Range<u64>| {
            keys.for_each(|key| _ = segments.insert(hash_of(&key), key, hash_of));
        };
        let leave = |segments: &mut Segments<u64>, keys: std::ops::Range<u64>| {
            for key in keys {
                let place = segments.find(hash_of(&key), |other| *other == key).expect("there");
                segments.remove(place);
            }
        };
        fill(&mut segments, 0..300);
        let buckets = |segments: &Segments<u64>| segments.tables[0].num_buckets();
        assert_eq!(buckets(&segments), 512);
        let mut there = 300;
        for (left, shrunk) in [(64, 512), (63, 256), (32, 256), (31, 128), (0, 1)] {
            leave(&mut segments, left..there);
            there = left;
            segments.tidy(0, hash_of);
            assert_eq!(buckets(&segments), shrunk, "{left} left");
        }
        let few = MEAN as u64 / 4 * 2;
        fill(&mut segments, 0..MEAN as u64 + 1);
        assert_eq!(segments.tables.len(), 2);
        leave(&mut segments, few..MEAN as u64 + 1);
        segments.tidy(1, hash_of);
        assert_eq!(segments.tables.len(), 2);
        leave(&mut segments, few - 1..few);
        segments.tidy(1, hash_of);
        assert_eq!(segments.tables.len(), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn a_round_misses_nothing_that_splits_move() {
        let hasher = NumberHasher::default();
        let hash_of = |key: &u64| hasher.hash_one(key);
        let mut segments = Segments::new();
        let insert =
            |segments: &mut Segments<u64>, key| _ = segments.insert(hash_of(&key), key, hash_of);
        (0..20_000).for_each(|key| insert(&mut segments, key));
        // Between two tables, because an entry that is added may move those of its own table.
        let (mut seen, mut new, mut table) = (HashSet::new(), 20_000, None);
        round(&mut segments, |segments, Visit { place, .. }| {
            if table.replace(place.table) != Some(place.table) {
                seen.extend(segments.tables[long(place.table)].iter().copied());
                (new..new + 100).for_each(|key| insert(segments, key));
                new += 100;
            }
            assert!(new < 100_000, "a round has an end");
        });
        assert!((0..20_000).all(|key| seen.contains(&key)));
    }

    /// A hash function without a seed, and an attacker that knows it.
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes")]
    fn equal_hashes_are_slow_but_no_worse() {
        let mut segments = Segments::new();
        let keys: HashSet<_> = (0..2_000).collect();
        for &key in &keys {
            segments.insert(7, key, |_| 7);
        }
        holds(&segments, &|_| 7, &keys);
        assert_eq!(segments.tables.len(), 2_000_usize.div_ceil(MEAN));
    }
}
