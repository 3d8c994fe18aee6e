//! A pause and changes of the rate by one process while hundreds wait in each: they hold for the
//! fleet within the horizon and a round trip.

use std::time::Duration;

use crate::history::{Grant, History};
use crate::job::{Callers, Change, HORIZON, Job, PROCESSES, Rule, To, micros, ms};
use crate::processes;
use crate::support::server::Server;

const WAITING: u32 = 300;

fn run(
    rule: Rule,
    lasts: Duration,
    changes: &[Change],
    law_1: impl Fn(&History) -> (f64, f64),
) -> (History, (f64, f64)) {
    let server = Server::start();
    let callers = Callers::Tasks(WAITING);
    let job = Job { callers, ..Job::new(server.url(), rule, lasts) };
    let mut jobs = vec![job; PROCESSES as usize];
    jobs[0].changes = changes.to_vec();
    let (history, excess) = processes::run(&jobs, law_1);
    assert_eq!(history.changes.len(), changes.len());
    for change in &history.changes {
        // All but the callers that have just been granted.
        assert!(change.waiting > u64::from(WAITING) / 2, "only {} wait", change.waiting);
    }
    (history, excess)
}

fn a_pause(rule: Rule, pause: Duration, after: Duration) {
    let start = ms(1_000);
    let lasts = start + pause + after;
    let holds = |history: &History| history.changes[0].confirmed + micros(HORIZON) + history.trip;
    let over = |history: &History| history.changes[0].called + micros(pause);
    // The prepaid request is paid off during the pause, which counts as any other time here, and is
    // checked separately.
    let law_1 =
        |history: &History| history.keeps_law_1(&vec![(0, rule.rate)], rule.most_at_once(1));
    let change = [Change { at: start, to: To::Pause(pause) }];
    let (history, excess) = run(rule, lasts, &change, law_1);
    let (holds, over, change) = (holds(&history), over(&history), history.changes[0]);
    // Due times count from before each call, so they are early where a process stood still there: a caller
    // that went on after the pause was not granted in it.
    let during = |grant: &&Grant| grant.due < over && grant.seen < over;
    let last = history.grants.iter().rfind(during).expect("some came before");
    let took = Duration::from_micros(last.due.saturating_sub(change.called));
    let since = over - history.start;
    let used = history.utilisation(&vec![(0, rule.rate)], since, micros(lasts) - 250_000);
    println!(
        "{}",
        history.row(
            &rule,
            &format!(
                "excess {:.1}/{:.1}  pause of {pause:?} holds after {took:.1?}  used then {:.2} %",
                excess.0,
                excess.1,
                used * 100.0,
            )
        )
    );
    assert!(last.due <= holds, "a grant {took:?} after the call for a pause");
    history.uses(used, micros(lasts) - 250_000 - since);
}

#[test]
fn a_pause_at_500_a_second() {
    a_pause(Rule::bursty(500.0), ms(1_000), ms(1_500));
}

#[test]
fn a_pause_at_5_a_second() {
    a_pause(Rule::bursty(5.0), ms(3_000), ms(3_000));
}

fn other_rates(rule: Rule, up: f64, down: f64) {
    let changes =
        [Change { at: ms(1_000), to: To::Rate(up) }, Change { at: ms(2_000), to: To::Rate(down) }];
    let lasts = ms(4_500);
    let most = Rule { rate: up, ..rule }.most_at_once(1);
    let within = |history: &History| micros(HORIZON) + history.trip;
    let law_1 = |history: &History| {
        // The greater rate holds as long as it may.
        let (risen, fallen) = (history.changes[0].called, history.changes[1].confirmed);
        let rates = vec![(0, rule.rate), (risen, up), (fallen + within(history), down)];
        history.keeps_law_1(&rates, most)
    };
    let (history, excess) = run(rule, lasts, &changes, law_1);
    let (rise, fall, within) = (history.changes[0], history.changes[1], within(&history));
    let since = |time: u64| time - history.start;
    let risen = since(rise.confirmed + within);
    let high = history.utilisation(&vec![(0, up)], risen, since(fall.called));
    let fallen = since(fall.confirmed + within);
    let low = history.utilisation(&vec![(0, down)], fallen, micros(lasts) - 250_000);
    println!(
        "{}",
        history.row(
            &rule,
            &format!(
                "excess {:.1}/{:.1} of {most:.1}  then {up}/s: {:.2} %  then {down}/s: {:.2} %",
                excess.0,
                excess.1,
                high * 100.0,
                low * 100.0,
            )
        )
    );
    history.uses(high, since(fall.called) - risen);
    history.uses(low, micros(lasts) - 250_000 - fallen);
}

#[test]
fn other_rates_for_all() {
    other_rates(Rule::bursty(200.0), 1_000.0, 100.0);
}
