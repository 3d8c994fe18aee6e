//! The numbers of threads: small, and a thread's own as long as it lives.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the numbers that are taken.
static TAKEN: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// A thread without a number, yet or for ever: more than any number.
const NONE: usize = usize::MAX;

thread_local! {
    /// Apart from what gives it back, so that reading it takes one instruction.
    static MINE: Cell<usize> = const { Cell::new(NONE) };
    static OWNED: Number = Number::lowest();
}

/// The number of this thread, if it has been [given one](number).
#[inline(always)]
pub(super) fn known() -> usize {
    MINE.get()
}

/// The number of this thread. It has none while it ends, and if too many have one.
pub(super) fn number() -> usize {
    // Fails while the thread ends.
    let number = OWNED.try_with(|owned| owned.0).unwrap_or(NONE);
    MINE.set(number);
    number
}

/// A number that is given back when dropped.
pub(super) struct Number(usize);

impl Number {
    fn lowest() -> Self {
        for (index, word) in TAKEN.iter().enumerate() {
            loop {
                let free = word.load(Ordering::Relaxed).trailing_ones() as usize;
                if free == 64 {
                    break;
                }
                if let Some(number) = Self::take(64 * index + free) {
                    // Not to be given back here.
                    let number = std::mem::ManuallyDrop::new(number);
                    return Self(number.0);
                }
            }
        }
        Self(NONE)
    }

    /// Takes the number of a thread that has ended, for a moment.
    pub(super) fn take(number: usize) -> Option<Self> {
        let (word, bit) = (TAKEN.get(number / 64)?, 1 << (number % 64));
        let is_taken = |word: u64| word & bit != 0;
        // Acquires what the last thread of this number wrote.
        let free = !is_taken(word.load(Ordering::Relaxed))
            && !is_taken(word.fetch_or(bit, Ordering::Acquire));
        free.then(|| Self(number))
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        if MINE.try_with(|mine| mine.get() == self.0).unwrap_or(false) {
            // What this thread calls from now on, in the destructors of others, has no number.
            MINE.set(NONE);
        }
        if let Some(word) = TAKEN.get(self.0 / 64) {
            word.fetch_and(!(1 << (self.0 % 64)), Ordering::Release);
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_thread_at_a_time_and_comes_back() {
        let mine = number();
        assert!((mine, known()) == (mine, mine) && Number::take(mine).is_none());
        let other = std::thread::spawn(|| (known(), number(), known())).join().expect("no panic");
        assert_eq!((other.0, other.1), (NONE, other.2));
        assert_ne!(other.1, mine);
        // One of a thread that has ended, for a moment.
        drop(Number::take(other.1));
        assert_eq!(known(), mine);
        // More than there are numbers. One after another, they need no more than there are threads at a time.
        let one = |_| std::thread::spawn(number).join().expect("no panic");
        let numbers: std::collections::HashSet<_> = (0..1100).map(one).collect();
        assert!(numbers.len() < 32 && !numbers.contains(&mine), "{numbers:?}");
        assert!(numbers.iter().all(|&number| number < 64 * TAKEN.len()));
        assert!(Number::take(NONE).is_none());
    }
}
