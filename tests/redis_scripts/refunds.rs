//! Refunds.

use super::changes::halt;
use super::random::{Random, times};
use super::server::Server;
use super::simulation::{Simulation, nanos};
use super::subject::{Call, KEEP, START, Subject, Wait, numbers, pause, refund, settle};
use crate::redis::Scripted;
use crate::{
    FixedWindow, Gcra, LeakyBucket, Policy, Rate, Same, SlidingWindowCounter, SlidingWindowLog,
    SmoothBursty, SmoothWarmingUp, TokenBucket,
};
use redis::Connection;
use std::fmt::Debug;
use std::time::Duration;

/// The refunds that give back the same as the policy in Rust.
#[derive(Clone, Copy, PartialEq)]
enum Agree {
    /// All refunds, across pauses, too.
    Paused,
    /// All refunds.
    All,
    /// Refunds of the last charge, until one has been made: only that charge is known exactly.
    Once,
    /// Refunds of the last charge. Of an earlier charge of a `SmoothBursty` a key returns less than the policy in Rust:
    /// it does not say how much has been stored since.
    Last,
}

fn refunds<P: Scripted<Cost = u32>>(
    connection: &mut Connection,
    policy: &P,
    agree: Agree,
    most: u32,
) {
    let mut random = Random(23);
    let mut subject = Subject::new(policy.clone(), "", connection);
    for round in 0..times(40) {
        subject.key = format!("refunded {round}");
        subject.idle = round % 2 == 0;
        // A key with a version has more numbers at its end.
        subject.version = u32::from(round % 3 == 0);
        let mut now = START + round;
        let mut simulation = Simulation::new(&subject, now);
        let mut charges = Vec::new();
        for _ in 0..60 {
            if agree == Agree::Paused && random.below(12) == 0 {
                let span = random.below(400_000);
                halt(connection, &subject, &mut simulation, now, span);
            }
            let call = Call::new(random.cost(most), 0);
            let (sequence, answer) = subject.one(connection, now, call);
            if let Some((due, receipt)) = simulation.follow(now, call, answer) {
                charges.push((sequence, due, call.cost, receipt));
            }
            now += random.span(200_000);
            if random.below(2) == 0 || charges.is_empty() {
                continue;
            }
            let latest = charges.len() - 1;
            let index = if agree == Agree::Last || random.below(2) == 0 {
                latest
            } else {
                usize::try_from(random.below(charges.len() as u64)).expect("small")
            };
            let (sequence, due, all, receipt) = charges.remove(index);
            let part = if random.below(2) == 0 { all } else { random.cost(all) };
            let ago = i64::try_from(now).expect("a time")
                - i64::try_from(due.get() / 1000).expect("a time");
            subject.do_change(connection, now, &refund::<P>(part, all, ago, sequence, part == all));
            simulation.policy.refund(&mut simulation.state, nanos(now), part, receipt);
            if agree == Agree::Last && part < all || agree == Agree::Once {
                charges.clear();
            }
        }
    }
    redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
}

#[test]
fn refunds_are_those_of_the_policies() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(10.0);
    let second = Duration::from_secs(1);
    refunds(connection, &TokenBucket::new(rate, 6), Agree::Paused, 6);
    refunds(connection, &TokenBucket::new(rate, 40), Agree::All, 9);
    refunds(connection, &TokenBucket::new(rate, 40), Agree::Paused, 9);
    refunds(connection, &LeakyBucket::meter(rate, 6), Agree::Paused, 6);
    refunds(connection, &Gcra::new(20, 600, 60 * second), Agree::All, 9);
    refunds(connection, &LeakyBucket::new(rate, 6), Agree::All, 6);
    refunds(connection, &FixedWindow::new(6, second), Agree::All, 4);
    refunds(connection, &SlidingWindowLog::new(6, second), Agree::All, 4);
    refunds(connection, &SlidingWindowCounter::new(6, second, 5), Agree::All, 4);
    let both = Same((TokenBucket::new(rate, 6), SlidingWindowLog::new(7, second)));
    refunds(connection, &both, Agree::All, 4);
    refunds(connection, &SmoothBursty::new(rate), Agree::Last, 4);
    refunds(connection, &SmoothWarmingUp::new(rate, 2 * second), Agree::Once, 4);
}

/// The key of a window has 40 bits for what was granted, and each entry of a log has 32.
#[test]
fn what_is_settled_in_a_window_does_not_wrap_around() {
    fn settles<P: Scripted<Cost = u32> + Debug>(connection: &mut Connection, policy: P) {
        let key = format!("{policy:?}");
        let subject = Subject::new(policy, &key, connection);
        subject.one(connection, START, Call::new(1, 0));
        // 300 x 2^32 is more than 2^40; and each request writes the key.
        for _ in 0..30 {
            let todo = settle::<P>(u32::MAX).repeat(10);
            subject.do_change(connection, START + 1, &todo);
            assert_eq!(subject.one(connection, START + 2, Call::new(1, 0)).1.outcome, 2);
        }
    }
    let server = Server::start();
    let connection = &mut server.connection();
    let second = Duration::from_secs(1);
    settles(connection, FixedWindow::new(4, second));
    // 2^40, with the one that was granted.
    let window = FixedWindow::new(4, second);
    let subject = Subject::new(window, "exactly", connection);
    subject.one(connection, START, Call::new(1, 0));
    let most = settle::<FixedWindow>(u32::MAX).repeat(256);
    subject.do_change(connection, START, &[most, settle::<FixedWindow>(255)].concat());
    assert_eq!(subject.one(connection, START, Call::new(1, 0)).1.outcome, 2);
    settles(connection, SlidingWindowLog::new(4, second));
    settles(connection, SlidingWindowCounter::new(4, second, 2));
}

/// A refund of a charge before the last one returns at most the maximum that can be stored.
#[test]
fn an_earlier_charge_returns_at_most_the_stored_permits() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(10.0);
    for (burst, wait) in [(1000, 0), (200, 0), (0, 400_000)] {
        let policy = SmoothBursty::new(rate).max_burst(Duration::from_millis(burst));
        let mut subject = Subject::new(policy, &format!("bursty {burst}"), connection);
        subject.idle = true;
        let (first, _) = subject.one(connection, START, Call::new(3, 0));
        let (_, second) = subject.one(connection, START, Call::new(1, 1_000_000));
        subject.do_change(connection, START, &refund::<SmoothBursty>(3, 3, 0, first, true));
        let (_, answer) = subject.one(connection, START, Call::new(1, 1_000_000));
        assert_eq!(answer.wait, Wait::Known(wait), "{burst} {second:?}");
    }
}

/// Several refunds in one call, in order. A refund at an absent key does nothing.
#[test]
fn refunds_and_settlements_together() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy =
        (TokenBucket::new(Rate::per_second(1.0), 10), SmoothBursty::new(Rate::per_second(1.0)));
    let subject = Subject::new(policy, "key", connection);
    type Both = (TokenBucket, SmoothBursty);
    let back = |part, all, sequence| refund::<Both>(part, all, 0, sequence, part == all);
    subject.do_change(connection, START, &back((1, 1), (1, 1), 5));
    let exists: bool = redis::cmd("EXISTS").arg("key").query(connection).expect("a number");
    assert!(!exists);
    let (first, _) = subject.one(connection, START, Call::new((4, 0), 0));
    let (second, _) = subject.one(connection, START, Call::new((2, 3), 0));
    assert_eq!(second, first + 1);
    let todo = [
        back((2, 3), (2, 3), second),
        back((4, 0), (4, 0), first),
        settle::<Both>((13, 2)),
        b"Q".to_vec(),
    ];
    let answer = subject.do_change(connection, START, &todo.concat());
    assert_eq!(answer[..6], [0, 0, 0, 10, 1, 13_000_000]);
    let (third, answer) = subject.one(connection, START, Call::new((1, 0), 4_000_000));
    assert_eq!((third, answer.wait), (second, Wait::Known(4_000_000)));
}

/// A later settlement overdraws the bucket. Without the refunded permits it would have found a full one.
#[test]
fn a_refund_behind_a_debt_returns_what_the_debt_would_have_found() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = Subject::new(TokenBucket::new(Rate::per_second(1.0), 10), "key", connection);
    subject.idle = true;
    let mut simulation = Simulation::new(&subject, START);
    let call = Call::new(4, 0);
    let (first, answer) = subject.one(connection, START, call);
    let (_, receipt) = simulation.follow(START, call, answer).expect("booked");
    let now = START + 1_500_000;
    let todo = [
        settle::<TokenBucket>(9),
        refund::<TokenBucket>(4, 4, 1_500_000, first, true),
        b"Q".to_vec(),
    ];
    simulation.policy.charge(&mut simulation.state, nanos(now), 9);
    simulation.policy.refund(&mut simulation.state, nanos(now), 4, receipt);
    let quota = subject.do_change(connection, now, &todo.concat());
    let full = simulation.policy.idle_at(&simulation.state).expect("a time");
    assert_eq!(quota[3], i64::try_from(full.since(nanos(now)).as_micros()).expect("a span"));
    assert_eq!(quota[3], 9_000_000);
}

/// Half the range of 32 bits is 35.8 minutes, and all of it 71.6: where sequences begin at the clock, charges
/// of that age looked like later ones.
#[test]
fn an_old_refund_does_not_open_the_current_window() {
    fn old<P: Scripted<Cost = u32>>(connection: &mut Connection, policy: P) {
        let mut subject = Subject::new(policy, "", connection);
        let around = |span: u64| [span - 1, span, span + 1];
        let ages = [(1 << 31) + 1_000_000, 50 * 60_000_000, 1 << 32, 3 << 31, 1 << 33];
        for age in ages.into_iter().flat_map(around) {
            subject.key = format!("old {age} {:?}", subject.parameters());
            let (sequence, answer) = subject.one(connection, START, Call::new(8, 0));
            assert_eq!(answer.outcome, 0);
            let now = START + age;
            for cost in [1, 9] {
                assert_eq!(subject.one(connection, now, Call::new(cost, 0)).1.outcome, 0);
            }
            let ago = i64::try_from(age).expect("a span");
            subject.do_change(connection, now, &refund::<P>(8, 8, ago, sequence, true));
            assert_eq!(subject.do_change(connection, now, b"Q")[1], 0, "{age}");
        }
    }
    let server = Server::start();
    let connection = &mut server.connection();
    let minute = Duration::from_secs(60);
    old(connection, FixedWindow::new(10, minute));
    old(connection, FixedWindow::new(10, minute).aligned(Duration::ZERO));
    old(connection, SlidingWindowLog::new(10, minute));
    old(connection, SlidingWindowCounter::new(10, minute, 6));
}

/// However long the window is, and however often the key was charged.
#[test]
fn a_refund_within_a_long_window_comes_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = FixedWindow::new(10, Duration::from_secs(86_400));
    let subject = Subject::new(policy, "key", connection);
    let (sequence, _) = subject.one(connection, START, Call::new(8, 0));
    let age = 20 * 3_600_000_000;
    subject.one(connection, START + age, Call::new(2, 0));
    let back = refund::<FixedWindow>(8, 8, i64::try_from(age).expect("a span"), sequence, true);
    subject.do_change(connection, START + age, &back);
    assert_eq!(subject.do_change(connection, START + age, b"Q")[1], 8);
}

/// Nothing is left of the only grant, in the microsecond in which it was made.
#[test]
fn a_log_is_empty_after_the_refund_of_its_only_grant() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = Subject::new(SlidingWindowLog::new(4, Duration::from_secs(1)), "key", connection);
    let (sequence, _) = subject.one(connection, START, Call::new(3, 0));
    let back = refund::<SlidingWindowLog>(3, 3, 0, sequence, true);
    subject.do_change(connection, START, &back);
    let (_, answer) = subject.one(connection, START, Call::new(4, 1_000));
    assert_eq!((answer.outcome, answer.wait), (0, Wait::Known(0)));
}

/// The script has looked through a log for the first report, and goes on from there for the second.
#[test]
fn a_report_behind_a_refund_in_the_same_request_knows_of_it() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject =
        Subject::new(SlidingWindowLog::new(10, Duration::from_secs(1)), "key", connection);
    let (first, _) = subject.one(connection, START, Call::new(4, 0));
    subject.one(connection, START + 1_000, Call::new(6, 0));
    let report = [b"D".to_vec(), numbers::<SlidingWindowLog>(1)].concat();
    let back = refund::<SlidingWindowLog>(4, 4, 1_000, first, true);
    let todo = [report.clone(), back, report].concat();
    let reply = subject.do_change(connection, START + 1_000, &todo);
    // Of one limit: how many are there, and when one more is.
    assert_eq!(reply[1..], [1, 0, 999_000, 1, 4, 1_000_000]);
}

/// All charges came back, so that their numbers are used again: in a later window, too.
#[test]
fn a_number_that_is_used_again_comes_back_again() {
    let server = Server::start();
    let connection = &mut server.connection();
    let window = FixedWindow::new(4, Duration::from_secs(1));
    let subject = Subject::new(window, "key", connection);
    let back = |connection: &mut Connection, now, sequence| {
        let todo = [refund::<FixedWindow>(3, 3, 0, sequence, true), b"Q".to_vec()].concat();
        subject.do_change(connection, now, &todo)[1]
    };
    let (first, _) = subject.one(connection, START, Call::new(3, 0));
    let later = START + 1_000_000;
    let (second, _) = subject.one(connection, later, Call::new(3, 0));
    assert_eq!((second, back(connection, later, second)), (first + 1, 4));
    assert_eq!(back(connection, later, first), 4);
    let (again, _) = subject.one(connection, later, Call::new(3, 0));
    assert_eq!((again, back(connection, later, again)), (first, 4));
}

/// A hundred permits are taken, then a pause of 30 s empties the limiter. Of what comes after its end callers take
/// some, at once or booked within the pause: a refund of the hundred gave them these permits again.
#[test]
fn a_refund_across_a_pause_gives_nothing_back_behind_later_charges() {
    fn left<P: Scripted<Cost = u32>>(
        connection: &mut Connection,
        policy: P,
        (cost, from): (u32, u64),
    ) -> i64 {
        let mut subject = Subject::new(policy, "key", connection);
        subject.idle = true;
        redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
        let (first, answer) = subject.one(connection, START, Call::new(100, 0));
        assert_eq!(answer.outcome, 0);
        subject.do_change(connection, START, &pause(30e6));
        let later = Call::new(cost, 40_000_000);
        assert_eq!(subject.one(connection, START + from, later).1.outcome, 0);
        let back = refund::<P>(100, 100, 53_000_000, first, true);
        subject.do_change(connection, START + 53_000_000, &back);
        subject.do_change(connection, START + 53_000_000, b"Q")[1]
    }
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(1.0);
    let bursty = SmoothBursty::new(rate).max_burst(Duration::from_secs(100));
    for (later, expected) in [((16, 46_000_000), 7), ((5, 10_000_000), 18)] {
        assert_eq!(left(connection, TokenBucket::new(rate, 100), later), expected);
        assert_eq!(left(connection, LeakyBucket::meter(rate, 100), later), expected);
        assert_eq!(left(connection, bursty.clone(), later), expected);
    }
}

/// The debt beyond the end of the pause, where nothing was charged since.
#[test]
fn a_refund_in_a_pause_returns_what_was_owed_beyond_its_end() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::from_secs(10));
    let subject = Subject::new(policy, "key", connection);
    let (first, _) = subject.one(connection, START, Call::new(100, 0));
    subject.do_change(connection, START, &pause(1e6));
    let now = START + 500_000;
    subject.do_change(connection, now, &refund::<SmoothBursty>(100, 100, 500_000, first, true));
    let (_, answer) = subject.one(connection, now, Call::new(1, 1_000_000));
    assert_eq!(answer.wait, Wait::Known(500_000));
}

/// A key knows what the last charge took from the store, and not the one before it: of that one the steady price
/// comes back that time has not paid yet, and what it took from the store stays taken. In process all would.
#[test]
fn the_second_refund_in_a_row_of_a_limiter_that_warms_up_leaves_it_warm() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = SmoothWarmingUp::new(Rate::per_second(1.0), Duration::from_secs(4));
    let subject = Subject::new(policy, "key", connection);
    // Cold: the first permit takes 2.5 s, the second 1.5 s.
    let (first, _) = subject.one(connection, START, Call::new(1, 0));
    let (second, answer) = subject.one(connection, START, Call::new(1, 10_000_000));
    assert_eq!(answer.wait, Wait::Known(2_500_000));
    let now = START + 500_000;
    for (sequence, ago) in [(second, -2_000_000), (first, 500_000)] {
        let back = refund::<SmoothWarmingUp>(1, 1, ago, sequence, true);
        subject.do_change(connection, now, &back);
    }
    // 2.5 s - 0.5 s that have passed - 0.5 s of the steady second.
    for wait in [1_500_000, 3_000_000] {
        let (_, answer) = subject.one(connection, now, Call::new(1, 10_000_000));
        assert_eq!(answer.wait, Wait::Known(wait));
    }
}

/// Of an earlier charge of ten a part comes back: at the steady price, and no more than time has not paid for.
#[test]
fn a_part_of_an_earlier_charge_comes_back_at_the_steady_price() {
    fn wait<P: Scripted<Cost = u32>>(connection: &mut Connection, policy: P, part: u32) -> Wait {
        let subject = Subject::new(policy, "key", connection);
        redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
        let (first, _) = subject.one(connection, START, Call::new(10, 0));
        subject.one(connection, START, Call::new(1, 100_000_000_000));
        let now = START + 1_000_000_000;
        let back = refund::<P>(part, 10, 1_000_000_000, first, part == 10);
        subject.do_change(connection, now, &back);
        subject.one(connection, now, Call::new(1, 0)).1.wait
    }
    let server = Server::start();
    let connection = &mut server.connection();
    // A permit takes 500 s, and the store that is taken from first as much again.
    let rate = Rate::per_second(0.002);
    let bursty = SmoothBursty::new(rate).max_burst(Duration::from_secs(2_000));
    for (part, seconds) in [(0, 4_500), (3, 3_000), (4, 2_500), (10, 2_500)] {
        assert_eq!(wait(connection, bursty.clone(), part), Wait::Known(seconds * 1_000_000));
    }
    // A store that has room for all of it.
    let bursty = bursty.max_burst(Duration::from_secs(20_000));
    assert_eq!(wait(connection, bursty, 10), Wait::Known(500_000_000));
    let warming = SmoothWarmingUp::new(rate, Duration::from_secs(2_000));
    let whole = |wait| if let Wait::Known(wait) = wait { wait } else { panic!("{wait:?}") };
    let owed = whole(wait(connection, warming.clone(), 0));
    for (part, seconds) in [(3, 1_500), (8, 4_000), (10, 4_000)] {
        let left = whole(wait(connection, warming.clone(), part));
        assert_eq!(owed - left, seconds * 1_000_000);
    }
    // Behind two others, and at once: of the second, which is not due yet, nothing comes back.
    let subject = Subject::new(warming, "three", connection);
    let mut charge = |cost| subject.one(connection, START, Call::new(cost, 100_000_000_000));
    let ((first, _), (second, answer), _) = (charge(10), charge(4), charge(1));
    let ahead = i64::try_from(whole(answer.wait)).expect("a wait");
    let mut reset = |now, todo: &[u8]| {
        subject.do_change(connection, now, &[todo, b"Q"].concat())[3] / 1_000_000
    };
    let owed = reset(START, b"");
    assert_eq!(reset(START, &refund::<SmoothWarmingUp>(4, 4, -ahead, second, true)), owed);
    assert_eq!(reset(START, &refund::<SmoothWarmingUp>(6, 10, 0, first, true)), owed - 3_000);
    let later = START + 100_000_000;
    let back = refund::<SmoothWarmingUp>(4, 10, 100_000_000, first, true);
    assert_eq!(reset(later, &back), owed - 5_000 - 100);
}

/// Time in a pause is no idle time, also where the last charge before it comes back in the pause.
#[test]
fn a_refund_in_a_pause_makes_no_idle_time_of_it() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = SmoothWarmingUp::new(Rate::per_second(1.0), Duration::from_secs(1_000));
    let subject = Subject::new(policy, "key", connection);
    subject.one(connection, START, Call::new(1_000, 0));
    let (_, answer) = subject.one(connection, START, Call::new(1, 0));
    let Wait::Known(wait) = answer.wait else { panic!("{answer:?}") };
    let now = START + wait + 10_000_000;
    let there = |connection: &mut _, now| subject.do_change(connection, now, b"Q")[1];
    let before = there(connection, now);
    assert!((1..20).contains(&before), "{before}");
    let (last, _) = subject.one(connection, now, Call::new(200, 0));
    subject.do_change(connection, now, &pause(100e6));
    subject.do_change(connection, now, &refund::<SmoothWarmingUp>(200, 200, 0, last, true));
    // A part of a permit may be lost.
    let after = there(connection, now + 100_000_000);
    assert!(after <= before, "{before}, then {after}");
}

/// As if only the rest had been charged.
#[test]
fn a_part_of_the_last_charge_of_a_limiter_that_warms_up_comes_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = SmoothWarmingUp::new(Rate::per_second(1.0), Duration::from_secs(9));
    let mut waits = Vec::new();
    for (cost, part) in [(6, 0), (10, 4)] {
        let subject = Subject::new(policy.clone(), &format!("{part}"), connection);
        let (sequence, _) = subject.one(connection, START, Call::new(cost, 0));
        let now = START + 500_000;
        let back = refund::<SmoothWarmingUp>(part, cost, 500_000, sequence, false);
        if part > 0 {
            subject.do_change(connection, now, &back);
        }
        waits.push([1, 1].map(|n| subject.one(connection, now, Call::new(n, 1 << 40)).1.wait));
    }
    assert_eq!(waits[0], waits[1]);
}

/// In a log: no more than was left, nothing of what the window has left, and as usual in a key that is an hour old.
#[test]
fn a_log_gives_back_what_is_in_it() {
    let server = Server::start();
    let connection = &mut server.connection();
    type Log = SlidingWindowLog;
    let mut subject = Subject::new(Log::new(10, Duration::from_secs(1)), "key", connection);
    subject.keep = KEEP;
    let there = |connection: &mut Connection, now, todo: Vec<u8>| {
        subject.do_change(connection, now, &[todo, b"Q".to_vec()].concat())[1]
    };
    let back = |part, sequence| refund::<Log>(part, 4, 1_500_000, sequence, false);
    let (first, _) = subject.one(connection, START, Call::new(4, 0));
    assert_eq!(there(connection, START, back(3, first)), 9);
    assert_eq!(there(connection, START, back(2, first)), 10);
    let (first, _) = subject.one(connection, START, Call::new(4, 0));
    let now = START + 1_500_000;
    subject.one(connection, now, Call::new(9, 0));
    assert_eq!(there(connection, now, back(4, first)), 1);
    let now = START + 3_600_000_000;
    let (last, _) = subject.one(connection, now, Call::new(4, 0));
    assert_eq!(there(connection, now, refund::<Log>(4, 4, 0, last, true)), 10);
}

/// A pause of five seconds is nothing to a debt of fourteen, and the twenty that made it were not needed for that.
#[test]
fn a_debt_beyond_a_pause_comes_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = Subject::new(TokenBucket::new(Rate::per_second(1.0), 10), "key", connection);
    subject.idle = true;
    let (first, _) = subject.one(connection, START, Call::new(4, 0));
    let todo = [settle::<TokenBucket>(20), pause(5e6), b"Q".to_vec()].concat();
    assert_eq!(subject.do_change(connection, START, &todo)[3], 24_000_000);
    let back = refund::<TokenBucket>(20, 20, 0, first + 1, true);
    let reply = subject.do_change(connection, START, &[back, b"Q".to_vec()].concat());
    assert_eq!(reply[3], 15_000_000);
}

/// A pause that ends at this very microsecond has ended, and nothing comes back across it.
#[test]
fn a_refund_at_the_end_of_a_pause_is_one_across_it() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = SmoothWarmingUp::new(Rate::per_second(1.0), Duration::from_secs(9));
    for late in [0, 1] {
        let subject = Subject::new(policy.clone(), &format!("{late}"), connection);
        let (first, _) = subject.one(connection, START, Call::new(10, 0));
        subject.one(connection, START, Call::new(1, 1 << 40));
        subject.do_change(connection, START, &pause(2e6));
        let now = START + 2_000_000 + late;
        let back = refund::<SmoothWarmingUp>(10, 10, 2_000_000, first, true);
        let report = |connection: &mut _| subject.do_change(connection, now, b"Q")[3];
        let owed = report(connection);
        subject.do_change(connection, now, &back);
        assert_eq!(report(connection), owed, "{late}");
    }
}

/// Under several rules, each of which knows by number which charge was its last.
#[test]
fn charges_of_several_rules_come_back_one_after_the_other_until_a_pause_ends() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 10);
    let window = FixedWindow::new(100, Duration::from_secs(1));
    let mut subject = Subject::new(Same((bucket, window)), "key", connection);
    subject.idle = true;
    type Both = Same<(TokenBucket, FixedWindow)>;
    let left = |connection: &mut _, todo: &[u8]| {
        subject.do_change(connection, START, &[todo, b"Q"].concat())[1]
    };
    let numbers = [3, 2, 1].map(|n| subject.one(connection, START, Call::new(n, 0)).0);
    for (number, n, there) in [(numbers[2], 1, 5), (numbers[1], 2, 7), (numbers[0], 3, 10)] {
        assert_eq!(left(connection, &refund::<Both>(n, n, 0, number, true)), there);
    }
    // They were booked at the end of a pause that ends early.
    subject.do_change(connection, START, &pause(5e6));
    let numbers = [1, 1].map(|n| subject.one(connection, START, Call::new(n, 10_000_000)).0);
    subject.do_change(connection, START, b"E");
    let owed = |connection: &mut _, todo: &[u8]| {
        subject.do_change(connection, START, &[todo, b"Q"].concat())[3]
    };
    let before = owed(connection, b"");
    for number in numbers {
        let back = refund::<Both>(1, 1, -5_000_000, number, false);
        assert_eq!(owed(connection, &back), before);
    }
}

/// It was booked at the end of a pause that has been ended: the log has no grant any more.
#[test]
fn a_log_without_a_grant_holds_no_caller_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let log = SlidingWindowLog::new(4, Duration::from_secs(1));
    let subject = Subject::new(log, "key", connection);
    subject.do_change(connection, START, &pause(5e6));
    let (number, answer) = subject.one(connection, START, Call::new(1, 10_000_000));
    assert_eq!(answer.wait, Wait::Known(5_000_000));
    let back = refund::<SlidingWindowLog>(1, 1, -5_000_000, number, true);
    subject.do_change(connection, START, &[&back[..], b"E"].concat());
    assert_eq!(subject.one(connection, START, Call::new(1, 0)).1.outcome, 0);
}

/// It ended before they were charged.
#[test]
fn charges_of_several_rules_come_back_after_a_pause() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(1.0);
    let policy = Same((TokenBucket::new(rate, 10), LeakyBucket::meter(rate, 10)));
    let mut subject = Subject::new(policy, "key", connection);
    subject.idle = true;
    subject.do_change(connection, START, &pause(1e6));
    let now = START + 20_000_000;
    let numbers = [3, 2].map(|n| subject.one(connection, now, Call::new(n, 0)).0);
    for (number, n, there) in [(numbers[1], 2, 7), (numbers[0], 3, 10)] {
        let back = refund::<Same<(TokenBucket, LeakyBucket)>>(n, n, 0, number, true);
        assert_eq!(subject.do_change(connection, now, &[&back[..], b"Q"].concat())[1], there);
    }
}
