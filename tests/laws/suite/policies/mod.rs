//! The policies, each with its oracle.

mod bucket;
pub(crate) mod bursty;
pub(crate) mod fixed_window;
mod in_flight;
pub(crate) mod leaky_queue;
mod lock_out;
pub(crate) mod sliding;
pub(crate) mod together;
pub(crate) mod token_bucket;
pub(crate) mod warming_up;

pub(crate) use fixed_window::Aligned;
pub(crate) use token_bucket::{Meter, Stepwise};
