//! The permits that threads hold: a slot for each thread, on a cache line of its own.
//!
//! A slot has two numbers. What its thread has *in hand* only this thread takes, by a plain load and a plain
//! store: a locked instruction would take a third of the time in which a limiter decides. The rest is its *stock*,
//! from which any thread may take, by a compare-exchange. A thread takes a handful out of its stock at a time.
//!
//! Both numbers carry the epoch in which they were drawn, in their upper halves. To discard all that threads hold
//! is to begin the next epoch: numbers of earlier ones are void. `loom.rs` checks this.

use crate::sync::{AtomicU64, Ordering, OwnLine};

/// The most permits that a thread has in hand.
pub(super) const HANDFUL: u32 = if cfg!(tollgate_loom) { 1 } else { 16 };

#[derive(Debug)]
pub(super) struct Slots {
    /// The present epoch, as a slot without permits.
    epoch: OwnLine<AtomicU64>,
    slots: Box<[OwnLine<Slot>]>,
}

#[derive(Debug)]
struct Slot {
    /// Written only by the thread of this slot.
    in_hand: AtomicU64,
    /// Only the thread of this slot adds.
    stock: AtomicU64,
}

/// What was in a slot, and the epoch in which it was taken out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    epoch: u64,
    pub(super) permits: u32,
}

impl Held {
    pub(super) fn with(self, permits: u32) -> Self {
        Self { permits, ..self }
    }
}

/// The permits of a number that may be void.
#[allow(clippy::cast_possible_truncation)] // the lower half
fn permits(number: u64, epoch: u64) -> u32 {
    if number >= epoch { number as u32 } else { 0 }
}

impl Slots {
    pub(super) fn new(threads: usize) -> Self {
        let slot = |_| OwnLine(Slot { in_hand: AtomicU64::new(0), stock: AtomicU64::new(0) });
        Self { epoch: OwnLine(AtomicU64::new(0)), slots: (0..threads).map(slot).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Takes `n` permits out of the hand of `thread`, which calls this.
    #[inline(always)]
    pub(super) fn take(&self, thread: usize, n: u32) -> bool {
        let Some(OwnLine(slot)) = self.slots.get(thread) else { return false };
        // Not later than this thread's own epochs, so that it takes nothing that is void.
        let least = self.epoch.0.load(Ordering::Acquire) + u64::from(n);
        let in_hand = slot.in_hand.load(Ordering::Relaxed);
        if in_hand < least {
            return false;
        }
        slot.in_hand.store(in_hand - u64::from(n), Ordering::Relaxed);
        true
    }

    /// Takes out all that `thread` holds, which calls this. `None` if it has no slot.
    pub(super) fn empty(&self, thread: usize) -> Option<Held> {
        let OwnLine(slot) = self.slots.get(thread)?;
        let epoch = self.epoch.0.load(Ordering::Acquire);
        let in_hand = slot.in_hand.load(Ordering::Relaxed);
        slot.in_hand.store(epoch, Ordering::Relaxed);
        // No other thread adds.
        let is_empty = permits(slot.stock.load(Ordering::Relaxed), epoch) == 0;
        let stock = if is_empty { 0 } else { slot.stock.swap(epoch, Ordering::AcqRel) };
        Some(Held { epoch, permits: permits(in_hand, epoch) + permits(stock, epoch) })
    }

    /// Puts permits into the slot of `thread`, which calls this after it has emptied it.
    pub(super) fn fill(&self, thread: usize, Held { epoch, permits }: Held) {
        let Some(OwnLine(slot)) = self.slots.get(thread) else { return };
        let in_hand = permits.min(HANDFUL);
        slot.in_hand.store(epoch + u64::from(in_hand), Ordering::Relaxed);
        if permits > in_hand {
            slot.stock.store(epoch + u64::from(permits - in_hand), Ordering::Release);
        }
    }

    /// Takes `n` permits out of one stock, or out of the hand of a thread that has ended: `adopt` makes this
    /// thread the one of such a slot for a moment.
    pub(super) fn claim<A>(&self, n: u32, adopt: impl Fn(usize) -> Option<A>) -> bool {
        let epoch = self.epoch.0.load(Ordering::Acquire);
        let enough = |number| permits(number, epoch) >= n;
        self.slots.iter().enumerate().any(|(thread, OwnLine(slot))| {
            let mut stock = slot.stock.load(Ordering::Relaxed);
            while enough(stock) {
                let less = stock - u64::from(n);
                match slot.stock.compare_exchange(stock, less, Ordering::AcqRel, Ordering::Relaxed)
                {
                    Ok(_) => return true,
                    Err(current) => stock = current,
                }
            }
            enough(slot.in_hand.load(Ordering::Relaxed))
                && adopt(thread).is_some_and(|_adopted| self.take(thread, n))
        })
    }

    /// All that threads hold, about.
    pub(super) fn held(&self) -> u32 {
        let epoch = self.epoch.0.load(Ordering::Acquire);
        let numbers = self.slots.iter().flat_map(|OwnLine(slot)| [&slot.in_hand, &slot.stock]);
        numbers.map(|number| permits(number.load(Ordering::Relaxed), epoch)).sum()
    }

    /// Nothing that is held now is taken any more.
    pub(super) fn discard(&self) {
        self.epoch.0.fetch_add(1 << 32, Ordering::AcqRel);
    }
}
