//! Each process gets its share of what callers hold.
//! `FLEET_SECONDS=10` makes these runs longer.

use std::time::Duration;

use crate::history::History;
use crate::job::{Job, Kind, Rule, micros, ms};
use crate::processes;
use crate::support::server::Server;

/// The part of the run after which shares are counted.
const BEGINS: u64 = 500_000;

fn lasts(usual: Duration) -> Duration {
    let seconds = std::env::var("FLEET_SECONDS").map(|text| text.parse().expect("a number"));
    seconds.map_or(usual, Duration::from_secs)
}

fn longest_wait(history: &History) -> Duration {
    Duration::from_micros(history.grants.iter().map(|grant| grant.waited).max().unwrap_or(0))
}

/// Callers hold each grant for 10 ms: the least share of a process is 75 % of the greatest, but for the cost of delays.
/// Eight processes get 125 grants each, so equal shares differ by a tenth and more from run to run.
#[track_caller]
fn shares_what_is_held(rule: Rule, processes: usize) {
    let server = Server::start();
    let lasts = lasts(ms(2_500));
    let job = Job { holds: ms(10), ..Job::new(server.url(), rule, lasts) };
    let (history, ()) = processes::run(&vec![job; processes], |_| ());
    let shares = history.shares(processes, BEGINS);
    let places = 100.0 * history.places_used(rule.places, micros(lasts));
    let wait = longest_wait(&history);
    println!(
        "{}",
        history.row(&rule, &format!("{places:.1} % held  {wait:.0?} waited  shares {shares:.2?}"))
    );
    let most = shares.iter().copied().fold(0.0, f64::max);
    // A process that the machine delays loses its turn.
    let cost =
        if history.trip > 20_000 { history.cost_of_delays(micros(lasts) - BEGINS) } else { 0.0 };
    let least = 0.75 - cost;
    assert!(shares.iter().all(|&share| share >= least * most), "{shares:.2?}, -{cost:.2}");
}

#[test]
fn places_of_eight_processes() {
    shares_what_is_held(Rule::places(5, ms(10)), 8);
}

#[test]
fn a_log_with_places_of_two_processes() {
    let rule = Rule::window(Kind::LogAndPlaces, 200, ms(100));
    shares_what_is_held(Rule { places: 50, ..rule }, 2);
}
