//! The end of a limiter.

use std::task::Waker;

/// A step of the end of a limiter; `true` where it asks for nothing.
#[derive(Clone, Copy, Debug)]
pub enum End<'a> {
    /// Lets no caller in any more, and refuses those that wait.
    Close,
    /// Lets no caller in any more, and serves those that wait.
    Serve,
    /// Whether new callers are refused.
    IsClosed,
    /// Whether no caller waits and no place in flight is held. If not, calls the waker when that is so.
    IsDrained(&'a Waker),
}
