//! `Clock::tokio()`: a waiter depends on its own runtime at most. A call is made in a runtime that is then blocked, ends
//! or is never driven; a waiter elsewhere is served in time, whether or not it knows the time of its grant.

use std::future::pending;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tollgate::{Clock, Grant, InFlight, Rate, RateLimiter, Same, SmoothBursty};

use crate::support::{block_on, finishes, is_waiting, ms, outcome, paused, secs, until};

type Policy = Same<(InFlight, SmoothBursty)>;
type Limiter = RateLimiter<Policy>;

const INTERVAL: Duration = Duration::from_millis(50);

/// Far more than a waiter takes. Without a wake-up of its own it waits for ever.
const SLACK: Duration = Duration::from_secs(20);

/// One place in flight.
fn limiter(rate: Rate) -> Limiter {
    let policy = Same((InFlight::new(1), SmoothBursty::new(rate)));
    RateLimiter::with_clock(policy, Clock::tokio())
}

/// What a waiter knows of its grant when it joins, and what the call in the other runtime makes of that.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    /// The time, which the call moves.
    Time,
    /// Not the time: a place has to be given back. The call does so, and from then on the time is known.
    TimeAfterTheCall,
    /// The same, but the call grants it at once.
    Nothing,
    /// Its own deadline only.
    Deadline,
}

impl Known {
    const ALL: [Self; 4] = [Self::Time, Self::TimeAfterTheCall, Self::Nothing, Self::Deadline];

    /// A limiter, and what holds its place.
    fn begin(self) -> (Limiter, Option<Grant<'static, Policy>>) {
        let limiter = limiter(Rate::every(INTERVAL));
        let held = limiter.try_acquire(1).expect("a new limiter grants at once").into_owned();
        if self == Self::Nothing {
            thread::sleep(INTERVAL);
        }
        (limiter, Some(held).filter(|_| self != Self::Time))
    }

    /// Whether the waiter got what it should.
    async fn wait(self, limiter: &Limiter) -> bool {
        match self {
            Self::Deadline => limiter.try_acquire_timeout(1, 2 * INTERVAL).await.is_err(),
            _ => limiter.acquire(1).await.is_ok(),
        }
    }

    fn wait_on_this_thread(self, limiter: &Limiter) -> bool {
        match self {
            Self::Deadline => limiter.try_acquire_timeout(1, 2 * INTERVAL).blocking_wait().is_err(),
            _ => limiter.blocking_acquire(1).is_ok(),
        }
    }

    /// The call. Returns what still holds the place.
    fn call(
        self,
        limiter: &Limiter,
        held: Option<Grant<'static, Policy>>,
    ) -> Option<Grant<'static, Policy>> {
        match self {
            Self::Time => limiter.pause_for(2 * INTERVAL),
            Self::TimeAfterTheCall | Self::Nothing => drop(held),
            Self::Deadline => {
                let _ = limiter.available();
                return held;
            }
        }
        None
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    OneThread,
    OneThreadWithoutTimers,
    SeveralThreads,
    SeveralThreadsWithoutTimers,
}

impl Kind {
    const ALL: [Self; 4] = [
        Self::OneThread,
        Self::OneThreadWithoutTimers,
        Self::SeveralThreads,
        Self::SeveralThreadsWithoutTimers,
    ];

    fn runtime(self) -> Runtime {
        let mut builder = match self {
            Self::OneThread | Self::OneThreadWithoutTimers => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        if matches!(self, Self::OneThread | Self::SeveralThreads) {
            builder.enable_time();
        }
        builder.worker_threads(1).build().expect("a runtime")
    }
}

/// Where the waiter is.
#[derive(Clone, Copy, Debug)]
enum Place {
    Task(Kind),
    /// A future on a thread that knows of no runtime.
    NoRuntime,
    /// A thread that blocks.
    PlainThread,
    /// The same on a worker of a runtime with several threads.
    Worker,
}

impl Place {
    fn all() -> impl Iterator<Item = Self> {
        let others = [Self::NoRuntime, Self::PlainThread, Self::Worker];
        Kind::ALL.into_iter().map(Self::Task).chain(others)
    }

    fn wait(self, known: Known, limiter: &Limiter) -> bool {
        let own = limiter.clone();
        match self {
            Self::Task(kind @ (Kind::OneThread | Kind::OneThreadWithoutTimers)) => {
                kind.runtime().block_on(known.wait(limiter))
            }
            Self::Task(kind) => {
                let runtime = kind.runtime();
                let task = runtime.spawn(async move { known.wait(&own).await });
                block_on(task).expect("no panic")
            }
            Self::NoRuntime => block_on(known.wait(limiter)),
            Self::PlainThread => known.wait_on_this_thread(limiter),
            Self::Worker => {
                let runtime = Kind::SeveralThreads.runtime();
                let task = runtime.spawn(async move { known.wait_on_this_thread(&own) });
                block_on(task).expect("no panic")
            }
        }
    }
}

/// What happens to the other runtime.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// Blocked by the call's own task, until the waiter is served.
    Blocked,
    Ended,
    /// The call is made in its context by a thread that does not drive it.
    NeverDriven,
}

/// Makes `call` in a runtime, to which `trouble` happens until `served` hangs up.
fn trouble(
    trouble: Trouble,
    runtime: Runtime,
    call: impl FnOnce() + Send + 'static,
    served: Receiver<()>,
) {
    match trouble {
        Trouble::Blocked => {
            let task = runtime.spawn(async move {
                call();
                let _ = served.recv();
            });
            runtime.block_on(task).expect("no panic");
        }
        Trouble::Ended => {
            let within = runtime.enter();
            call();
            drop(within);
            drop(runtime);
            let _ = served.recv();
        }
        Trouble::NeverDriven => {
            let within = runtime.enter();
            call();
            let _ = served.recv();
            drop(within);
        }
    }
}

/// One waiter, one call and one trouble.
fn check(known: Known, place: Place, kind: Kind, what: Trouble) {
    let case = format!("{known:?} {place:?} {kind:?} {what:?}");
    let (limiter, held) = known.begin();
    let (serve, outcome) = mpsc::channel();
    let waiter = limiter.clone();
    thread::spawn(move || serve.send(place.wait(known, &waiter)));
    // Or it was granted already, if this thread was delayed.
    until(|| {
        limiter.queue_len() == 1 || limiter.stats().granted == 2 || limiter.stats().refused == 1
    });
    let (end, served): (Sender<()>, _) = mpsc::channel();
    let caller = thread::spawn({
        let limiter = limiter.clone();
        move || {
            let mut held = held;
            let (keep, kept) = mpsc::channel();
            let call = move || drop(keep.send(known.call(&limiter, held.take())));
            trouble(what, kind.runtime(), call, served);
            drop(kept);
        }
    });
    let served = outcome.recv_timeout(SLACK);
    drop(end);
    assert_eq!(served, Ok(true), "{case}");
    caller.join().expect("no panic");
}

fn check_all(trouble: Trouble) {
    thread::scope(|scope| {
        for known in Known::ALL {
            for kind in Kind::ALL {
                scope.spawn(move || {
                    Place::all().for_each(|place| check(known, place, kind, trouble));
                });
            }
        }
    });
}

#[test]
fn a_call_in_a_runtime_that_is_blocked_delays_no_waiter_elsewhere() {
    check_all(Trouble::Blocked);
}

#[test]
fn a_call_in_a_runtime_that_ends_delays_no_waiter_elsewhere() {
    check_all(Trouble::Ended);
}

#[test]
fn a_call_in_a_runtime_that_is_never_driven_delays_no_waiter_elsewhere() {
    check_all(Trouble::NeverDriven);
}

/// The thread of the system's clock ends these waits. Its time is a little late, so an alarm that is due by it is due by
/// tokio's time.
#[test]
fn threads_without_a_runtime_do_not_hang_at_high_rates() {
    finishes(|| {
        let end = Instant::now() + secs(1);
        thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let policy = SmoothBursty::new(Rate::per_second(1500.0 + f64::from(thread)));
                    let limiter = RateLimiter::with_clock(policy, Clock::tokio());
                    while Instant::now() < end {
                        limiter.blocking_acquire(1).expect("a grant");
                    }
                });
            }
        });
    });
}

#[test]
fn a_worker_of_several_that_is_busy_delays_no_other_task() {
    finishes(|| {
        let runtime =
            Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime");
        let policy = SmoothBursty::new(Rate::every(INTERVAL));
        let limiter = RateLimiter::with_clock(policy, Clock::tokio());
        limiter.try_acquire(1).expect("a new limiter grants at once");
        let (end, served) = mpsc::channel::<()>();
        let (joined, has_joined) = mpsc::channel();
        let busy = runtime.spawn({
            let limiter = limiter.clone();
            async move {
                let _place = limiter.reserve(1).expect("a place");
                let _ = joined.send(());
                served.recv_timeout(SLACK)
            }
        });
        has_joined.recv().expect("it joins");
        let behind = runtime.spawn(limiter.acquire_owned(1));
        block_on(behind).expect("no panic").expect("a grant");
        drop(end);
        let end = block_on(busy).expect("no panic");
        assert_eq!(end, Err(mpsc::RecvTimeoutError::Disconnected));
    });
}

/// The task that ends waits in the runtime has no timer while the time of the next grant is unknown.
#[test]
fn a_wait_for_a_place_takes_no_paused_time_and_the_rest_takes_it_exactly() {
    finishes(|| {
        paused().block_on(async {
            let limiter = limiter(Rate::per_hour(1.0));
            let start = tokio::time::Instant::now();
            let held = limiter.acquire(1).await.expect("a grant");
            let waiter = tokio::spawn(limiter.acquire_owned(1));
            // Another thread takes real time, in which the runtime has nothing to do.
            let (done, is_done) = oneshot::channel();
            let other = thread::spawn(move || {
                thread::sleep(ms(20));
                let _ = done.send(());
            });
            is_done.await.expect("the thread is done");
            other.join().expect("no panic");
            assert_eq!((start.elapsed(), limiter.queue_len()), (Duration::ZERO, 1));
            drop(held);
            waiter.await.expect("no panic").expect("a grant");
            assert_eq!(start.elapsed(), secs(3600));
        });
    });
}

/// A timer there would move its time: it has nothing else to do.
#[test]
fn a_call_that_does_not_wait_moves_no_paused_time_for_a_waiter_elsewhere() {
    finishes(|| {
        let limiter = limiter(Rate::per_hour(1.0));
        drop(limiter.try_acquire(1).expect("a new limiter grants at once"));
        let mut waiter = limiter.acquire(1);
        assert!(is_waiting(&mut waiter));
        paused().block_on(async {
            let start = tokio::time::Instant::now();
            assert!(limiter.try_acquire(1).is_err());
            let (done, is_done) = oneshot::channel();
            thread::spawn(move || {
                thread::sleep(ms(20));
                let _ = done.send(());
            });
            is_done.await.expect("the thread is done");
            assert_eq!(start.elapsed(), Duration::ZERO);
        });
        assert_eq!(limiter.queue_len(), 1);
    });
}

/// Paused time stands still while a thread blocks in the runtime, and real time goes on.
#[test]
fn real_time_ends_no_wait_in_paused_time() {
    finishes(|| {
        paused().block_on(async {
            let limiter = limiter(Rate::every(ms(20)));
            drop(limiter.try_acquire(1).expect("a new limiter grants at once"));
            let mut waiter = limiter.acquire(1);
            assert!(is_waiting(&mut waiter));
            tokio::task::spawn_blocking(|| thread::sleep(ms(100))).await.expect("no panic");
            assert!(is_waiting(&mut waiter));
            tokio::time::advance(ms(20)).await;
            outcome(&mut waiter).expect("a grant");
        });
    });
}

/// The waiter is polled in one runtime first and then in another.
#[test]
fn a_waiter_that_moves_to_another_runtime_depends_on_that_one() {
    finishes(|| {
        let limiter = limiter(Rate::every(INTERVAL));
        let held = limiter.try_acquire(1).expect("a new limiter grants at once");
        let first = Kind::OneThread.runtime();
        let mut waiter = limiter.acquire(1);
        first.block_on(async { assert!(is_waiting(&mut waiter)) });
        let second = Kind::OneThread.runtime();
        let waiting = async {
            assert!(is_waiting(&mut waiter));
            drop(held);
            waiter.await
        };
        second.block_on(waiting).expect("a grant");
        drop(first);
    });
}

/// A waiter that no runtime drives keeps no other one waiting, and leaves with its runtime.
#[test]
fn a_runtime_that_ends_takes_its_waiters_along() {
    finishes(|| {
        let limiter = limiter(Rate::every(INTERVAL));
        let held = limiter.try_acquire(1).expect("a new limiter grants at once");
        for kind in Kind::ALL {
            let runtime = kind.runtime();
            let waiter = limiter.clone();
            runtime.spawn(async move {
                let _waiting = waiter.acquire(1).await;
                pending::<()>().await;
            });
            runtime.block_on(async {
                while limiter.queue_len() == 0 {
                    tokio::task::yield_now().await;
                }
            });
            drop(runtime);
            until(|| limiter.queue_len() == 0);
        }
        drop(held);
        limiter.blocking_acquire(1).expect("a grant");
    });
}
