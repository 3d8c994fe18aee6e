//! All that two processes, one Redis and three callers can do to each other.
//!
//! The limiter and its scripts are the real ones. A checker of our own decides what happens next: which caller comes,
//! is polled or leaves, which request the server runs, which reply arrives or is lost, when time passes, and what
//! crashes. It tries each of these in each state ([`explore`]), and from each state it lets all faults cease and
//! demands that each caller gets an answer.
#![cfg(test)]

mod compare;
mod explore;
mod fixed;
mod ledger;
#[path = "../../redis_scripts/random.rs"]
#[allow(dead_code)]
mod random;
#[path = "../../redis_laws/simulation/requests.rs"]
mod requests;
#[path = "../../redis_scripts/server.rs"]
#[allow(dead_code)]
mod server;
mod store;
mod structs;
mod wire;
mod world;

use std::time::Duration;

use tollgate::{InFlight, Rate, SlidingWindowLog, SmoothBursty, TokenBucket};

use compare::compare;
use explore::explore_all;
use ledger::Law;
use world::{Call, Scenario};

/// How long a caller waits that does not wait for ever: for one permit, and not for two.
const TIME: Duration = ms(150);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn token_bucket() -> Scenario<TokenBucket> {
    Scenario {
        callers: vec![(0, Call::Wait), (1, Call::Wait), (0, Call::Wait)],
        ..Scenario::new(
            TokenBucket::new(Rate::per_second(10.0), 1),
            Law::Rate { burst: 1.0, per_second: 10.0 },
        )
    }
}

fn smooth_bursty() -> Scenario<SmoothBursty> {
    Scenario {
        callers: vec![(0, Call::Timed(TIME)), (1, Call::Try), (0, Call::Wait)],
        ..Scenario::new(
            SmoothBursty::new(Rate::per_second(10.0)).max_burst(ms(100)),
            // One is stored, and one is not yet paid for.
            Law::Rate { burst: 2.0, per_second: 10.0 },
        )
    }
}

fn window() -> Scenario<SlidingWindowLog> {
    Scenario {
        callers: vec![(0, Call::Wait), (1, Call::Timed(TIME)), (1, Call::Wait)],
        gives_back: true,
        ..Scenario::new(SlidingWindowLog::new(1, ms(100)), Law::Window { most: 1, span: ms(100) })
    }
}

fn in_flight() -> Scenario<InFlight> {
    Scenario {
        callers: vec![(0, Call::Wait), (1, Call::Wait), (0, Call::Wait)],
        gives_back: true,
        ..Scenario::new(InFlight::new(1), Law::Places { most: 1 })
    }
}

macro_rules! each_rule {
    ($($rule:ident)*) => {
        /// All orders.
        mod all {
            $(#[test]
            fn $rule() {
                super::explore_all(stringify!($rule), &super::$rule());
            })*
        }

        mod scripts_are_answered_as_by_redis {
            $(#[test]
            fn $rule() {
                super::compare(&super::$rule());
            })*
        }
    };
}

each_rule! { token_bucket smooth_bursty window in_flight }
