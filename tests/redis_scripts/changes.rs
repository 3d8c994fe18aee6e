//! Pauses, and policies that are replaced while other callers still use the old one.

use super::random::{Random, times};
use super::server::Server;
use super::simulation::{Simulation, forgets_ahead, nanos};
use super::subject::{Call, KEEP, START, Subject, Wait, claim, numbers, pause, refund, settle};
use crate::policy::PolicyExt;
use crate::redis::Scripted;
use crate::redis::script::wire::{self, KeyPolicy, Rank};
use crate::{
    Cost, FixedWindow, Gcra, LeakyBucket, LockOut, Policy, Rate, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};
use redis::{Connection, Value};
use std::fmt::Debug;
use std::time::Duration;

/// Makes random calls on both sides.
fn go_on<P: Scripted + Debug>(
    connection: &mut Connection,
    subject: &Subject<P>,
    simulation: &mut Simulation<P>,
    random: &mut Random,
    now: &mut u64,
    cost: &impl Fn(&mut Random) -> P::Cost,
) {
    for _ in 0..8 {
        let ahead = random.span(500_000);
        let ahead = if forgets_ahead(&subject.policy) { 0 } else { ahead };
        let call = Call::new(cost(random), ahead);
        let (_, answer) = subject.one(connection, *now, call);
        simulation.follow(*now, call, answer);
        *now += random.span(300_000);
    }
}

/// Pauses both sides for the given number of microseconds.
pub(super) fn halt<P: Scripted>(
    connection: &mut Connection,
    subject: &Subject<P>,
    simulation: &mut Simulation<P>,
    now: u64,
    span: u64,
) {
    #[allow(clippy::cast_precision_loss)] // a few seconds
    subject.do_change(connection, now, &pause(span as f64));
    let until = nanos(now + span);
    simulation.policy.pause(&mut simulation.state, nanos(now), until);
    simulation.paused_until = until;
}

fn pauses<P: Scripted + Debug>(
    connection: &mut Connection,
    policy: &P,
    cost: impl Fn(&mut Random) -> P::Cost,
) {
    let mut random = Random(3);
    let mut subject = Subject::new(policy.clone(), "", connection);
    for round in 0..times(100) {
        subject.key = format!("paused {round}");
        subject.idle = round % 2 == 0;
        let mut now = START + round;
        let mut simulation = Simulation::new(&subject, now);
        go_on(connection, &subject, &mut simulation, &mut random, &mut now, &cost);
        now += random.span(1_000_000);
        halt(connection, &subject, &mut simulation, now, random.below(2_000_000));
        go_on(connection, &subject, &mut simulation, &mut random, &mut now, &cost);
        now += random.span(3_000_000);
        go_on(connection, &subject, &mut simulation, &mut random, &mut now, &cost);
    }
    redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
}

#[test]
fn a_pause_delays_all_callers_and_stores_nothing() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(5.0);
    let second = Duration::from_secs(1);
    pauses(connection, &SmoothBursty::new(rate), |random| random.cost(3));
    pauses(connection, &SmoothWarmingUp::new(rate, 2 * second), |random| random.cost(3));
    pauses(connection, &TokenBucket::new(rate, 6), |random| random.cost(7));
    pauses(connection, &LeakyBucket::new(rate, 6), |random| random.cost(7));
    pauses(connection, &LeakyBucket::meter(rate, 6), |random| random.cost(7));
    pauses(connection, &FixedWindow::new(4, second), |random| random.cost(5));
    pauses(connection, &SlidingWindowLog::new(4, second), |random| random.cost(5));
    let both = Same((TokenBucket::new(rate, 6), SlidingWindowLog::new(5, second)));
    pauses(connection, &both, |random| random.cost(4));
}

/// As `pauses`, but the pause ends early.
fn resumes<P: Scripted + Debug>(
    connection: &mut Connection,
    policy: &P,
    cost: impl Fn(&mut Random) -> P::Cost,
) {
    let mut random = Random(5);
    let mut subject = Subject::new(policy.clone(), "", connection);
    for round in 0..times(100) {
        subject.key = format!("resumed {round}");
        let mut now = START + round;
        let mut simulation = Simulation::new(&subject, now);
        go_on(connection, &subject, &mut simulation, &mut random, &mut now, &cost);
        // Sometimes with debt, sometimes with permits stored; and sometimes a pause within a pause.
        now += random.span(1_000_000);
        let (mut unpaused, begin) = (simulation.state.clone(), nanos(now));
        let span = random.below(2_000_000);
        halt(connection, &subject, &mut simulation, now, span);
        if round % 3 == 0 {
            now += span / 4;
            halt(connection, &subject, &mut simulation, now, random.below(2_000_000).max(span));
        }
        now += span / 4;
        subject.do_change(connection, now, b"E");
        let until = nanos(now);
        simulation.policy.pause(&mut unpaused, begin, until);
        (simulation.state, simulation.paused_until) = (unpaused, until);
        go_on(connection, &subject, &mut simulation, &mut random, &mut now, &cost);
    }
    redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
}

#[test]
fn a_pause_that_ends_early_leaves_what_was_owed_before_it() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(5.0);
    let second = Duration::from_secs(1);
    resumes(connection, &SmoothBursty::new(rate), |random| random.cost(3));
    resumes(connection, &SmoothWarmingUp::new(rate, 2 * second), |random| random.cost(3));
    resumes(connection, &TokenBucket::new(rate, 6), |random| random.cost(7));
    resumes(connection, &LeakyBucket::new(rate, 6), |random| random.cost(7));
    resumes(connection, &LeakyBucket::meter(rate, 6), |random| random.cost(7));
    resumes(connection, &FixedWindow::new(4, second), |random| random.cost(5));
    resumes(connection, &SlidingWindowLog::new(4, second), |random| random.cost(5));
    let both = Same((TokenBucket::new(rate, 6), SlidingWindowLog::new(5, second)));
    resumes(connection, &both, |random| random.cost(4));
}

/// To the microsecond, also of a quarter of an hour.
#[test]
fn a_long_debt_is_the_same_after_a_pause_that_was_ended() {
    fn keeps<P: Scripted<Cost = u32> + Debug>(connection: &mut Connection, policy: P) {
        let key = format!("{policy:?}");
        let mut subject = Subject::new(policy, &key, connection);
        subject.idle = true;
        subject.do_change(connection, START, &settle::<P>(1_000));
        let wait = |connection: &mut _| {
            let call = Call { fresh: false, ..Call::new(1, 0) };
            let (_, answer) = subject.one(connection, START, call);
            let Wait::Known(wait) = answer.wait else { panic!("{answer:?}") };
            wait
        };
        let before = wait(connection);
        assert!(before > 900_000_000, "{before}");
        subject.do_change(connection, START, &[&pause(3_000e6)[..], b"E"].concat());
        assert!(wait(connection).abs_diff(before) <= 1, "{key}");
    }
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(1.0);
    keeps(connection, SmoothBursty::new(rate));
    keeps(connection, SmoothWarmingUp::new(rate, Duration::from_secs(2)));
    keeps(connection, TokenBucket::new(rate, 10));
    keeps(connection, LeakyBucket::new(rate, 10));
    keeps(connection, LeakyBucket::meter(rate, 10));
}

/// As if each of them owed the longest time: the key has one number. So a bucket beside it, empty then, waits for another.
#[test]
fn a_pause_of_several_rules_that_ends_early_leaves_what_each_of_them_owed() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bursty = SmoothBursty::new(Rate::per_second(1.0)).max_burst(Duration::ZERO);
    let bucket = TokenBucket::new(Rate::per_second(1.0), 10);
    let subject = Subject::new(Same((bursty, bucket)), "key", connection);
    for seconds in 0..3 {
        let (_, answer) = subject.one(connection, START, Call::new(1, 10_000_000));
        assert_eq!(answer.wait, Wait::Known(seconds * 1_000_000));
    }
    subject.do_change(connection, START, &[&pause(9e6)[..], b"E"].concat());
    let (_, answer) = subject.one(connection, START, Call::new(1, 10_000_000));
    assert_eq!(answer.wait, Wait::Known(4_000_000));
}

/// A window holds nothing back by itself: the key says how long it is paused.
#[test]
fn a_shorter_pause_within_a_pause_does_not_end_it() {
    let server = Server::start();
    let connection = &mut server.connection();
    let window = FixedWindow::new(4, Duration::from_secs(1));
    let subject = Subject::new(window, "key", connection);
    for span in [10e6, 1e6] {
        subject.do_change(connection, START, &pause(span));
    }
    let (_, answer) = subject.one(connection, START, Call::new(1, 20_000_000));
    assert_eq!(answer.wait, Wait::Known(10_000_000));
}

/// Before the first pause, and after one has ended by itself.
#[test]
fn to_end_a_pause_that_is_not_on_changes_nothing() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = Subject::new(TokenBucket::new(Rate::per_second(5.0), 6), "key", connection);
    subject.one(connection, START, Call::new(3, 0));
    for now in [START, START + 1_000_001] {
        let before = subject.bytes(connection);
        subject.do_change(connection, now, b"E");
        assert_eq!(subject.bytes(connection), before);
        subject.do_change(connection, START, &pause(1e6));
    }
}

/// Shrinks both sides between calls, and compares what each has taken.
fn shrinks<P: Scripted + Debug>(
    connection: &mut Connection,
    policy: &P,
    cost: impl Fn(&mut Random) -> P::Cost,
) {
    let mut random = Random(7);
    let mut subject = Subject::new(policy.clone(), "", connection);
    let mut any = 0;
    for round in 0..times(100) {
        subject.key = format!("shrunk {round}");
        let mut now = START + round;
        let mut simulation = Simulation::new(&subject, now);
        for _ in 0..4 {
            go_on(connection, &subject, &mut simulation, &mut random, &mut now, &cost);
            now = now.max(simulation.since.get().div_ceil(1000)) + random.span(1_000_000);
            let most = cost(&mut random);
            let mut todo = Vec::new();
            wire::put_shrink::<P>(&mut todo, most);
            let reply = subject.do_change(connection, now, &todo);
            let (state, at) = (&mut simulation.state, nanos(now));
            let excess = policy.available(state, at).saturating_sub(most);
            let told: Vec<_> =
                reply[1..=P::Cost::NUMBERS].iter().map(|&n| n.cast_unsigned()).collect();
            assert_eq!(told, excess.numbers().map(u64::from).collect::<Vec<_>>());
            if !excess.is_zero() {
                any += 1;
                policy.charge(state, at, excess);
                simulation.since = simulation.since.max(at);
            }
        }
        go_on(connection, &subject, &mut simulation, &mut random, &mut now, &cost);
    }
    assert!(any > times(50), "{any} times there was more than remained");
    redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
}

#[test]
fn a_script_shrinks_as_the_policy_does() {
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(5.0);
    let second = Duration::from_secs(1);
    shrinks(connection, &SmoothBursty::new(rate), |random| random.cost(3));
    shrinks(connection, &TokenBucket::new(rate, 6), |random| random.cost(7));
    shrinks(connection, &FixedWindow::new(4, second), |random| random.cost(5));
    shrinks(connection, &SlidingWindowLog::new(4, second), |random| random.cost(5));
    let both = Same((TokenBucket::new(rate, 6), SlidingWindowLog::new(5, second)));
    shrinks(connection, &both, |random| random.cost(4));
    let each = (TokenBucket::new(rate, 6), SlidingWindowLog::new(5, second));
    shrinks(connection, &each, |random| (random.cost(4), random.cost(4)));
}

/// The permits that are there, the limit, the times until all are, until a pause ends and until the key may expire.
#[test]
fn a_report_says_how_long_a_pause_and_the_key_last() {
    let server = Server::start();
    let connection = &mut server.connection();
    let window = FixedWindow::new(4, Duration::from_secs(1));
    let subject = Subject::new(window, "key", connection);
    assert_eq!(subject.do_change(connection, START, b"Q")[1..], [4, 4, 0, 0, -1]);
    subject.one(connection, START, Call::new(1, 0));
    let expires_in = |connection: &mut Connection, now: u64| {
        let deadline = subject.bytes(connection)[15..19].try_into().expect("four bytes");
        (i64::from(u32::from_le_bytes(deadline)) * 1_000_000).saturating_sub_unsigned(now)
    };
    let lives = expires_in(connection, START);
    assert!((2_000_000..5_000_000).contains(&lives), "{lives}");
    let report = subject.do_change(connection, START, b"Q");
    assert_eq!(report[1..], [3, 4, 1_000_000, 0, lives]);
    // Nothing is granted in the pause, whatever the window has.
    let limits = [b"D".to_vec(), numbers::<FixedWindow>(1)].concat();
    let report = subject.do_change(connection, START, &[pause(5_000_000.5), limits].concat());
    assert_eq!(report[1..], [1, 0, 5_000_001]);
    let lives = expires_in(connection, START);
    let report = subject.do_change(connection, START, b"Q");
    assert_eq!(report[1..], [0, 4, 5_000_001, 5_000_001, lives]);
    let report = subject.do_change(connection, START + 7_000_000, b"Q");
    assert_eq!(report[1..], [4, 4, 0, 0, lives - 7_000_000]);
}

/// After all other changes of the request.
#[test]
fn a_key_is_deleted() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = Subject::new(TokenBucket::new(Rate::per_second(5.0), 6), "key", connection);
    subject.one(connection, START, Call::new(3, 0));
    let report = subject.do_change(connection, START, &[b"XQ".to_vec(), pause(1e6)].concat());
    assert_eq!(report[1], 3);
    let is_there: bool = redis::cmd("EXISTS").arg("key").query(connection).expect("an answer");
    assert!(!is_there);
    assert_eq!(subject.one(connection, START, Call::new(6, 0)).1.outcome, 0);
}

/// So that a refund of a charge before it gives back no more than what is not known to have been used.
#[test]
fn a_pause_and_its_end_are_charges() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = Subject::new(TokenBucket::new(Rate::per_second(5.0), 6), "key", connection);
    let (first, _) = subject.one(connection, START, Call::new(1, 0));
    subject.do_change(connection, START, &pause(1e6));
    subject.do_change(connection, START, b"E");
    assert_eq!(subject.one(connection, START, Call::new(1, 1_000_000)).0, first + 3);
}

/// What is taken away has a number of its own, by which it comes back.
#[test]
fn a_shrink_is_a_charge() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = Subject::new(TokenBucket::new(Rate::per_second(1.0), 10), "key", connection);
    subject.idle = true;
    let (first, _) = subject.one(connection, START, Call::new(4, 0));
    let mut todo = Vec::new();
    wire::put_shrink::<TokenBucket>(&mut todo, 1);
    let number = i64::try_from(first).expect("32 bits") + 1;
    // The second time there is nothing to take, and no charge, whatever stands before it.
    for taken in [5, 0] {
        assert_eq!(subject.do_change(connection, START, &todo)[1..], [taken, number]);
    }
    let both = [b"Q".to_vec(), todo.clone()].concat();
    assert_eq!(subject.do_change(connection, START, &both)[6..], [0, number]);
    let back = refund::<TokenBucket>(5, 5, 0, first + 1, true);
    let reply = subject.do_change(connection, START, &[back, b"Q".to_vec()].concat());
    assert_eq!(reply[1], 6);
    assert_eq!(subject.one(connection, START, Call::new(1, 0)).0, first + 1);
    // Also where the key has the whole number.
    let window = FixedWindow::new(4, Duration::from_secs(1));
    let subject = Subject::new(window, "window", connection);
    let (first, _) = subject.one(connection, START, Call::new(1, 0));
    let number = i64::try_from(first).expect("32 bits") + 1;
    assert_eq!(subject.do_change(connection, START, &todo)[1..], [2, number]);
}

/// They were booked at its end, which has moved: what they would find now is not known.
#[test]
fn charges_booked_in_a_pause_do_not_come_back_when_it_is_ended() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = Subject::new(TokenBucket::new(Rate::per_second(1.0), 10), "key", connection);
    subject.idle = true;
    subject.do_change(connection, START, &pause(5e6));
    let (booked, answer) = subject.one(connection, START, Call::new(4, 10_000_000));
    assert_eq!(answer.wait, Wait::Known(9_000_000));
    let back = refund::<TokenBucket>(4, 4, -9_000_000, booked, true);
    let reply =
        subject.do_change(connection, START, &[b"EQ".to_vec(), back, b"Q".to_vec()].concat());
    // Until all is there again.
    assert_eq!((reply[3], reply[8]), (14_000_000, 14_000_000));
}

/// The policy in the reply to a request with another.
fn known_policy<P>(subject: &Subject<P>, value: &Value) -> KeyPolicy {
    let Value::Array(values) = value else { panic!("{value:?}") };
    let [_, Value::BulkString(word), Value::Int(generation), Value::BulkString(bytes)] =
        &values[..]
    else {
        panic!("{value:?}")
    };
    assert_eq!(word, b"other");
    KeyPolicy::of(&subject.scripts, *generation, bytes).expect("a policy")
}

/// Its rank and parameters.
fn other_policy<P>(subject: &Subject<P>, value: &Value) -> (Rank, Vec<f64>) {
    let known = known_policy(subject, value);
    (known.rank, known.terms.parameters)
}

/// With the same parameters, too: the process has to learn it.
#[test]
fn a_request_of_another_rank_is_told_that_of_the_key() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(5.0), 6);
    let call = Call::new(1, 0);
    for (of_key, own) in
        [((1, 0), (0, 0)), ((0, 0), (1, 0)), ((0, 9), (0, 0)), ((0, 0), (0, 9)), ((1, 8), (1, 9))]
    {
        let mut subject = Subject::new(bucket.clone(), &format!("{of_key:?}"), connection);
        redis::cmd("DEL").arg(&subject.key).exec(connection).expect("deleted");
        (subject.version, subject.generation) = of_key;
        assert_eq!(subject.one(connection, START, call).1.outcome, 0);
        (subject.version, subject.generation) = own;
        let value: Value = subject.take(START, &[call]).query(connection).expect("an answer");
        assert_eq!(other_policy(&subject, &value), (of_key, parameters(&subject)));
    }
}

/// The grace counts from the last call of a process that has the policy in its code, in seconds of the clock.
#[test]
fn a_process_is_told_how_long_a_policy_is_not_in_use_and_how_old_its_process_is() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = TokenBucket::new(Rate::per_second(5.0), 6);
    let mut old = Subject::new(bucket.clone(), "key", connection);
    let call = Call::new(1, 0);
    // Otherwise the key would have expired.
    old.keep = KEEP;
    assert_eq!(old.one(connection, START, call).1.outcome, 0);
    let mut new = Subject::new(bucket.clone(), "key", connection);
    (new.grace, new.keep) = (10, KEEP);
    assert_eq!(new.one(connection, START + 10_876_542, call).1.outcome, 0);
    let value: Value = new.take(START + 10_876_543, &[call]).query(connection).expect("an answer");
    let known = known_policy(&new, &value);
    assert_eq!(
        (known.quiet, known.since),
        (11, u32::try_from(START / 1_000_000).expect("1970") + 11)
    );
    // A process that started 30 s ago brings a later version.
    let mut new = Subject::new(bucket, "key", connection);
    (new.version, new.claim) = (1, claim(30));
    new.do_change(connection, START + 10_876_543, b"N");
    let value: Value = old.take(START + 13_876_543, &[call]).query(connection).expect("an answer");
    let known = known_policy(&old, &value);
    assert_eq!((known.rank, known.quiet, known.since), ((1, 0), 3, 33));
    // One with another policy of the same version takes a key over that was quiet for ten minutes.
    let mut other = Subject::new(TokenBucket::new(Rate::per_second(7.0), 6), "quiet", connection);
    (old.key, other.mark, other.claim) = ("quiet".to_owned(), 8, claim(30));
    assert_eq!(old.one(connection, START, call).1.outcome, 0);
    let later = START + 601_000_000;
    other.do_change(connection, later, b"N");
    assert_eq!(other.one(connection, later + 1_000_000, call).1.outcome, 0);
    let value: Value = old.take(later + 2_000_000, &[call]).query(connection).expect("an answer");
    let known = known_policy(&old, &value);
    assert_eq!((known.rank, known.quiet, known.since), ((0, 0), 1, 32));
}

fn parameters<P: Scripted>(subject: &Subject<P>) -> Vec<f64> {
    let mut parameters = Vec::new();
    subject.policy.write(&mut parameters);
    parameters
}

fn replaces<P: Scripted + Debug>(
    connection: &mut Connection,
    old: &P,
    new: &P,
    cost: impl Fn(&mut Random) -> P::Cost,
) {
    let mut random = Random(17);
    let mut subject = Subject::new(old.clone(), "", connection);
    for round in 0..times(60) {
        let mut later = Subject::new(new.clone(), &format!("replaced {round}"), connection);
        subject.key = format!("replaced {round}");
        (subject.idle, later.idle) = (round % 2 == 0, round % 2 == 0);
        (later.mark, later.claim) = (8, subject.replaced());
        (subject.version, subject.claim) = (0, Vec::new());
        let mut now = START + round;
        let mut before = Simulation::new(&subject, now);
        // This call creates the key.
        let first = Call::new(cost(&mut random), 100_000_000);
        let (_, answer) = subject.one(connection, now, first);
        before.follow(now, first, answer);
        go_on(connection, &subject, &mut before, &mut random, &mut now, &cost);
        // Callers booked ahead have left, so another caller may be due earlier from here on.
        now = (now + random.span(500_000)).max(before.since.get().div_ceil(1000));
        if round % 3 == 0 {
            halt(connection, &subject, &mut before, now, random.below(2_000_000));
        }
        let call = Call::new(cost(&mut random), 0);
        if subject.exists(connection, now) {
            let bytes = subject.bytes(connection);
            let value: Value = later.take(now, &[call]).query(connection).expect("an answer");
            assert_eq!(other_policy(&subject, &value), ((0, 0), parameters(&subject)));
            assert_eq!(subject.bytes(connection), bytes);
        }
        later.generation = u32::try_from(later.do_change(connection, now, b"N")[0]).expect("one");
        assert_eq!(u64::from(later.generation), now / 1_000_000);
        let mut after = Simulation::new(&later, now);
        (after.state, after.since) = (before.state, before.since);
        after.paused_until = before.paused_until;
        new.migrate(old, &mut after.state, nanos(now));
        go_on(connection, &later, &mut after, &mut random, &mut now, &cost);
        // A request with the old policy gets the new one in reply, whatever the request is.
        let bytes = subject.bytes(connection);
        for command in [subject.take(now, &[call]), subject.change(now, b"Q")] {
            let value: Value = command.query(connection).expect("an answer");
            assert_eq!(other_policy(&subject, &value), ((0, later.generation), parameters(&later)));
        }
        assert_eq!(subject.bytes(connection), bytes);
        now = now.max(after.since.get().div_ceil(1000));
        // Back to the old policy, by its version.
        (subject.version, subject.claim) = (1, claim(0));
        subject.do_change(connection, now, b"N");
        let mut back = Simulation::new(&subject, now);
        (back.state, back.since) = (after.state, after.since);
        back.paused_until = after.paused_until;
        old.migrate(new, &mut back.state, nanos(now));
        go_on(connection, &subject, &mut back, &mut random, &mut now, &cost);
        let value: Value = later.take(now, &[call]).query(connection).expect("an answer");
        assert_eq!(other_policy(&subject, &value), ((1, 0), parameters(&subject)));
    }
    redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
}

#[test]
fn a_later_generation_replaces_the_policy_and_keeps_what_was_granted() {
    let server = Server::start();
    let connection = &mut server.connection();
    let (slow, fast) = (Rate::per_second(5.0), Rate::per_second(12.5));
    let (short, long) = (Duration::from_secs(1), Duration::from_secs(2));
    let bursty = SmoothBursty::new(slow);
    replaces(connection, &bursty, &SmoothBursty::new(fast).max_burst(long), |random| {
        random.cost(3)
    });
    let warming = SmoothWarmingUp::new(slow, long);
    let cold = SmoothWarmingUp::new(fast, short).cold_factor(5.0);
    replaces(connection, &warming, &cold, |random| random.cost(3));
    let bucket = TokenBucket::new(slow, 8);
    replaces(connection, &bucket, &TokenBucket::new(fast, 5), |random| random.cost(4));
    // Its parameters have no short form.
    let empty = TokenBucket::new(fast, 5).initial(0);
    replaces(connection, &bucket, &empty, |random| random.cost(4));
    replaces(connection, &empty, &bucket, |random| random.cost(4));
    let gcra = Gcra::new(3, 5, short);
    replaces(connection, &gcra, &Gcra::new(9, 2, short), |random| random.cost(4));
    for (old, new) in [
        (LeakyBucket::new(slow, 5), LeakyBucket::new(fast, 7)),
        (LeakyBucket::meter(slow, 5), LeakyBucket::meter(fast, 7)),
        (LeakyBucket::new(slow, 5), LeakyBucket::meter(slow, 7)),
    ] {
        replaces(connection, &old, &new, |random| random.cost(4));
    }
    let window = FixedWindow::new(4, short);
    replaces(connection, &window, &FixedWindow::new(6, long), |random| random.cost(3));
    let log = SlidingWindowLog::new(4, short);
    replaces(connection, &log, &SlidingWindowLog::new(6, long), |random| random.cost(3));
    let counter = SlidingWindowCounter::new(4, short, 5);
    replaces(connection, &counter, &SlidingWindowCounter::new(6, short, 2), |random| {
        random.cost(3)
    });
    let one = (Same((bucket.clone(), log.clone())), LockOut::new(bursty.clone(), short));
    let other = (
        Same((TokenBucket::new(fast, 6), SlidingWindowLog::new(9, short))),
        LockOut::new(SmoothBursty::new(fast), long),
    );
    replaces(connection, &one, &other, |random| (random.cost(3), random.cost(2) - 1));
}

/// A policy that is set where there is no key replaces that of a new limiter, which was idle or not.
#[test]
fn a_policy_that_is_set_without_a_key_begins_with_what_the_last_one_had() {
    let server = Server::start();
    let connection = &mut server.connection();
    let old = TokenBucket::new(Rate::per_second(1.0), 10).initial(2);
    let new = TokenBucket::new(Rate::per_second(1.0), 20);
    for (idle, there) in [(false, 2), (true, 10)] {
        let mut before = Subject::new(old.clone(), &format!("idle: {idle}"), connection);
        let mut after = Subject::new(new.clone(), &before.key, connection);
        (before.idle, after.idle) = (idle, idle);
        (after.mark, after.claim) = (8, before.replaced());
        assert_eq!(after.do_change(connection, START, b"NQ")[1], there);
    }
}

/// What the store before had no room for does not appear in a larger one.
#[test]
fn a_larger_store_begins_with_what_was_stored() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bursty =
        |seconds| SmoothBursty::new(Rate::per_second(5.0)).max_burst(Duration::from_secs(seconds));
    let before = Subject::new(bursty(1), "key", connection);
    before.one(connection, START, Call::new(1, 0));
    let mut after = Subject::new(bursty(50), "key", connection);
    (after.mark, after.claim) = (8, before.replaced());
    assert_eq!(after.do_change(connection, START + 4_000_000, b"NQ")[1], 5);
}

/// A refund in a pause cuts off what would be stored in it; a pause before the change is no matter.
#[test]
fn a_refund_after_a_change_leaves_what_was_stored_before() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = |rate| TokenBucket::new(Rate::per_second(rate), 20);
    let before = Subject::new(bucket(5.0), "key", connection);
    before.do_change(connection, START, &pause(1e6));
    let mut after = Subject::new(bucket(1.0), "key", connection);
    (after.mark, after.claim) = (8, before.replaced());
    let now = START + 3_000_000;
    let report = after.do_change(connection, now, b"NQ");
    assert_eq!(report[1], 10);
    after.generation = u32::try_from(report[0]).expect("a generation");
    let (number, _) = after.one(connection, now, Call::new(1, 0));
    let back = refund::<TokenBucket>(1, 1, 0, number, true);
    assert_eq!(after.do_change(connection, now, &[back, b"Q".to_vec()].concat())[1], 10);
}

#[test]
fn steps_are_adopted_as_they_are() {
    let server = Server::start();
    let connection = &mut server.connection();
    let bucket = |rate, capacity, period| {
        let bucket = TokenBucket::new(Rate::per_second(rate), capacity);
        if period > 0 { bucket.refill_every(Duration::from_millis(period)) } else { bucket }
    };
    let mut random = Random(1);
    // Zero: without steps.
    let periods = [(250, 250), (250, 500), (250, 0), (0, 250)];
    for (round, (first, then)) in (0..times(100)).zip(periods.into_iter().cycle()) {
        // Some take hours, where a millionth of a step is long.
        let scale = if round / 4 % 2 == 1 { 14_400 } else { 1 };
        let slower = |rate: f64| rate / f64::from(u32::try_from(scale).expect("small"));
        let old = bucket(slower(4.0), 8, first * scale);
        let new = bucket(slower(6.0), 7, then * scale);
        let mut subject = Subject::new(old.clone(), &format!("steps {round}"), connection);
        subject.idle = true;
        let mut now = START + random.below(1_000_000);
        let mut before = Simulation::new(&subject, now);
        let cost = |random: &mut Random| random.cost(3);
        go_on(connection, &subject, &mut before, &mut random, &mut now, &cost);
        now = now.max(before.since.get().div_ceil(1000));
        let mut later = Subject::new(new.clone(), &subject.key, connection);
        (later.mark, later.claim) = (8, subject.replaced());
        later.generation = u32::try_from(later.do_change(connection, now, b"N")[0]).expect("one");
        let mut after = Simulation::new(&later, now);
        (after.state, after.since) = (before.state, before.since);
        new.migrate(&old, &mut after.state, nanos(now));
        go_on(connection, &later, &mut after, &mut random, &mut now, &cost);
    }
}
