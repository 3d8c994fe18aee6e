//! TODO

mod clock;
mod error;
mod limiter;
mod line;
mod policy;
mod stats;
mod sync;
mod units;

pub use clock::{Clock, ManualClock};
pub use error::{Error, ExceedsCapacity};
pub use limiter::{Acquire, Grant, RateLimiter, Reservation};
pub use policy::schedule::Booking;
pub use policy::smooth_bursty::{SmoothBursty, SmoothBurstyState};
pub use policy::smooth_warming_up::{SmoothWarmingUp, SmoothWarmingUpState, WarmingUpReceipt};
pub use policy::{Cost, Policy, Rated};
pub use stats::Stats;
pub use units::{InvalidRate, Nanos, Rate};
