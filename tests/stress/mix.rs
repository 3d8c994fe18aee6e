//! The next call of a caller, and the use of its grant.

use crate::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Try,
    /// A cost of nothing.
    Nothing,
    /// More than the capacity.
    TooMuch,
    Wait,
    WaitOwned,
    WaitTimed,
    /// Polls a few times and leaves.
    Leave,
    LeaveTimed,
    /// Is dropped by a timer.
    TimeOut,
    Block,
    BlockTimed,
    Reserve,
    ReserveLeave,
    /// Drops a reservation without a poll, so it is unknown whether it was granted.
    ReserveDrop,
    /// Continues with the grant of another caller.
    TakeOver,
    Look,
    Clone,
    /// A thread that makes a few calls and ends.
    BriefThread,
    Change,
    Pause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantUse {
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

/// For callers that contend for the word all the time.
pub(crate) const TRIES: &Mix<Verb> = &[
    (Verb::Try, 2000),
    (Verb::Nothing, 20),
    (Verb::Look, 2),
    (Verb::Clone, 10),
    (Verb::BriefThread, 1),
    (Verb::TakeOver, 10),
];

/// Without the calls at the end of [`ALL`], which give permits back or change the price of one.
pub(crate) const WAITS: &Mix<Verb> = ALL.split_at(ALL.len() - 3).0;

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
    (Verb::TakeOver, 20),
    (Verb::Look, 10),
    (Verb::Clone, 10),
    (Verb::BriefThread, 2),
    (Verb::ReserveDrop, 20),
    (Verb::Change, 10),
    (Verb::Pause, 3),
];

pub(crate) const KEPT: &Mix<GrantUse> = &[(GrantUse::Drop, 9), (GrantUse::HandOver, 1)];

pub(crate) const CORRECTED: &Mix<GrantUse> = &[
    (GrantUse::Drop, 20),
    (GrantUse::HandOver, 4),
    (GrantUse::Refund, 3),
    (GrantUse::SettleUp, 2),
    (GrantUse::SettleDown, 2),
    (GrantUse::SettleTwice, 1),
];

/// Kept for long by other callers, and then often given back.
pub(crate) const REFUNDED: &Mix<GrantUse> = &[
    (GrantUse::Drop, 8),
    (GrantUse::HandOver, 8),
    (GrantUse::Refund, 6),
    (GrantUse::SettleDown, 2),
];

/// For policies of calls in flight, which exceed their limit if one of them settles upwards.
pub(crate) const ONLY_LESS: &Mix<GrantUse> = &[
    (GrantUse::Drop, 8),
    (GrantUse::HandOver, 8),
    (GrantUse::Refund, 2),
    (GrantUse::SettleDown, 2),
];
