//! What the rules were made with. Their rates are in [`Rated`](super::Rated).

use std::time::Duration;

use super::fixed_window::FixedWindow;
use super::gcra::Gcra;
use super::in_flight::InFlight;
use super::leaky_bucket::LeakyBucket;
use super::lock_out::LockOut;
use super::sliding_window_counter::SlidingWindowCounter;
use super::sliding_window_log::SlidingWindowLog;
use super::smooth_bursty::SmoothBursty;
use super::smooth_warming_up::SmoothWarmingUp;
use super::token_bucket::TokenBucket;

macro_rules! getters {
    ($($policy:ident $(<$of:ident>)?: {
        $($(#[$doc:meta])+ $name:ident: $type:ty = |$this:ident| $value:expr;)+
    })+) => {
        $(
            impl $(<$of>)? $policy $(<$of>)? {
                $(
                    $(#[$doc])+
                    #[must_use]
                    pub fn $name(&self) -> $type {
                        let $this = self;
                        $value
                    }
                )+
            }
        )+
    };
}

getters! {
    SmoothBursty: {
        /// The time whose permits can be stored.
        burst: Duration = |this| this.max_burst;
    }
    SmoothWarmingUp: {
        /// The time in which an idle limiter reaches its rate.
        period: Duration = |this| this.warm_up;
    }
    TokenBucket: {
        /// The tokens in a full bucket.
        capacity: u32 = |this| this.capacity;
        /// The time from one [refill](Self::refill_every) to the next; zero if tokens come one by one.
        period: Duration = |this| Duration::from_nanos(this.schedule.period);
    }
    Gcra: {
        /// The permits that can be granted at once beyond the first.
        max_burst: u32 = |this| this.max_burst;
    }
    LeakyBucket: {
        /// The permits that can wait in the bucket; of a meter, that can be granted at once.
        capacity: u32 = |this| this.capacity;
        /// Whether it is a [meter](Self::meter).
        is_meter: bool = |this| this.meter;
    }
    FixedWindow: {
        /// The permits in each window.
        limit: u32 = |this| this.limit;
        /// The length of a window.
        period: Duration = |this| Duration::from_nanos(this.window);
        /// Whether windows begin at times of the wall clock, see [`aligned`](Self::aligned).
        is_aligned: bool = |this| this.grid.is_some();
    }
    SlidingWindowLog: {
        /// The permits in any window.
        limit: u32 = |this| this.limit;
        /// The length of a window.
        period: Duration = |this| Duration::from_nanos(this.span.window);
    }
    SlidingWindowCounter: {
        /// The permits in any window, approximately.
        limit: u32 = |this| this.limit;
        /// The length of a window.
        period: Duration = |this| Duration::from_nanos(this.span.window);
    }
    InFlight: {
        /// The permits that can be in use at a time.
        limit: u32 = |this| this.max;
    }
    LockOut<P>: {
        /// The rule that refuses.
        policy: &P = |this| &this.policy;
        /// How long a refusal locks.
        period: Duration = |this| this.duration;
    }
}
