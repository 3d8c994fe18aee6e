//! Each process gets its share of what callers hold, and callers that leave cost nothing of the rate.
//! `FLEET_SECONDS=10` makes these runs longer.

use std::time::Duration;

use crate::history::{History, table_row};
use crate::job::{Callers, Job, Kind, PROCESSES, Rule, TASKS, micros, ms};
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
/// Eight processes get 300 grants each, so equal shares differ by some hundredths from run to run.
#[track_caller]
fn shares_what_is_held(rule: Rule, processes: usize) {
    let server = Server::start();
    let lasts = lasts(ms(6_000));
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

/// One call in three is dropped when nearly all callers have a booking, which is lost behind later ones if no caller of its
/// process takes it.
#[test]
fn bookings_of_callers_that_leave_cost_a_twentieth_of_the_rate() {
    let server = Server::start();
    let (rule, lasts) = (Rule::bursty(2_000.0), lasts(ms(2_500)));
    let callers = Callers::Dropping(TASKS);
    let job = Job { callers, ..Job::new(server.url(), rule, lasts) };
    let rates = vec![(0, rule.rate)];
    let law_1 = |history: &History| history.keeps_law_1(&rates, rule.most_at_once(1));
    let (history, excess) = processes::run(&vec![job; PROCESSES as usize], law_1);
    let used = history.utilisation(&rates, BEGINS, micros(lasts) - 250_000);
    let share = history.least_share(PROCESSES as usize);
    table_row(&history, &rule, excess, used, share);
    assert!((0.9..=1.02).contains(&used), "{used:.4} of the rate");
}
