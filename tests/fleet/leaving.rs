//! Callers arrive at twice the rate and leave: those that stay get the whole rate.

use std::time::Duration;

use crate::history::{History, table_row};
use crate::job::{Callers, Job, PROCESSES, Rule, micros, ms};
use crate::processes;
use crate::support::server::Server;

fn leaving(rule: Rule, patience: Duration) {
    let server = Server::start();
    let every = Duration::from_secs_f64(f64::from(PROCESSES) / (2.0 * rule.rate));
    let lasts = ms(4_000);
    let callers = Callers::Leaving { every, patience };
    let job = Job { callers, ..Job::new(server.url(), rule, lasts) };
    let rates = vec![(0, rule.rate)];
    let law_1 = |history: &History| history.keeps_law_1(&rates, rule.most_at_once(1));
    let (history, excess) = processes::run(&vec![job; PROCESSES as usize], law_1);

    // The queue is full once the first callers leave.
    let used = history.utilisation(&rates, 1_500_000, micros(lasts) - 250_000);
    let share = history.least_share(PROCESSES as usize);
    table_row(&history, &rule, excess, used, share);
    println!("{:>44} left", history.left);
    let expected = rule.rate * (lasts - patience).as_secs_f64();
    assert!(history.left_count() >= 0.5 * expected, "too few left: {}", history.left);
    history.uses(used, micros(lasts) - 1_750_000);
    assert!(share >= 1.0 / 3.0, "a process got {share:.3} of its share");
}

#[test]
fn at_100_a_second() {
    leaving(Rule::bursty(100.0), ms(500));
}

#[test]
fn at_2_000_a_second() {
    leaving(Rule::bursty(2_000.0), ms(300));
}
