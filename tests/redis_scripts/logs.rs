//! What a key with a log of grants holds after each request, compared with a list of grants.

use super::random::{Random, times};
use super::server::Server;
use super::subject::{Answer, Call, START, Subject, Wait, life, refund, settle, whole};
use crate::redis::Scripted;
use crate::{SlidingWindowCounter, SlidingWindowLog};
use redis::Connection;
use std::fmt::Debug;
use std::time::Duration;

const WINDOW: u64 = 1_000_000;

/// The grants of one part of a window.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    last: u64,
    permits: u32,
    /// The number of its first grant.
    number: u32,
}

#[derive(Clone, Debug)]
struct Log {
    most: u32,
    /// How long a part is; 1 for a log.
    part: u64,
    sequence: u64,
    newest: u64,
    entries: Vec<Entry>,
    deadline: u64,
    dies: u64,
}

impl Log {
    fn new(most: u32, part: u64, now: u64) -> Self {
        Self { most, part, sequence: now, newest: now, entries: vec![], deadline: 0, dies: 0 }
    }

    fn granted(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.permits)).sum()
    }

    fn ends(&self, entry: &Entry) -> u64 {
        entry.last - entry.last % self.part + WINDOW
    }

    fn drop_ended(&mut self, now: u64) {
        let ended = self.entries.iter().take_while(|entry| self.ends(entry) <= now).count();
        self.entries.drain(..ended);
    }

    fn ready_at(&self, now: u64, cost: u32) -> Option<u64> {
        if cost > self.most {
            return None;
        }
        let over = (self.granted() + u64::from(cost)).saturating_sub(self.most.into());
        let mut sum = 0;
        let until = self.entries.iter().find(|entry| {
            sum += u64::from(entry.permits);
            sum >= over
        });
        let ends = until.filter(|_| over > 0).map_or(0, |entry| self.ends(entry));
        Some(now.max(self.newest).max(ends))
    }

    fn charge(&mut self, now: u64, due: u64, cost: u32) {
        self.newest = due.max(self.newest);
        self.drop_ended(now);
        self.sequence += 1;
        let (time, part) = (self.newest, self.part);
        match self.entries.last_mut() {
            Some(last) if last.last / part == time / part => {
                *last = Entry { last: time, permits: last.permits.saturating_add(cost), ..*last };
            }
            _ => self.entries.push(Entry {
                last: time,
                permits: cost,
                number: u32::try_from(self.sequence % (1 << 32)).expect("32 bits"),
            }),
        }
    }

    fn take(&mut self, now: u64, call: Call<u32>) -> Answer {
        let Some(due) = self.ready_at(now, call.cost) else {
            return Answer { wait: Wait::Never, outcome: 2, part: 0 };
        };
        let wait = due - now;
        let is_granted = wait <= call.limit;
        if is_granted {
            self.charge(now, due, call.cost);
        }
        let outcome = if is_granted { 0 } else { 2 };
        Answer { wait: Wait::Known(wait), outcome, part: 0 }
    }

    fn refund(&mut self, number: u64, part: u32, all: u32) {
        // The last entry that began no later.
        let age = |other: u64| (self.sequence - other) % (1 << 32);
        let since = age(number);
        let index = self.entries.partition_point(|entry| age(entry.number.into()) >= since);
        if let Some(index) = index.checked_sub(1) {
            let entry = &mut self.entries[index];
            entry.permits = entry.permits.saturating_sub(part);
            while self.entries.pop_if(|last| last.permits == 0).is_some() {}
            // Nothing is left: any time before now will do.
            self.newest = self.entries.last().map_or(0, |last| last.last);
        }
        if since == 0 && part == all {
            self.sequence -= 1;
        }
    }

    fn save(&mut self, now: u64) {
        let needed = self.entries.last().map_or(0, |last| self.ends(last).saturating_sub(now));
        (self.deadline, self.dies) = life(now, needed, (self.deadline, self.dies));
    }
}

/// The entries of a key, and the sum of their permits as it is kept.
fn read(bytes: &[u8], head: usize) -> (Vec<Entry>, u64) {
    let number = |at: usize, size: usize| whole(&bytes[at..at + size]);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole numbers
    let float = |at: usize| f64::from_bits(number(at, 8)) as u64;
    // Behind the stamp, the mark, the sequence and the deadline.
    let base = number(19, 7) - float(26);
    let entries = (head..bytes.len()).step_by(16).map(|at| Entry {
        last: base + float(at),
        permits: u32::try_from(number(at + 8, 4)).expect("four bytes"),
        number: u32::try_from(number(at + 12, 4)).expect("four bytes"),
    });
    (entries.collect(), float(34))
}

fn logs<P: Scripted<Cost = u32> + Debug>(
    connection: &mut Connection,
    policy: &P,
    most: u32,
    part: u64,
    cost: impl Fn(&mut Random) -> u32,
) {
    let mut random = Random(13);
    let mut seen = [0; 3];
    for round in 0..times(60) {
        let subject = Subject::new(policy.clone(), &format!("{policy:?} {round}"), connection);
        let mut log: Option<Log> = None;
        // The number of each charge, what is left of it, and when it was due.
        let mut charges: Vec<(u64, u32, u64)> = Vec::new();
        let (mut now, mut head) = (START, None);
        for _ in 0..120 {
            now += random.span(120_000);
            let mut after = log.take_if(|log| log.dies > now).unwrap_or_else(|| {
                charges.clear();
                Log::new(most, part, now)
            });
            let is_new = after.dies == 0;
            let mut is_written = false;
            if random.below(3) > 0 {
                let calls: Vec<_> = (0..=random.below(3))
                    .map(|_| Call::new(cost(&mut random), random.below(4) * 300_000))
                    .collect();
                let (_, answers) = subject.ask(connection, now, &calls);
                for (call, answer) in calls.iter().zip(answers) {
                    assert_eq!(
                        answer,
                        after.take(now, *call),
                        "{policy:?} {round} {call:?} {after:?}"
                    );
                    if answer.outcome == 0 {
                        charges.push((after.sequence, call.cost, after.newest));
                        (is_written, seen[0]) = (true, seen[0] + 1);
                    }
                }
            } else {
                let mut todo = Vec::new();
                for _ in 0..=random.below(4) {
                    // An absent key has no charge that could come back.
                    let index =
                        if is_new { u64::MAX } else { random.below(charges.len() as u64 + 2) };
                    let Some(charge) = charges.get_mut(usize::try_from(index).expect("64 bits"))
                    else {
                        let cost = random.cost(most.min(8));
                        todo.extend(settle::<P>(cost));
                        after.charge(now, now, cost);
                        (is_written, seen[1]) = (true, seen[1] + 1);
                        charges.push((after.sequence, cost, after.newest));
                        continue;
                    };
                    let (number, all, due) = *charge;
                    let back = random.cost(all);
                    let ago = now.cast_signed() - due.cast_signed();
                    todo.extend(refund::<P>(back, all, ago, number % (1 << 32), back == all));
                    after.refund(number, back, all);
                    (is_written, seen[2]) = (true, seen[2] + 1);
                    charge.1 -= back;
                    let is_undone = after.sequence < number;
                    charges
                        .retain(|charge| charge.1 > 0 && !(is_undone && charge.0 > after.sequence));
                }
                todo.push(b'Q');
                let report = subject.do_change(connection, now, &todo);
                after.drop_ended(now);
                let there = i64::from(most) - after.granted().cast_signed();
                assert_eq!(report[1], there.max(0), "{policy:?} {round} {after:?}");
            }
            if is_written {
                after.save(now);
                let bytes = subject.bytes(connection);
                let head = *head.get_or_insert_with(|| bytes.len() - 16 * after.entries.len());
                let (entries, granted) = read(&bytes, head);
                assert_eq!(entries, after.entries, "{policy:?} {round}");
                assert_eq!(granted, after.granted(), "{policy:?} {round}");
            }
            log = (is_written || !is_new).then_some(after);
            if let Some(log) = &log {
                assert_eq!(subject.exists(connection, now), log.dies > now);
            }
        }
    }
    assert!(seen.iter().all(|&seen| seen > times(600)), "{seen:?}");
}

#[test]
fn a_log_holds_what_was_granted_and_did_not_come_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let window = Duration::from_micros(WINDOW);
    logs(connection, &SlidingWindowLog::new(8, window), 8, 1, |random| random.cost(9));
    logs(connection, &SlidingWindowLog::new(60, window), 60, 1, |random| random.cost(3));
    let counter = SlidingWindowCounter::new(8, window, 4);
    logs(connection, &counter, 8, WINDOW / 4, |random| random.cost(9));
}

/// Each report looks from where the one before it looked to.
#[test]
fn reports_between_refunds_see_what_came_back() {
    let server = Server::start();
    let connection = &mut server.connection();
    let log = SlidingWindowLog::new(8, Duration::from_micros(WINDOW));
    let report = |cost: u32| [b"D".to_vec(), cost.to_le_bytes().to_vec()].concat();
    let mut todo = Vec::new();
    let subject = Subject::new(log, "key", connection);
    let numbers: Vec<_> = (0..4)
        .map(|index| subject.one(connection, START + 1_000 * index, Call::new(2, 0)).0)
        .collect();
    let now = START + 10_000;
    let back = |index: usize, part| {
        let ago = 10_000 - 1_000 * i64::try_from(index).expect("small");
        refund::<SlidingWindowLog>(part, 2, ago, numbers[index], part == 2)
    };
    // Four are there when the second of four entries has ended, and so on.
    let steps = [(report(4), 1), (back(0, 1), 0), (report(4), 1), (back(2, 1), 0), (report(5), 1)];
    for (step, _) in &steps {
        todo.extend(step);
    }
    todo.extend([report(8), back(3, 2), report(4)].concat());
    let numbers = subject.do_change(connection, now, &todo);
    let times: Vec<_> = numbers[1..].chunks(3).map(|report| report[2]).collect();
    // The entries end 990, 991, 992 and 993 ms from now.
    assert_eq!(times, [991_000, 991_000, 991_000, 993_000, 990_000]);
}
