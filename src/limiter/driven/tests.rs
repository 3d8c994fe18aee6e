use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use super::Driven;
use crate::{Error, Grant, InFlight, RateLimiter};

type Outcome = Result<Grant<'static, InFlight>, Error>;

type Poller = dyn FnMut(&Waker) -> Poll<Outcome> + Send;

/// A future by a function, and what it owns.
struct Fake<T>(Box<Poller>, #[allow(dead_code)] T);

impl<T: Unpin> Future for Fake<T> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        (self.0)(context.waker())
    }
}

type Caller<T> = Driven<Fake<T>, Grant<'static, InFlight>>;

fn driven(poll: impl FnMut(&Waker) -> Poll<Outcome> + Send + 'static) -> Caller<()> {
    Driven::new(Fake(Box::new(poll), ()))
}

/// Runs what it is made of when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

struct OnWake<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for OnWake<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(wake: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(OnWake(wake)))
}

fn poll<T: Send + Unpin + 'static>(driven: &mut Caller<T>, waker: &Waker) -> Poll<Outcome> {
    driven.poll(&mut Context::from_waker(waker))
}

/// A future that is ready at its second poll, how often it was polled, and its waker.
#[derive(Clone, Default)]
struct Gate {
    polls: Arc<AtomicUsize>,
    waker: Arc<Mutex<Option<Waker>>>,
    is_open: Arc<Mutex<bool>>,
}

impl Gate {
    fn wake(&self) {
        let waker = self.waker.lock().expect("no panic").clone();
        waker.expect("polled").wake();
    }

    fn open(&self) {
        *self.is_open.lock().expect("no panic") = true;
        self.wake();
    }

    fn caller(&self, limiter: &RateLimiter<InFlight>) -> Caller<()> {
        let (gate, limiter) = (self.clone(), limiter.clone());
        driven(move |waker| {
            gate.polls.fetch_add(1, Ordering::SeqCst);
            *gate.waker.lock().expect("no panic") = Some(waker.clone());
            if !*gate.is_open.lock().expect("no panic") {
                return Poll::Pending;
            }
            Poll::Ready(limiter.try_acquire(1).map(Grant::into_owned))
        })
    }
}

fn place() -> RateLimiter<InFlight> {
    RateLimiter::new(InFlight::new(1))
}

/// A deadlock fails instead of hanging.
fn finishes(work: impl FnOnce() + Send + 'static) {
    let (done, is_done): (_, Receiver<()>) = mpsc::channel();
    let worker = thread::spawn(move || {
        work();
        drop(done);
    });
    let waited = is_done.recv_timeout(Duration::from_secs(20));
    assert_eq!(waited, Err(mpsc::RecvTimeoutError::Disconnected), "it hangs");
    worker.join().expect("no panic");
}

#[test]
fn a_caller_goes_on_although_it_is_not_polled_and_wakes_its_task_there() {
    let (gate, limiter) = (Gate::default(), place());
    let woken = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&woken);
    let waker = waker(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut caller = gate.caller(&limiter);
    assert!(poll(&mut caller, &waker).is_pending());
    // It has only come further. Its task may wait elsewhere, and has to ask for the next alarm there.
    gate.wake();
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    let polls = gate.polls.load(Ordering::SeqCst);
    assert!(poll(&mut caller, &waker).is_pending());
    assert_eq!(gate.polls.load(Ordering::SeqCst), polls + 1);
    gate.open();
    assert_eq!((woken.load(Ordering::SeqCst), limiter.available()), (2, 0));
    assert!(matches!(poll(&mut caller, &waker), Poll::Ready(Ok(_))));
}

#[test]
fn a_waker_that_polls_at_once_does_not_go_round_for_ever() {
    finishes(|| {
        let gate = Gate::default();
        let caller = Arc::new(Mutex::new(None));
        let inner = Arc::clone(&caller);
        let waker = waker(move || {
            if let Ok(mut caller) = inner.try_lock()
                && let Some(caller) = &mut *caller
            {
                assert!(poll(caller, Waker::noop()).is_pending());
            }
        });
        let mut waiting = gate.caller(&place());
        assert!(poll(&mut waiting, &waker).is_pending());
        *caller.lock().expect("no panic") = Some(waiting);
        gate.wake();
        assert!(gate.polls.load(Ordering::SeqCst) < 10);
    });
}

#[test]
fn what_comes_for_a_caller_that_has_left_is_given_back() {
    let (gate, limiter) = (Gate::default(), place());
    let mut caller = gate.caller(&limiter);
    assert!(poll(&mut caller, Waker::noop()).is_pending());
    gate.open();
    assert_eq!(limiter.available(), 0);
    drop(caller);
    assert_eq!(limiter.available(), 1);
}

#[test]
fn a_caller_that_leaves_while_another_thread_drives_it_gets_nothing() {
    finishes(|| {
        let limiter = place();
        let (enter, entered) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let (mut polls, wakers) = (0, Arc::new(Mutex::new(None)));
        let (theirs, kept) = (limiter.clone(), Arc::clone(&wakers));
        let caller = driven(move |waker| {
            polls += 1;
            *kept.lock().expect("no panic") = Some(waker.clone());
            if polls == 1 {
                return Poll::Pending;
            }
            enter.send(()).expect("it listens");
            may_go_on.recv().expect("it says so");
            Poll::Ready(theirs.try_acquire(1).map(Grant::into_owned))
        });
        let waker: Waker = wakers.lock().expect("no panic").clone().expect("polled");
        let drives = thread::spawn(move || waker.wake());
        entered.recv().expect("it is driven");
        drop(caller);
        go_on.send(()).expect("it waits");
        drives.join().expect("no panic");
        assert_eq!(limiter.available(), 1);
    });
}

/// As a look at a queue does if its alarm is late.
#[test]
fn a_look_that_wakes_the_caller_does_not_hang() {
    finishes(|| {
        let (gate, limiter) = (Gate::default(), place());
        let mut caller = gate.caller(&limiter);
        assert!(poll(&mut caller, Waker::noop()).is_pending());
        let seen = caller.look(|_| {
            gate.open();
            7
        });
        assert_eq!((seen, limiter.available()), (Some(7), 0));
        assert_eq!(caller.look(|_| ()), None);
        assert!(matches!(poll(&mut caller, Waker::noop()), Poll::Ready(Ok(_))));
    });
}

/// A waker may be the last owner of a task with another caller, and that hands its place on.
#[test]
fn a_waker_that_is_replaced_may_wake_the_caller() {
    finishes(|| {
        let (gate, limiter) = (Gate::default(), place());
        let mut caller = gate.caller(&limiter);
        let opens = gate.clone();
        let owner = OnDrop(move || opens.open());
        let old = waker(move || {
            let _ = &owner;
        });
        assert!(poll(&mut caller, &old).is_pending());
        drop(old);
        assert!(matches!(poll(&mut caller, Waker::noop()), Poll::Ready(Ok(_))));
    });
}

#[test]
fn a_waker_may_drop_its_caller() {
    finishes(|| {
        let (gate, limiter) = (Gate::default(), place());
        let task = Arc::new(Mutex::new(None));
        let inner = Arc::clone(&task);
        let waker = waker(move || drop(mem::take(&mut *inner.lock().expect("no panic"))));
        let mut caller = gate.caller(&limiter);
        assert!(poll(&mut caller, &waker).is_pending());
        *task.lock().expect("no panic") = Some(caller);
        gate.open();
        assert!(task.lock().expect("no panic").is_none());
        assert_eq!(limiter.available(), 1);
    });
}

#[test]
fn a_waker_that_panics_costs_the_caller_nothing() {
    let (gate, limiter) = (Gate::default(), place());
    let mut caller = gate.caller(&limiter);
    assert!(poll(&mut caller, &waker(|| panic!("by the waker"))).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| gate.wake())).is_err());
    assert!(poll(&mut caller, &waker(|| panic!("by the waker"))).is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| gate.open())).is_err());
    assert!(matches!(poll(&mut caller, Waker::noop()), Poll::Ready(Ok(_))));
}
