//! What a caller does next, and what becomes of its grant.

use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Try,
    /// A cost of nothing.
    Nothing,
    /// More than can ever be granted.
    TooMuch,
    Wait,
    WaitOwned,
    WaitTimed,
    /// Looks a few times and is gone.
    Leave,
    LeaveTimed,
    /// Is dropped by a timer.
    TimeOut,
    Block,
    BlockTimed,
    Reserve,
    ReserveLeave,
    /// Has not even looked, so that nobody knows whether it was granted.
    ReserveDrop,
    /// Goes on with what somebody else was granted.
    TakeOver,
    Look,
    Clone,
    /// A thread that counts a little and ends.
    BriefThread,
    Change,
    Pause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Drop,
    HandOver,
    Refund,
    SettleUp,
    SettleDown,
    /// Up, and then further down than it was at first.
    SettleTwice,
}

/// One of them by weight.
pub(crate) type Mix<T> = [(T, u64)];

pub(crate) fn choose<T: Copy>(mix: &Mix<T>, chance: &mut Random) -> T {
    let mut left = chance.below(mix.iter().map(|&(_, weight)| weight).sum());
    for &(item, weight) in mix {
        if left < weight {
            return item;
        }
        left -= weight;
    }
    unreachable!("less than all weights together")
}

/// For those who meet in the word all the time.
pub(crate) const TRIES: &Mix<Verb> = &[
    (Verb::Try, 2000),
    (Verb::Nothing, 20),
    (Verb::Look, 2),
    (Verb::Clone, 10),
    (Verb::BriefThread, 1),
    (Verb::TakeOver, 10),
];

/// Nothing that would change what a permit costs, or give one back that was taken.
pub(crate) const WAITS: &Mix<Verb> = &[
    (Verb::Try, 200),
    (Verb::Nothing, 5),
    (Verb::TooMuch, 5),
    (Verb::Wait, 40),
    (Verb::WaitOwned, 20),
    (Verb::WaitTimed, 40),
    (Verb::Leave, 40),
    (Verb::LeaveTimed, 20),
    (Verb::TimeOut, 20),
    (Verb::Block, 40),
    (Verb::BlockTimed, 20),
    (Verb::Reserve, 20),
    (Verb::ReserveLeave, 20),
    (Verb::TakeOver, 20),
    (Verb::Look, 10),
    (Verb::Clone, 10),
    (Verb::BriefThread, 2),
];

pub(crate) const ALL: &Mix<Verb> = &[
    (Verb::Try, 200),
    (Verb::Nothing, 5),
    (Verb::TooMuch, 5),
    (Verb::Wait, 40),
    (Verb::WaitOwned, 20),
    (Verb::WaitTimed, 40),
    (Verb::Leave, 40),
    (Verb::LeaveTimed, 20),
    (Verb::TimeOut, 20),
    (Verb::Block, 40),
    (Verb::BlockTimed, 20),
    (Verb::Reserve, 20),
    (Verb::ReserveLeave, 20),
    (Verb::ReserveDrop, 20),
    (Verb::TakeOver, 20),
    (Verb::Look, 10),
    (Verb::Clone, 10),
    (Verb::BriefThread, 2),
    (Verb::Change, 10),
    (Verb::Pause, 3),
];

pub(crate) const KEPT: &Mix<Fate> = &[(Fate::Drop, 9), (Fate::HandOver, 1)];

pub(crate) const CORRECTED: &Mix<Fate> = &[
    (Fate::Drop, 20),
    (Fate::HandOver, 4),
    (Fate::Refund, 3),
    (Fate::SettleUp, 2),
    (Fate::SettleDown, 2),
    (Fate::SettleTwice, 1),
];

/// Kept for long by others, and then often given back.
pub(crate) const REFUNDED: &Mix<Fate> =
    &[(Fate::Drop, 8), (Fate::HandOver, 8), (Fate::Refund, 6), (Fate::SettleDown, 2)];

/// For rules of calls in flight, which are over their limit when one of them turns out to be more.
pub(crate) const ONLY_LESS: &Mix<Fate> =
    &[(Fate::Drop, 8), (Fate::HandOver, 8), (Fate::Refund, 2), (Fate::SettleDown, 2)];
