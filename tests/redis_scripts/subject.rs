//! Both scripts of a policy with the time as an argument, their requests and their replies.

use crate::Cost;
use crate::redis::Scripted;
use crate::redis::script::Scripts;
use redis::{Connection, Value};

/// A time in microseconds since the epoch.
pub(super) const START: u64 = 1_790_000_000_123_457;

/// The number of all requests.
const NUMBER: u32 = 1_000_000_007;

/// How long a key is kept that says more than an absent one, in microseconds: 30 years.
pub(super) const KEEP: f64 = 30.0 * 365.0 * 86_400e6;

/// Where a script reads the key and sets its expiry, and the same by the manual clock: a key beside it has
/// the time at which it expires.
const EXPIRY: [[&str; 2]; 2] = [
    [
        "local blob = redis.call('GET', key)",
        "local dies = redis.call('GET', key .. ':dies')\n\
         if dies and now >= tonumber(dies) then redis.call('DEL', key, key .. ':dies') end\n\
         local blob = redis.call('GET', key)",
    ],
    [
        "redis.call('SET', key, value, 'PX', milliseconds)",
        "redis.call('SET', key, value)\n\
         redis.call('SET', key .. ':dies', string.format('%.0f', now + milliseconds * 1000))",
    ],
];

/// A run of equal calls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<C> {
    pub(super) cost: C,
    pub(super) count: u32,
    pub(super) limit: u64,
    pub(super) patience: u64,
    pub(super) fresh: bool,
}

impl<C> Call<C> {
    pub(super) fn new(cost: C, limit: u64) -> Self {
        Self { cost, count: 1, limit, patience: limit, fresh: true }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wait {
    Known(u64),
    AtLeast(u64),
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) wait: Wait,
    /// 0 booked, 1 later, 2 refused, 3 no room.
    pub(super) outcome: u64,
    /// The index of the part plus one; zero is none.
    pub(super) part: u64,
}

/// A policy's scripts and a key.
pub(super) struct Subject<P> {
    pub(super) policy: P,
    pub(super) key: String,
    pub(super) version: u32,
    pub(super) generation: u32,
    pub(super) mark: u32,
    pub(super) idle: bool,
    /// How long the key is kept, in microseconds.
    pub(super) keep: f64,
    /// Zero for a limiter with the policy in its code.
    pub(super) grace: u32,
    /// The places that the limiter holds in each part with places in flight, its id, and the duration of its
    /// lease.
    pub(super) held: Vec<f64>,
    pub(super) id: [u8; 8],
    pub(super) lease: f64,
    /// The claim of a change.
    pub(super) claim: Vec<u8>,
    /// How long it counts as waiting if it must wait.
    pub(super) listens: f64,
    take: String,
    change: String,
    pub(super) scripts: Scripts,
}

impl<P: Scripted> Subject<P> {
    pub(super) fn new(policy: P, key: &str, connection: &mut Connection) -> Self {
        let scripts = P::lua().scripts();
        let mut load = |text: &str| -> String {
            // Removed from the list, because some arguments are optional.
            let moment = "local micros, seconds = table.remove(ARGV), table.remove(ARGV)\n\
                          local time = {seconds, micros}";
            let mut text = text.replace("local time = redis.call('TIME')", moment);
            for [line, ours] in EXPIRY {
                assert!(text.contains(moment) && text.contains(line), "{line} is not in\n{text}");
                text = text.replace(line, ours);
            }
            redis::cmd("SCRIPT").arg("LOAD").arg(text).query(connection).expect("a script")
        };
        Self {
            take: load(scripts.take.text()),
            change: load(scripts.change.text()),
            scripts,
            policy,
            key: key.to_owned(),
            version: 0,
            generation: 0,
            mark: 7,
            idle: false,
            keep: 0.0,
            grace: 0,
            held: Vec::new(),
            id: *b"an asker",
            lease: 1e9,
            claim: Vec::new(),
            listens: 0.0,
        }
    }

    pub(super) fn parameters(&self) -> Vec<u8> {
        let mut parameters = Vec::new();
        self.policy.write(&mut parameters);
        parameters.iter().flat_map(|parameter| parameter.to_le_bytes()).collect()
    }

    fn header(&self) -> Vec<u8> {
        let mut parameters = Vec::new();
        self.policy.write(&mut parameters);
        let is_short = self.scripts.alone.as_ref().is_some_and(|own| own.is_short(&parameters));
        let short = 2 * u8::from(is_short);
        let flags = 4 * u8::from(self.idle) + short + u8::from(!self.rank().is_empty());
        let mut header = vec![0x20 + flags, 1, 2, 3];
        header.extend(self.mark.to_le_bytes());
        let is_idle = self.idle || self.policy.starts_idle();
        let keep =
            if (self.version, self.generation) == (0, 0) && is_idle { self.keep } else { KEEP };
        header.extend(keep.to_le_bytes());
        header.extend(NUMBER.to_le_bytes());
        header.extend(self.parameters());
        header
    }

    fn rank(&self) -> Vec<u8> {
        let rank = [self.version, self.generation, self.grace];
        let is_any = rank.iter().any(|&number| number > 0);
        rank.iter().filter(|_| is_any).flat_map(|number| number.to_le_bytes()).collect()
    }

    /// A claim of a policy that was set, and replaces this one.
    pub(super) fn replaced(&self) -> Vec<u8> {
        let idle = u8::from(self.idle);
        [&[2, 0, 0, 0, 0, idle][..], &self.parameters()].concat()
    }

    fn lease(&self) -> Vec<u8> {
        let spans = [self.lease, self.listens];
        let numbers = self.held.iter().chain(&spans).flat_map(|number| number.to_le_bytes());
        self.id.into_iter().chain(numbers).collect()
    }

    fn command(&self, script: &str, now: u64, arguments: &[Vec<u8>]) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script).arg(1).arg(&self.key).arg(arguments);
        command.arg(now / 1_000_000).arg(now % 1_000_000);
        command
    }

    pub(super) fn take(&self, now: u64, calls: &[Call<P::Cost>]) -> redis::Cmd {
        let runs: Vec<_> =
            calls.iter().map(|call| run::<P>(*call, call.count, u8::from(call.fresh))).collect();
        let (first, others) = runs.split_first().expect("a call");
        let mut arguments = vec![[self.header(), first.clone()].concat()];
        if !others.is_empty() {
            arguments.push(others.concat());
        }
        arguments[0].extend(self.rank());
        if P::HELD {
            arguments.resize(2, Vec::new());
            arguments.push(self.lease());
        }
        self.command(&self.take, now, &arguments)
    }

    pub(super) fn change(&self, now: u64, todo: &[u8]) -> redis::Cmd {
        let header = [self.header(), self.rank()].concat();
        let arguments = [header, todo.to_vec(), self.lease(), self.claim.clone()];
        self.command(&self.change, now, &arguments)
    }

    /// The lower bits of the sequence number after the last booking, and the replies of `take` to each call.
    pub(super) fn answers(&self, value: &Value) -> (u64, Vec<Answer>) {
        match value {
            Value::BulkString(bytes) => {
                let (number, value) = bytes.split_at(4);
                assert_eq!(number, NUMBER.to_le_bytes());
                let value = f64::from_le_bytes(value.try_into().expect("eight bytes"));
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                let number = value as u64;
                let answer = Answer {
                    wait: Wait::Known(number % (1 << 20) / 4),
                    outcome: number % 4,
                    part: 0,
                };
                if answer.outcome == 0 {
                    return (number >> 20, vec![answer]);
                }
                (0, vec![Answer { wait: Wait::Known(number / 4), ..answer }])
            }
            Value::Array(values) => {
                let numbers: Vec<u64> = values
                    .iter()
                    .map(|value| match value {
                        Value::Int(number) => u64::try_from(*number).expect("not negative"),
                        other => panic!("{other:?}"),
                    })
                    .collect();
                let (&number, numbers) = numbers.split_first().expect("a number");
                assert_eq!(number, u64::from(NUMBER));
                let at_once = Answer { wait: Wait::Known(0), outcome: 0, part: 0 };
                let count = usize::try_from(numbers[1]).expect("a count");
                let at_once = std::iter::repeat_n(at_once, count);
                let others =
                    numbers[2..].chunks(if self.scripts.parts { 2 } else { 1 }).map(|answer| {
                        Answer {
                            wait: match answer[0] / 4 {
                                wait if wait < 1 << 49 => Wait::Known(wait),
                                wait if wait < 1 << 50 => Wait::AtLeast(wait - (1 << 49)),
                                _ => Wait::Never,
                            },
                            outcome: answer[0] % 4,
                            part: answer.get(1).copied().unwrap_or_default(),
                        }
                    });
                let answers: Vec<_> = at_once.chain(others).collect();
                let booked = answers.iter().filter(|answer| answer.outcome == 0).count();
                ((numbers[0] + booked as u64) % (1 << 32), answers)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn ask(
        &self,
        connection: &mut Connection,
        now: u64,
        calls: &[Call<P::Cost>],
    ) -> (u64, Vec<Answer>) {
        let value = self.take(now, calls).query(connection).expect("an answer");
        self.answers(&value)
    }

    /// One call.
    pub(super) fn one(
        &self,
        connection: &mut Connection,
        now: u64,
        call: Call<P::Cost>,
    ) -> (u64, Answer) {
        let (sequence, answers) = self.ask(connection, now, &[call]);
        (sequence, answers[0])
    }

    pub(super) fn do_change(&self, connection: &mut Connection, now: u64, todo: &[u8]) -> Vec<i64> {
        let mut numbers: Vec<i64> = self.change(now, todo).query(connection).expect("an answer");
        assert_eq!(numbers.remove(0), i64::from(NUMBER));
        numbers
    }

    /// Whether the key has not expired.
    pub(super) fn exists(&self, connection: &mut Connection, now: u64) -> bool {
        let dies: Option<u64> =
            redis::cmd("GET").arg(format!("{}:dies", self.key)).query(connection).expect("a time");
        dies.is_some_and(|dies| dies > now)
    }

    /// The bytes at the key.
    pub(super) fn bytes(&self, connection: &mut Connection) -> Vec<u8> {
        redis::cmd("GET").arg(&self.key).query(connection).expect("a string")
    }
}

/// A run of calls, without the costs of the others.
fn run<P: Scripted>(call: Call<P::Cost>, count: u32, flags: u8) -> Vec<u8> {
    let mut run = numbers::<P>(call.cost);
    run.extend(count.to_le_bytes());
    #[allow(clippy::cast_precision_loss)] // spans that a float has room for
    run.extend([call.limit, call.patience].map(|span| (span as f64).to_le_bytes()).concat());
    run.push(flags);
    run
}

/// A cost in the encoding of the scripts.
pub(super) fn numbers<P: Scripted>(cost: P::Cost) -> Vec<u8> {
    cost.numbers().flat_map(u32::to_le_bytes).collect()
}

/// A refund of `part` of a charge of `all` that was due `ago` microseconds ago.
pub(super) fn refund<P: Scripted>(
    part: P::Cost,
    all: P::Cost,
    ago: i64,
    sequence: u64,
    whole: bool,
) -> Vec<u8> {
    let mut todo = b"R".to_vec();
    todo.extend(numbers::<P>(part));
    todo.extend(numbers::<P>(all));
    #[allow(clippy::cast_precision_loss)] // a span that a float has room for
    todo.extend((ago as f64).to_le_bytes());
    todo.extend(u32::try_from(sequence).expect("a sequence").to_le_bytes());
    todo.push(u8::from(whole));
    todo
}

pub(super) fn pause(duration: f64) -> Vec<u8> {
    [b"P".as_slice(), &duration.to_le_bytes()].concat()
}

/// A claim by a limiter that was built `age` seconds ago.
pub(super) fn claim(age: u32) -> Vec<u8> {
    [&[1][..], &age.to_le_bytes()].concat()
}

/// A settlement of `cost`, which has been spent already.
pub(super) fn settle<P: Scripted>(cost: P::Cost) -> Vec<u8> {
    [b"S".to_vec(), numbers::<P>(cost)].concat()
}
