//! The blocking methods, for threads: each waits for the async method of the same name.

use std::time::Duration;

use super::connection::Connection;
use super::grant::RedisGrant;
use super::inspect::KeyState;
use super::limiter::RedisRateLimiter;
use super::script::Scripted;
use crate::error::Error;
use crate::park::block_on;
use crate::policy::{Quota, Rated};
use crate::units::Rate;

macro_rules! blocking {
    ($($(#[$more:meta])* $name:ident = $method:ident($($argument:ident: $type:ty),*) -> $output:ty;)+) => {
        $(
            #[doc = concat!("As [`", stringify!($method), "`](Self::", stringify!($method), "), for threads.")]
            ///
            $(#[$more])*
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`", stringify!($method), "`](Self::", stringify!($method), ").")]
            pub fn $name(&self $(, $argument: $type)*) -> Result<$output, Error> {
                block_on(self.$method($($argument),*))
            }
        )+
    };
}

impl<P: Scripted, C: Connection> RedisRateLimiter<P, C> {
    blocking! {
        blocking_set_policy = set_policy(policy: P) -> ();
        blocking_pause_for = pause_for(duration: Duration) -> ();
        blocking_resume = resume() -> ();
        blocking_shrink_to = shrink_to(remaining: P::Cost) -> RedisGrant<P, C>;
        blocking_flush = flush() -> ();
        blocking_quota = quota() -> Quota<P::Cost>;
        blocking_ping = ping() -> ();
        blocking_inspect = inspect() -> KeyState<P>;
        blocking_reset = reset() -> ();
    }
}

impl<P: Scripted + Rated, C: Connection> RedisRateLimiter<P, C> {
    blocking! {
        blocking_set_rate = set_rate(rate: Rate) -> ();
    }
}
