//! The content and the lifetime of the key, and keys of other programs.

use super::random::{Random, times};
use super::server::Server;
use super::subject::{Call, START, Subject, Wait, pause};
use crate::redis::{Failure, Reconnecting, RedisRateLimiter, Scripted};
use crate::{
    Error, FixedWindow, Gcra, InFlight, LeakyBucket, Rate, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};
use redis::{Connection, Value};
use std::fmt::Debug;
use std::time::Duration;

/// When a key expires, in microseconds by the manual clock.
fn expires(connection: &mut Connection, key: &str) -> u64 {
    redis::cmd("GET").arg(format!("{key}:dies")).query(connection).expect("a time")
}

fn writes(connection: &mut Connection) -> Vec<String> {
    let info: String = redis::cmd("INFO").arg("commandstats").query(connection).expect("text");
    let lines = info.lines().filter(|line| line.starts_with("cmdstat_set"));
    lines.filter_map(|line| Some(line.split_once(',')?.0.to_owned())).collect()
}

#[test]
fn a_bursty_limiter_is_44_bytes_and_a_refusal_writes_nothing() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = SmoothBursty::new(Rate::per_second(5.0));
    let subject = Subject::new(policy, "key", connection);
    subject.one(connection, START, Call::new(10, 0));
    let before = subject.bytes(connection);
    assert_eq!(before.len(), 44);
    let expiry = expires(connection, "key");
    let count = writes(connection);
    for after in 0..100 {
        let (_, answer) = subject.one(connection, START + after, Call::new(1, 1000));
        assert_eq!((answer.outcome, answer.wait), (2, Wait::Known(2_000_000 - after)));
        // A call that has to be sent again later writes nothing either.
        let call = Call { patience: 9_000_000, count: 3, ..Call::new(1, 1000) };
        assert_eq!(subject.ask(connection, START + after, &[call]).1[0].outcome, 1);
    }
    assert_eq!(writes(connection), count);
    assert_eq!((subject.bytes(connection), expires(connection, "key")), (before, expiry));
    // A grant that needs no longer lifetime keeps the expiry.
    subject.one(connection, START + 2_000_000, Call::new(1, 0));
    assert_eq!(expires(connection, "key"), expiry);
    assert_ne!(writes(connection), count);
}

/// A process that is only refused still uses the key, and no other may take it over: the refusal says so, but not each
/// time. A key with a version counts whole seconds of the clock.
#[test]
fn a_refusal_is_noted_after_five_seconds() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (version, quiet) in [(0, 5_000_000), (1, 5_876_542)] {
        let policy = SmoothBursty::new(Rate::per_minute(1.0));
        let mut subject = Subject::new(policy, &format!("of version {version}"), connection);
        subject.version = version;
        subject.one(connection, START, Call::new(10, 0));
        let before = subject.bytes(connection);
        let mut after = |time| {
            let (_, answer) = subject.one(connection, START + time, Call::new(1, 0));
            assert_eq!(answer.outcome, 2);
            subject.bytes(connection)
        };
        assert_eq!(after(0), before);
        assert_eq!(after(quiet), before);
        assert_ne!(after(quiet + 1), before);
    }
}

fn lives_long_enough<P: Scripted<Cost = u32> + Debug>(
    connection: &mut Connection,
    policy: P,
    scale: u64,
) {
    let mut random = Random(7);
    let subject = Subject::new(policy, &format!("life {scale}"), connection);
    let mut now = START;
    // The manual clock and the expiry may differ by the duration of the test.
    for _ in 0..times(300) {
        let call = Call::new(random.cost(4), random.span(scale));
        let (_, answer) = subject.one(connection, now, call);
        if answer.outcome == 0 {
            let quota = subject.do_change(connection, now, b"Q");
            let need = quota[quota.len() - 3] / 1000;
            let left = quota[quota.len() - 1];
            assert!(left / 1000 >= need + 999, "{left} {need} {:?}", subject.policy);
            assert!(expires(connection, &subject.key) >= now + left.unsigned_abs());
        }
        now += random.span(scale);
    }
    redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
    // The first write sets a lifetime that covers the debt.
    let subject = Subject::new(subject.policy, "owed", connection);
    subject.one(connection, now, Call::new(3, 0));
    let quota = subject.do_change(connection, now, b"Q");
    let left = expires(connection, "owed") - now;
    assert!(left >= u64::try_from(quota[quota.len() - 3]).expect("a span"), "{left} {quota:?}");
}

#[test]
fn a_key_lives_as_long_as_its_debt() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_minute(1.0);
    let minute = Duration::from_secs(60);
    lives_long_enough(connection, SmoothBursty::new(rate), 60_000_000);
    lives_long_enough(connection, SmoothWarmingUp::new(rate, 5 * minute), 60_000_000);
    lives_long_enough(connection, TokenBucket::new(rate, 4).refill_every(minute), 60_000_000);
    lives_long_enough(connection, Gcra::new(3, 1, minute), 60_000_000);
    lives_long_enough(connection, LeakyBucket::new(rate, 5), 60_000_000);
    lives_long_enough(connection, FixedWindow::new(4, minute), 20_000_000);
    lives_long_enough(connection, SlidingWindowLog::new(4, minute), 20_000_000);
    let both = Same((TokenBucket::new(rate, 6), SlidingWindowLog::new(7, minute)));
    lives_long_enough(connection, both, 20_000_000);
    lives_long_enough(connection, SmoothBursty::new(Rate::per_second(1e6)), 10);
    let daily = SmoothBursty::new(Rate::per_second(1.0 / 86_400.0));
    lives_long_enough(connection, daily, 86_400_000_000);
}

/// A lease lasts longer than anything else in the key.
#[test]
fn a_key_lives_as_long_as_its_leases() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = Subject::new(InFlight::new(3), "key", connection);
    (subject.held, subject.lease) = (vec![0.0], 3_600e6);
    assert_eq!(subject.one(connection, START, Call::new(2, 0)).1.outcome, 0);
    // Another one only looks, and then writes.
    (subject.id, subject.held) = (*b"another ", vec![0.0]);
    subject.lease = 10e6;
    assert_eq!(subject.one(connection, START, Call::new(2, 0)).1.outcome, 2);
    assert_eq!(subject.one(connection, START, Call::new(1, 0)).1.outcome, 0);
    assert!(subject.exists(connection, START + 3_600_000_000));
}

/// With each form of a request: the short form of the parameters, and with a version.
#[test]
fn an_absent_key_is_what_the_request_says() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (version, more) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let burst = Duration::from_secs(1) + Duration::from_nanos(more);
        let policy = SmoothBursty::new(Rate::per_second(10.0)).max_burst(burst);
        let mut subject = Subject::new(policy, &format!("{version} {more}"), connection);
        subject.version = version;
        for (idle, there) in [(false, 0), (true, 10)] {
            subject.idle = idle;
            assert_eq!(subject.do_change(connection, START, b"Q")[1], there);
        }
    }
}

/// The windows are those of the clock, also where that has gone back.
#[test]
fn an_aligned_window_ends_at_its_edge() {
    let server = Server::start();
    let connection = &mut server.connection();
    let window = FixedWindow::new(4, Duration::from_secs(1)).aligned(Duration::ZERO);
    let subject = Subject::new(window, "key", connection);
    assert_eq!(subject.one(connection, START, Call::new(4, 0)).1.outcome, 0);
    let left = 1_000_000 - START % 1_000_000;
    for now in [START, START + left - 1, START - 9_900_000] {
        let (_, answer) = subject.one(connection, now, Call::new(1, 0));
        assert_eq!(answer.wait, Wait::Known(1_000_000 - now % 1_000_000));
    }
    assert_eq!(subject.one(connection, START + left, Call::new(4, 0)).1.outcome, 0);
}

/// To the microsecond. The clock that steps back into it begins it anew, but none that has ended.
#[test]
fn a_window_counts_until_its_end() {
    let server = Server::start();
    let connection = &mut server.connection();
    let window = FixedWindow::new(4, Duration::from_secs(1));
    let mut subject = Subject::new(window, "key", connection);
    subject.one(connection, START, Call::new(4, 0));
    for (after, there) in [(999_999, 0), (1_000_000, 4)] {
        assert_eq!(subject.do_change(connection, START + after, b"Q")[1], there);
    }
    for (after, outcome) in [(300_000, 2), (999_999, 2), (1_000_000, 0)] {
        subject.key = format!("written after {after}");
        subject.one(connection, START, Call::new(4, 0));
        subject.do_change(connection, START + after, b"N");
        let (_, answer) = subject.one(connection, START - 5_000_000, Call::new(4, 0));
        let wait = if outcome == 0 { 0 } else { 1_000_000 };
        assert_eq!((answer.outcome, answer.wait), (outcome, Wait::Known(wait)));
    }
}

/// However many grants there were in it; and a log has one for each microsecond.
#[test]
fn a_window_of_parts_has_an_entry_for_each_of_them() {
    let server = Server::start();
    let connection = &mut server.connection();
    let second = Duration::from_secs(1);
    let counter = SlidingWindowCounter::new(1_000, second, 4);
    let counter = Subject::new(counter, "counter", connection);
    let log = Subject::new(SlidingWindowLog::new(1_000, second), "log", connection);
    counter.one(connection, START, Call::new(1, 0));
    let empty = counter.bytes(connection).len() - 16;
    for number in 0..100 {
        let now = START + number * 10_000;
        assert_eq!(counter.one(connection, now, Call::new(1, 0)).1.outcome, 0);
    }
    assert_eq!(counter.bytes(connection).len() - empty, 4 * 16);
    log.one(connection, START, Call::new(1, 0));
    let one = log.bytes(connection).len();
    log.one(connection, START, Call::new(1, 0));
    assert_eq!(log.bytes(connection).len(), one);
    log.one(connection, START + 1, Call::new(1, 0));
    assert_eq!(log.bytes(connection).len(), one + 16);
}

/// An absent key is a new limiter, and what that has not is what would be lost.
#[test]
fn a_key_that_expires_changes_no_decision() {
    let server = Server::start();
    let connection = &mut server.connection();
    let at_once = |connection: &mut Connection, subject: &Subject<SmoothBursty>, now| {
        (0..20).filter(|_| subject.one(connection, now, Call::new(1, 0)).1.outcome == 0).count()
    };
    let mut subject = Subject::new(SmoothBursty::new(Rate::per_second(10.0)), "", connection);
    for after in [4_000_000, 4_300_000, 3_600_000_000, 1_000_000_000_000] {
        subject.key = format!("idle for {after}");
        assert_eq!(at_once(connection, &subject, START), 1);
        assert_eq!(at_once(connection, &subject, START + after), 11, "{after}");
    }
    // So does it alone, without the store of time.
    let policy = TokenBucket::new(Rate::per_minute(1.0), 10).initial(0);
    let bucket = Subject::new(policy, "bucket", connection);
    let half_hour = |times: u64| START + times * 1_800_000_000;
    assert_eq!(bucket.one(connection, START, Call::new(1, 0)).1.outcome, 2);
    for times in 1..48 {
        let (_, answer) = bucket.one(connection, half_hour(times), Call::new(1, 0));
        assert_eq!(answer.outcome, 0, "{times}");
    }
    // Where another part refuses, too.
    let slow = SmoothBursty::new(Rate::per_second(1.0)).max_burst(Duration::from_secs(5));
    let both = (slow, TokenBucket::new(Rate::per_minute(1.0), 1).initial(0));
    let both = Subject::new(both, "both", connection);
    assert_eq!(both.one(connection, START, Call::new((1, 1), 0)).1.outcome, 2);
    let (_, answer) = both.one(connection, START + 5_000_000, Call::new((4, 0), 0));
    assert_eq!((answer.outcome, both.do_change(connection, START + 5_000_000, b"Q")[1]), (0, 1));
}

#[test]
fn a_key_of_another_format_is_refused_and_not_changed() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = SmoothBursty::new(Rate::per_second(5.0));
    let reconnecting = Reconnecting::new(server.client());
    let limiter = RedisRateLimiter::builder(policy, reconnecting, "key").build();
    limiter.blocking_acquire(1).expect("granted");
    let mut bytes: Vec<u8> = redis::cmd("GET").arg("key").query(connection).expect("a key");
    assert_eq!(bytes.len(), 44);
    bytes[0] += 0x10;
    redis::cmd("SET").arg("key").arg(&bytes).exec(connection).expect("set");
    for _ in 0..2 {
        let Err(Error::Store(error)) = limiter.blocking_acquire(1) else { panic!("granted") };
        assert!(!error.is_unavailable() && !error.may_have_charged(), "{error}");
    }
    let after: Vec<u8> = redis::cmd("GET").arg("key").query(connection).expect("a key");
    assert_eq!(after, bytes, "nothing was overwritten");
}

fn is_not_changed<P: Scripted<Cost = u32>>(connection: &mut Connection, policy: &P) {
    let mut random = Random(2);
    let mut subject = Subject::new(policy.clone(), "key", connection);
    subject.claim = subject.replaced();
    for round in 0..times(1000) {
        let length = if round % 3 == 0 { random.below(28) } else { random.below(150) };
        let junk: Vec<u8> =
            (0..length).map(|_| u8::try_from(random.below(256)).expect("a byte")).collect();
        redis::cmd("SET").arg("key").arg(&junk).query::<()>(connection).expect("ok");
        subject.generation = u32::from(round % 2 == 0);
        let call = Call::new(1, 0);
        for command in [
            subject.take(START, &[call]),
            subject.change(START, b"N"),
            subject.change(START, &pause(1e6)),
        ] {
            let value: Value = command.query(connection).expect("an answer");
            let Value::Array(values) = &value else { panic!("{value:?}") };
            assert_eq!(values[1], Value::BulkString(b"foreign".into()), "{value:?}");
            assert_eq!(subject.bytes(connection), junk);
        }
    }
}

#[test]
fn foreign_keys_are_not_changed() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(5.0);
    is_not_changed(connection, &SmoothBursty::new(rate));
    is_not_changed(connection, &TokenBucket::new(rate, 5));
    is_not_changed(connection, &LeakyBucket::new(rate, 5));
    let subject = Subject::new(SmoothBursty::new(rate), "key", connection);
    redis::cmd("DEL").arg("key").query::<()>(connection).expect("ok");
    redis::cmd("LPUSH").arg("key").arg(1).query::<()>(connection).expect("ok");
    let error = subject.take(START, &[Call::new(1, 0)]).query::<Value>(connection);
    assert!(Failure::from(error.expect_err("a list")).key);
}

/// Not as if the rest were zero: with the short form of the parameters, with all of them, and with a version.
#[test]
fn a_key_that_was_cut_short_is_foreign() {
    let server = Server::start();
    let connection = &mut server.connection();
    for (burst, version) in [(1_000, 0), (1_500, 0), (1_000, 1), (1_500, 1)] {
        let policy =
            SmoothBursty::new(Rate::per_second(5.0)).max_burst(Duration::from_nanos(burst));
        let mut subject = Subject::new(policy, "key", connection);
        subject.version = version;
        redis::cmd("DEL").arg("key").exec(connection).expect("deleted");
        subject.one(connection, START, Call::new(1, 0));
        let whole = subject.bytes(connection);
        // To a process with the same parameters the rest says nothing new.
        subject.mark += 1;
        for length in 0..=whole.len() {
            redis::cmd("SET").arg("key").arg(&whole[..length]).exec(connection).expect("set");
            let request = subject.take(START, &[Call::new(1, 0)]);
            let value: Value = request.query(connection).expect("an answer");
            let Value::Array(values) = &value else { panic!("{value:?}") };
            let word = if length < whole.len() { "foreign" } else { "other" };
            assert_eq!(values[1], Value::BulkString(word.into()), "{length} of {}", whole.len());
        }
    }
}

/// After a step of the clock, a caller waits at most for the debt and one interval.
fn steps<P: Scripted<Cost = u32> + Debug>(
    connection: &mut Connection,
    policy: &P,
    interval: u64,
    most: u32,
) {
    for step in [-3_600_000_000, -30_000_000, 30_000_000, 3_600_000_000i64] {
        let mut random = Random(31);
        let subject = Subject::new(policy.clone(), &format!("{policy:?} {step}"), connection);
        let mut now = START;
        for round in 0..times(40) {
            let mut written = now;
            for _ in 0..=random.below(8) {
                let call = Call::new(random.cost(most), interval);
                if subject.one(connection, now, call).1.outcome == 0 {
                    written = now;
                }
                now += random.span(interval);
            }
            let ask = |connection: &mut Connection, now| {
                let (_, answer) = subject.one(connection, now, Call::new(1, 0));
                match answer.wait {
                    _ if answer.outcome == 0 => 0,
                    Wait::Known(wait) => wait,
                    other => panic!("{other:?}"),
                }
            };
            let before = ask(connection, now);
            // The time since the last grant was not written.
            let owed = if before == 0 { 0 } else { before + now - written };
            // One round in four steps in the opposite direction.
            let step = if round % 4 == 3 { -step } else { step };
            now = now.checked_add_signed(step).expect("a time");
            let after = ask(connection, now);
            assert!(after <= owed + interval, "{policy:?} {step}: {owed} {after}");
            // The wait ends, although no caller is granted meanwhile.
            let mut waited = 0;
            while ask(connection, now) > 0 {
                now += interval / 3 + 1;
                waited += interval / 3 + 1;
                assert!(waited <= owed + 2 * interval, "{policy:?} {step}: {owed} {after}");
            }
        }
    }
}

#[test]
fn a_step_of_the_clock_locks_no_caller_out() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(5.0);
    let second = Duration::from_secs(1);
    steps(connection, &SmoothBursty::new(rate), 200_000, 3);
    steps(connection, &SmoothWarmingUp::new(rate, 2 * second), 600_000, 3);
    steps(connection, &TokenBucket::new(rate, 4), 200_000, 4);
    steps(connection, &TokenBucket::new(rate, 4).refill_every(second), 1_000_000, 4);
    steps(connection, &LeakyBucket::new(rate, 4), 200_000, 4);
    steps(connection, &LeakyBucket::meter(rate, 4), 200_000, 4);
    steps(connection, &FixedWindow::new(4, second), 1_000_000, 4);
    let aligned = FixedWindow::new(4, 7 * second).aligned(Duration::ZERO);
    steps(connection, &aligned, 7_000_000, 4);
    steps(connection, &SlidingWindowLog::new(4, second), 1_000_000, 4);
    steps(connection, &SlidingWindowCounter::new(4, 7 * second, 3), 7_000_000, 4);
    let both = Same((TokenBucket::new(rate, 6), SlidingWindowLog::new(7, second)));
    steps(connection, &both, 1_000_000, 4);
}

/// It goes on waiting for the time that it knows.
#[test]
fn a_booking_in_a_pause_that_is_ended_is_not_overtaken() {
    fn overtakes<P: Scripted<Cost = u32>>(connection: &mut Connection, policy: P) {
        redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
        let subject = Subject::new(policy, "key", connection);
        subject.do_change(connection, START, &pause(5e6));
        for _ in 0..2 {
            let (_, answer) = subject.one(connection, START, Call::new(1, 9_000_000));
            assert_eq!((answer.outcome, answer.wait), (0, Wait::Known(5_000_000)));
            subject.do_change(connection, START, b"E");
        }
    }
    let server = Server::start();
    let connection = &mut server.connection();
    overtakes(connection, FixedWindow::new(4, Duration::from_secs(1)));
    overtakes(connection, SlidingWindowLog::new(4, Duration::from_secs(1)));
}

#[test]
fn a_bucket_in_steps_begins_at_the_last_step() {
    let server = Server::start();
    let connection = &mut server.connection();
    let policy = TokenBucket::new(Rate::per_second(4.0), 8).initial(0);
    let policy = policy.refill_every(Duration::from_millis(250));
    let step = START - START % 250_000 + 250_000;
    for before in [1, 2, 249_999, 250_000] {
        let subject = Subject::new(policy.clone(), &format!("{before}"), connection);
        let (_, answer) = subject.one(connection, step - before, Call::new(1, 0));
        assert_eq!((answer.outcome, answer.wait), (2, Wait::Known(before)));
    }
}

/// A meter is full when the pause ends, at any rate.
#[test]
fn a_rate_that_is_set_in_a_long_pause_holds_from_its_end() {
    let server = Server::start();
    let connection = &mut server.connection();
    let before = LeakyBucket::meter(Rate::per_second(1.0), 10);
    let subject = Subject::new(before.clone(), "key", connection);
    subject.do_change(connection, START, &pause(900e6));
    let after = LeakyBucket::meter(Rate::per_second(2.0), 10);
    let claim = subject.replaced();
    let mut subject = Subject::new(after, "key", connection);
    subject.claim = claim;
    subject.mark += 1;
    subject.generation =
        u32::try_from(subject.do_change(connection, START, b"N")[0]).expect("a generation");
    let call = Call { fresh: false, ..Call::new(5, 0) };
    assert_eq!(subject.one(connection, START, call).1.wait, Wait::Known(902_500_000));
}

/// A quarter of an hour, where a millionth is a millisecond.
#[test]
fn a_long_pause_ends_when_it_should() {
    fn after<P: Scripted<Cost = u32> + Debug>(
        connection: &mut Connection,
        policy: P,
        seconds: u64,
    ) {
        redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
        let mut subject = Subject::new(policy, "key", connection);
        subject.idle = true;
        subject.do_change(connection, START, &pause(900e6));
        let call = Call { fresh: false, ..Call::new(5, 0) };
        let (_, answer) = subject.one(connection, START, call);
        assert_eq!(answer.wait, Wait::Known(seconds * 1_000_000), "{:?}", subject.policy);
    }
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(1.0);
    after(connection, TokenBucket::new(rate, 10), 905);
    after(connection, LeakyBucket::meter(rate, 10), 905);
    after(connection, LeakyBucket::new(rate, 10), 900);
    after(connection, SmoothBursty::new(rate), 900);
    after(connection, SmoothWarmingUp::new(rate, Duration::from_secs(3)), 900);
    after(connection, FixedWindow::new(10, Duration::from_secs(60)), 900);
    after(connection, SlidingWindowLog::new(10, Duration::from_secs(60)), 900);
}
