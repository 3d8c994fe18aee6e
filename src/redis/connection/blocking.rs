//! A connection for programs without a runtime.

use std::collections::VecDeque;
use std::future::ready;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use redis::{Client, Cmd, ConnectionLike, ErrorKind, RedisError, Value};

use super::failure::{Effect, Failure, is_demoted};
use super::request::{Reply, Request};
use super::{Connection, IDLE, Runtime, Task, evaluate, is_answer, without_delay};
use crate::park::block_on;
use crate::sync::Mutex;

/// A connection for the blocking methods of a program without a runtime: it has a thread of its own,
/// which ends with the last clone. It is made at the first use, and again when it is lost. After ten idle
/// seconds it is tried by a `PING` first, so that no request is lost with it.
///
/// The async methods work over it, too.
///
/// ```no_run
/// use tollgate::redis::{Blocking, RedisRateLimiter};
/// use tollgate::{Rate, SmoothBursty};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let connection = Blocking::open("redis://127.0.0.1/")?;
/// let policy = SmoothBursty::new(Rate::per_second(50.0));
/// let limiter = RedisRateLimiter::new(policy, connection, "quota:search");
/// limiter.blocking_acquire(1)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Blocking {
    state: Arc<BlockingState>,
    tasks: Sender<Task>,
}

struct BlockingState {
    client: Client,
    /// And when the last answer came.
    current: Mutex<Option<(redis::Connection, Instant)>>,
    idle: Duration,
}

/// Whether an idle connection is alive.
fn answers(connection: &mut redis::Connection, time: Duration) -> bool {
    let ping = connection
        .set_read_timeout(Some(time))
        .and_then(|()| connection.set_write_timeout(Some(time)))
        .and_then(|()| redis::cmd("PING").exec(connection));
    is_answer(&ping)
}

impl Blocking {
    /// For a server at an address as redis-rs takes it. Does not connect yet.
    ///
    /// # Errors
    ///
    /// If the address is none.
    ///
    /// ```
    /// assert!(tollgate::redis::Blocking::open("redis://127.0.0.1:6379/").is_ok());
    /// ```
    pub fn open(address: &str) -> Result<Self, RedisError> {
        Ok(Self::new(without_delay(Client::open(address)?)?))
    }

    /// By a client that is set up already. Set `TCP_NODELAY` in it
    /// ([`ConnectionInfo::set_tcp_settings`](redis::ConnectionInfo::set_tcp_settings)): redis-rs 1 leaves it off.
    ///
    /// # Panics
    ///
    /// If the operating system gives no thread.
    ///
    /// ```
    /// let client = redis::Client::open("redis://127.0.0.1:6379/")?;
    /// let connection = tollgate::redis::Blocking::new(client);
    /// # Ok::<(), redis::RedisError>(())
    /// ```
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self::asking_after(client, IDLE)
    }

    pub(crate) fn asking_after(client: Client, idle: Duration) -> Self {
        let (tasks, work) = channel::<Task>();
        let worker = thread::Builder::new().name("tollgate-redis".to_owned()).spawn(move || {
            block_on(Work { tasks: VecDeque::new(), work });
        });
        assert!(worker.is_ok(), "no thread for the connection: {:?}", worker.err());
        Self { state: Arc::new(BlockingState { client, current: Mutex::new(None), idle }), tasks }
    }
}

/// Tasks in turn: each yields between two requests, and a panic ends only its own task.
struct Work {
    tasks: VecDeque<Task>,
    work: Receiver<Task>,
}

impl Future for Work {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            // They wait for nothing elsewhere, so there is a task to poll, or no sender.
            let next = match self.tasks.is_empty() {
                true => self.work.recv().ok(),
                false => self.work.try_recv().ok(),
            };
            match next.or_else(|| self.tasks.pop_front()) {
                None => return Poll::Ready(()),
                Some(mut task) => {
                    let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
                    if matches!(polled, Ok(Poll::Pending)) {
                        self.tasks.push_back(task);
                    }
                }
            }
        }
    }
}

impl BlockingState {
    fn run(&self, request: &Request) -> Result<Value, Failure> {
        let start = Instant::now();
        let mut current = self.current.lock();
        let nothing_sent =
            |error: RedisError| Failure { effect: Effect::None, ..Failure::from(error) };
        let open = current.take().and_then(|(mut connection, answered)| {
            let is_alive =
                answered.elapsed() < self.idle || answers(&mut connection, request.deadline / 2);
            is_alive.then_some(connection)
        });
        let left = || {
            // Connecting and the reply share one deadline.
            request.deadline.saturating_sub(start.elapsed()).max(Duration::from_millis(1))
        };
        let mut connection = match open {
            Some(connection) => connection,
            None => self.client.get_connection_with_timeout(left()).map_err(nothing_sent)?,
        };
        let mut send = |command: Cmd| {
            connection.set_read_timeout(Some(left()))?;
            connection.set_write_timeout(Some(left()))?;
            let value = connection.req_packed_command(&command.get_packed_command());
            value.and_then(Value::extract_error)
        };
        let outcome = block_on(evaluate(request, |command| ready(send(command))));
        // Without a reply, one may still come that belongs to no request.
        let keep = outcome.as_ref().map_or_else(
            |error| matches!(error.kind(), ErrorKind::Server(_)) && !is_demoted(error),
            |_| true,
        );
        if keep {
            *current = Some((connection, Instant::now()));
        }
        Ok(outcome?)
    }
}

impl Connection for Blocking {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        self.state.run(request)?.try_into()
    }

    fn spawn(&self, _: &Runtime, task: Task) {
        // The thread ends only after the last sender is gone.
        drop(self.tasks.send(task));
    }
}

impl fmt::Debug for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").finish_non_exhaustive()
    }
}
