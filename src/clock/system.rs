//! The system's clock, and the thread that ends its waits.
//!
//! The time is the operating system's monotonic clock, read by way of the processor's counter, which
//! takes a third of the time. [`quanta`] calibrates that counter once, in a fraction of a second; on
//! a busy machine it was seen to be off by 0.08 % for the life of the process, and a limiter with it.
//! So the counter is trusted for a millisecond only, and then set by the operating system's clock
//! again.
//!
//! One thread for the process, and not a timer of some async runtime: it works with every runtime
//! and without one, it is more precise than the 1 ms tick of tokio's timers, and no runtime that is
//! blocked or shut down can hold up waiters elsewhere.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::alarms::Alarms;
use super::{AlarmKeeper, Turn};
use crate::sync::OwnLine;
use crate::units::{Nanos, saturating_nanos};

/// How long the thread sleeps at least between two rounds while alarms follow each other: at high
/// rates it then grants a few at once instead of waking for each. Late grants cost no throughput,
/// see [`Policy::catch_up`](crate::Policy::catch_up).
const GRAIN: Duration = Duration::from_micros(500);

/// How long the counter is trusted, in nanoseconds. Off by a thousandth, it is a microsecond wrong by
/// then.
const TRUST: u64 = 1_000_000;

/// A comparison of the two clocks that takes longer than this was interrupted, and is not used.
const UNDISTURBED: u64 = 2_000;

#[derive(Debug)]
pub(crate) struct System {
    counter: quanta::Clock,
    counter_origin: u64,
    origin: Instant,
    set: OwnLine<Set>,
    schedule: Mutex<Schedule>,
    changed: Condvar,
}

/// When the counter was last set, by itself, and by how much it was behind then. Read one by one: a
/// new time with an old difference is wrong by another millisecond's error at most.
#[derive(Debug, Default)]
struct Set {
    at: AtomicU64,
    behind: AtomicI64,
}

#[derive(Debug, Default)]
struct Schedule {
    alarms: Alarms,
    running: bool,
    /// Until when the thread sleeps, if it does.
    sleeps_until: Option<Nanos>,
    /// The next round is not before this, to leave a grain between rounds.
    earliest: Nanos,
}

static SYSTEM: OnceLock<System> = OnceLock::new();

impl System {
    pub(super) fn get() -> &'static Self {
        SYSTEM.get_or_init(|| {
            let counter = quanta::Clock::new();
            let counter_origin = counter.raw();
            // Not trusted before it is set for the first time.
            let set = OwnLine(Set { at: AtomicU64::new(u64::MAX / 2), behind: AtomicI64::new(0) });
            Self {
                counter,
                counter_origin,
                origin: Instant::now(),
                set,
                schedule: Mutex::default(),
                changed: Condvar::new(),
            }
        })
    }

    #[inline]
    pub(super) fn now(&self) -> Nanos {
        let count = self.count();
        // A count from before the last setting wraps, and is not trusted either.
        if count.wrapping_sub(self.set.0.at.load(Ordering::Relaxed)) < TRUST {
            let behind = self.set.0.behind.load(Ordering::Relaxed);
            Nanos::new(count.saturating_add_signed(behind))
        } else {
            self.ask()
        }
    }

    #[inline]
    fn count(&self) -> u64 {
        self.counter.delta_as_nanos(self.counter_origin, self.counter.raw())
    }

    /// Asks the operating system, and sets the counter by its answer.
    #[cold]
    fn ask(&self) -> Nanos {
        let before = self.count();
        let now = saturating_nanos(self.origin.elapsed());
        let count = self.count();
        if count.wrapping_sub(before) < UNDISTURBED {
            self.set.0.behind.store(now.wrapping_sub(before).cast_signed(), Ordering::Relaxed);
            self.set.0.at.store(count, Ordering::Relaxed);
        }
        Nanos::new(now)
    }

    /// Sounds the alarms, for ever.
    fn run(&self) -> ! {
        let mut schedule = self.schedule.lock();
        loop {
            let now = self.now();
            match schedule.alarms.first() {
                None => {
                    schedule.sleeps_until = Some(Nanos::END);
                    self.changed.wait(&mut schedule);
                    continue;
                }
                Some(due) if due.max(schedule.earliest) > now => {
                    let until = due.max(schedule.earliest);
                    schedule.sleeps_until = Some(until);
                    // The wait is by another clock than `now`: what they differ is waited again.
                    self.changed.wait_until(&mut schedule, Instant::now() + until.since(now));
                    continue;
                }
                Some(_) => schedule.sleeps_until = None,
            }
            while let Some((_, line)) = schedule.alarms.pop(now) {
                parking_lot::MutexGuard::unlocked(&mut schedule, || turn(&line));
            }
            schedule.earliest = now.saturating_add(GRAIN);
        }
    }
}

/// A policy or a waker that panics must not end the thread that everybody waits for. Whoever waits
/// in that line is woken and meets the panic itself.
fn turn(line: &Weak<dyn Turn>) {
    // The last handle on a line may be dropped in here too, and with it what its owner gave it.
    let turned = catch_unwind(AssertUnwindSafe(|| {
        if let Some(line) = line.upgrade() {
            line.turn();
        }
    }));
    if turned.is_err() {
        // A waker may panic here again: there is nobody left to tell.
        let _ = catch_unwind(AssertUnwindSafe(|| line.upgrade().map(|line| line.wake_all())));
    }
}

impl AlarmKeeper for &'static System {
    fn change(&self, change: impl FnOnce(&mut Alarms)) {
        let mut schedule = self.schedule.lock();
        change(&mut schedule.alarms);
        let Some(first) = schedule.alarms.first() else { return };
        if !schedule.running {
            let system = *self;
            thread::Builder::new()
                .name("tollgate-clock".to_owned())
                .spawn(move || system.run())
                .expect("the thread that ends waits could not be started");
            schedule.running = true;
        } else if schedule.sleeps_until.is_some_and(|until| first.max(schedule.earliest) < until) {
            schedule.sleeps_until = None;
            self.changed.notify_one();
        }
    }
}
