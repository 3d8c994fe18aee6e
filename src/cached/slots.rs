//! The permits that threads hold: a slot for each thread, on a cache line of its own.
//!
//! A slot has two numbers. What its thread has *in hand* only this thread takes, by a plain load and a plain
//! store: a locked instruction would take a third of the time in which a limiter decides. The rest is its *stock*,
//! from which any thread may take, by a compare-exchange. A thread takes a handful out of its stock at a time.
//!
//! Both numbers carry the epoch in which they were drawn, in their upper halves. To discard all that threads hold
//! is to begin the next epoch: numbers of earlier ones are void. `loom.rs` checks this.

use crate::sync::{AtomicU64, Ordering, OwnLine};

/// Epochs from here on hold nothing.
const CLOSED: u64 = 1 << 63;

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
    /// How often the thread of this slot has drawn permits. Others do not use it.
    draws: AtomicU64,
}

/// Where and when permits were held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    thread: usize,
    epoch: u64,
    draws: u64,
}

/// What was in a slot when it was taken out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) origin: Origin,
    pub(super) permits: u32,
}

impl Held {
    pub(super) fn with(self, permits: u32) -> Self {
        Self { permits, ..self }
    }

    /// After its thread has drawn.
    pub(super) fn drawn(self, permits: u32) -> Self {
        Self { origin: Origin { draws: self.origin.draws + 1, ..self.origin }, permits }
    }
}

/// The permits of a number that may be void.
#[allow(clippy::cast_possible_truncation)] // the lower half
fn permits(number: u64, epoch: u64) -> u32 {
    if number >= epoch { number as u32 } else { 0 }
}

impl Slots {
    pub(super) fn new(threads: usize) -> Self {
        let zero = || AtomicU64::new(0);
        let slot = |_| OwnLine(Slot { in_hand: zero(), stock: zero(), draws: zero() });
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

    /// The origin of what `thread`, which calls this, has just [taken](Self::take).
    #[inline(always)]
    pub(super) fn origin(&self, thread: usize) -> Option<Origin> {
        let OwnLine(slot) = self.slots.get(thread)?;
        // Of the slot: the present epoch may have begun since.
        let epoch = slot.in_hand.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        Some(Origin { thread, epoch, draws: slot.draws.load(Ordering::Relaxed) })
    }

    /// Takes out all that `thread` holds, which calls this. `None` if it has no slot, or holds nothing for good.
    pub(super) fn empty(&self, thread: usize) -> Option<Held> {
        let OwnLine(slot) = self.slots.get(thread)?;
        let epoch = self.epoch.0.load(Ordering::Acquire);
        if epoch >= CLOSED {
            return None;
        }
        let in_hand = slot.in_hand.load(Ordering::Relaxed);
        slot.in_hand.store(epoch, Ordering::Relaxed);
        // No other thread adds.
        let is_empty = permits(slot.stock.load(Ordering::Relaxed), epoch) == 0;
        let stock = if is_empty { 0 } else { slot.stock.swap(epoch, Ordering::AcqRel) };
        let origin = Origin { thread, epoch, draws: slot.draws.load(Ordering::Relaxed) };
        Some(Held { origin, permits: permits(in_hand, epoch) + permits(stock, epoch) })
    }

    /// Puts permits into the slot of a thread, which calls this after it has emptied it.
    pub(super) fn fill(&self, Held { origin, permits }: Held) {
        let Origin { thread, epoch, draws } = origin;
        let Some(OwnLine(slot)) = self.slots.get(thread) else { return };
        slot.draws.store(draws, Ordering::Relaxed);
        let in_hand = permits.min(HANDFUL);
        slot.in_hand.store(epoch + u64::from(in_hand), Ordering::Relaxed);
        if permits > in_hand {
            slot.stock.store(epoch + u64::from(permits - in_hand), Ordering::Release);
        }
    }

    /// Takes up to `n` of what `thread` holds, which calls this.
    pub(super) fn take_up_to(&self, thread: usize, n: u32) -> Option<Held> {
        let held = self.empty(thread)?;
        let taken = held.permits.min(n);
        self.fill(held.with(held.permits - taken));
        Some(held.with(taken))
    }

    /// Puts `n` permits back that `thread`, which calls this, has taken of what it held. They are lost if they are of
    /// another thread, of an earlier epoch, or from before this thread drew the last time: then what it holds may be
    /// all that it may hold.
    pub(super) fn give_back(&self, thread: usize, origin: Origin, n: u32) {
        if thread == origin.thread
            && let Some(held) = self.empty(thread)
        {
            let back = if held.origin == origin { n } else { 0 };
            self.fill(held.with(held.permits + back));
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

    /// Nothing that is held now is taken any more, and nothing is held from now on.
    pub(super) fn close(&self) {
        self.epoch.0.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Nothing that is held now is taken any more.
    pub(super) fn discard(&self) {
        self.epoch.0.fetch_add(1 << 32, Ordering::AcqRel);
    }
}
