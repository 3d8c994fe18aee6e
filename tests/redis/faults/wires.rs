//! Connections of the tests' own, around a real one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tollgate::redis::{Connection, Reconnecting, Request, StoreError};

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
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
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
    tasks: Arc<Mutex<Vec<BoxFuture<'static, ()>>>>,
    #[allow(clippy::type_complexity)]
    answers: Arc<Mutex<VecDeque<Result<Vec<f64>, StoreError>>>>,
    sent: Arc<AtomicUsize>,
    last: Arc<Mutex<Vec<Vec<u8>>>>,
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
    pub(super) fn answer(&self, answer: Result<Vec<f64>, StoreError>) {
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

    /// The rules of the last request, and what it is to do.
    pub(super) fn last(&self) -> Vec<Vec<u8>> {
        lock(&self.last).clone()
    }

    /// What the last request says of places in flight: how many the process holds, and for how many microseconds it
    /// counts as waiting for some.
    pub(super) fn lease(&self) -> [f64; 2] {
        // In the last rule, behind its kind and the number of its places.
        let rules = &self.last()[0];
        let rule = &rules[rules.len() - 24..];
        [0, 16].map(|at| f64::from_le_bytes(rule[at..at + 8].try_into().expect("eight bytes")))
    }
}

/// Two parts of a request: the rules, and what to do.
fn parts(request: &Request) -> [&[u8]; 2] {
    let request = &request.argument;
    let count = usize::from(request[request.len() - 1]);
    // Between the head and, behind a zero byte, the rules. Behind them are their kinds and the tail.
    let (todo, rules) =
        request[17..request.len() - 28 - 2 * count].split_at(request.len() - 17 - 28 - 34 * count);
    [rules, &todo[..todo.len() - 1]]
}

/// Whether a request asks for permits.
pub(super) fn is_take(request: &Request) -> bool {
    parts(request)[1].first() == Some(&b'T')
}

/// A reply to changes, or to one of them that reports something.
pub(super) fn told(numbers: &[i64]) -> Vec<f64> {
    numbers.iter().map(|&number| number as f64).collect()
}

/// The reply to calls: the sequence before them, how many are granted at once, and the answers to the others.
pub(super) fn several(numbers: &[i64]) -> Vec<f64> {
    let [before, at_once, others @ ..] = numbers else { return told(numbers) };
    let at_once = std::iter::repeat_n(0, usize::try_from(*at_once).expect("a count"));
    let others = others.iter().map(|answer| answer.abs());
    told(&std::iter::once(*before).chain(at_once).chain(others).collect::<Vec<_>>())
}

/// The answer to a lone call: if it is booked, its sequence x 2^20 + its wait x 4.
pub(super) fn lone(answer: i64) -> Vec<f64> {
    match answer & 3 {
        0 => told(&[((answer >> 20) - 1).rem_euclid(1 << 32), answer & 0xf_ffff]),
        _ => told(&[0, answer]),
    }
}

impl Connection for Hand {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        self.sent.fetch_add(1, Ordering::SeqCst);
        *lock(&self.last) = parts(request).map(<[u8]>::to_vec).into();
        poll_fn(|_| match lock(&self.answers).pop_front() {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        })
        .await
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        if let Some(late) = &mut *lock(&self.late) {
            *late += 1;
            assert!(*late < 100 || std::thread::panicking(), "again and again");
            return;
        }
        lock(&self.tasks).push(task);
    }
}
