//! Leaving the line: dropped, leaked and forgotten callers, and wakers with a life of their own. On a
//! clock that stands still until it is told to move, but for the last part.

mod broken;
mod executors;
mod leaving;
mod neglect;
mod panics;
mod refunds;
mod wakers;
