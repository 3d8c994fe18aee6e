//! The queue of the shared limiter under random events: processes, callers that join and leave at
//! any time, requests that are delayed, lost or answered too late. A real server decides by a
//! manual clock, and no thread sleeps.
//!
//! A seed determines everything but the pace at which a process retries.

#[path = "../redis/manual.rs"]
mod manual;
mod requests;
mod run;
mod wire;

use std::fmt::Debug;
use std::time::Duration;

use run::{Rules, Run};
use tollgate::redis::Scripted;
use tollgate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Rate, Rated, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use crate::random::Random;
use crate::task::attempt;
use crate::{Played, seeds, steps, take_all, try_or_tell, turns};

const RATE: f64 = 100.0;
const PLACES: u32 = 7;

impl Random {
    fn of_thousand(&mut self, likely: u64) -> bool {
        self.below(1_000) < likely
    }

    fn one_of<T: Copy>(&mut self, these: &[T]) -> T {
        these[usize::try_from(self.below(these.len() as u64)).expect("an index")]
    }

    /// Seldom the longest: lengths of all magnitudes are as likely.
    fn up_to(&mut self, longest: Duration) -> Duration {
        let micros = u64::try_from(longest.as_micros()).expect("a time");
        let micros = micros >> self.below(12);
        Duration::from_micros(self.below(micros + 1))
    }
}

/// The world of a seed.
struct Fleet<P: Scripted> {
    rules: Rules<P>,
    seed: u64,
}

impl<P: Scripted + Debug> Played for Fleet<P> {
    type Op = u64;
    type Ended = ();

    fn play(&self, ops: &[u64]) -> Result<(), String> {
        let take = |run: &mut Run<P>, op| {
            run.take(op);
            Ok(())
        };
        let run = take_all(Run::new(self.rules.clone(), self.seed), ops, take)?;
        attempt(|| run.end()).map(drop)
    }

    fn show(&self) {
        println!("    {:?}", self.rules.policy);
    }
}

fn try_seeds<P: Scripted<Cost = u32> + Debug>(policy: P, choose: impl Fn(Rules<P>) -> Rules<P>) {
    try_costs(policy, |number| number, |cost| [cost; 2], choose);
}

fn try_costs<P: Scripted + Debug>(
    policy: P,
    cost: fn(u32) -> P::Cost,
    number: fn(P::Cost) -> [u32; 2],
    choose: impl Fn(Rules<P>) -> Rules<P>,
) {
    let _turn = turns();
    let fails = |&seed: &u64| {
        let (policy, mut chance) = (policy.clone(), Random(seed));
        let (rate, burst) = (RATE, 8.0);
        let rules =
            Rules { policy, slower: None, rate, burst, most: None, parts: false, cost, number };
        let ops = (0..steps(600)).map(|_| chance.next()).collect();
        try_or_tell(seed, &Fleet { rules: choose(rules), seed }, ops).is_none()
    };
    let failed: Vec<_> = seeds(14).filter(fails).collect();
    assert!(failed.is_empty(), "seeds {failed:?}");
}

fn rate() -> Rate {
    Rate::per_second(RATE)
}

fn half() -> Rate {
    Rate::per_second(RATE / 2.0)
}

fn bucket() -> TokenBucket {
    TokenBucket::new(rate(), 8)
}

#[test]
fn smooth_bursty() {
    let policy = SmoothBursty::new(rate()).max_burst(Duration::from_millis(100));
    let slower = Some(policy.clone().with_rate(half()));
    // Ten are stored, and the last request, of at most five, is not yet paid for.
    try_seeds(policy, |rules| Rules { slower: slower.clone(), burst: 15.0, ..rules });
}

#[test]
fn token_bucket() {
    let slower = Some(bucket().with_rate(half()));
    try_seeds(bucket(), |rules| Rules { slower: slower.clone(), ..rules });
}

/// New callers may find no room.
#[test]
fn leaky_bucket() {
    let policy = LeakyBucket::new(rate(), 8);
    let slower = Some(policy.clone().with_rate(half()));
    try_seeds(policy, |rules| Rules { slower: slower.clone(), ..rules });
}

#[test]
fn fixed_window() {
    let of = |limit| FixedWindow::new(limit, Duration::from_millis(100));
    // The limit at the end of one window, and again in the next.
    try_seeds(of(10), |rules| Rules { slower: Some(of(5)), burst: 20.0, ..rules });
}

/// A grant counts for a window, even if callers booked behind it have left.
#[test]
fn sliding_window_log() {
    let of = |limit| SlidingWindowLog::new(limit, Duration::from_millis(100));
    // The limit of one window, at any rate.
    try_seeds(of(10), |rules| Rules { slower: Some(of(5)), burst: 10.0, ..rules });
}

/// A refusal must be requested exactly once.
#[test]
fn lock_out() {
    let policy = LockOut::new(bucket(), Duration::from_millis(200));
    try_seeds(policy, |rules| Rules { parts: true, ..rules });
}

#[test]
fn places_in_flight() {
    let of_places = |rules| Rules { rate: 1e9, burst: 1e9, most: Some(PLACES), ..rules };
    try_seeds(InFlight::new(PLACES), of_places);
}

#[test]
fn bucket_and_places() {
    let policy = Same((bucket(), InFlight::new(PLACES)));
    try_seeds(policy, |rules| Rules { most: Some(PLACES), parts: true, ..rules });
}

/// Stored permits are granted more slowly, and only the last request, of at most five, is not yet
/// paid for.
#[test]
fn smooth_warming_up() {
    let policy = SmoothWarmingUp::new(rate(), Duration::from_millis(200));
    let slower = Some(policy.clone().with_rate(half()));
    try_seeds(policy, |rules| Rules { slower: slower.clone(), burst: 15.0, ..rules });
}

#[test]
fn gcra() {
    let policy = Gcra::new(7, 100, Duration::from_secs(1));
    let slower = Some(policy.clone().with_rate(half()));
    try_seeds(policy, |rules| Rules { slower: slower.clone(), ..rules });
}

#[test]
fn sliding_window_counter() {
    let of = |limit| SlidingWindowCounter::new(limit, Duration::from_millis(100), 5);
    // One window's, as for a log; and a fifth of it ends too early when the clock is set back, as the grid
    // of its parts is the clock's.
    try_seeds(of(10), |rules| Rules { slower: Some(of(5)), burst: 12.0, ..rules });
}

/// Each caller needs permits, and one place.
#[test]
fn a_bucket_and_a_place_each() {
    let policy = (bucket(), InFlight::new(PLACES));
    let slower = Some((bucket().with_rate(half()), InFlight::new(PLACES)));
    let of_places =
        |rules| Rules { slower: slower.clone(), most: Some(PLACES), parts: true, ..rules };
    try_costs(policy, |number| (number, 1), |(number, places)| [number, places], of_places);
}
