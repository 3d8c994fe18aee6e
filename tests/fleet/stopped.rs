//! A process of the fleet stands still for a time (SIGSTOP): it does not use the bookings of that time when it goes
//! on, because the others were granted permits meanwhile.

use std::thread::sleep;
use std::time::Duration;

use crate::history::{Grant, History};
use crate::job::{Job, Kind, Rule, ms, now};
use crate::processes;
use crate::support::process::{signal, stop};
use crate::support::server::Server;

/// `after`: when it has bookings.
fn stops(rule: Rule, after: Duration) {
    let server = Server::start();
    let job = Job::new(server.url(), rule, ms(3_000));
    let (mut stopped, mut goes_on) = (0, 0);
    let mut history = processes::run_while(&vec![job; 3], |processes| {
        let pid = processes[0].pid();
        sleep(after);
        stop(pid);
        stopped = now();
        sleep(ms(1_200));
        goes_on = now();
        signal(pid, "CONT");
    });
    let own = |grant: &&Grant| grant.process == 0;
    let stale = |grant: &&Grant| own(grant) && stopped < grant.due && grant.due < goes_on;
    let stale = history.grants.iter().filter(stale).count();
    let after = history.grants.iter().filter(own).filter(|grant| grant.due >= goes_on).count();
    let rest = format!("{stale} of the time when it stood still, {after} after it");
    println!("{}", history.row(&rule, &rest));
    // A caller that had read its time, and no more, before the process stood still seems to be due in it.
    assert!(stale <= 1, "{rest}");
    assert!(after > 0, "it goes on");
    // Nor are there too many in any span. What was granted before is only seen late.
    history
        .grants
        .retain(|grant| grant.process != 0 || grant.seen < stopped || grant.due >= goes_on);
    history.trip = history.trips[1..].iter().copied().max().unwrap_or_default();
    let rates = vec![(0, rule.rate)];
    let excess = History::keeps_law_1(&history, &rates, rule.most_at_once(1));
    println!("{}", history.row(&rule, &format!("without these: excess {excess:.1?}")));
}

#[test]
fn a_stopped_process_does_not_use_stale_bookings_of_a_log() {
    // The second window was used up at 500 ms, and the next is booked.
    stops(Rule::window(Kind::Log, 250, ms(500)), ms(900));
}

#[test]
fn a_stopped_process_does_not_use_stale_bookings() {
    stops(Rule::bursty(500.0), ms(700));
}
