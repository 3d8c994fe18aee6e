//! Callers that stay: the fleet gets the whole rate, and each process its part.

use std::time::Duration;

use crate::history::{History, table_row};
use crate::job::{Job, PROCESSES, Rule, micros, ms};
use crate::processes;
use crate::support::server::Server;

fn steady(rule: Rule, cost: u32, lasts: Duration) {
    let server = Server::start();
    let job = Job { cost, ..Job::new(server.url(), rule, lasts) };
    let rates = vec![(0, rule.rate)];
    let law_1 = |history: &History| history.keeps_law_1(&rates, rule.most_at_once(cost));
    let (history, excess) = processes::run(&vec![job; PROCESSES as usize], law_1);

    let used = history.utilisation(&rates, 500_000, micros(lasts) - 250_000);
    let share = history.least_share(PROCESSES as usize);
    table_row(&history, &rule, excess, used, share);
    history.uses(used, micros(lasts) - 750_000);
    assert!(share >= 1.0 / 3.0, "a process got {share:.3} of its share");
}

#[test]
fn at_5_a_second() {
    steady(Rule::bursty(5.0), 1, ms(8_000));
}

#[test]
fn at_100_a_second() {
    steady(Rule::bursty(100.0), 1, ms(4_000));
}

#[test]
fn at_5_000_a_second() {
    steady(Rule::bursty(5_000.0), 1, ms(3_000));
}

// In calls of ten: two cores can make this many single calls only when they are otherwise idle.
#[test]
fn at_50_000_a_second() {
    steady(Rule::bursty(50_000.0), 10, ms(3_000));
}

#[test]
fn a_token_bucket_at_5_000_a_second() {
    steady(Rule::bucket(5_000.0), 1, ms(3_000));
}
