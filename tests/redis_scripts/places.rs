//! What a key with places in flight holds after each request, compared with a model of its rules.

use super::random::{Random, times};
use super::server::Server;
use super::subject::{Answer, Call, START, Subject, Wait, life, whole};
use crate::InFlight;

/// How long a turn lasts, in microseconds.
const TURN: f64 = 100_000.0;

/// What a key says of a process. Times are microseconds after the key began.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Process {
    id: [u8; 8],
    held: u32,
    /// When its lease ends.
    ends: f64,
    /// When its turn began.
    since: f64,
    /// Until when it waits, and for how much.
    waits: f64,
    wants: u32,
}

impl Process {
    /// One that sends no more loses what it holds when its lease ends.
    fn holds(&self, now: f64) -> u32 {
        if self.ends > now { self.held } else { 0 }
    }
}

/// A key.
#[derive(Clone, Debug)]
struct Key {
    began: u64,
    last: u64,
    /// A second before which it does not expire, and when it does.
    deadline: u64,
    dies: u64,
    processes: Vec<Process>,
}

/// What a process sends.
#[derive(Clone, Copy, Debug)]
struct Request {
    now: u64,
    id: [u8; 8],
    held: u32,
    lease: f64,
    listens: f64,
    /// For how long the key is kept beyond what it holds.
    keep: u64,
    /// The cost of a call, and its timeout; without it the process only reports what it holds.
    call: Option<(u32, u64)>,
}

/// The process that asks, and the others.
struct Room {
    most: u32,
    now: f64,
    own: Process,
    /// The others that hold or wait.
    others: Vec<Process>,
}

impl Room {
    fn rivals(&self) -> impl Iterator<Item = &Process> {
        self.others.iter().filter(|other| other.waits > self.now)
    }

    fn held(&self) -> u32 {
        self.own.held + self.others.iter().map(|other| other.holds(self.now)).sum::<u32>()
    }

    /// The share of each process that waits, of the places that the others leave.
    fn share(&self) -> i64 {
        let is_settled = |other: &&Process| other.waits <= self.now;
        let settled: u32 =
            self.others.iter().filter(is_settled).map(|other| other.holds(self.now)).sum();
        let waiting = i64::try_from(self.rivals().count()).expect("few") + 1;
        (i64::from(self.most) - i64::from(settled)).div_euclid(waiting)
    }

    fn is_large(&self, process: &Process, held: u32, wants: u32) -> bool {
        i64::from(held + wants) > self.share() + 1 && self.now - process.since > TURN
    }

    /// Within its share always; beyond it, until the turn is over, and then if no other turn began earlier. A process
    /// that wants more than its share, and has waited for a turn, is before the others.
    fn is_turn(&self, cost: u32) -> bool {
        let share = self.share();
        let is_small = i64::from(self.own.held + cost) <= share;
        if !is_small && i64::from(self.own.held) > share {
            return false;
        }
        if !is_small && self.now - self.own.since < TURN {
            return true;
        }
        let is_large = self.is_large(&self.own, self.own.held, cost);
        !self.rivals().any(|rival| {
            let held = rival.holds(self.now);
            let rival_is_large = self.is_large(rival, held, rival.wants);
            let is_before = if rival_is_large == is_large {
                rival.since < self.own.since && !is_small
            } else {
                rival_is_large
            };
            is_before && i64::from(held) <= share
        })
    }
}

#[allow(clippy::cast_precision_loss)] // a span that a float has room for
fn float(span: u64) -> f64 {
    span as f64
}

/// The answer to a call, if there is one; the key as it is after that, if it was written.
fn asked(most: u32, key: Option<&Key>, request: Request) -> (Option<Answer>, Option<Key>) {
    let key = key.filter(|key| key.dies > request.now);
    let began = key.map_or(request.now, |key| key.began);
    let now = float(request.now - began);
    let mut processes = key.map_or(Vec::new(), |key| key.processes.clone());
    let own = processes.iter().position(|process| process.id == request.id);
    let unknown = Process {
        id: request.id,
        held: 0,
        ends: 0.0,
        since: float(key.map_or(0, |key| key.last - began)) - TURN,
        waits: 0.0,
        wants: 0,
    };
    let mut own = own.map_or(unknown, |at| processes.remove(at));
    processes.retain(|other| other.holds(now) > 0 || other.waits > now);
    let mut is_written = own.held != request.held || request.call.is_none();
    is_written |= key.is_none() && request.keep > 0;
    // A call shows that the policy is in use, if that was not written for more than five seconds.
    let is_old = key.is_some_and(|key| request.now - key.last > 5_000_000);
    is_written |= is_old && request.call.is_some();
    own.held = request.held;
    if request.listens == 0.0 && own.waits > now {
        (own.waits, is_written) = (0.0, true);
    }
    // In time, before the lease ends.
    is_written |= own.held > 0 && own.ends - now < request.lease * 0.7;
    let mut room = Room { most, now, own, others: processes };
    let answer = request.call.map(|(cost, patience)| {
        let at_least = |outcome| Answer { wait: Wait::AtLeast(0), outcome, part: 0 };
        if cost > most {
            return Answer { wait: Wait::Never, outcome: 2, part: 0 };
        }
        let is_ready =
            room.held() + cost <= most && (room.rivals().next().is_none() || room.is_turn(cost));
        if is_ready {
            if now - room.own.since >= TURN && i64::from(room.own.held + cost) > room.share() {
                room.own.since = now;
            }
            (room.own.held, room.own.waits) = (room.own.held + cost, 0.0);
            is_written = true;
            return Answer { wait: Wait::Known(0), outcome: 0, part: 0 };
        }
        if patience == 0 {
            return at_least(2);
        }
        let span = request.listens.min(float(patience));
        if span > 0.0 {
            is_written |= room.own.waits - now < span / 2.0;
            (room.own.waits, room.own.wants) = (now + span, cost);
        }
        at_least(1)
    });
    if !is_written {
        return (answer, None);
    }
    let Room { own, others: mut processes, .. } = room;
    let ends = now + request.lease;
    if own.held > 0 || own.waits > now {
        processes.insert(0, Process { ends, ..own });
    }
    let latest = processes.iter().filter(|process| process.held > 0);
    let latest = latest.map(|process| process.ends - now).fold(0.0, f64::max);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a few seconds
    let needed = latest as u64 + request.keep;
    let before = key.map_or((0, 0), |key| (key.deadline, key.dies));
    let (deadline, dies) = life(request.now, needed, before);
    (answer, Some(Key { began, last: request.now, deadline, dies, processes }))
}

/// The key as it is.
fn read(bytes: &[u8], dies: u64) -> Key {
    let number = |at: usize, size: usize| whole(&bytes[at..at + size]);
    let float = |at: usize| f64::from_bits(number(at, 8));
    let count = |at: usize| u32::try_from(number(at, 4)).expect("four bytes");
    let (deadline, last, age) = (number(12, 4), number(16, 7), float(23));
    // Behind the fields and the maximum.
    let processes = (35..bytes.len()).step_by(40).map(|at| Process {
        id: bytes[at..at + 8].try_into().expect("eight bytes"),
        held: count(at + 8),
        ends: float(at + 12),
        since: float(at + 20),
        waits: float(at + 28),
        wants: count(at + 36),
    });
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a span
    let began = last - age as u64;
    Key { began, last, deadline, dies, processes: processes.collect() }
}

#[test]
fn places_are_shared_as_the_rules_say() {
    let server = Server::start();
    let connection = &mut server.connection();
    let mut random = Random(11);
    let mut seen = [0; 3];
    for round in 0..times(100) {
        let most = u32::try_from(random.below(9) + 1).expect("small");
        let mut subject = Subject::new(InFlight::new(most), &format!("{round}"), connection);
        let keep = random.below(3) * 1_700_001;
        subject.keep = float(keep);
        let ids = [*b"the one ", *b"another ", *b"a third ", *b"the last"];
        let mut held = [0u32; 4];
        let mut key: Option<Key> = None;
        let mut now = START;
        for _ in 0..100 {
            // In steps of ten milliseconds, so that several times are often the same one.
            let step = |span: u64| span - span % 10_000;
            now += match random.below(20) {
                0 => step(random.span(2_000_000)),
                1..4 => step(random.span(200_000)),
                4..8 => 0,
                8..12 => random.span(20_000),
                _ => step(random.span(80_000)),
            };
            let index = usize::try_from(random.below(4)).expect("small");
            let process = &mut held[index];
            match random.below(8) {
                // A reply was lost.
                0 => *process += 1,
                1..5 => {
                    let less = random.below(u64::from(*process) + 1);
                    *process = u32::try_from(less).expect("small");
                }
                _ => {}
            }
            let call = (random.below(5) > 0).then(|| {
                (random.cost(most.min(4) + 1), random.below(2) * step(random.span(600_000)))
            });
            let request = Request {
                now,
                id: ids[index],
                held: *process,
                lease: [1e6, 300_000.0][usize::from(random.below(4) == 0)],
                listens: [0.0, 200_000.0, 500_000.0]
                    [usize::try_from(random.below(3)).expect("small")],
                keep,
                call,
            };
            (subject.id, subject.held) = (request.id, vec![f64::from(request.held)]);
            (subject.lease, subject.listens) = (request.lease, request.listens);
            let answer = call.map(|(cost, patience)| {
                let call = Call { patience, ..Call::new(cost, 0) };
                subject.one(connection, now, call).1
            });
            if call.is_none() {
                subject.do_change(connection, now, b"H");
            }
            let (expected, written) = asked(most, key.as_ref(), request);
            assert_eq!(answer, expected, "{round}: {key:?} {request:?}");
            if answer.is_some_and(|answer| answer.outcome == 0) {
                *process += call.expect("a call").0;
            }
            let is_gone = key.as_ref().is_some_and(|key| key.dies <= now);
            key = written.or(key.filter(|_| !is_gone));
            if let Some(expected) = &key {
                let dies: u64 = redis::cmd("GET")
                    .arg(format!("{}:dies", subject.key))
                    .query(connection)
                    .expect("a time");
                let is = read(&subject.bytes(connection), dies);
                assert_eq!(format!("{is:?}"), format!("{expected:?}"), "{round}: {request:?}");
            } else {
                assert!(!subject.exists(connection, now));
            }
            if let Some(answer) = answer {
                seen[usize::try_from(answer.outcome).expect("small")] += 1;
            }
        }
    }
    assert!(seen.iter().all(|&seen| seen > times(500)), "{seen:?}");
}
