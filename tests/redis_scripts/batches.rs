//! A batch equals its calls one by one; and many calls do not drift.

use super::random::Random;
use super::server::Server;
use super::subject::{Answer, Call, START, Subject, Wait};
use crate::redis::Scripted;
use crate::{
    FixedWindow, LeakyBucket, LockOut, Rate, Same, SlidingWindowLog, SmoothBursty, SmoothWarmingUp,
    TokenBucket,
};
use redis::Connection;
use std::time::Duration;

/// Compares a batch with single calls. `all` makes each call and books those that wait; `single` makes only the
/// calls that the batch booked.
fn compare<P: Scripted>(
    connection: &mut Connection,
    policy: &P,
    cost: impl Fn(&mut Random) -> P::Cost,
) {
    let mut random = Random(99);
    let mut batch = Subject::new(policy.clone(), "batch", connection);
    let mut all = Subject::new(policy.clone(), "all", connection);
    let mut single = Subject::new(policy.clone(), "single", connection);
    for round in 0..200 {
        batch.key = format!("{round} batch");
        all.key = format!("{round} all");
        single.key = format!("{round} single");
        let mut now = START + round;
        for _ in 0..3 {
            let calls: Vec<_> = (0..=random.below(5))
                .map(|_| {
                    let limit = random.span(500_000);
                    let patience = limit + random.span(500_000);
                    let count = random.cost(4);
                    let fresh = random.below(2) == 0;
                    Call { cost: cost(&mut random), count, limit, patience, fresh }
                })
                .collect();
            // `all` starts from the state of `batch`.
            let bytes: Option<Vec<u8>> =
                redis::cmd("GET").arg(&batch.key).query(connection).expect("a string");
            if let Some(bytes) = bytes {
                let _: () =
                    redis::cmd("SET").arg(&all.key).arg(bytes).query(connection).expect("ok");
            }
            let (sequence, answers) = batch.ask(connection, now, &calls);
            let mut place = 0;
            for call in &calls {
                for _ in 0..call.count {
                    let alone = Call { count: 1, limit: call.patience, ..*call };
                    let (_, reckoned) = all.one(connection, now, alone);
                    let Answer { wait, outcome, part } = answers[place];
                    assert_eq!(
                        (wait, part),
                        (reckoned.wait, reckoned.part),
                        "{calls:?} {answers:?} {place}"
                    );
                    let expected = if outcome == 1 { 0 } else { outcome };
                    assert_eq!(reckoned.outcome, expected, "{calls:?} {answers:?} {place}");
                    if outcome == 0 {
                        let (last, booked) =
                            single.one(connection, now, Call { count: 1, ..*call });
                        assert_eq!((booked.wait, booked.outcome), (wait, 0));
                        assert!(last <= sequence);
                    }
                    place += 1;
                }
            }
            assert_eq!(place, answers.len());
            if answers.iter().any(|answer| answer.outcome == 0) {
                let (mut one, mut other) = (batch.bytes(connection), single.bytes(connection));
                // The expiry times may differ.
                one[8..12].fill(0);
                other[8..12].fill(0);
                assert_eq!(one, other);
            }
            now += random.span(500_000);
        }
    }
}

#[test]
fn a_batch_equals_its_calls_one_by_one() {
    let server = Server::start();
    let connection = &mut server.connection();
    let flush = |connection: &mut Connection| {
        redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
    };
    let rate = Rate::per_second(5.0);
    compare(connection, &SmoothBursty::new(rate), |random| random.cost(3));
    flush(connection);
    let warming = SmoothWarmingUp::new(rate, Duration::from_secs(2));
    compare(connection, &warming, |random| random.cost(3));
    flush(connection);
    compare(connection, &TokenBucket::new(rate, 6), |random| random.cost(7));
    flush(connection);
    compare(connection, &LeakyBucket::new(rate, 6), |random| random.cost(7));
    flush(connection);
    let window = FixedWindow::new(4, Duration::from_secs(1));
    compare(connection, &window, |random| random.cost(5));
    flush(connection);
    let log = SlidingWindowLog::new(4, Duration::from_secs(1));
    compare(connection, &log, |random| random.cost(5));
    flush(connection);
    let composed = (Same((TokenBucket::new(rate, 5), log)), window);
    compare(connection, &composed, |random| (random.cost(4) - 1, random.cost(3)));
}

/// A refusal behind waiters depends on the granted permits only, and starts a lock for all later calls.
#[test]
fn a_refusal_behind_a_waiter() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = LockOut::new(TokenBucket::new(Rate::per_second(1.0), 5), Duration::from_secs(60));
    let subject = Subject::new(policy, "key", connection);
    let call = |cost, patience| Call { patience, ..Call::new(cost, 0) };
    subject.one(connection, START, call(3, 0));
    let before = subject.bytes(connection);
    // The bucket holds two tokens, so only the waiter ahead delays the others.
    let (_, answers) =
        subject.ask(connection, START, &[call(4, 3_000_000), call(1, 0), call(1, 0)]);
    let outcomes: Vec<_> = answers.iter().map(|answer| answer.outcome).collect();
    assert_eq!(outcomes, [1, 2, 2]);
    assert_eq!(answers[1].wait, Wait::Known(3_000_000));
    assert_eq!(subject.bytes(connection), before);
    // It does not hold three, so the rule refuses.
    let (_, answers) =
        subject.ask(connection, START, &[call(4, 3_000_000), call(3, 0), call(1, 70_000_000)]);
    let waits: Vec<_> = answers.iter().map(|answer| answer.wait).collect();
    let lock = Wait::Known(60_000_000);
    assert_eq!(waits, [Wait::Known(2_000_000), lock, lock]);
    let (_, answer) = subject.one(connection, START + 1_000_000, call(1, 0));
    assert_eq!((answer.outcome, answer.wait), (2, Wait::Known(59_000_000)));
    // A refusal during the lock does not start another one.
    let (_, answer) = subject.one(connection, START + 60_000_000, call(1, 0));
    assert_eq!(answer.outcome, 0);
}

#[test]
fn no_drift_over_a_million_permits() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = SmoothBursty::new(Rate::per_second(300_000.0)).max_burst(Duration::ZERO);
    let subject = Subject::new(policy, "key", connection);
    let mut now = START;
    let mut granted: u64 = 0;
    for _ in 0..200 {
        let mut pipe = redis::pipe();
        for _ in 0..100 {
            // At the limit that time permits, in single calls and in runs.
            let count = 1 + u32::from(granted.is_multiple_of(7));
            pipe.add_command(subject.take(now, &[Call { count, ..Call::new(50, 1_000_000) }]));
            granted += 50 * u64::from(count);
            now += 166 * u64::from(count);
        }
        pipe.query::<redis::Value>(connection).expect("answers");
    }
    let (_, answer) = subject.one(connection, now, Call::new(1, 1_000_000_000));
    let Wait::Known(wait) = answer.wait else { panic!("{answer:?}") };
    // The calls are slightly too fast, so the debt has accumulated exactly.
    let exact = (granted * 10).div_ceil(3);
    assert!(granted >= 1_000_000);
    assert!(wait.abs_diff(exact - (now - START)) <= 1, "{wait} {exact}");
}

/// Waits are rounded up to whole microseconds. A caller that returns after this wait does not lose the
/// remainder.
#[test]
fn rounding_waits_up_loses_no_permits() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = SmoothBursty::new(Rate::per_second(300_000.0)).max_burst(Duration::ZERO);
    let subject = Subject::new(policy, "key", connection);
    let mut now = START;
    for _ in 0..3_000 {
        loop {
            let (_, answer) = subject.one(connection, now, Call::new(1, 0));
            match answer.wait {
                _ if answer.outcome == 0 => break,
                Wait::Known(wait) => now += wait,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!((9_996..=9_998).contains(&(now - START)), "{}", now - START);
}
