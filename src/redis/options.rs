//! What can be chosen of a shared limiter.

use std::sync::Arc;
use std::time::Duration;

use super::events::Event;
use crate::clock::Clock;

/// What callers get while Redis is unavailable. Somebody else's quota is at stake: choose.
///
/// ```
/// use tollgate::redis::Unavailable;
/// use tollgate::{Rate, SmoothBursty};
///
/// // Eight processes share 80 a second. Alone, each takes its share.
/// let share = SmoothBursty::new(Rate::per_second(10.0));
/// let unavailable = Unavailable::Local(share);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Unavailable<P> {
    /// An [`Error::Store`](crate::Error::Store) at once. Nothing is taken beyond the limit, and nothing
    /// goes on.
    #[default]
    Fail,
    /// They are granted at once, without any limit.
    Allow,
    /// A limiter of this process's own with this policy: a share of the whole, for each key.
    Local(P),
}

type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// What can be chosen.
pub(super) struct Options<P> {
    pub(super) horizon: Duration,
    pub(super) deadline: Duration,
    pub(super) lease: Duration,
    pub(super) absent_is_idle: bool,
    pub(super) unavailable: Unavailable<P>,
    pub(super) max_waiters: usize,
    pub(super) max_queued_permits: u64,
    pub(super) listener: Option<Listener>,
    pub(super) clock: Clock,
}
