//! Places in flight: the number that each limiter reports counts until its lease ends.

use super::random::{Random, times};
use super::server::Server;
use super::simulation::{Simulation, nanos};
use super::subject::{Call, START, Subject, Wait, pause};
use crate::policy::PolicyExt;
use crate::{FixedWindow, InFlight, Rate, Same, TokenBucket};
use std::time::Duration;

#[test]
fn limiters_together_hold_no_more_than_the_maximum() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut random = Random(5);
    let mut subject = Subject::new(InFlight::new(7), "key", connection);
    let mut held = [0u32; 3];
    let mut now = START;
    let mut seen = [0; 3];
    for _ in 0..5_000 {
        let asker = usize::try_from(random.below(3)).expect("small");
        subject.id = [u8::try_from(asker).expect("small"); 8];
        subject.held = vec![f64::from(held[asker])];
        now += random.below(1000);
        if random.below(2) == 0 {
            let back = u32::try_from(random.below(u64::from(held[asker]) + 1)).expect("small");
            held[asker] -= back;
            subject.held = vec![f64::from(held[asker])];
            let quota = subject.do_change(connection, now, b"HQ");
            let out: u32 = held.iter().sum();
            assert_eq!(quota[1..3], [i64::from(7 - out), 7]);
            assert_eq!(quota[3], if out == 0 { 0 } else { -1 });
        } else {
            let cost = random.cost(8);
            let patience = random.below(2) * 1000;
            let (_, answer) = subject.one(connection, now, Call { patience, ..Call::new(cost, 0) });
            let fits = held.iter().sum::<u32>() + cost <= 7;
            if cost > 7 {
                assert_eq!((answer.outcome, answer.wait), (2, Wait::Never));
            } else if fits {
                assert_eq!((answer.outcome, answer.wait), (0, Wait::Known(0)));
                held[asker] += cost;
            } else {
                let outcome = if patience == 0 { 2 } else { 1 };
                assert_eq!((answer.outcome, answer.wait), (outcome, Wait::AtLeast(0)));
            }
            seen[usize::try_from(answer.outcome).expect("small")] += 1;
        }
    }
    assert!(seen.iter().all(|&seen| seen > 100), "{seen:?}");
}

#[test]
fn a_limiter_without_requests_holds_nothing_after_its_lease() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = Subject::new(InFlight::new(5), "key", connection);
    subject.lease = 10_000_000.0;
    subject.held = vec![0.0];
    assert_eq!(subject.one(connection, START, Call::new(4, 0)).1.outcome, 0);
    // The lease is renewed after six seconds.
    subject.held = vec![4.0];
    subject.do_change(connection, START + 6_000_000, b"H");
    (subject.id, subject.held) = (*b"another ", vec![0.0]);
    assert_eq!(subject.one(connection, START + 15_999_999, Call::new(2, 0)).1.outcome, 2);
    assert_eq!(subject.one(connection, START + 16_000_000, Call::new(5, 0)).1.outcome, 0);
    // The reply was lost: the limiter holds nothing, and its next request reports this, even if the
    // request is refused.
    assert_eq!(subject.one(connection, START + 16_000_001, Call::new(6, 0)).1.outcome, 2);
    (subject.id, subject.held) = (*b"an asker", vec![0.0]);
    assert_eq!(subject.one(connection, START + 16_000_002, Call::new(5, 0)).1.outcome, 0);
    // Places of a limiter that the key does not know, as after a restart of the server.
    redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
    subject.held = vec![3.0];
    assert_eq!(subject.one(connection, START + 16_000_003, Call::new(3, 0)).1.outcome, 2);
    (subject.id, subject.held) = (*b"another ", vec![0.0]);
    assert_eq!(subject.one(connection, START + 16_000_004, Call::new(3, 0)).1.outcome, 2);
}

/// A process that gives back and takes in one request would leave no place to another. So it does only for as long as
/// its turn lasts.
#[test]
fn a_turn_is_over_while_another_process_waits() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = |connection: &mut _, id: &[u8; 8]| {
        let mut subject = Subject::new(InFlight::new(4), "key", connection);
        (subject.id, subject.held, subject.listens) = (*id, vec![0.0], 10e6);
        subject
    };
    let (one, mut other) = (subject(connection, b"an asker"), subject(connection, b"another "));
    let ask = |connection: &mut _, subject: &Subject<InFlight>, millis: u64, cost| {
        let call = Call { patience: 10_000_000, ..Call::new(cost, 0) };
        subject.one(connection, START + 1_000 * millis, call).1.outcome
    };
    assert_eq!(ask(connection, &one, 0, 3), 0);
    assert_eq!(ask(connection, &other, 1, 2), 1);
    // The first was there first: its turn begins.
    assert_eq!(ask(connection, &one, 2, 3), 0);
    assert_eq!(ask(connection, &other, 3, 2), 1);
    // To say what it holds does not end its wait.
    other.do_change(connection, START + 4_000, b"H");
    assert_eq!(ask(connection, &one, 101, 3), 0);
    assert_eq!(ask(connection, &one, 102, 3), 1);
    assert_eq!(ask(connection, &other, 103, 2), 0);
    // The other holds two: it gives them back, and does not wait any more.
    assert_eq!(ask(connection, &one, 104, 3), 1);
    other.listens = 0.0;
    other.do_change(connection, START + 105_000, b"H");
    assert_eq!(ask(connection, &one, 106, 3), 0);
}

/// It would be ahead of one that has waited longer.
#[test]
fn a_process_begins_no_turn_within_its_share() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = Subject::new(InFlight::new(3), "key", connection);
    let mut now = START;
    let mut ask = |id: &[u8; 8], held: f64, cost| {
        (subject.id, subject.held, subject.listens) = (*id, vec![held], 10e6);
        now += 1_000;
        let call = Call { patience: 10_000_000, ..Call::new(cost, 0) };
        subject.one(connection, now, call).1.outcome
    };
    assert_eq!(ask(b"a third ", 0.0, 3), 0);
    assert_eq!(ask(b"another ", 0.0, 2), 1);
    assert_eq!(ask(b"an asker", 0.0, 1), 1);
    // Two come back: one for each.
    assert_eq!(ask(b"a third ", 0.0, 1), 0);
    assert_eq!(ask(b"an asker", 0.0, 1), 0);
    assert_eq!(ask(b"an asker", 1.0, 1), 1);
}

/// It would never fit beside those that ask for little.
#[test]
fn a_process_that_waits_for_more_than_its_share_is_left_room() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (wanted, outcome) in [(4, 1), (2, 0)] {
        let mut now = START;
        let mut subject = Subject::new(InFlight::new(4), &format!("{wanted}"), connection);
        (subject.held, subject.listens) = (vec![0.0], 10e6);
        let mut ask = |id: &[u8; 8], held: f64, cost| {
            (subject.id, subject.held) = (*id, vec![held]);
            now += 1_000;
            let call = Call { patience: 10_000_000, ..Call::new(cost, 0) };
            subject.one(connection, now, call).1.outcome
        };
        assert_eq!(ask(b"an asker", 0.0, 1), 0);
        assert_eq!(ask(b"a third ", 0.0, 2), 0);
        assert_eq!(ask(b"another ", 0.0, wanted), 1);
        assert_eq!(ask(b"an asker", 1.0, 1), outcome);
    }
}

#[test]
fn parts_with_places_in_flight() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 9);
    let policy = (InFlight::new(3), bucket, InFlight::new(2));
    let mut subject = Subject::new(policy, "key", connection);
    subject.held = vec![0.0, 0.0];
    assert_eq!(subject.one(connection, START, Call::new((2, 1, 2), 0)).1.outcome, 0);
    subject.held = vec![2.0, 2.0];
    let call = Call { count: 2, ..Call::new((1, 1, 0), 0) };
    let (_, answers) = subject.ask(connection, START, &[call]);
    assert_eq!((answers[0].outcome, answers[1].outcome), (0, 2));
    assert_eq!((answers[1].part, answers[1].wait), (1, Wait::AtLeast(0)));
    subject.held = vec![3.0, 2.0];
    let (_, answer) = subject.one(connection, START, Call::new((0, 9, 1), 0));
    assert_eq!((answer.part, answer.wait), (3, Wait::AtLeast(2_000_000)));
    subject.held = vec![0.0, 2.0];
    assert_eq!(subject.do_change(connection, START, b"HQ")[1..8], [3, 7, 0, 3, 9, 2, -1]);
    assert_eq!(subject.one(connection, START, Call::new((3, 1, 0), 0)).1.outcome, 0);
    // In a pause no part limits.
    (subject.key, subject.held) = ("paused".to_owned(), vec![0.0, 0.0]);
    subject.do_change(connection, START, &pause(2e6));
    let (_, answer) = subject.one(connection, START, Call::new((1, 0, 1), 0));
    assert_eq!((answer.part, answer.wait), (0, Wait::Known(2_000_000)));
}

/// It has its place, and waits for the other rule: the others need not leave it any.
#[test]
fn a_call_that_waits_for_another_rule_waits_for_no_place() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = (InFlight::new(3), TokenBucket::new(Rate::per_second(1.0), 9));
    let mut subject = Subject::new(policy, "key", connection);
    (subject.held, subject.listens) = (vec![0.0], 10e6);
    assert_eq!(subject.one(connection, START, Call::new((0, 9), 0)).1.outcome, 0);
    let before = subject.bytes(connection);
    let call = Call { patience: 5_000_000, ..Call::new((1, 1), 0) };
    let (_, answer) = subject.one(connection, START, call);
    assert_eq!((answer.outcome, answer.wait), (1, Wait::Known(1_000_000)));
    assert_eq!(subject.bytes(connection), before);
}

/// What the second of them would take is not held.
#[test]
fn two_calls_that_wait_in_one_request_hold_nothing() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = |connection: &mut _, id: &[u8; 8], held| {
        let mut subject = Subject::new(InFlight::new(3), "key", connection);
        (subject.id, subject.held, subject.listens) = (*id, vec![held], 10e6);
        subject
    };
    let other = subject(connection, b"another ", 0.0);
    assert_eq!(other.one(connection, START, Call::new(3, 0)).1.outcome, 0);
    let waits = Call { patience: 5_000_000, ..Call::new(1, 0) };
    let (_, answers) = subject(connection, b"an asker", 0.0).ask(connection, START, &[waits; 2]);
    assert_eq!((answers[0].outcome, answers[1].outcome), (1, 1));
    assert_eq!(other.do_change(connection, START + 1, b"HQ")[1], 3);
}

/// Six nested parts are still one script.
#[test]
fn many_parts() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 9);
    let four = [bucket.clone(), bucket.clone(), bucket.clone(), bucket.clone()];
    let flight = InFlight::new(3);
    let same = Same((bucket.clone(), four, bucket.clone(), flight.clone(), bucket.clone()));
    let policy = (same.clone(), flight, (same.clone(), bucket), same.clone(), same.clone(), same);
    let mut subject = Subject::new(policy, "key", connection);
    subject.held = vec![0.0; 6];
    let call = Call::new((1, 2, (3, 4), 1, 1, 2), 0);
    assert_eq!(subject.one(connection, START, call).1.outcome, 0);
    subject.held = vec![1.0, 2.0, 3.0, 1.0, 1.0, 2.0];
    let quota = subject.do_change(connection, START, b"Q");
    assert_eq!(quota[1..16], [2, 1, 0, 5, 2, 2, 1, 3, 3, 3, 9, 3, 3, 3, -1]);
    let (_, answer) = subject.one(connection, START, call);
    assert_eq!((answer.outcome, answer.part, answer.wait), (2, 2, Wait::AtLeast(0)));
}

/// One limiter, as in Rust.
#[test]
fn places_and_rates() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut random = Random(77);
    let bucket = TokenBucket::new(Rate::per_second(10.0), 6);
    let window = FixedWindow::new(9, Duration::from_secs(1));
    let mut subject = Subject::new((bucket, InFlight::new(8), window), "key", connection);
    subject.held = vec![0.0];
    let mut simulation = Simulation::new(&subject, START);
    let (mut now, mut held, mut booked) = (START, 0, 0);
    for _ in 0..times(10_000) {
        let cost = (random.cost(7) - 1, random.cost(5) - 1, random.cost(4) - 1);
        if cost == (0, 0, 0) {
            continue;
        }
        let limit = random.span(100_000);
        let patience = limit + random.below(2) * 50_000;
        let call = Call { patience, ..Call::new(cost, limit) };
        subject.held = vec![f64::from(held)];
        let (_, answer) = subject.one(connection, now, call);
        if simulation.follow(now, call, answer).is_some() {
            held += cost.1;
            booked += 1;
        }
        now += random.span(100_000);
        let back = u32::try_from(random.below(u64::from(held) + 1)).expect("small");
        if random.below(2) == 0 {
            held -= back;
            simulation.policy.release(&mut simulation.state, nanos(now), (0, back, 0));
        }
    }
    assert!(booked > times(1000), "{booked}");
}
