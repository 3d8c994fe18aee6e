//! Which policy a key holds after a request, compared with the rule in a few lines of Rust.

use super::server::Server;
use super::subject::{Call, START, Subject, whole};
use crate::redis::Scripted;
use crate::{Rate, SmoothBursty, SmoothWarmingUp};
use redis::{Connection, Value};
use std::time::Duration;

/// A second after which no 32 bits count: in the year 2149.
const LATE: u64 = START + 360 * 365 * 86_400 * 1_000_000 / 2 - 1_000_000_000_000;

const SECOND: u64 = 1_000_000;

type Rank = (u32, u32);

/// What a key says of its policy.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    is_ours: bool,
    rank: Rank,
    /// The second in which a process with this policy in its code last used the key.
    vouched: u32,
    /// The second in which the process that took the key over started.
    installed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Take,
    /// A change without a claim, by the rule of the fleet, or by a policy that was set.
    Change,
    ByRule,
    Set,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    kind: Kind,
    rank: Rank,
    grace: u32,
    /// How long ago its process started, in seconds.
    age: u32,
}

/// What the reply says of the policy of the key, if that is not the request's: its rank, for how long it has not been
/// used, and how long ago the process that brought it started.
type Other = (Rank, u32, u32);

fn since(now: u64, second: u32) -> u32 {
    u32::try_from((now / SECOND).saturating_sub(u64::from(second))).unwrap_or(u32::MAX)
}

fn ruled(held: Held, request: Request, now: u64) -> Result<Held, Other> {
    let second = u32::try_from(now / SECOND).unwrap_or(u32::MAX);
    let (quiet, taken) = (since(now, held.vouched), since(now, held.installed));
    // A process with another policy in its code does not vouch for the one that it adopted.
    let vouched = if request.grace == 0 { second } else { held.vouched };
    let used = Held { vouched, ..held };
    let renewed = |generation| Held {
        is_ours: true,
        rank: (request.rank.0, generation),
        vouched: second,
        installed: (second - request.age).max(1),
    };
    let is_agreed = held.is_ours && held.rank == request.rank;
    if is_agreed && (request.grace == 0 || quiet <= request.grace) {
        return Ok(used);
    }
    match request.kind {
        Kind::Set if request.rank.0 < held.rank.0 => {}
        Kind::Set if held.is_ours => {
            return Ok(Held { rank: held.rank.max(request.rank), ..used });
        }
        Kind::Set => {
            return Ok(renewed((held.rank.1 + 1).max(request.rank.1 + 1).max(second)));
        }
        Kind::ByRule => {
            let is_left = quiet > 600 || quiet > 10 && request.age < taken;
            if request.rank > held.rank || request.rank == held.rank && held.rank.1 == 0 && is_left
            {
                return Ok(renewed(request.rank.1));
            }
        }
        Kind::Take | Kind::Change => {}
    }
    Err((held.rank, quiet, taken))
}

/// The bytes of a key. A limiter without a rank writes `plain`.
fn key(plain: &[u8], held: Held, now: u64, is_extended: bool) -> Vec<u8> {
    let mut bytes = plain.to_vec();
    if is_extended {
        bytes[0] += 8;
        bytes.extend([0; 16]);
        for number in [held.rank.0, held.rank.1, held.vouched, held.installed] {
            bytes.extend(number.to_le_bytes());
        }
    }
    // Behind the mark, the sequence and the deadline.
    let last = if is_extended { now } else { u64::from(held.vouched) * SECOND + 999_999 };
    bytes[16..23].copy_from_slice(&last.to_le_bytes()[..7]);
    bytes
}

fn read(bytes: &[u8], size: usize, mark: u32) -> Held {
    let is_ours = bytes[4..8] == mark.to_le_bytes() && bytes[0] & 4 == 0;
    let Some(extension) = bytes.get(size..).filter(|extension| !extension.is_empty()) else {
        let vouched = u32::try_from(whole(&bytes[16..23]) / SECOND).unwrap_or(u32::MAX);
        return Held { is_ours, rank: (0, 0), vouched, installed: 0 };
    };
    let number =
        |at: usize| u32::from_le_bytes(extension[at..at + 4].try_into().expect("four bytes"));
    assert_eq!((bytes[0] & 8, extension.len()), (8, 32));
    Held { is_ours, rank: (number(16), number(20)), vouched: number(24), installed: number(28) }
}

/// What the script does to a key with these bytes, and what the key holds then.
fn done<P: Scripted<Cost = u32>>(
    connection: &mut Connection,
    subject: &mut Subject<P>,
    before: &[u8],
    request: Request,
    now: u64,
    size: usize,
) -> Result<Held, Other> {
    (subject.version, subject.generation) = request.rank;
    subject.grace = request.grace;
    let age = request.age.to_le_bytes();
    subject.claim = match request.kind {
        Kind::Take | Kind::Change => Vec::new(),
        Kind::ByRule => [&[1][..], &age].concat(),
        Kind::Set => [&[2][..], &age, &subject.replaced()[5..]].concat(),
    };
    let command = match request.kind {
        Kind::Take => subject.take(now, &[Call::new(1, 0)]),
        _ => subject.change(now, b"N"),
    };
    let mut all = redis::pipe();
    all.set("key", before).ignore().del("key:dies").ignore().add_command(command).get("key");
    let (value, after): (Value, Vec<u8>) = all.query(connection).expect("an answer");
    if let Value::Array(values) = &value
        && values.get(1) == Some(&Value::BulkString(b"other".into()))
    {
        let (Value::Int(generation), Value::BulkString(bytes)) = (&values[2], &values[3]) else {
            panic!("{value:?}")
        };
        assert_eq!(after, before);
        assert_eq!(bytes[16..], before[size + 16 - bytes.len()..size]);
        let number =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let generation = u32::try_from(*generation).expect("a generation");
        return Err(((number(4), generation), number(8), number(12)));
    }
    let held = read(&after, size, subject.mark);
    if let (Kind::Change | Kind::ByRule | Kind::Set, Value::Array(values)) = (request.kind, &value)
    {
        assert_eq!(values[1], Value::Int(held.rank.1.into()));
    }
    Ok(held)
}

fn rules<P: Scripted<Cost = u32>>(
    connection: &mut Connection,
    policy: &P,
    other: P,
    times: &[u64],
) {
    redis::cmd("FLUSHALL").exec(connection).expect("ok");
    let mut ours = Subject::new(policy.clone(), "key", connection);
    let mut theirs = Subject::new(other, "theirs", connection);
    theirs.mark = 8;
    let mut idle = Subject::new(policy.clone(), "idle", connection);
    idle.idle = true;
    let plain = [&ours, &theirs, &idle].map(|subject| {
        subject.do_change(connection, START, b"N");
        subject.bytes(connection)
    });
    let size = plain[0].len();
    for &now in times {
        let ago = |seconds: u64| u32::try_from(now / SECOND - seconds).unwrap_or(u32::MAX);
        let quiet = [0, u64::MAX, 601, 600, 11, 10];
        let quiet = if now == LATE { &quiet[..3] } else { &quiet };
        // A generation is mostly the second in which its policy was set.
        let near = if now == LATE { 20 } else { ago(0) };
        let ranks = [(0, 0), (0, 5), (1, 0), (1, 5), (2, 3), (1, near - 7), (1, near + 9)];
        // As if the clock had stepped back since.
        let ago_or_later =
            |seconds| if seconds == u64::MAX { ago(0).saturating_add(5) } else { ago(seconds) };
        let taken = [None, Some(19), Some(20), Some(21), Some(u64::MAX)];
        let mut keys = Vec::new();
        for &quiet in quiet {
            let vouched = ago_or_later(quiet);
            keys.push((false, (0, 0), vouched, 0));
            for rank in ranks {
                for taken in taken {
                    keys.push((true, rank, vouched, taken.map_or(0, ago_or_later)));
                }
            }
        }
        let mut requests = Vec::new();
        for rank in [(0, 0), (0, 5), (0, 6), (1, 0), (1, 4), (1, 6), (1, near + 3)] {
            for grace in [0, 10] {
                for kind in [Kind::Take, Kind::Change, Kind::ByRule, Kind::Set] {
                    requests.push(Request { kind, rank, grace, age: 20 });
                }
            }
        }
        for (index, plain) in plain.iter().enumerate() {
            for &(is_extended, rank, vouched, installed) in &keys {
                let held = Held { is_ours: index == 0, rank, vouched, installed };
                let bytes = key(plain, held, now, is_extended);
                // Only a claim by the rule asks when a process started.
                let asks = |request: &&Request| installed == 0 || request.kind == Kind::ByRule;
                for &request in requests.iter().filter(asks) {
                    let expected = ruled(held, request, now);
                    let is = done(connection, &mut ours, &bytes, request, now, size);
                    assert_eq!(is, expected, "{held:?} {request:?} {now}");
                    assert!(is.is_err() || is.is_ok_and(|after| after.rank >= rank));
                }
            }
        }
    }
}

/// For each kind of request, on both sides of each bound; and no request lowers the rank of a key.
#[test]
fn the_policy_of_a_key_is_the_one_that_the_rule_names() {
    let server = Server::start();
    let connection = &mut server.connection();
    let [slow, fast] = [5.0, 7.0].map(Rate::per_second);
    rules(connection, &SmoothBursty::new(slow), SmoothBursty::new(fast), &[START, LATE]);
    let warm = |rate| SmoothWarmingUp::new(rate, Duration::from_millis(10));
    rules(connection, &warm(slow), warm(fast), &[START]);
}

/// It is later than what its process has seen, and than what processes that know nothing of that set before.
#[test]
fn a_policy_that_is_set_without_a_key_is_a_later_one() {
    let server = Server::start();
    let connection = &mut server.connection();
    let second = u32::try_from(START / SECOND).expect("32 bits");
    for (seen, set) in [(0, second), (5, second), (second, second + 1), (second + 5, second + 6)] {
        let policy = SmoothBursty::new(Rate::per_second(5.0));
        let mut subject = Subject::new(policy, &format!("{seen}"), connection);
        (subject.generation, subject.claim) = (seen, subject.replaced());
        assert_eq!(subject.do_change(connection, START, b"N"), [i64::from(set)]);
    }
}
