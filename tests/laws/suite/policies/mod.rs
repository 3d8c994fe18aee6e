//! The policies, each with its oracle.

mod bucket;
pub(crate) mod bursty;
mod fixed_window;
mod in_flight;
mod leaky_queue;
mod lock_out;
mod sliding;
pub(crate) mod together;
mod token_bucket;
pub(crate) mod warming_up;

pub(crate) use fixed_window::Aligned;
pub(crate) use token_bucket::{Meter, Stepwise};
