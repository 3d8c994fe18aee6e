//! Tasks and timers on a [`ManualClock`]: the next event is the earliest of a timer and of what a limiter waits for.
//! Nothing here takes real time, and nothing depends on threads: each run takes the same steps.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tollgate::ManualClock;

type Task = Pin<Box<dyn Future<Output = ()>>>;

/// The clock, the timers and the tasks that have not started.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    /// In the order in which they were set, where times are equal.
    timers: RefCell<BTreeMap<(Duration, u64), Waker>>,
    set: Cell<u64>,
    spawned: RefCell<Vec<Task>>,
}

impl World {
    /// In seconds.
    pub(crate) fn now(&self) -> f64 {
        self.clock.elapsed().as_secs_f64()
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.spawned.borrow_mut().push(Box::pin(task));
    }

    pub(crate) fn sleep_until(&self, time: f64) -> impl Future<Output = ()> {
        let due = Duration::from_secs_f64(time);
        poll_fn(move |context| {
            if self.clock.elapsed() >= due {
                return Poll::Ready(());
            }
            self.set.set(self.set.get() + 1);
            self.timers.borrow_mut().insert((due, self.set.get()), context.waker().clone());
            Poll::Pending
        })
    }

    pub(crate) fn sleep(&self, seconds: f64) -> impl Future<Output = ()> {
        self.sleep_until(self.now() + seconds)
    }

    /// Runs all tasks until `end`, or until none can go on.
    pub(crate) fn run_until(&self, end: f64) {
        let end = Duration::from_secs_f64(end);
        let ready = Arc::new(Ready::default());
        let mut tasks = Tasks::default();
        loop {
            for task in mem::take(&mut *self.spawned.borrow_mut()) {
                ready.push(tasks.add(task, &ready));
            }
            while let Some(index) = ready.pop() {
                tasks.poll(index);
            }
            if !self.spawned.borrow().is_empty() {
                continue;
            }
            let timer = self.timers.borrow().first_key_value().map(|(&(due, _), _)| due);
            let next = timer.into_iter().chain(self.clock.next_due()).min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.clock.set(next);
            let later = self.timers.borrow_mut().split_off(&(next, u64::MAX));
            for waker in mem::replace(&mut *self.timers.borrow_mut(), later).into_values() {
                waker.wake();
            }
        }
    }
}

/// The tasks that were woken, in order.
#[derive(Default)]
struct Ready(Mutex<VecDeque<usize>>);

impl Ready {
    fn push(&self, index: usize) {
        self.0.lock().expect("no panic").push_back(index);
    }

    fn pop(&self) -> Option<usize> {
        self.0.lock().expect("no panic").pop_front()
    }
}

struct Woken {
    index: usize,
    ready: Arc<Ready>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.ready.push(self.index);
    }
}

#[derive(Default)]
struct Tasks {
    running: Vec<Option<(Task, Waker)>>,
    free: Vec<usize>,
}

impl Tasks {
    fn add(&mut self, task: Task, ready: &Arc<Ready>) -> usize {
        let index = self.free.pop().unwrap_or(self.running.len());
        if index == self.running.len() {
            self.running.push(None);
        }
        let waker = Waker::from(Arc::new(Woken { index, ready: Arc::clone(ready) }));
        self.running[index] = Some((task, waker));
        index
    }

    fn poll(&mut self, index: usize) {
        // A late wake-up of a task that is over may find none, or the next one, which is only polled once more.
        let Some((task, waker)) = &mut self.running[index] else { return };
        if task.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            self.running[index] = None;
            self.free.push(index);
        }
    }
}
