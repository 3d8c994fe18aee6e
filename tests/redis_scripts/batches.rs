//! A batch equals its calls one by one; and many calls do not drift.

use super::random::{Random, times};
use super::server::Server;
use super::subject::{Ahead, Answer, Call, KEEP, START, Subject, Wait, numbers, settle};
use crate::policy::Cost;
use crate::redis::Scripted;
use crate::units::Nanos;
use crate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Rate, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
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
    for round in 0..times(200) {
        batch.key = format!("{round} batch");
        all.key = format!("{round} all");
        single.key = format!("{round} single");
        // They may expire at different times, and begin anew.
        (batch.keep, all.keep, single.keep) = (KEEP, KEEP, KEEP);
        let mut now = START + round;
        batch.do_change(connection, now, b"N");
        single.do_change(connection, now, b"N");
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
                // The expiry times, which begin at the twelfth or the fifteenth byte, may differ.
                one[12..19].fill(0);
                other[12..19].fill(0);
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
    // Large enough for more levels than a key keeps.
    compare(connection, &TokenBucket::new(rate, 60), |random| random.cost(7));
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

/// A run whose calls differ in cost is answered as its calls are.
fn runs<P: Scripted>(
    connection: &mut Connection,
    policy: &P,
    cost: impl Fn(&mut Random) -> P::Cost,
) {
    redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
    let mut random = Random(19);
    let mut subject = Subject::new(policy.clone(), "", connection);
    let mut seen = [0; 4];
    for round in 0..times(100) {
        let mut now = START + round;
        let keys = ["run", "calls"].map(|name| format!("{name} {round}"));
        for _ in 0..6 {
            let limit = random.span(300_000);
            let call = Call {
                cost: cost(&mut random),
                count: 1,
                limit,
                patience: limit + random.below(2) * random.span(2_000_000),
                fresh: random.below(2) == 0,
            };
            let others: Vec<_> = (0..1 + random.below(3)).map(|_| cost(&mut random)).collect();
            let each: Vec<_> =
                [call.cost].iter().chain(&others).map(|&cost| Call { cost, ..call }).collect();
            subject.key.clone_from(&keys[0]);
            let reply = subject.take_run(now, call, &others).query(connection).expect("an answer");
            let run = subject.answers(&reply);
            subject.key.clone_from(&keys[1]);
            assert_eq!(run, subject.ask(connection, now, &each), "{round}: {each:?}");
            for answer in run.1 {
                seen[usize::try_from(answer.outcome).expect("small")] += 1;
            }
            now += random.span(200_000);
        }
        let bytes = keys.map(|key| {
            redis::cmd("GET").arg(key).query::<Option<Vec<u8>>>(connection).expect("a key")
        });
        assert_eq!(bytes[0], bytes[1]);
    }
    assert!(seen[..3].iter().all(|&seen| seen > times(50)), "{seen:?}");
}

#[test]
fn a_run_of_different_costs_is_answered_as_its_calls_are() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(5.0);
    runs(connection, &TokenBucket::new(rate, 6), |random| random.cost(5));
    runs(connection, &LeakyBucket::new(rate, 3), |random| random.cost(3));
    runs(connection, &FixedWindow::new(4, Duration::from_secs(1)), |random| random.cost(4));
    let both = (TokenBucket::new(rate, 5), LeakyBucket::new(rate, 4));
    runs(connection, &both, |random| (random.cost(3), random.cost(3) - 1));
}

/// Permits may have come back for all that wait. That is no refusal by the policy.
#[test]
fn a_call_without_a_timeout_does_not_pass_those_ahead() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = Subject::new(TokenBucket::new(Rate::per_second(1.0), 9), "key", connection);
    subject.idle = true;
    for (patience, outcome) in [(0, 2), (1, 1)] {
        let ahead = Ahead { behind: 0, cost: 1, count: 2, each: 0.0 };
        let newcomer = Call { patience, ..Call::new(1, 0) };
        let request = subject.take_behind(START, Some(ahead), &[newcomer]);
        let (_, answers) = subject.answers(&request.query(connection).expect("an answer"));
        assert_eq!((answers[0].outcome, answers[0].wait), (outcome, Wait::Known(0)));
    }
}

/// Callers who need no answer count for those behind them as if they asked again.
fn behind<P: Scripted>(
    connection: &mut Connection,
    policy: &P,
    cost: impl Fn(&mut Random) -> P::Cost,
) {
    let mut random = Random(7);
    let mut subject = Subject::new(policy.clone(), "behind", connection);
    subject.keep = KEEP;
    if P::HELD {
        subject.held = vec![2.0];
    }
    redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
    let (mut compared, mut told, mut exact) = (0, 0, 0);
    for round in 0..times(200) {
        subject.key = format!("{round} behind");
        let mut now = START + round;
        for _ in 0..1 + random.below(8) {
            subject.one(connection, now, Call::new(cost(&mut random), 2_000_000));
            now += random.span(300_000);
        }
        let first = cost(&mut random);
        let sum = (P::HOOKS.ready_behind)(policy, &policy.idle(Nanos::ZERO), Nanos::ZERO, 0, first)
            .is_some();
        let mut costs = vec![first];
        let most = if round % 4 == 0 { 300 } else { 16 };
        costs.extend((1..random.cost(most)).map(|_| if sum { cost(&mut random) } else { first }));
        let newcomers: Vec<_> = (0..=random.below(3))
            .map(|_| Call { patience: random.span(20_000_000), ..Call::new(cost(&mut random), 0) })
            .collect();
        // Some of those before them are asked for.
        let asked: Vec<_> = (0..random.below(3))
            .map(|_| Call {
                patience: random.span(4_000_000),
                ..Call::new(cost(&mut random), random.span(2_000_000))
            })
            .collect();
        let waits = |&cost| Call { patience: 1 << 48, fresh: false, ..Call::new(cost, 0) };
        let others = costs.iter().map(waits).chain(newcomers.iter().copied());
        let all: Vec<_> = asked.iter().copied().chain(others).collect();
        let before = subject.bytes(connection);
        let (_, answers) = subject.ask(connection, now, &all);
        let (expected_first, expected) = answers.split_at(asked.len());
        let (waiting, expected) = expected.split_at(costs.len());
        if waiting.iter().any(|answer| answer.outcome != 1) {
            continue;
        }
        let after = subject.bytes(connection);
        redis::cmd("SET").arg(&subject.key).arg(before).query::<()>(connection).expect("ok");
        #[allow(clippy::cast_precision_loss)] // few
        let each = costs.iter().map(|cost| cost.permits()).sum::<u64>() as f64;
        let count = u32::try_from(costs.len()).expect("few");
        let (count, each) = if sum { (1, each) } else { (count, 0.0) };
        let ahead = Ahead { behind: asked.len(), cost: first, count, each };
        let calls = [asked.clone(), newcomers.clone()].concat();
        let request = subject.take_behind(now, Some(ahead), &calls);
        let reply = request.query(connection).expect("an answer");
        let (_, answers) = subject.answers(&reply);
        assert_eq!(answers.len(), asked.len() + newcomers.len());
        let (first, answers) = answers.split_at(asked.len());
        assert_eq!(first, expected_first, "{asked:?}");
        for (answer, expected) in answers.iter().zip(expected) {
            let (Wait::Known(a) | Wait::AtLeast(a)) = answer.wait else { panic!("{answer:?}") };
            let (Wait::Known(b) | Wait::AtLeast(b)) = expected.wait else { panic!("{expected:?}") };
            // Behind more than 16 that may be a bound. The time until there is room is rounded up without a
            // tolerance.
            let is_same = match (costs.len(), expected.outcome) {
                (17.., _) if !sum => a <= b,
                (_, 3) => a.abs_diff(b) <= 1 && answer.outcome == 3,
                _ => answer == expected,
            };
            assert!(is_same, "{ahead:?} {newcomers:?} {answer:?} {expected:?}");
            if costs.len() > 16 {
                (told, exact) = (told + a, exact + b);
            }
        }
        assert_eq!(subject.bytes(connection), after, "{ahead:?} {newcomers:?}");
        compared += 1;
    }
    assert!(compared > times(50), "{compared}");
    assert!(told >= exact / 100 * 85, "the bound is too low: {told} {exact}");
}

#[test]
fn callers_behind_those_who_need_no_answer_hear_the_same() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(5.0);
    let second = Duration::from_secs(1);
    behind(connection, &SmoothBursty::new(rate), |random| random.cost(6));
    let warming = SmoothWarmingUp::new(rate, Duration::from_secs(2));
    behind(connection, &warming, |random| random.cost(6));
    let bucket = TokenBucket::new(rate, 6);
    behind(connection, &bucket, |random| random.cost(6));
    let stepwise = bucket.clone().refill_every(Duration::from_millis(700));
    behind(connection, &stepwise, |random| random.cost(6));
    behind(connection, &LeakyBucket::new(rate, 6), |random| random.cost(6));
    behind(connection, &LeakyBucket::meter(rate, 6), |random| random.cost(6));
    let window = FixedWindow::new(4, second);
    behind(connection, &window, |random| random.cost(4));
    behind(connection, &window.clone().aligned(Duration::ZERO), |random| random.cost(4));
    let log = SlidingWindowLog::new(4, second);
    behind(connection, &log, |random| random.cost(4));
    behind(connection, &SlidingWindowCounter::new(4, second, 4), |random| random.cost(4));
    behind(connection, &LockOut::new(bucket.clone(), second), |random| random.cost(6));
    behind(connection, &InFlight::new(3), |random| random.cost(3));
    behind(connection, &Same((bucket, InFlight::new(4))), |random| random.cost(2));
    let composed = (Same((TokenBucket::new(rate, 5), log)), window);
    behind(connection, &composed, |random| (random.cost(4), random.cost(3)));
}

/// For a lone call, for one of several, and under several rules.
#[test]
fn a_timeout_of_exactly_the_wait_is_enough() {
    fn waits<P: Scripted>(connection: &mut Connection, policy: P) {
        let mut subject = Subject::new(policy, P::lua().scripts().kind.as_str(), connection);
        subject.idle = true;
        let call = |limit, patience| Call { patience, ..Call::new(P::Cost::ONE, limit) };
        assert_eq!(subject.one(connection, START, call(0, 0)).1.outcome, 0);
        for (call, outcome) in
            [(call(0, 999_999), 2), (call(0, 1_000_000), 1), (call(999_999, 1_000_000), 1)]
        {
            let (_, alone) = subject.one(connection, START, call);
            let (_, both) = subject.ask(connection, START, &[call, Call { fresh: false, ..call }]);
            for answer in [alone, both[0]] {
                assert_eq!((answer.outcome, answer.wait), (outcome, Wait::Known(1_000_000)));
            }
        }
        let (_, both) = subject.ask(connection, START, &[call(1_000_000, 1_000_000); 2]);
        assert_eq!((both[0].outcome, both[1].outcome), (0, 2));
    }
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 1);
    waits(connection, bucket.clone());
    waits(connection, FixedWindow::new(1, Duration::from_secs(1)));
    waits(connection, Same((bucket.clone(), bucket)));
}

/// The reply to a lone call has 18 bits for its wait, below its number.
#[test]
fn a_long_wait_does_not_change_the_number_of_a_charge() {
    let server = Server::start();
    let connection = &mut server.connection();
    for wait in [262_143, 262_144, 262_145] {
        let rate = Rate::new(1, Duration::from_micros(wait));
        let bursty = SmoothBursty::new(rate).max_burst(Duration::ZERO);
        let subject = Subject::new(bursty, &format!("{wait}"), connection);
        let (first, _) = subject.one(connection, START, Call::new(1, 0));
        let (second, answer) = subject.one(connection, START, Call::new(1, wait));
        assert_eq!((answer.outcome, answer.wait, second), (0, Wait::Known(wait), first + 1));
    }
}

#[test]
fn a_run_behind_one_that_waits_is_answered() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = Subject::new(TokenBucket::new(Rate::per_second(10.0), 7), "key", connection);
    let run = |count| Call { count, patience: 9_000_000, ..Call::new(3, 0) };
    let (_, answers) = subject.ask(connection, START, &[run(3), run(2)]);
    let waits = [0, 0, 200_000, 500_000, 800_000].map(Wait::Known);
    assert_eq!(answers.iter().map(|answer| answer.wait).collect::<Vec<_>>(), waits);
}

/// Those beyond the first sixteen, too.
#[test]
fn many_who_need_no_answer_fill_a_window() {
    fn fill<P: Scripted<Cost = u32>>(connection: &mut Connection, policy: P) {
        let mut subject = Subject::new(policy, "key", connection);
        subject.keep = KEEP;
        for (count, cost, seconds) in [
            (17, 83, 0),
            (17, 84, 1),
            (20, 80, 0),
            (20, 81, 1),
            (100, 1, 1),
            (200, 1, 2),
            (250, 50, 2),
            (250, 51, 3),
        ] {
            redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
            let answer = subject.behind(connection, (count, 1), cost);
            let wait = Wait::Known(seconds * 1_000_000);
            assert_eq!((answer.outcome, answer.wait), (1, wait), "{count} {cost}");
        }
    }
    let server = Server::start();
    let connection = &mut server.connection();
    fill(connection, FixedWindow::new(100, Duration::from_secs(1)));
    fill(connection, SlidingWindowLog::new(100, Duration::from_secs(1)));
    // Each takes three, where another has taken one or two: 33 in a window, or 32.
    for (taken, count, cost, seconds) in [
        (1, 32, 3, 0),
        (1, 32, 4, 1),
        (1, 33, 1, 1),
        (1, 34, 97, 1),
        (1, 34, 98, 2),
        (2, 33, 97, 1),
        (2, 33, 98, 2),
    ] {
        let window = FixedWindow::new(100, Duration::from_secs(1));
        let mut subject = Subject::new(window, "threes", connection);
        subject.keep = KEEP;
        redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
        subject.one(connection, START, Call::new(taken, 0));
        let answer = subject.behind(connection, (count, 3), cost);
        assert_eq!(answer.wait, Wait::Known(seconds * 1_000_000), "{taken} {count} {cost}");
    }
    // Beside a window that has room, a bucket of a hundred: each of the two hundred takes one.
    let bucket = TokenBucket::new(Rate::per_second(100.0), 100);
    let window = FixedWindow::new(1_000, Duration::from_secs(1));
    let mut subject = Subject::new(Same((bucket, window)), "both", connection);
    subject.keep = KEEP;
    let answer = subject.behind(connection, (200, 1), 1);
    assert_eq!(answer.wait, Wait::Known(1_010_000));
}

/// A charge of what was spent already is no booking, and moves none.
#[test]
fn a_settlement_leaves_the_order_of_those_that_are_booked() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bursty = SmoothBursty::new(Rate::per_second(1.0)).max_burst(Duration::ZERO);
    let bucket = TokenBucket::new(Rate::per_second(1.0), 10);
    let mut subject = Subject::new((bursty, bucket), "key", connection);
    subject.idle = true;
    for wait in [0, 1_000_000] {
        let (_, answer) = subject.one(connection, START, Call::new((1, 1), 2_000_000));
        assert_eq!(answer.wait, Wait::Known(wait));
    }
    subject.do_change(connection, START, &settle::<(SmoothBursty, TokenBucket)>((0, 1)));
    let (_, answer) = subject.one(connection, START, Call::new((0, 1), 2_000_000));
    assert_eq!(answer.wait, Wait::Known(1_000_000));
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
    assert_eq!([answers[1].wait, answers[2].wait], [Wait::Known(3_000_000); 2]);
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

/// The waits of calls that are booked one behind the other, in seconds, by hand.
#[test]
fn bookings_ahead_follow_each_other() {
    fn books<P: Scripted<Cost = u32>>(connection: &mut Connection, policy: P, waits: [f64; 5]) {
        let mut subject = Subject::new(policy, "key", connection);
        subject.idle = true;
        for together in [false, true] {
            redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
            // In one request, and each in its own.
            let calls =
                [7, 3, 1, 2, 2].map(|cost| Call { fresh: false, ..Call::new(cost, 1 << 40) });
            let answers: Vec<_> = match together {
                true => subject.ask(connection, START, &calls).1,
                false => calls.map(|call| subject.one(connection, START, call).1).into(),
            };
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // tenths
            let waits = waits.map(|wait| Wait::Known((wait * 10.0) as u64 * 100_000));
            let told: Vec<_> = answers.iter().map(|answer| answer.wait).collect();
            assert_eq!(told, waits, "{} {together}", P::lua().scripts().kind);
        }
    }
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(10.0);
    let second = Duration::from_secs(1);
    books(connection, TokenBucket::new(rate, 7), [0.0, 0.3, 0.4, 0.6, 0.8]);
    books(connection, LeakyBucket::meter(rate, 7), [0.0, 0.3, 0.4, 0.6, 0.8]);
    books(connection, LeakyBucket::new(rate, 7), [0.0, 0.7, 1.0, 1.1, 1.3]);
    let bursty = SmoothBursty::new(rate).max_burst(Duration::ZERO);
    books(connection, bursty, [0.0, 0.7, 1.0, 1.1, 1.3]);
    books(connection, FixedWindow::new(7, second), [0.0, 1.0, 1.0, 1.0, 2.0]);
    books(connection, FixedWindow::new(8, second), [0.0, 1.0, 1.0, 1.0, 1.0]);
    books(connection, SlidingWindowLog::new(7, second), [0.0, 1.0, 1.0, 1.0, 2.0]);
    books(connection, Gcra::new(6, 10, second), [0.0, 0.3, 0.4, 0.6, 0.8]);
    let both = Same((TokenBucket::new(rate, 7), LeakyBucket::new(rate, 9)));
    books(connection, both, [0.0, 0.7, 1.0, 1.1, 1.3]);
}

/// The permits that are there, the limit, and the time until all are there, of a new limiter and after a call.
#[test]
fn each_rule_reports_what_is_there() {
    fn reports<P: Scripted<Cost = u32>>(
        connection: &mut Connection,
        policy: P,
        before: [i64; 3],
        after: [i64; 3],
    ) {
        redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
        let mut subject = Subject::new(policy, "key", connection);
        (subject.idle, subject.held) = (true, vec![0.0]);
        let kind = P::lua().scripts().kind;
        assert_eq!(subject.do_change(connection, START, b"Q")[1..4], before, "{kind}");
        assert_eq!(subject.one(connection, START, Call::new(3, 0)).1.outcome, 0);
        subject.held = vec![3.0];
        assert_eq!(subject.do_change(connection, START, b"Q")[1..4], after, "{kind}");
    }
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(10.0);
    let second = Duration::from_secs(1);
    let bucket = TokenBucket::new(rate, 7);
    reports(connection, bucket.clone(), [7, 7, 0], [4, 7, 300_000]);
    reports(connection, LeakyBucket::meter(rate, 7), [7, 7, 0], [4, 7, 300_000]);
    reports(connection, LeakyBucket::new(rate, 7), [0, 0, 0], [0, 0, 300_000]);
    reports(connection, SmoothBursty::new(rate), [10, 10, 0], [7, 10, 300_000]);
    let warming = SmoothWarmingUp::new(rate, 2 * second);
    reports(connection, warming, [20, 20, 0], [0, 20, 1_110_000]);
    reports(connection, FixedWindow::new(7, second), [7, 7, 0], [4, 7, 1_000_000]);
    reports(connection, SlidingWindowLog::new(7, second), [7, 7, 0], [4, 7, 1_000_000]);
    reports(connection, InFlight::new(7), [7, 7, 0], [4, 7, -1]);
    reports(connection, LockOut::new(bucket.clone(), second), [7, 7, 0], [4, 7, 300_000]);
    let both = Same((bucket, SlidingWindowLog::new(5, second)));
    reports(connection, both, [5, 5, 0], [2, 5, 1_000_000]);
}

/// The one that is ready last, and the first of those that are ready together.
#[test]
fn the_part_that_limits_is_named() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = |rate| TokenBucket::new(Rate::per_second(rate), 4);
    let policy = [bucket(2.0), bucket(1.0), bucket(1.0), bucket(4.0)];
    let mut subject = Subject::new(policy, "key", connection);
    subject.idle = true;
    let (_, answers) = subject.ask(connection, START, &[Call::new(4, 0), Call::new(1, 0)]);
    assert_eq!((answers[0].outcome, answers[0].part), (0, 0));
    assert_eq!((answers[1].outcome, answers[1].part), (2, 2));
    assert_eq!(answers[1].wait, Wait::Known(1_000_000));
    // One that never is, behind one that may be at any time.
    let policy = Same((InFlight::new(9), bucket(1.0)));
    let mut subject = Subject::new(policy, "never", connection);
    subject.held = vec![9.0];
    let (_, answer) = subject.one(connection, START, Call::new(5, 0));
    assert_eq!((answer.wait, answer.part), (Wait::Never, 2));
    // A rule within another one is no part.
    let locked = LockOut::new(bucket(1.0), Duration::from_secs(60));
    let mut subject = Subject::new(locked, "one rule", connection);
    subject.idle = true;
    let waits = Call { patience: 5_000_000, ..Call::new(3, 0) };
    let (_, answers) = subject.ask(connection, START, &[waits, waits]);
    assert_eq!((answers[1].outcome, answers[1].part), (1, 0));
    // Where a rule is locked the lock limits.
    let policy = LockOut::new([bucket(2.0), bucket(1.0)], Duration::from_secs(60));
    let mut subject = Subject::new(policy, "locked", connection);
    subject.idle = true;
    let waits = Call { patience: 5_000_000, ..Call::new(1, 0) };
    let (_, answers) =
        subject.ask(connection, START, &[Call::new(4, 0), waits, Call::new(4, 0), waits]);
    let parts: Vec<_> = answers.iter().map(|answer| (answer.outcome, answer.part)).collect();
    assert_eq!(parts, [(0, 0), (1, 2), (2, 0), (2, 0)]);
}

/// Newcomers hear when there is room where they need any.
#[test]
fn rules_together_have_room_where_all_have_that_know_of_room() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(100.0), 100);
    let queue = |rate| LeakyBucket::new(Rate::per_second(rate), 4);
    let policy = (bucket, queue(1.0), queue(2.0));
    let mut subject = Subject::new(policy, "key", connection);
    subject.idle = true;
    let mut ask = |cost| {
        let (_, answer) = subject.one(connection, START, Call::new(cost, 10_000_000));
        (answer.outcome, answer.wait)
    };
    assert_eq!(ask((1, 4, 0)), (0, Wait::Known(0)));
    assert_eq!(ask((1, 0, 4)), (0, Wait::Known(0)));
    assert_eq!(ask((1, 1, 0)), (3, Wait::Known(1_000_000)));
    assert_eq!(ask((1, 1, 2)), (3, Wait::Known(1_000_000)));
    assert_eq!(ask((1, 0, 1)), (3, Wait::Known(500_000)));
    assert_eq!(ask((1, 0, 0)), (0, Wait::Known(0)));
}

/// What is booked ahead comes first, and a lock shuts what is behind it.
#[test]
fn a_report_of_each_limit_waits_for_bookings_and_locks() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(1.0), 10);
    let bursty = SmoothBursty::new(Rate::per_second(1.0)).max_burst(Duration::ZERO);
    let mut subject = Subject::new(Same((bursty, bucket.clone())), "booked", connection);
    subject.idle = true;
    for wait in [0, 1_000_000] {
        let (_, answer) = subject.one(connection, START, Call::new(1, 2_000_000));
        assert_eq!(answer.wait, Wait::Known(wait));
    }
    let report = [b"D".to_vec(), numbers::<TokenBucket>(1)].concat();
    // The bursty rule owes two, and the bucket has eight.
    let reply = subject.do_change(connection, START, &report);
    assert_eq!(reply[1..], [2, 0, 2_000_000, 0, 1_000_000]);
    let locked = LockOut::new(bucket, Duration::from_secs(60));
    let mut subject = Subject::new(locked, "locked", connection);
    subject.idle = true;
    let reply = subject.do_change(connection, START, &report);
    assert_eq!(reply[1..], [1, 10, -1]);
    for (cost, outcome) in [(8, 0), (3, 2)] {
        assert_eq!(subject.one(connection, START, Call::new(cost, 0)).1.outcome, outcome);
    }
    let reply = subject.do_change(connection, START + 1, &report);
    assert_eq!(reply[1..], [1, 0, 59_999_999]);
    let reply = subject.do_change(connection, START + 60_000_000, &report);
    assert_eq!(reply[1..], [1, 10, -1]);
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

/// Half a microsecond is a whole one, and what is too long for a reply is 17 years and ten months.
#[test]
fn the_shortest_and_the_longest_waits_of_rules_together() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(1e6), 1_000_000);
    for (rate, cost, wait) in [(2e6, 1, 1), (1.0 / 86_400.0, 10_000, (1 << 49) - 1)] {
        let bursty = SmoothBursty::new(Rate::per_second(rate));
        let subject = Subject::new(Same((bursty, bucket.clone())), &format!("{rate}"), connection);
        assert_eq!(subject.one(connection, START, Call::new(cost, 0)).1.outcome, 0);
        let (_, answer) = subject.one(connection, START, Call::new(1, 0));
        assert_eq!((answer.outcome, answer.wait), (2, Wait::Known(wait)));
    }
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
