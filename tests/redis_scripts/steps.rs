//! Random traces: the scripts and the policies reply the same, to a microsecond.

use super::random::{Random, times};
use super::server::Server;
use super::simulation::{Simulation, forgets_ahead, micros, nanos};
use super::subject::{Call, START, Subject, Wait};
use crate::policy::{Asked, Limit};
use crate::redis::Scripted;
use crate::{
    Cost, FixedWindow, Gcra, LeakyBucket, LockOut, Rate, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};
use redis::{Connection, Value};
use std::fmt::Debug;
use std::time::Duration;

const STEPS: u64 = 100_000;

/// Compares quotas: times to a microsecond, and permits with those a microsecond earlier or later.
fn compare_quota<P: Scripted>(simulation: &Simulation<P>, now: u64, answer: &[i64]) {
    let (policy, state) = (&simulation.policy, &simulation.state);
    let early = written::<P>(policy.available(state, nanos(now - 1)));
    let late = written::<P>(policy.available(state, nanos(now + 1)));
    let limit = written::<P>(policy.available(&policy.idle(nanos(now)), nanos(now)));
    let count = limit.len();
    for part in 0..count {
        let between = early[part]..=late[part];
        assert!(between.contains(&answer[1 + part]), "{answer:?}: {between:?} {state:?} {now}");
    }
    assert_eq!(answer[1 + count..][..count], limit);
    let reset = policy.idle_at(state).map(|at| micros(at.since(nanos(now))));
    match (reset, u64::try_from(answer[1 + 2 * count])) {
        (Some(ours), Ok(theirs)) => {
            assert!(ours.abs_diff(theirs) <= 1, "{answer:?}: {ours} {state:?} {now}");
        }
        (ours, theirs) => assert!(ours.is_none() && theirs.is_err(), "{answer:?}: {ours:?}"),
    }
}

/// The numbers of a cost.
fn written<P: Scripted>(cost: P::Cost) -> Vec<i64> {
    cost.numbers().map(i64::from).collect()
}

/// Compares the limits of all parts in the same way, after the last booking.
fn compare_limits<P: Scripted>(
    simulation: &Simulation<P>,
    now: u64,
    cost: P::Cost,
    mut answer: &[i64],
) {
    let (policy, state) = (&simulation.policy, &simulation.state);
    let limits = |at| Limit::all(policy, state, Asked::now(nanos(at), cost));
    let exact = limits(now);
    let mut next = |count| answer.split_off(..count).expect("enough numbers");
    assert_eq!(next(2)[1], i64::try_from(exact.len()).expect("few"));
    for ((early, exact), late) in limits(now - 1).iter().zip(&exact).zip(limits(now + 1)) {
        let (early, late) = (written::<P>(early.remaining), written::<P>(late.remaining));
        let remaining = next(early.len());
        for (part, number) in remaining.iter().enumerate() {
            assert!((early[part]..=late[part]).contains(number), "{remaining:?}: {state:?} {now}");
        }
        let theirs = u64::try_from(next(1)[0]).ok();
        let ours = exact.more_after.map(micros);
        let is_close = match (ours, theirs) {
            (Some(ours), Some(theirs)) => ours.abs_diff(theirs) <= 1,
            (ours, theirs) => ours == theirs,
        };
        assert!(is_close || early != late, "{ours:?}, not {theirs:?}: {exact:?} {state:?} {now}");
    }
    assert!(answer.is_empty());
}

/// Makes `steps` random calls; `scale` is about the time between two calls.
fn trace<P: Scripted + Debug>(
    connection: &mut Connection,
    policy: P,
    idle: bool,
    steps: u64,
    scale: u64,
    cost: impl Fn(&mut Random) -> P::Cost,
) {
    let name = format!("{policy:?}");
    let mut random = Random(1);
    let mut subject = Subject::new(policy, &format!("{name} {idle}"), connection);
    subject.idle = idle;
    let mut now = START;
    let mut simulation = Simulation::new(&subject, now);
    let mut seen = [0u64; 4];
    let mut left = times(steps);
    while left > 0 {
        let size = left.min(500);
        left -= size;
        let mut pipe = redis::pipe();
        let mut todo = Vec::new();
        for _ in 0..size {
            let limit = random.span(scale);
            let patience = if random.below(4) == 0 { limit + random.span(scale) } else { limit };
            let fresh = random.below(4) > 0;
            let call = Call { cost: cost(&mut random), count: 1, limit, patience, fresh };
            pipe.add_command(subject.take(now, &[call]));
            todo.push((now, call));
            now += random.span(scale);
        }
        let values: Vec<Value> = pipe.query(connection).expect("answers");
        for ((now, call), value) in todo.iter().zip(&values) {
            let (_, answers) = subject.answers(value);
            seen[usize::try_from(answers[0].outcome).expect("small")] += 1;
            simulation.follow(*now, *call, answers[0]);
        }
        if forgets_ahead(&simulation.policy) {
            now = now.max(simulation.since.get().div_ceil(1000));
        }
        let quota = subject.do_change(connection, now, b"Q");
        compare_quota(&simulation, now, &quota);
        if simulation.since <= nanos(now) {
            let (cost, mut todo) = (cost(&mut Random(now)), vec![b'D']);
            todo.extend(cost.numbers().flat_map(u32::to_le_bytes));
            let limits = subject.do_change(connection, now, &todo);
            compare_limits(&simulation, now, cost, &limits);
        }
    }
    let enough = times(100);
    assert!(seen[0] > enough && seen[2] > enough, "too dull: {seen:?}");
    assert!(simulation.parts[1] * 1000 <= simulation.parts[0], "{:?}", simulation.parts);
}

#[test]
fn smooth_bursty() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (rate, burst, scale) in [
        (5.0, 1000, 200_000),
        (1.0 / 86_400.0, 100_000_000, 86_400_000_000),
        (300_000.0, 0, 1),
        (1_000_000.0, 1, 0),
        (7.3, 0, 137_000),
    ] {
        let policy =
            SmoothBursty::new(Rate::per_second(rate)).max_burst(Duration::from_millis(burst));
        trace(connection, policy, rate > 6.0, STEPS / 5, scale, |random| random.cost(3));
    }
}

#[test]
fn smooth_warming_up() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (rate, warm_up, cold, scale) in [
        (5.0, 3000, 3.0, 300_000),
        (1.0 / 86_400.0, 900_000_000, 3.0, 86_400_000_000),
        (300_000.0, 10, 3.0, 1),
        (1_000_000.0, 1, 1.0, 0),
        (7.3, 20_000, 9.0, 500_000),
    ] {
        let policy = SmoothWarmingUp::new(Rate::per_second(rate), Duration::from_millis(warm_up));
        let policy = policy.cold_factor(cold);
        trace(connection, policy, false, STEPS / 5, scale, |random| random.cost(3));
    }
}

#[test]
fn token_bucket() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (rate, capacity, initial, scale) in [
        (5.0, 7, 7, 300_000),
        (1.0 / 86_400.0, 10, 0, 86_400_000_000),
        (300_000.0, 5, 5, 2),
        (1_000_000.0, 1000, 0, 0),
        (7.3, 4, 2, 300_000),
    ] {
        let policy = TokenBucket::new(Rate::per_second(rate), capacity).initial(initial);
        trace(connection, policy, rate > 6.0, STEPS / 5, scale, |random| random.cost(5));
    }
}

#[test]
fn token_bucket_in_steps() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (rate, capacity, period, scale) in
        [(4.0, 7, 250_000, 300_000), (5.0, 9, 500_000, 200_000), (7.3, 30, 1_000_000, 300_000)]
    {
        let policy = TokenBucket::new(Rate::per_second(rate), capacity);
        let policy = policy.refill_every(Duration::from_micros(period));
        trace(connection, policy, true, STEPS / 3, scale, |random| random.cost(5));
    }
}

#[test]
fn gcra() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (burst, count, scale) in [(0, 30, 2_000_000), (15, 30, 4_000_000), (15, 60_000_000, 2)] {
        let policy = Gcra::new(burst, count, Duration::from_secs(60));
        trace(connection, policy, true, STEPS / 3, scale, |random| random.cost(3));
    }
}

#[test]
fn leaky_bucket() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (rate, capacity, scale) in [(5.0, 7, 300_000), (300_000.0, 5, 5), (7.3, 4, 300_000)] {
        let rate = Rate::per_second(rate);
        let cost = |random: &mut Random| random.cost(5);
        trace(connection, LeakyBucket::new(rate, capacity), false, STEPS / 6, scale, cost);
        trace(connection, LeakyBucket::meter(rate, capacity), false, STEPS / 6, scale, cost);
    }
}

#[test]
fn fixed_window() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (limit, window, scale) in
        [(7, 1_000_000, 150_000), (3, 60_000_000, 10_000_000), (100, 50, 1)]
    {
        let policy = FixedWindow::new(limit, Duration::from_micros(window));
        let cost = |random: &mut Random| random.cost(4);
        trace(connection, policy.clone(), false, STEPS / 6, scale, cost);
        let policy = policy.aligned(Duration::from_micros(1_234_567));
        trace(connection, policy, true, STEPS / 6, scale, cost);
    }
    // A window that is not made of whole microseconds.
    let policy = FixedWindow::new(7, Duration::from_nanos(333_333_334)).aligned(Duration::ZERO);
    trace(connection, policy, true, STEPS / 6, 50_000, |random| random.cost(4));
}

#[test]
fn sliding_window_log() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (limit, window, scale) in
        [(7, 1_000_000, 150_000), (30, 60_000_000, 1_500_000), (100, 50, 1)]
    {
        let policy = SlidingWindowLog::new(limit, Duration::from_micros(window));
        trace(connection, policy, false, STEPS / 3, scale, |random| random.cost(8));
    }
}

#[test]
fn sliding_window_counter() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (limit, window, buckets, scale) in
        [(7, 1_000_000, 3, 150_000), (30, 60_000_000, 6, 1_500_000), (100, 50, 5, 1)]
    {
        let policy = SlidingWindowCounter::new(limit, Duration::from_micros(window), buckets);
        trace(connection, policy, false, STEPS / 3, scale, |random| random.cost(8));
    }
}

#[test]
fn lock_out() {
    let server = Server::start();
    let connection = &mut server.connection();
    let lock = Duration::from_millis(1700);
    let bucket = TokenBucket::new(Rate::per_second(5.0), 4);
    trace(connection, LockOut::new(bucket, lock), false, STEPS / 2, 400_000, |random| {
        random.cost(5)
    });
    let gcra = Gcra::new(9, 300, Duration::from_secs(60));
    trace(connection, LockOut::new(gcra, lock), true, STEPS / 2, 300_000, |random| random.cost(5));
}

#[test]
fn compositions() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(10.0), 10);
    let log = SlidingWindowLog::new(30, Duration::from_secs(4));
    let bursty = SmoothBursty::new(Rate::per_second(8.0));
    let window = FixedWindow::new(25, Duration::from_secs(3)).aligned(Duration::ZERO);
    let steps = STEPS / 5;
    trace(connection, Same((bucket.clone(), log.clone())), false, steps, 200_000, |random| {
        random.cost(4)
    });
    let buckets = [bucket.clone(), TokenBucket::new(Rate::per_second(7.0), 20)];
    trace(connection, buckets, true, steps, 200_000, |random| random.cost(4));
    let tuple = (bursty.clone(), log.clone(), window.clone());
    trace(connection, tuple, false, steps, 200_000, |random| {
        (random.cost(4) - 1, random.cost(4) - 1, random.cost(4))
    });
    let warming = SmoothWarmingUp::new(Rate::per_second(9.0), Duration::from_secs(2));
    let nested =
        (Same((bursty.clone(), window)), (warming, LeakyBucket::new(Rate::per_second(6.0), 9)));
    trace(connection, nested, false, steps, 200_000, |random| {
        (random.cost(4) - 1, (random.cost(3), random.cost(3) - 1))
    });
    let locked = LockOut::new(bucket, Duration::from_millis(900));
    trace(connection, (bursty, locked), false, steps, 200_000, |random| {
        (random.cost(3), random.cost(4) - 1)
    });
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
