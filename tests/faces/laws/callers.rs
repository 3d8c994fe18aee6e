//! Who is granted when, and what those that leave cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::task::Wake;
use std::thread;
use std::time::Instant;

use futures::executor::block_on;

use super::*;

pub(crate) fn items_wait_for_permits_and_none_is_lost<F: Face>() {
    use futures::{Stream, StreamExt};

    let (clock, limiter) = full::<F>(2);
    let mut items = limiter.throttle(futures::stream::iter(0..6));
    let mut next = || items.next().now_or_never();
    assert!(matches!(next(), Some(Some(Ok(0)))));
    assert!(matches!(next(), Some(Some(Ok(1)))));
    // Each of these futures is dropped.
    assert!(next().is_none());
    assert!(next().is_none());
    assert_eq!(limiter.queue_len(), 1);
    clock.advance(TENTH);
    assert!(matches!(next(), Some(Some(Ok(2)))));
    assert!(next().is_none());
    assert_eq!(items.size_hint().0, 3);
    drop(items);
    assert_eq!(limiter.queue_len(), 0);
    // At its end it takes nothing.
    clock.advance(TENTH);
    let mut none = limiter.throttle(futures::stream::empty::<()>());
    assert!(none.next().now_or_never().expect("the end").is_none());
    assert_eq!(granted(limiter.available()), 1);
}

pub(crate) fn a_future_joins_at_its_first_poll<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let mut made_first = limiter.acquire(1);
    let mut polled_first = limiter.acquire(1);
    assert_eq!(limiter.queue_len(), 0);
    waits(&mut polled_first);
    waits(&mut made_first);
    clock.advance(TENTH);
    assert_eq!(granted(polled_first).waited(), TENTH);
    waits(&mut made_first);
}

pub(crate) fn grants_come_in_the_order_of_arrival<F: Face>() {
    let (clock, limiter) = empty::<F>(2);
    let (mut large, mut small) = (limiter.acquire(2), limiter.acquire(1));
    let mut last = limiter.acquire(2);
    waits(&mut large);
    waits(&mut small);
    waits(&mut last);
    // The small one does not overtake.
    clock.advance(TENTH);
    waits(&mut small);
    waits(&mut large);
    clock.advance(TENTH);
    waits(&mut small);
    let large = granted(large);
    assert_eq!((large.cost(), large.waited()), (2, 2 * TENTH));
    clock.advance(5 * TENTH);
    // Polled late, and granted in time.
    assert_eq!(granted(last).waited(), 5 * TENTH);
    assert_eq!(granted(small).waited(), 3 * TENTH);
}

#[derive(Default)]
pub(super) struct Count(pub(super) AtomicU32);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) fn a_waiter_is_woken_when_it_is_granted<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut first = limiter.acquire(1);
    assert!(first.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    let mut second = at_once(limiter.reserve(1)).expect("a place").wait();
    assert!(second.poll_unpin(&mut Context::from_waker(&waker)).is_pending());
    let before = count.0.load(Ordering::SeqCst);
    clock.advance(TENTH);
    assert!(count.0.load(Ordering::SeqCst) > before);
    granted(first);
    let before = count.0.load(Ordering::SeqCst);
    clock.advance(TENTH);
    assert!(count.0.load(Ordering::SeqCst) > before);
    granted(second);
}

pub(crate) fn nothing_is_granted_at_once_and_too_much_refused<F: Face>() {
    let (_, limiter) = empty::<F>(1);
    let before = limiter.stats();
    let nothing = granted(limiter.acquire(0));
    assert_eq!((nothing.cost(), nothing.waited().as_nanos()), (0, 0));
    nothing.refund();
    granted(limiter.try_acquire(0));
    assert_eq!(limiter.stats(), before);
    for outcome in [at_once(limiter.acquire(2)), at_once(limiter.try_acquire(2))] {
        assert!(matches!(outcome, Err(Error::ExceedsCapacity(_))), "{outcome:?}");
    }
    let outcome = at_once(limiter.reserve(2));
    assert!(matches!(outcome, Err(Error::ExceedsCapacity(_))), "{outcome:?}");
    assert_eq!(limiter.queue_len(), 0);
}

pub(crate) fn clones_share_the_limit_and_grants_outlive_it<F: Face>() {
    let (clock, limiter) = full::<F>(1);
    let grant = granted(limiter.clone().acquire(1));
    let (mut first, mut second) = (limiter.clone().acquire(1), limiter.acquire(1));
    drop(limiter);
    waits(&mut first);
    waits(&mut second);
    clock.advance(2 * TENTH);
    assert_eq!(granted(first).waited(), TENTH);
    let second = thread::spawn(move || granted(second)).join().expect("no panic");
    assert_eq!(second.waited(), 2 * TENTH);
    thread::spawn(move || grant.refund()).join().expect("no panic");
}

pub(crate) fn a_call_that_does_not_wait_does_not_overtake<F: Face>() {
    let (clock, limiter) = empty::<F>(2);
    is_denied(at_once(limiter.try_acquire(1)), TENTH);
    let mut waiting = limiter.acquire(2);
    waits(&mut waiting);
    clock.advance(TENTH);
    // A permit is there, for the one that waits; the next one comes after both of that are there.
    is_denied(at_once(limiter.try_acquire(1)), 2 * TENTH);
    clock.advance(TENTH);
    assert_eq!(granted(waiting).waited(), 2 * TENTH);
    clock.advance(TENTH);
    assert_eq!(granted(limiter.try_acquire(1)).waited(), Duration::ZERO);
    assert_eq!(limiter.queue_len(), 0);
}

pub(crate) fn a_timeout_that_is_too_short_fails_at_once_and_names_the_wait<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    is_denied(at_once(limiter.try_acquire_timeout(1, ms(99))), TENTH);
    let mut first = limiter.try_acquire_timeout(1, TENTH);
    waits(&mut first);
    is_denied(at_once(limiter.try_acquire_timeout(1, ms(199))), 2 * TENTH);
    let mut second = limiter.try_acquire_timeout(1, 2 * TENTH);
    waits(&mut second);
    is_denied(at_once(limiter.try_acquire_timeout(1, Duration::ZERO)), 3 * TENTH);
    assert_eq!(limiter.queue_len(), 2);
    clock.advance(2 * TENTH);
    assert_eq!(granted(first).waited(), TENTH);
    assert_eq!(granted(second).waited(), 2 * TENTH);
}

pub(crate) fn no_timed_grant_is_late<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    // Granted at its last moment, and polled much later.
    let mut timed = limiter.try_acquire_timeout(1, TENTH);
    waits(&mut timed);
    clock.advance(3 * TENTH);
    assert_eq!(granted(timed).waited(), TENTH);
    // What was to be in time is delayed: it ends at the deadline, without a permit.
    granted(limiter.try_acquire(1));
    let mut timed = limiter.try_acquire_timeout(1, 2 * TENTH);
    waits(&mut timed);
    let mut behind = limiter.acquire(1);
    waits(&mut behind);
    granted(limiter.pause_for(10 * TENTH));
    clock.advance(2 * TENTH);
    let outcome = at_once(timed);
    assert!(matches!(outcome, Err(Error::Denied { .. })), "{outcome:?}");
    clock.advance(9 * TENTH);
    // A bucket does not fill in a pause.
    assert_eq!(granted(behind).waited(), 11 * TENTH);
}

pub(crate) fn those_behind_a_caller_that_leaves_move_up<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let before = limiter.stats();
    let [mut first, mut second, mut third] = [(); 3].map(|()| limiter.acquire(1));
    waits(&mut first);
    waits(&mut second);
    waits(&mut third);
    drop(second);
    assert_eq!(limiter.queue_len(), 2);
    drop(first);
    clock.advance(TENTH);
    assert_eq!(granted(third).waited(), TENTH);
    is_denied(at_once(limiter.try_acquire(1)), TENTH);
    assert_eq!(limiter.stats().given_up - before.given_up, 2);
    // One that was never polled has not come.
    drop(limiter.acquire(1));
    assert_eq!(limiter.stats().given_up - before.given_up, 2);
}

pub(crate) fn a_grant_that_was_not_taken_comes_back<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    let [mut first, mut second] = [(); 2].map(|()| limiter.acquire(1));
    waits(&mut first);
    waits(&mut second);
    clock.advance(TENTH);
    drop(first);
    // To the next one, at once.
    assert_eq!(granted(second).waited(), TENTH);
    let mut third = limiter.acquire(1);
    waits(&mut third);
    clock.advance(TENTH);
    assert_eq!(limiter.queue_len(), 0);
    drop(third);
    granted(limiter.try_acquire(1));
    assert_eq!(limiter.stats().given_up, 2);
}

/// Whether a call was granted or why not, and when.
type Outcomes = Vec<(Result<(u32, Duration), Error>, Duration)>;

/// A clock that skips waits.
fn skipping<F: Face>() -> (ManualClock, impl Limiter<Cost = u32> + 'static) {
    let clock = ManualClock::auto_advance();
    clock.advance(Duration::from_secs(3_600));
    (clock.clone(), F::made(ten_a_second(3), clock))
}

pub(crate) fn threads_get_what_tasks_get<F: Face>() {
    fn note<G: Granted<Cost = u32>>(
        all: &mut Outcomes,
        outcome: Result<G, Error>,
        clock: &ManualClock,
    ) {
        all.push((outcome.map(|grant| (grant.cost(), grant.waited())), clock.elapsed()));
    }
    let (clock, limiter) = skipping::<F>();
    let mut of_tasks = Outcomes::new();
    note(&mut of_tasks, block_on(limiter.acquire(2)), &clock);
    note(&mut of_tasks, block_on(limiter.try_acquire(1)), &clock);
    note(&mut of_tasks, block_on(limiter.acquire(1)), &clock);
    note(&mut of_tasks, block_on(limiter.try_acquire_timeout(1, ms(99))), &clock);
    note(&mut of_tasks, block_on(limiter.try_acquire_timeout(1, TENTH)), &clock);
    note(&mut of_tasks, block_on(block_on(limiter.reserve(2)).expect("a place").wait()), &clock);
    note(&mut of_tasks, block_on(limiter.acquire(4)), &clock);
    note(&mut of_tasks, block_on(limiter.acquire(1)), &clock);
    let (clock, limiter) = skipping::<F>();
    let mut of_threads = Outcomes::new();
    note(&mut of_threads, limiter.blocking_acquire(2), &clock);
    note(&mut of_threads, limiter.try_acquire(1).blocking_wait(), &clock);
    note(&mut of_threads, limiter.blocking_acquire(1), &clock);
    note(&mut of_threads, limiter.try_acquire_timeout(1, ms(99)).blocking_wait(), &clock);
    note(&mut of_threads, limiter.try_acquire_timeout(1, TENTH).blocking_wait(), &clock);
    note(&mut of_threads, block_on(limiter.reserve(2)).expect("a place").blocking_wait(), &clock);
    note(&mut of_threads, limiter.blocking_acquire(4), &clock);
    note(&mut of_threads, limiter.acquire(1).blocking_wait(), &clock);
    assert_eq!(of_threads, of_tasks);
    assert_eq!(of_tasks[7].1 - of_tasks[0].1, 5 * TENTH);
}

pub(crate) fn a_thread_is_woken_at_its_grant<F: Face>() {
    let (clock, limiter) = empty::<F>(1);
    // It joins here: while a request is under way the clock stands still.
    let place = at_once(limiter.reserve(1)).expect("a place");
    let (begin, has_begun) = mpsc::channel();
    let thread = thread::spawn(move || {
        begin.send(()).expect("it listens");
        place.blocking_wait().expect("granted").waited()
    });
    has_begun.recv().expect("it begins");
    thread::sleep(ms(2));
    clock.advance(TENTH);
    let start = Instant::now();
    while !thread.is_finished() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is not woken");
        thread::yield_now();
    }
    assert_eq!(thread.join().expect("no panic"), TENTH);
}
