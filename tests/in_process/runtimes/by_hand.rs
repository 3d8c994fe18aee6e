//! A manual clock that one thread moves while another one joins a queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use tollgate::{ExceedsCapacity, InFlight, ManualClock, Nanos, Policy, RateLimiter, Ready};

use crate::support::{busy, is_waiting, ms, outcome, secs, until};

/// A grant each 5 ms. Moves the clock by 10 ms at one of the next questions: as another thread does that moves the clock
/// just then.
#[derive(Clone, Debug)]
struct MovesTheClock {
    clock: ManualClock,
    moves_at: Arc<AtomicUsize>,
}

impl Policy for MovesTheClock {
    type Cost = u32;
    type State = Nanos;
    type Receipt = ();

    fn start(&self, now: Nanos) -> Nanos {
        now
    }

    fn idle_at(&self, next: &Nanos) -> Option<Nanos> {
        Some(*next)
    }

    fn ready_at(&self, next: &Nanos, _: Nanos, _: u32) -> Result<Ready, ExceedsCapacity> {
        let left = self.moves_at.load(Ordering::SeqCst);
        self.moves_at.store(left.saturating_sub(1), Ordering::SeqCst);
        if left == 1 {
            self.clock.advance(ms(10));
        }
        Ok(Ready::At(*next))
    }

    fn charge(&self, next: &mut Nanos, at: Nanos, _: u32) {
        *next = at.max(*next).saturating_add(ms(5));
    }

    fn migrate(&self, _: &Self, _: &mut Nanos, _: Nanos) {}

    fn available(&self, next: &Nanos, now: Nanos) -> u32 {
        u32::from(*next <= now)
    }
}

/// If the waiter has read the old time already, the clock has gone past its alarm when it sets that.
#[test]
fn a_clock_that_moves_while_a_waiter_joins_grants_it() {
    // The questions before it sets the alarm.
    let has_waited = (1..=3).filter(|&question| {
        let (clock, moves_at) = (ManualClock::new(), Arc::<AtomicUsize>::default());
        let policy = MovesTheClock { clock: clock.clone(), moves_at: Arc::clone(&moves_at) };
        let limiter = RateLimiter::with_clock(policy, &clock);
        limiter.try_acquire(1).expect("a new limiter grants at once");
        moves_at.store(question, Ordering::SeqCst);
        let mut waiter = limiter.acquire(1);
        let waits = is_waiting(&mut waiter);
        if waits {
            assert_eq!(limiter.queue_len(), 0, "no alarm goes off: {question}");
            outcome(&mut waiter).expect("a grant");
        }
        waits && clock.elapsed() == ms(10)
    });
    assert_ne!(has_waited.count(), 0);
}

/// The same with two threads.
#[test]
fn a_thread_that_moves_the_clock_misses_no_waiter_that_joins() {
    let end = Instant::now() + secs(1);
    let (clock, limiter) = busy(5.0);
    let [begun, done] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let waiter = thread::spawn({
        let [begun, done] = [&begun, &done].map(Arc::clone);
        move || {
            while Instant::now() < end {
                begun.fetch_add(1, Ordering::SeqCst);
                limiter.blocking_acquire(1).expect("a grant");
                done.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    for round in 1.. {
        until(|| begun.load(Ordering::SeqCst) == round || waiter.is_finished());
        if begun.load(Ordering::SeqCst) < round {
            break;
        }
        // Once: the next time would make good for a lost alarm.
        clock.advance(ms(200));
        until(|| done.load(Ordering::SeqCst) == round);
    }
    waiter.join().expect("no panic");
}

/// A simulation moves the clock to the next time at which something is due.
#[test]
fn nothing_is_due_once_no_caller_waits_for_a_time() {
    let (clock, limiter) = busy(5.0);
    let waiter = limiter.reserve(1).expect("a place");
    assert_eq!(clock.next_due(), Some(ms(200)));
    drop(waiter);
    assert_eq!(clock.next_due(), None);
    // A caller with a deadline leaves; when the place of the other one comes is unknown.
    let limiter = RateLimiter::with_clock(InFlight::new(1), &clock);
    let _place = limiter.try_acquire(1).expect("free");
    let mut timed = limiter.try_acquire_timeout(1, secs(3));
    let mut other = limiter.acquire(1);
    assert!(is_waiting(&mut timed) && is_waiting(&mut other));
    assert_eq!(clock.next_due(), Some(secs(3)));
    drop(timed);
    assert_eq!((clock.next_due(), limiter.queue_len()), (None, 1));
}
