//! Connections of the tests' own, around a real one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Semaphore;
use tollgate::redis::{Connection, Failure, Reconnecting, Reply, Request, Task};

use super::{LIMIT, lock, reconnecting};

/// Lets a request through in two steps, each on command: to the server, and back.
#[derive(Clone)]
pub(super) struct Gate {
    inner: Reconnecting,
    there: Arc<Semaphore>,
    back: Arc<Semaphore>,
    arrived: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
}

impl Gate {
    pub(super) fn to(url: &str) -> Self {
        Self {
            inner: reconnecting(url),
            there: Arc::new(Semaphore::new(0)),
            back: Arc::new(Semaphore::new(0)),
            arrived: Arc::default(),
            answered: Arc::default(),
        }
    }

    /// The next request may reach the server.
    pub(super) fn let_there(&self) {
        self.there.add_permits(1);
    }

    /// The next answer may come back.
    pub(super) fn let_back(&self) {
        self.back.add_permits(1);
    }

    /// Nothing is delayed any more.
    pub(super) fn open(&self) {
        self.there.add_permits(1_000_000);
        self.back.add_permits(1_000_000);
    }

    /// Requests that have reached the gate.
    pub(super) fn arrived(&self) -> usize {
        self.arrived.load(Ordering::SeqCst)
    }

    /// Requests that the server has answered.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }
}

async fn pass(semaphore: &Semaphore) {
    let passes = tokio::time::timeout(LIMIT, semaphore.acquire()).await;
    passes.expect("the test lets it pass").expect("it is never closed").forget();
}

impl Connection for Gate {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        self.arrived.fetch_add(1, Ordering::SeqCst);
        pass(&self.there).await;
        let reply = self.inner.run(request).await;
        self.answered.fetch_add(1, Ordering::SeqCst);
        pass(&self.back).await;
        reply
    }
}

/// Sends requests on command, and gives the replies that a test chooses.
#[derive(Clone, Default)]
pub(super) struct Hand {
    tasks: Arc<Mutex<Vec<Task>>>,
    answers: Arc<Mutex<VecDeque<Result<Reply, Failure>>>>,
    sent: Arc<AtomicUsize>,
    last: Arc<Mutex<Vec<Vec<u8>>>>,
    deadline: Arc<Mutex<Duration>>,
    /// Tasks spawned after the end of the thread; `None` while it runs.
    late: Arc<Mutex<Option<usize>>>,
}

impl Hand {
    /// The number of polls of all tasks: more than any task yields.
    const ROUNDS: u32 = 10;

    /// Sends all pending requests.
    pub(super) fn send(&self) {
        for _ in 0..Self::ROUNDS {
            let mut tasks = std::mem::take(&mut *lock(&self.tasks));
            let context = &mut Context::from_waker(Waker::noop());
            tasks.retain_mut(|task| task.as_mut().poll(context).is_pending());
            lock(&self.tasks).append(&mut tasks);
        }
    }

    /// The same, and then answers the request in flight.
    pub(super) fn answer(&self, answer: Result<Reply, Failure>) {
        lock(&self.answers).push_back(answer);
        self.send();
    }

    pub(super) fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    /// The thread ends with all its tasks, and later tasks are dropped.
    pub(super) fn end(&self) {
        *lock(&self.late) = Some(0);
        let tasks = std::mem::take(&mut *lock(&self.tasks));
        drop(tasks);
    }

    /// The arguments of the last request.
    pub(super) fn last(&self) -> Vec<Vec<u8>> {
        lock(&self.last).clone()
    }

    /// The deadline of the last request.
    pub(super) fn deadline(&self) -> Duration {
        *lock(&self.deadline)
    }

    /// What the last request says of places in flight: how many the process holds, and for how many microseconds it
    /// counts as waiting for some.
    pub(super) fn lease(&self) -> [f64; 2] {
        // Behind the parameters: who it is, the number, the time for which that counts, and this.
        let lease = self.last().into_iter().skip(1).find(|argument| argument.len() == 32);
        let lease = lease.expect("each request for places says it");
        [8, 24].map(|at| f64::from_le_bytes(lease[at..at + 8].try_into().expect("eight bytes")))
    }
}

impl Connection for Hand {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        self.sent.fetch_add(1, Ordering::SeqCst);
        lock(&self.last).clone_from(&request.arguments);
        *lock(&self.deadline) = request.deadline;
        poll_fn(|_| match lock(&self.answers).pop_front() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    fn spawn(&self, task: Task) {
        if let Some(late) = &mut *lock(&self.late) {
            *late += 1;
            assert!(*late < 100 || std::thread::panicking(), "again and again");
            return;
        }
        lock(&self.tasks).push(task);
    }
}
