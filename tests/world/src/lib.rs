//! All that two processes, one Redis and three callers can do to each other.
//!
//! The limiter and its scripts are the real ones. A checker of our own decides what happens next: which caller comes,
//! is polled or leaves, which request the server runs, which reply arrives or is lost, when time passes, and what
//! crashes. It tries each of these in each state ([`explore`]), and from each state it lets all faults cease and
//! demands that each caller gets an answer.
#![cfg(test)]

mod explore;
mod fixed;
mod ledger;
#[path = "../../redis_laws/simulation/requests.rs"]
mod requests;
mod store;
mod structs;
mod wire;
mod world;

use std::time::Duration;

use tollgate::{InFlight, Rate, SlidingWindowLog, SmoothBursty, TokenBucket};

use explore::explore;
use ledger::Law;
use world::{Call, Fault, Scenario};

const ALL: &[Fault] = &[
    Fault::Refuse,
    Fault::Cut,
    Fault::Silence,
    Fault::Cancel,
    Fault::Lose,
    Fault::Crash,
    Fault::Standstill,
];

/// How long a caller waits that does not wait for ever: for one permit, and not for two.
const TIME: Duration = ms(150);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn token_bucket() {
    let scenario = Scenario {
        policy: TokenBucket::new(Rate::per_second(10.0), 1),
        law: Law::Rate { burst: 1.0, per_second: 10.0 },
        callers: &[(0, Call::Wait), (0, Call::Wait), (1, Call::Wait)],
        faults: ALL,
        most_faults: 0,
        ticks: 1,
        gives_back: false,
        seed: 7,
    };
    explore("token bucket", &scenario);
}

#[test]
fn smooth_bursty() {
    let scenario = Scenario {
        policy: SmoothBursty::new(Rate::per_second(10.0)).max_burst(ms(100)),
        // One is stored, and one is not yet paid for.
        law: Law::Rate { burst: 2.0, per_second: 10.0 },
        callers: &[(0, Call::Wait), (0, Call::Timed(TIME)), (1, Call::Try)],
        faults: ALL,
        most_faults: 0,
        ticks: 1,
        gives_back: false,
        seed: 7,
    };
    explore("smooth bursty", &scenario);
}

#[test]
fn window() {
    let scenario = Scenario {
        policy: SlidingWindowLog::new(1, ms(100)),
        law: Law::Window { most: 1, span: ms(100) },
        callers: &[(0, Call::Wait), (1, Call::Wait), (1, Call::Timed(TIME))],
        faults: ALL,
        most_faults: 0,
        ticks: 1,
        gives_back: true,
        seed: 7,
    };
    explore("window", &scenario);
}

#[test]
fn in_flight() {
    let scenario = Scenario {
        policy: InFlight::new(1),
        law: Law::Places { most: 1 },
        callers: &[(0, Call::Wait), (0, Call::Wait), (1, Call::Wait)],
        faults: ALL,
        most_faults: 0,
        ticks: 1,
        gives_back: true,
        seed: 7,
    };
    explore("in flight", &scenario);
}
