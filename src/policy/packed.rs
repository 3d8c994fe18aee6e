//! States in 63 bits, for tables of many keys.

use crate::units::Nanos;

/// The functions that pack a state, and decide by it. They are a table for the reason given at
/// [`LockFree`](super::lock_free::LockFree). What only refunds need is left out: there must be no receipt that can
/// be given back.
#[derive(Debug)]
pub(crate) struct Packed<P, S, C, R> {
    /// The state in 63 bits. `None` if it does not fit, or if a pause is not over at this time.
    pub(crate) pack: fn(&P, &S, Nanos) -> Option<u64>,
    pub(crate) unpack: fn(&P, u64) -> S,
    /// The same decision as by the state, in fewer steps.
    pub(crate) attempt: fn(&P, u64, Nanos, C) -> PackedAttempt<R>,
}

/// The decision of a call by a word: by a [packed](Packed) state, for a key in a table, or in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt<G> {
    Granted(G),
    /// Ready at this time.
    ReadyAt(Nanos),
    /// It takes the whole state, under its lock.
    Undecided,
}

/// The decision by a packed state: with a grant goes the state after it.
pub(crate) type PackedAttempt<R> = Attempt<(u64, R)>;
