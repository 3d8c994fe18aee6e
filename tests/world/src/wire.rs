//! The way between the processes and Redis: it holds each request until the checker decides what becomes of it.

use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis::Value;
use tollgate::ManualClock;
use tollgate::redis::{Connection, Effect, Failure, Reply, Request, Task};

/// Where the number of a request is in its first argument, and how many bytes it takes.
const NUMBER: std::ops::Range<usize> = 16..20;

/// A request on its way.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) process: usize,
    /// How many requests this process sent before it.
    pub(crate) nth: u64,
    pub(crate) request: Request,
    pub(crate) sent: Duration,
    /// What the server has answered, and the numbers of its bookings.
    pub(crate) reply: Option<(Value, Vec<usize>)>,
    /// Whether the process still waits for the reply.
    pub(crate) is_awaited: bool,
}

impl Message {
    pub(crate) fn deadline(&self) -> Duration {
        self.sent + self.request.deadline
    }
}

/// What matters of a message: numbers of requests differ from run to run, and only their replies depend on them.
impl Hash for Message {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { process, nth, request, sent, reply, is_awaited } = self;
        (process, nth, sent, is_awaited, request.script.digest()).hash(state);
        let mut arguments = request.arguments.clone();
        arguments[0].drain(NUMBER);
        arguments.hash(state);
        if let Some((value, booked)) = reply {
            hash_reply(value, state);
            booked.hash(state);
        }
    }
}

pub(crate) fn hash_reply(value: &Value, state: &mut impl Hasher) {
    match value {
        Value::BulkString(bytes) => bytes[4..].hash(state),
        Value::Array(items) => format!("{:?}", &items[1..]).hash(state),
        other => panic!("no script answers {other:?}"),
    }
}

#[derive(Default)]
pub(crate) struct Net {
    /// The tasks of each process that send requests.
    tasks: Vec<(usize, Task)>,
    pub(crate) messages: Vec<Message>,
    outcomes: HashMap<(usize, u64), Result<Value, Failure>>,
    /// How many requests each process has sent.
    sent: HashMap<usize, u64>,
    /// The run is over: nothing is sent any more.
    is_closed: bool,
}

/// The connection of a process.
#[derive(Clone)]
pub(crate) struct Wire {
    pub(crate) process: usize,
    pub(crate) clock: ManualClock,
    pub(crate) net: Arc<Mutex<Net>>,
}

impl Wire {
    pub(crate) fn net(&self) -> MutexGuard<'_, Net> {
        self.net.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request ends for the process.
    pub(crate) fn end(&self, nth: u64, outcome: Result<Value, Failure>) {
        self.net().outcomes.insert((self.process, nth), outcome);
    }

    /// The threads of the process do what they can.
    pub(crate) fn go_on(&self) {
        loop {
            let mut all = std::mem::take(&mut self.net().tasks);
            let mut context = Context::from_waker(Waker::noop());
            all.retain_mut(|(process, task)| {
                *process != self.process || task.as_mut().poll(&mut context).is_pending()
            });
            let mut net = self.net();
            let is_done = net.tasks.is_empty();
            all.append(&mut net.tasks);
            net.tasks = all;
            if is_done {
                return;
            }
        }
    }

    /// All that is on its way is lost, and what is sent from now on.
    pub(crate) fn close(&self) {
        let mut net = self.net();
        net.is_closed = true;
        let tasks = std::mem::take(&mut net.tasks);
        drop(net);
        for (_, task) in tasks {
            self.spawn(task);
        }
    }
}

impl Wire {
    /// Sends a request. Returns its number.
    fn send(&self, request: &Request) -> u64 {
        let mut net = self.net();
        let nth = net.sent.entry(self.process).or_default();
        *nth += 1;
        let (process, nth, sent) = (self.process, *nth, self.clock.elapsed());
        let (request, reply, is_awaited) = (request.clone(), None, true);
        net.messages.push(Message { process, nth, request, sent, reply, is_awaited });
        nth
    }
}

impl Connection for Wire {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        let (process, nth) = (self.process, self.send(request));
        let outcome = poll_fn(|_| {
            let mut net = self.net();
            match net.outcomes.remove(&(process, nth)) {
                Some(outcome) => Poll::Ready(outcome),
                None if net.is_closed => Poll::Ready(Err(over())),
                None => Poll::Pending,
            }
        });
        request.reply(outcome.await?)
    }

    fn spawn(&self, mut task: Task) {
        let mut net = self.net();
        if !net.is_closed {
            net.tasks.push((self.process, task));
            return;
        }
        drop(net);
        while task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {}
    }
}

/// The connection was cut after the request was sent.
pub(crate) fn lost() -> Failure {
    Failure::new(Effect::Unknown, "cut".into())
}

/// The run is over. What is said of a key is no outage, and is not tried again.
fn over() -> Failure {
    let mut failure = lost();
    failure.key = true;
    failure
}

/// There was no connection.
pub(crate) fn refused() -> Failure {
    Failure::new(Effect::None, "refused".into())
}
