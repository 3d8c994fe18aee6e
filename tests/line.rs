//! The line: who is granted, and when, while others wait too. All on a clock that stands still until
//! it is told to move, so every time here is exact.

#[path = "line/bounds.rs"]
mod bounds;
#[path = "line/counts.rs"]
mod counts;
#[path = "line/load.rs"]
mod load;
#[path = "line/order.rs"]
mod order;
#[path = "line/retiming.rs"]
mod retiming;
#[cfg(feature = "tokio")]
#[path = "line/stopped.rs"]
mod stopped;
mod support;
#[path = "line/timed.rs"]
mod timed;
