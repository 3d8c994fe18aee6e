//! Leaving the line: dropped, leaked and forgotten callers, and wakers with a life of their own. On a
//! clock that stands still until it is told to move, but for the last part.

#[path = "cancel/broken.rs"]
mod broken;
#[path = "cancel/executors.rs"]
mod executors;
#[path = "cancel/leaving.rs"]
mod leaving;
#[path = "cancel/neglect.rs"]
mod neglect;
#[path = "cancel/panics.rs"]
mod panics;
#[path = "cancel/refunds.rs"]
mod refunds;
mod support;
#[path = "cancel/wakers.rs"]
mod wakers;
