//! Leaving the queue: dropped, leaked and forgotten callers, and wakers with a life of their own.
//! On a manual clock, but for the last part.

mod leaving;
mod panics;
mod refunds;
mod wakers;
