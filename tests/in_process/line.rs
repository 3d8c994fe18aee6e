//! The line: who is granted, and when, while others wait too. All on a clock that stands still until
//! it is told to move, so every time here is exact.

mod bounds;
mod counts;
mod load;
mod order;
mod retiming;
#[cfg(feature = "tokio")]
mod stopped;
mod timed;
