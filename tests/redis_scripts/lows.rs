//! What a key of a bucket keeps so that a late refund returns what would be there.

use super::random::Random;
use super::server::Server;
use super::simulation::{Simulation, nanos};
use super::subject::{Call, START, Subject, Wait, claim, pause, refund};
use crate::redis::Scripted;
use crate::{LeakyBucket, Policy, Rate, TokenBucket};
use redis::Connection;

const SECOND: u64 = 1_000_000;

fn bucket(connection: &mut Connection) -> Subject<TokenBucket> {
    Subject::new(TokenBucket::new(Rate::per_second(10.0), 100), "key", connection)
}

fn take(
    connection: &mut Connection,
    subject: &Subject<TokenBucket>,
    at: u64,
    n: u32,
) -> (u64, u32) {
    let (sequence, answer) = subject.one(connection, at, Call::new(n, 0));
    assert_eq!(answer.outcome, 0);
    (sequence, n)
}

/// Gives all permits of a charge back, and returns how many are available then.
fn give_back(
    connection: &mut Connection,
    subject: &Subject<TokenBucket>,
    at: u64,
    (sequence, n): (u64, u32),
) -> i64 {
    subject.do_change(connection, at, &refund::<TokenBucket>(n, n, 0, sequence, true));
    subject.do_change(connection, at, b"Q")[1]
}

/// 43 bytes are 120 in memory, as they were without the levels.
#[test]
fn a_key_has_levels_only_while_the_bucket_is_not_full() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = bucket(connection);
    let mut sizes = Vec::new();
    // The first, one behind it, one that finds it full again, and one behind that.
    for at in [0, SECOND, 60 * SECOND, 61 * SECOND, 120 * SECOND] {
        take(connection, &subject, START + at, 30);
        sizes.push(subject.bytes(connection).len());
        if at == 0 {
            let memory = redis::cmd("MEMORY").arg("USAGE").arg("key").query(connection);
            assert!(memory.is_ok_and(|bytes: u64| bytes <= 120), "by jemalloc");
        }
    }
    assert_eq!(sizes, [43, 91, 43, 91, 43]);
    // A change of the other numbers leaves them alone.
    let first = take(connection, &subject, START + 121 * SECOND, 30);
    take(connection, &subject, START + 122 * SECOND, 30);
    subject.do_change(connection, START + 122 * SECOND, b"N");
    assert_eq!(subject.bytes(connection).len(), 91);
    assert_eq!(give_back(connection, &subject, START + 122 * SECOND, first), 60);
}

/// Where nothing is left of what may come back, and of a new limiter that is not full: what it found is no charge.
#[test]
fn a_key_has_levels_only_while_something_may_come_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = bucket(connection);
    let size = |connection: &mut _, subject: &Subject<TokenBucket>| subject.bytes(connection).len();
    let (first, second) =
        (take(connection, &subject, START, 20), take(connection, &subject, START, 10));
    assert_eq!(size(connection, &subject), 91);
    // Of the first, which found the bucket full: the second found nothing less.
    assert_eq!(give_back(connection, &subject, START, first), 90);
    assert_eq!(size(connection, &subject), 43);
    assert_eq!(give_back(connection, &subject, START, second), 100);
    subject.key = "undone".to_owned();
    let (first, second) =
        (take(connection, &subject, START, 20), take(connection, &subject, START, 10));
    assert_eq!(give_back(connection, &subject, START, second), 80);
    assert_eq!(give_back(connection, &subject, START, first), 100);
    assert_eq!(size(connection, &subject), 43);
    let policy = TokenBucket::new(Rate::per_second(10.0), 100).initial(50);
    let half = Subject::new(policy, "half full", connection);
    let sizes = [10, 10].map(|n| {
        take(connection, &half, START, n);
        size(connection, &half)
    });
    assert_eq!(sizes[1] - sizes[0], 48);
}

/// In a pause, and with a version, the numbers behind them are written too.
#[test]
fn a_key_with_levels_is_written_whole_where_it_has_more_numbers() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut subject = bucket(connection);
    for n in [60, 30] {
        take(connection, &subject, START, n);
    }
    subject.do_change(connection, START, &pause(10e6));
    subject.do_change(connection, START + 2 * SECOND, b"N");
    let (_, answer) = subject.one(connection, START + 3 * SECOND, Call::new(1, 10 * SECOND));
    assert_eq!(answer.wait, Wait::Known(7 * SECOND + 100_000));
    // Behind a longer debt the levels stay.
    subject.key = "debt".to_owned();
    for n in [60, 40, 30] {
        subject.one(connection, START, Call::new(n, 10 * SECOND));
    }
    subject.do_change(connection, START, &pause(1e6));
    assert_eq!(subject.do_change(connection, START, b"Q")[4], 1_000_000);
    (subject.key, subject.version) = ("version".to_owned(), 1);
    for n in [60, 30] {
        take(connection, &subject, START, n);
    }
    subject.do_change(connection, START + 2 * SECOND, b"N");
    // When a process with this policy last used the key.
    let bytes = subject.bytes(connection);
    let used = bytes[bytes.len() - 8..bytes.len() - 4].try_into().expect("four bytes");
    assert_eq!(u64::from(u32::from_le_bytes(used)), START / SECOND + 2);
}

/// A charge that finds as much as an earlier one takes its place: there are four levels.
#[test]
fn a_level_that_was_found_before_is_kept_once() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = bucket(connection);
    // Behind the state: the lowest level for the last charges, and the one for those before them.
    let levels = |connection: &mut _| {
        let bytes = subject.bytes(connection);
        [31, 39].map(|at| f64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
    };
    take(connection, &subject, START, 30);
    for (at, n, found) in
        [(0, 10, [30.0, -1.0]), (SECOND, 20, [30.0, -1.0]), (SECOND, 10, [50.0, 30.0])]
    {
        take(connection, &subject, START + at, n);
        assert_eq!(levels(connection), found);
    }
    take(connection, &subject, START + 4 * SECOND, 10);
    assert_eq!(levels(connection), [30.0, -1.0]);
}

/// The server's clock goes back by an hour: no time passes, and what may come back stays.
#[test]
fn levels_stay_when_the_clock_steps_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = bucket(connection);
    let first = take(connection, &subject, START, 60);
    take(connection, &subject, START + SECOND, 30);
    let back = START - 3_600 * SECOND;
    take(connection, &subject, back, 10);
    // It held 50 when the second charge came, so 50 of the 60.
    assert_eq!(give_back(connection, &subject, back, first), 60);
}

/// A charge of a key that has expired is not one of the key after it.
#[test]
fn a_charge_of_a_key_that_has_expired_gives_nothing_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let subject = bucket(connection);
    let first = take(connection, &subject, START, 60);
    let second = take(connection, &subject, START + SECOND, 30);
    let later = START + 3_600 * SECOND;
    assert!(!subject.exists(connection, later));
    take(connection, &subject, later, 40);
    assert_eq!(give_back(connection, &subject, later, second), 60);
    take(connection, &subject, later, 10);
    assert_eq!(give_back(connection, &subject, later, first), 50);
}

/// The price of a charge under another policy is not known. From then on charges come back again.
#[test]
fn a_change_of_the_policy_ends_what_may_come_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let old = bucket(connection);
    let first = take(connection, &old, START, 60);
    let last = take(connection, &old, START, 20);
    let mut new = Subject::new(TokenBucket::new(Rate::per_second(10.0), 90), "key", connection);
    (new.mark, new.version, new.claim) = (8, 1, claim(0));
    new.do_change(connection, START, b"N");
    // With the version.
    assert_eq!(new.bytes(connection).len(), 43 + 32);
    assert_eq!(give_back(connection, &new, START, last), 20);
    assert_eq!(give_back(connection, &new, START, first), 20);
    let first = take(connection, &new, START + SECOND, 10);
    take(connection, &new, START + SECOND, 10);
    assert_eq!(new.bytes(connection).len(), 91 + 32);
    assert_eq!(give_back(connection, &new, START + SECOND, first), 20);
}

/// More charges than a key has levels, which come back in any order. A key keeps what a store in process keeps, and
/// where that forgets one more level, the key may return more; but never more than there would be if it had been
/// charged less at once.
#[test]
fn of_each_of_a_few_charges_at_least_as_much_comes_back_as_in_process() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut random = Random(11);
    let policy = TokenBucket::new(Rate::per_second(1.0), 1_000);
    let mut subject = Subject::new(policy.clone(), "", connection);
    subject.idle = true;
    for round in 0..300 {
        subject.key = format!("few {round}");
        let mut simulation = Simulation::new(&subject, START);
        let (mut now, mut left) = (START, 3 + random.below(9));
        let (mut charges, mut costs) = (Vec::new(), Vec::new());
        while left > 0 || !charges.is_empty() {
            if left > 0 && (charges.is_empty() || random.below(5) > 0) {
                left -= 1;
                let call = Call::new(random.cost(60), 0);
                let (sequence, answer) = subject.one(connection, now, call);
                let (_, receipt) = simulation.follow(now, call, answer).expect("enough");
                charges.push((sequence, costs.len(), receipt));
                costs.push((now, call.cost));
                now += random.below(2) * random.span(10 * SECOND);
                continue;
            }
            let index = usize::try_from(random.below(charges.len() as u64)).expect("small");
            let (sequence, number, receipt) = charges.remove(index);
            let (at, all) = costs[number];
            let part = if random.below(3) > 0 { all } else { random.cost(all) };
            let ago = i64::try_from(now - at).expect("a span");
            let back = refund::<TokenBucket>(part, all, ago, sequence, part == all);
            let there = subject.do_change(connection, now, &[back, b"Q".to_vec()].concat())[1];
            simulation.policy.refund(&mut simulation.state, nanos(now), part, receipt);
            let least = policy.available(&simulation.state, nanos(now - 1));
            costs[number].1 -= part;
            let mut less = policy.idle(nanos(START));
            for &(at, cost) in costs.iter().filter(|&&(_, cost)| cost > 0) {
                policy.charge(&mut less, nanos(at), cost);
            }
            let most = policy.available(&less, nanos(now + 1));
            assert!((i64::from(least)..=i64::from(most)).contains(&there), "{round}: {there}");
        }
    }
}

/// A meter is a bucket in other words, also of what was booked ahead.
#[test]
fn a_meter_gives_back_what_a_bucket_gives_back() {
    fn resets<P: Scripted<Cost = u32>>(connection: &mut Connection, policy: P) -> Vec<i64> {
        let mut subject = Subject::new(policy, "key", connection);
        subject.idle = true;
        redis::cmd("FLUSHALL").query::<()>(connection).expect("ok");
        let mut book = |cost| (subject.one(connection, START, Call::new(cost, 9_000_000)).0, cost);
        let charges = [7, 3, 2, 6, 4].map(&mut book);
        let back = [2, 0, 3, 1, 4].map(|index| {
            let (sequence, cost) = charges[index];
            let back = refund::<P>(cost, cost, 0, sequence, true);
            subject.do_change(connection, START, &[back, b"Q".to_vec()].concat())[3]
        });
        back.into()
    }
    let server = Server::start();
    let connection = &mut server.connection();
    let rate = Rate::per_second(10.0);
    let bucket = resets(connection, TokenBucket::new(rate, 7));
    assert_eq!(resets(connection, LeakyBucket::meter(rate, 7)), bucket);
    assert!(bucket[0] < 2_200_000, "something came back: {bucket:?}");
}
