//! The task that sends stands still, panics, or is never run: no caller waits for it longer than for Redis.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use tokio::runtime::Builder;
use tollgate::redis::{Connection, Request, State, StoreError};
use tollgate::{Clock, ManualClock};

use super::sender::in_time;
use super::wakers::Woken;
use super::wires::{Hand, is_take, lone, several, told};
use super::{HORIZON, Limiter, builder, bursty, ms, reconnecting, store};
use crate::support::server::Server;
use crate::support::{lock, until};

/// The deadline, and what the connection gets to say that there was no answer.
pub(super) const PATIENCE: Duration = Duration::from_micros(562_500);

fn limiter(clock: &ManualClock) -> (Limiter<Hand>, Hand) {
    let hand = Hand::default();
    (builder(bursty(10.0), hand.clone()).clock(clock).build(), hand)
}

fn refused() -> StoreError {
    StoreError::refused("connection refused")
}

#[test]
fn a_task_that_never_begins_hangs_no_caller() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(&clock);
    let mut caller = limiter.acquire(1);
    let another = limiter.at("another");
    let mut quota = Box::pin(another.quota());
    assert!((&mut caller).now_or_never().is_none() && (&mut quota).now_or_never().is_none());
    clock.advance(PATIENCE);
    assert!(!store(caller.now_or_never().expect("answered")).may_have_charged());
    assert!(!store(quota.now_or_never().expect("answered")).may_have_charged());
    assert_eq!((limiter.state(), limiter.counters().lost), (State::Down, 0));
    // When the task goes on it sends nothing for them: one request probes.
    clock.advance(ms(2));
    hand.send();
    assert_eq!(hand.sent(), 1);
    hand.answer(Ok(told(&[0])));
    assert_eq!(limiter.state(), State::Up);
}

#[test]
fn a_task_that_stands_still_with_a_request_hangs_no_caller() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(&clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    let mut later = limiter.acquire(1);
    assert!((&mut later).now_or_never().is_none());
    clock.advance(PATIENCE);
    assert!(store(caller.now_or_never().expect("answered")).may_have_charged());
    assert!(!store(later.now_or_never().expect("answered")).may_have_charged());
    assert_eq!((limiter.state(), limiter.counters().lost), (State::Down, 1));
    // It is of no use to its caller, but shows that Redis is there.
    hand.answer(Ok(lone(0)));
    assert_eq!((limiter.state(), limiter.queue_len()), (State::Up, 0));
}

/// The whole process stands still: time passes, and no alarm goes off.
fn stand_still(time: Duration) {
    assert!(tokio::time::advance(time).now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_here_when_a_stopped_process_goes_on_counts() {
    let hand = Hand::default();
    let limiter = builder(bursty(10.0), hand.clone()).clock(Clock::tokio()).build();
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    // A booking may be lost only after more than the deadline and the horizon.
    stand_still(ms(500) + HORIZON);
    hand.answer(Ok(lone(0)));
    assert!(caller.now_or_never().expect("answered").is_ok());
    let counters = limiter.counters();
    assert_eq!((counters.lost, counters.failed), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_booking_is_used_after_a_standstill_as_long_as_the_horizon() {
    for (longer, is_granted) in [(0, true), (1, false)] {
        let hand = Hand::default();
        let limiter = builder(bursty(10.0), hand.clone()).clock(Clock::tokio()).build();
        let mut caller = limiter.acquire(1);
        assert!((&mut caller).now_or_never().is_none());
        hand.answer(Ok(lone(100 * 4_000)));
        stand_still(ms(100) + HORIZON + ms(longer));
        assert_eq!(caller.now_or_never().is_some(), is_granted);
    }
}

/// No task of that runtime is left to see its alarm.
#[test]
fn a_runtime_that_ends_wakes_the_callers_that_wait_by_its_time() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let hand = Hand::default();
    let woken = Arc::new(Woken::default());
    let limiter = {
        let _guard = runtime.enter();
        builder(bursty(10.0), hand.clone()).clock(Clock::tokio()).build()
    };
    let mut caller = limiter.acquire(1);
    runtime.block_on(async {
        let waker = Waker::from(Arc::clone(&woken));
        assert!(caller.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
        hand.answer(Ok(lone(100 * 4_000)));
        tokio::task::yield_now().await;
    });
    assert!(!woken.is(), "its turn is in a while");
    drop(runtime);
    assert!(woken.is());
}

/// Its booking is too old by then, and is returned.
#[tokio::test(start_paused = true)]
async fn a_timed_caller_of_a_process_that_stood_still_has_its_deadline_again() {
    let hand = Hand::default();
    let limiter = builder(bursty(10.0), hand.clone()).clock(Clock::tokio()).build();
    let mut timed = limiter.try_acquire_timeout(1, ms(900));
    assert!((&mut timed).now_or_never().is_none());
    hand.answer(Ok(several(&[0, 0, 100 * 4_000])));
    stand_still(ms(600));
    let mut next = limiter.acquire(1);
    assert!((&mut next).now_or_never().is_none());
    hand.send();
    tokio::time::sleep(ms(299)).await;
    assert!((&mut timed).now_or_never().is_none());
    tokio::time::sleep(ms(3)).await;
    assert!(timed.now_or_never().expect("its time is up").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_begins_too_late_makes_way_for_the_next() {
    let hand = Hand::default();
    let limiter = builder(bursty(10.0), hand.clone()).clock(Clock::tokio()).build();
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    stand_still(ms(700));
    hand.send();
    assert!(!store(caller.now_or_never().expect("answered")).may_have_charged());
    // The next probes. It was dropped unsent, as a second failure.
    assert_eq!((hand.sent(), limiter.counters().failed), (1, 1));
}

/// The alarm is set for a caller elsewhere. In a runtime whose time is paused it has to move that time, too.
#[test]
fn a_change_in_paused_time_hangs_no_caller_though_others_wait_elsewhere() {
    const HOUR: Duration = Duration::from_secs(3_600);
    let hand = Hand::default();
    let limiter = builder(bursty(10.0), hand.clone()).deadline(HOUR).clock(Clock::tokio()).build();
    let mut elsewhere = limiter.acquire(1);
    assert!((&mut elsewhere).now_or_never().is_none());
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    let answer = runtime.expect("a runtime").block_on(async {
        tokio::time::timeout(3 * HOUR, limiter.quota()).await.expect("the time moves to its end")
    });
    assert!(store(answer).is_unavailable());
}

#[test]
fn a_deadline_without_end_is_one_far_away() {
    let server = Server::start();
    let limiter = builder(bursty(1e6), reconnecting(&server.url())).deadline(Duration::MAX).build();
    limiter.blocking_acquire(1).expect("granted");
    assert_eq!(limiter.counters().failed, 0);
}

/// Panics in its first request.
#[derive(Clone, Default)]
struct Panics(Arc<AtomicUsize>);

impl Connection for Panics {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        let is_probe = !is_take(request);
        assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "of this test");
        Ok(if is_probe { told(&[0]) } else { lone(0) })
    }
}

#[test]
fn a_panic_in_a_connection_ends_only_its_request() {
    // No time passes: its caller hears of it at once.
    let builder = builder(bursty(1e6), Panics::default()).clock(ManualClock::new());
    let limiter = builder.build();
    let call = {
        let limiter = limiter.clone();
        move || limiter.blocking_acquire(1).map(drop)
    };
    assert!(store(in_time(call)).may_have_charged());
    until("it goes on", || limiter.blocking_acquire(1).is_ok());
    assert_eq!(limiter.state(), State::Up);
}

/// Refuses a number of requests.
#[derive(Clone)]
struct Refuses(Arc<AtomicUsize>);

impl Connection for Refuses {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        let left = |left: usize| left.checked_sub(1);
        if self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok() {
            return Err(refused());
        }
        let is_probe = !is_take(request);
        Ok(if is_probe { told(&[0]) } else { lone(0) })
    }
}

#[test]
fn a_listener_that_panics_hangs_no_caller() {
    let heard = Arc::new(AtomicUsize::new(0));
    let listener = {
        let heard = Arc::clone(&heard);
        move |_: &_| {
            heard.fetch_add(1, Ordering::SeqCst);
            panic!("of this test");
        }
    };
    let connection = Refuses(Arc::new(AtomicUsize::new(12)));
    let limiter = builder(bursty(1e6), connection).deadline(ms(50)).on_event(listener).build();
    // The panic goes to the caller that meets it, if it is not the thread that sends.
    let call =
        || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| limiter.blocking_acquire(1)));
    until("it goes on", || call().is_ok_and(|answer| answer.is_ok()));
    assert_eq!(heard.load(Ordering::SeqCst), 2, "down and up");
}

/// Processes must not come back in step.
#[test]
fn pauses_between_retries_are_random_and_bounded() {
    /// When it was tried.
    #[derive(Clone)]
    struct Dead(ManualClock, Arc<Mutex<Vec<Duration>>>);

    impl Connection for Dead {
        async fn run(&self, _: &Request) -> Result<Vec<f64>, StoreError> {
            lock(&self.1).push(self.0.elapsed());
            Err(refused())
        }

        fn spawn(&self, mut task: BoxFuture<'static, ()>) {
            while (&mut task).now_or_never().is_none() {}
        }
    }

    const LIMIT: Duration = ms(250);
    let clock = ManualClock::new();
    let dead = Dead(clock.clone(), Arc::default());
    let limiter = builder(bursty(10.0), dead.clone()).clock(&clock).build();
    assert!(limiter.acquire(1).now_or_never().is_none());
    (0..15_000).for_each(|_| clock.advance(ms(1)));
    let tries = lock(&dead.1).clone();
    let mut pauses: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longest = pauses.split_off(pauses.len() - 8);
    assert!(longest.iter().all(|&pause| pause >= LIMIT / 2), "{longest:?}");
    assert!(longest.iter().all(|&pause| pause <= LIMIT * 3 / 2 + ms(20)), "{longest:?}");
    assert!(longest.iter().any(|pause| pause.abs_diff(longest[0]) > ms(2)), "{longest:?}");
}
