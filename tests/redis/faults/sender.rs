//! Requests are sent whatever the runtimes of the callers do: they block, stand still, or end.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use futures::future::FutureExt;
use tokio::runtime::{Builder as RuntimeBuilder, Runtime};
use tollgate::redis::{RedisRateLimiter, State, Unavailable};
use tollgate::{InFlight, ManualClock};

use super::{Limiter, builder, bursty, manager, ms, multiplexed, reconnecting, sequence, store};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::{LIMIT, until};

fn one_worker() -> Runtime {
    RuntimeBuilder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

fn one_thread() -> Runtime {
    RuntimeBuilder::new_current_thread().enable_all().build().expect("a runtime")
}

fn limiter(server: &Server) -> Limiter {
    builder(bursty(1000.0), reconnecting(&server.url())).build()
}

/// Does something on another thread, and panics if it hangs.
#[track_caller]
pub(super) fn in_time<R: Send + 'static>(act: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, over) = mpsc::channel();
    thread::spawn(move || done.send(act()));
    over.recv_timeout(LIMIT).expect("it does not hang")
}

/// The worker has no other task to run meanwhile: it is blocked.
#[test]
fn a_blocking_call_on_a_worker_of_a_runtime_returns() {
    let server = Server::start();
    for runtime in [one_worker, one_thread] {
        let limiter = limiter(&server);
        let call = move || {
            let runtime = runtime();
            runtime.block_on(async {
                let call = tokio::spawn(async move { limiter.blocking_acquire(1).map(drop) });
                call.await.expect("no panic")
            })
        };
        in_time(call).expect("granted");
    }
}

/// The one that gives its permit back goes on with other work before it lets its runtime go on.
#[test]
fn work_after_a_drop_does_not_hold_up_other_callers() {
    let server = Server::start();
    let limiter = RedisRateLimiter::new(InFlight::new(1), reconnecting(&server.url()), "places");
    let (work, worked) = mpsc::channel::<()>();
    let runtime = one_thread();
    let grant = runtime.block_on(limiter.acquire(1)).expect("granted");
    let waits = thread::spawn({
        let limiter = limiter.clone();
        move || limiter.blocking_acquire(1).map(drop)
    });
    until("it waits", || limiter.queue_len() == 1);
    let busy = thread::spawn(move || {
        runtime.block_on(async move {
            drop(grant);
            let _ = worked.recv();
        });
    });
    in_time(move || waits.join().expect("no panic")).expect("granted");
    drop(work);
    busy.join().expect("no panic");
}

#[test]
fn a_runtime_that_stands_still_holds_up_no_other() {
    let server = Server::start();
    let limiter = limiter(&server);
    let (still, other) = (one_thread(), one_thread());
    let mut call = limiter.acquire(1);
    // It may be quicker than this thread.
    let early = still.block_on(async { (&mut call).now_or_never() });
    let later = limiter.acquire(1);
    in_time(move || other.block_on(later).map(drop)).expect("granted");
    early.unwrap_or_else(|| still.block_on(call)).expect("granted");
}

/// Only the first of the callers that a reply serves is woken by the thread that sends, and wakes the others.
#[test]
fn a_caller_that_is_not_polled_holds_up_none_of_the_same_reply() {
    let server = Server::start();
    let limiter = limiter(&server);
    limiter.blocking_acquire(1).expect("granted");
    let mut late = 0;
    for _ in 0..20 {
        // The others come while the request of this one is under way.
        let mut standing = [1, 1, 1].map(|n| limiter.acquire(n));
        for caller in &mut standing {
            let _ = caller.now_or_never();
        }
        let (other, start) = (limiter.clone(), Instant::now());
        in_time(move || other.blocking_acquire(1)).expect("granted");
        late += u32::from(start.elapsed() > ms(25));
    }
    assert!(late < 10, "{late} of 20 waited for another alarm");
}

/// Nor one that stood still while it was connecting.
#[test]
fn an_outage_ends_though_no_runtime_is_driven_between_calls() {
    let server = Server::start();
    let limiter = builder(bursty(1000.0), reconnecting(&server.url()))
        .deadline(ms(100))
        .unavailable(Unavailable::Allow)
        .build();
    let runtime = one_thread();
    let call = || runtime.block_on(limiter.acquire(1)).expect("granted, or allowed").is_shared();
    until("it is connected", call);
    server.kill();
    until("it is down", || {
        call();
        limiter.state() == State::Down
    });
    server.restart();
    until("it is up", || {
        call();
        limiter.state() == State::Up
    });
    assert!(call());
}

/// Places are held by callers of one runtime, and another that has used the limiter ends.
#[test]
fn leases_are_renewed_after_a_runtime_has_ended() {
    const LEASE: Duration = ms(1_500);
    let server = Server::start();
    let process = || {
        let connection = reconnecting(&server.url());
        RedisRateLimiter::builder(InFlight::new(1), connection, "places").lease(LEASE).build()
    };
    let (limiter, other) = (process(), process());
    let holder = one_worker();
    let grant = holder.block_on(limiter.acquire(1)).expect("granted");
    let guest = one_thread();
    guest.block_on(limiter.quota()).expect("answered");
    drop(guest);
    let start = Instant::now();
    while start.elapsed() < 2 * LEASE {
        let answer = in_time({
            let other = other.clone();
            move || other.try_acquire(1).blocking_wait().map(drop)
        });
        assert!(answer.is_err(), "at {:?}", start.elapsed());
        thread::sleep(ms(20));
    }
    drop(grant);
    until("the place is free", || other.try_acquire(1).blocking_wait().is_ok());
}

/// The reply finds its caller asleep, which then moves the clock.
#[test]
fn a_reply_wakes_callers_on_a_clock_that_advances_by_itself() {
    let server = Server::start();
    let clock = ManualClock::auto_advance();
    let limiter = builder(bursty(1.0), reconnecting(&server.url())).horizon(ms(60_000));
    let limiter = limiter.clock(&clock).build();
    in_time(move || (0..4).for_each(|_| drop(limiter.blocking_acquire(1).expect("granted"))));
    assert!(clock.elapsed() > ms(2_000), "{:?}", clock.elapsed());
}

/// A request of a runtime that ends goes on, and so do callers of another that wait in the same queue.
#[test]
fn no_request_ends_with_a_runtime() {
    let server = &Server::start();
    let proxy = Proxy::to(server);
    let limiter = builder(bursty(1000.0), reconnecting(&proxy.url())).build();
    let (ends, survivor) = (one_worker(), one_worker());
    ends.block_on(limiter.acquire(1)).expect("granted");
    let before = sequence(server);
    proxy.set(Mode::DelayAnswers(ms(200)));
    let first = ends.spawn(limiter.acquire(1));
    until("it is charged", || sequence(server) != before);
    let others: Vec<_> = (0..20).map(|_| survivor.spawn(limiter.acquire(1))).collect();
    until("they wait", || limiter.queue_len() == 21);
    drop(first);
    ends.shutdown_background();
    for other in others {
        survivor.block_on(other).expect("no panic").expect("granted");
    }
    assert_eq!((limiter.counters().lost, limiter.state()), (0, State::Up));
}

/// It still reads and writes in the runtime that made it. A manager makes the next connection where it is used:
/// on the thread that sends.
#[test]
fn a_manager_goes_on_after_its_runtime_has_ended() {
    let server = Server::start();
    let runtime = one_worker();
    let connection = runtime.block_on(manager(&server.url()));
    let limiter = builder(bursty(1000.0), connection).deadline(ms(100)).build();
    limiter.blocking_acquire(1).expect("granted");
    drop(runtime);
    until("it is connected again", || limiter.blocking_acquire(1).is_ok());
}

/// A connection that never reconnects ends with its runtime, and no caller hangs.
#[test]
fn a_plain_connection_ends_with_its_runtime() {
    let server = Server::start();
    let runtime = one_worker();
    let connection = runtime.block_on(multiplexed(&server.url()));
    let limiter = builder(bursty(1000.0), connection).deadline(ms(100)).build();
    limiter.blocking_acquire(1).expect("granted");
    drop(runtime);
    for _ in 0..3 {
        let limiter = limiter.clone();
        assert!(store(in_time(move || limiter.blocking_acquire(1))).is_unavailable());
    }
}

/// With TLS and a long way connecting takes several round trips.
#[test]
fn a_slow_way_is_connected_in_the_end() {
    const CONNECTING: Duration = ms(500);
    let server = Server::start();
    let proxy = Proxy::to(&server);
    proxy.set(Mode::DelayConnecting(CONNECTING));
    let connection = reconnecting(&proxy.url());
    let limiter = builder(bursty(1000.0), connection).deadline(ms(100)).build();
    let start = Instant::now();
    let error = store(limiter.blocking_acquire(1));
    assert!(!error.may_have_charged() && start.elapsed() < CONNECTING, "{error}");
    until("it is connected", || limiter.blocking_acquire(1).is_ok());
    assert_eq!(proxy.accepted(), 1, "one attempt, however many requests have waited for it");
}

/// As after a fail-over that no packet tells of.
#[test]
fn a_connection_without_any_reply_is_left() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let limiter = builder(bursty(1000.0), reconnecting(&proxy.url())).deadline(ms(100)).build();
    until("it is connected", || limiter.blocking_acquire(1).is_ok());
    proxy.set_once(Mode::SwallowRequests);
    store(limiter.blocking_acquire(1));
    until("it is up", || limiter.blocking_acquire(1).is_ok());
    assert_eq!(proxy.accepted(), 2);
}
