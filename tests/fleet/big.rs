//! One process takes fifty permits at a time from a bucket from which all others take one.

use std::time::Duration;

use crate::history::History;
use crate::job::{Callers, HORIZON, Job, PROCESSES, Rule, micros, ms};
use crate::processes;
use crate::support::server::Server;

const BIG: u32 = 50;

#[test]
fn a_big_request_gets_through() {
    let server = Server::start();
    let rule = Rule { burst: ms(500), ..Rule::bucket(200.0) };
    let lasts = ms(6_000);
    let small = Job::new(server.url(), rule, lasts);
    let big = Job { cost: BIG, callers: Callers::Tasks(1), ..small.clone() };
    let mut jobs = vec![small; PROCESSES as usize];
    jobs[0] = big;
    let rates = vec![(0, rule.rate)];
    let law_1 = |history: &History| history.keeps_law_1(&rates, rule.most_at_once(BIG));
    let (history, excess) = processes::run(&jobs, law_1);

    let used = history.utilisation(&rates, 1_000_000, micros(lasts) - 500_000);
    let mut waits: Vec<u64> = history
        .grants
        .iter()
        .filter(|grant| grant.permits == u64::from(BIG))
        .map(|grant| grant.waited)
        .collect();
    waits.sort_unstable();
    let longest = Duration::from_micros(waits.last().copied().unwrap_or_default());
    let median = Duration::from_micros(waits.get(waits.len() / 2).copied().unwrap_or_default());
    println!("{}", history.row(&rule, &format!(
        "excess {:.1}/{:.1}  used {:.2} %  {} big ones, waits: median {median:.0?}, longest {longest:.0?}",
        excess.0, excess.1, used * 100.0, waits.len(),
    )));
    history.uses(used, micros(lasts) - 1_500_000);
    assert!(waits.len() >= 3, "only {} big requests got through", waits.len());
    // Twice the time in which all bookings ahead and its own permits come.
    let bound = 2 * (HORIZON + Duration::from_secs_f64(f64::from(BIG) / rule.rate));
    assert!(longest <= bound, "a big request waited {longest:?}, more than {bound:?}");
}
