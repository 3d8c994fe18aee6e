//! The thread that ends the waits of the system's clock: when it wakes, and which callers.
//!
//! A *round* sounds all alarms that are due and wakes their callers. What a round costs is the wake-up of the
//! thread and of a worker of each runtime, not the callers in it: so a crowd gets fewer rounds, 1.2 ms apart, and
//! a few callers get the precision that they can use. No round is before an alarm is due, so no caller is early.
//!
//! One thread for the process, and not a timer of some async runtime: it works with every runtime and without one, it is more
//! precise than the 1 ms tick of tokio's timers, and no runtime that is blocked or shut down can hold up waiters elsewhere.
//!
//! To wake a task of another thread costs a lock and often a system call; to wake one of the own runtime is a push to a
//! queue. So the thread wakes the first caller of a round only, and that one wakes the others when it is polled
//! ([`WakeRelay`]). No caller depends on that: the thread comes back.

use std::mem;
use std::sync::{Condvar, Weak};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use super::alarm::{AfterUnlock, Alarms, NewAlarm, OnAlarm, sound_in_round, wake_each};
use super::time_order::Timed;
use crate::sync::real::Mutex;
use crate::sync::{self, AtomicBool, Ordering, unpoisoned};
use crate::units::Nanos;
use crate::unwinding::WakerList;

/// The least time between two rounds while few callers wait. Late grants cost no throughput, see
/// [`Facts::catch_up`](crate::state::Facts::catch_up).
const GAP: Duration = Duration::from_micros(100);

/// The same while many wait.
const CROWD_GAP: Duration = Duration::from_micros(1200);

/// More callers and limiters than these are many.
const FEW: usize = 16;

/// In a round of more callers than these the first one wakes the others.
const CHAIN: usize = 2;

#[derive(Debug)]
pub(super) struct TimerThread {
    now: fn() -> Nanos,
    /// Starts the thread, if it can.
    start: fn(&'static Self) -> bool,
    schedule: Mutex<Schedule>,
    changed: Condvar,
    pub(super) wake_relay: WakeRelay,
}

#[derive(Debug, Default)]
struct Schedule {
    alarms: Alarms,
    running: bool,
    /// Until when the thread sleeps, if it does.
    sleeps_until: Option<Nanos>,
    /// When the last round was due.
    last: Nanos,
    is_crowd: bool,
}

impl Schedule {
    /// No round is before. After a round the thread looks again at this time without being asked: a task that is paced has
    /// set its next alarm by then, and need not wake the thread for that.
    fn earliest(&self) -> Nanos {
        self.last.saturating_add(if self.is_crowd { CROWD_GAP } else { GAP })
    }

    /// When the next round is due.
    fn next(&self) -> Option<Nanos> {
        Some(self.alarms.first()?.max(self.earliest()))
    }
}

impl TimerThread {
    pub(super) fn new(now: fn() -> Nanos) -> Self {
        let (schedule, changed) = (Mutex::default(), Condvar::new());
        Self { now, start: Self::start, schedule, changed, wake_relay: WakeRelay::new() }
    }

    pub(super) fn replace(
        &'static self,
        old: Option<Timed>,
        new: Option<NewAlarm>,
    ) -> Option<Timed> {
        let mut schedule = self.schedule.lock();
        let id = schedule.alarms.replace(old, new);
        let next = schedule.next()?;
        if !schedule.running {
            // Never a panic: this is under the lock of a limiter, and may be in a drop. If the process has too
            // many threads now, the next change tries again; until then calls alone grant what is due.
            schedule.running = (self.start)(self);
        } else if schedule.sleeps_until.is_some_and(|until| next < until) {
            schedule.sleeps_until = None;
            self.changed.notify_one();
        }
        id
    }

    fn start(&'static self) -> bool {
        thread::Builder::new().name("tollgate-clock".to_owned()).spawn(|| self.run()).is_ok()
    }

    fn pop(&self, now: Nanos) -> Option<Weak<dyn OnAlarm>> {
        self.schedule.lock().alarms.pop(now).map(|(_, line)| line)
    }

    /// Holds the rounds, for ever.
    fn run(&self) -> ! {
        let mut schedule = self.schedule.lock();
        loop {
            let (now, earliest, next) = ((self.now)(), schedule.earliest(), schedule.next());
            let is_due = next.is_some_and(|next| next <= now);
            // Callers are held back until the next round, and no longer than until then.
            let is_owed = self.wake_relay.holds_back() && earliest <= now;
            if !is_due && !is_owed {
                let again = Some(earliest).filter(|&time| time > now);
                let until = next.into_iter().chain(again).min().unwrap_or(Nanos::END);
                schedule.sleeps_until = Some(until);
                // By another clock than `now`; the loop waits again for the difference.
                schedule = unpoisoned(self.changed.wait_timeout(schedule, until.since(now))).0;
                continue;
            }
            schedule.sleeps_until = None;
            // A late start moves the next rounds by as much as half a gap only.
            let late_start = now.saturating_sub(GAP / 2);
            schedule.last = next.unwrap_or(now).max(late_start).min(now);
            // Without the lock: a caller that goes on may set an alarm.
            drop(schedule);
            self.wake_relay.wake_others();
            let (mut after, mut waiting) = (AfterUnlock::default(), 0);
            while let Some(line) = self.pop(now) {
                waiting += sound_in_round(&line, &mut after);
            }
            let others = &mut after.more().others;
            if others.len() >= CHAIN {
                self.wake_relay.hold_back(others);
            }
            after.run();
            schedule = self.schedule.lock();
            schedule.is_crowd = schedule.alarms.len() + waiting > FEW;
        }
    }
}

/// The wakers that were held back.
#[derive(Debug)]
pub(super) struct WakeRelay {
    /// Whether there are any. Written under the lock, and read without it by callers that need not know exactly.
    holds_back: AtomicBool,
    wakers: sync::Mutex<WakerList>,
}

impl WakeRelay {
    fn new() -> Self {
        Self { holds_back: AtomicBool::new(false), wakers: sync::Mutex::new(WakerList::default()) }
    }

    /// Keeps wakers until the next caller is polled or the next round begins, and returns those that it has kept until now.
    fn hold_back(&self, others: &mut Vec<Waker>) {
        let mut wakers = self.wakers.lock();
        mem::swap(&mut **wakers, others);
        self.holds_back.store(!wakers.is_empty(), Ordering::Relaxed);
    }

    #[inline]
    fn holds_back(&self) -> bool {
        self.holds_back.load(Ordering::Relaxed)
    }

    /// Wakes those that were held back.
    // A caller that was woken sees what was held back before it was woken.
    #[inline]
    pub(super) fn wake_others(&self) {
        if self.holds_back() {
            self.wake_all();
        }
    }

    #[inline(never)]
    fn wake_all(&self) {
        let mut others = {
            let mut wakers = self.wakers.lock();
            self.holds_back.store(false, Ordering::Relaxed);
            mem::take(&mut *wakers)
        };
        wake_each(&mut others);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, OnceLock};
    use std::task::Wake;
    use std::time::Instant;

    use super::*;
    use crate::clock::alarm::Silent;

    #[test]
    fn a_round_is_not_before_an_alarm_is_due_nor_right_behind_another() {
        let micros = |micros: u64| Nanos::new(micros * 1000);
        let mut schedule = Schedule { last: micros(10_000), ..Schedule::default() };
        assert_eq!(schedule.next(), None);
        let next = |schedule: &Schedule| schedule.next().map(|next| next.get() / 1000);

        let set = |schedule: &mut Schedule, due| {
            schedule.alarms.insert(micros(due), Weak::<Silent>::new());
        };
        set(&mut schedule, 10_010);
        set(&mut schedule, 10_020);
        assert_eq!(next(&schedule), Some(10_100));
        schedule.is_crowd = true;
        assert_eq!(next(&schedule), Some(11_200));
        // All that is due goes off with the first.
        assert!((0..2).all(|_| schedule.alarms.pop(micros(10_020)).is_some()));
        set(&mut schedule, 50_000);
        assert!(schedule.alarms.pop(micros(49_999)).is_none());
        assert_eq!(next(&schedule), Some(50_000));
    }

    /// As where the process has too many threads: alarms are set under the locks of limiters and in drops.
    #[test]
    fn a_thread_that_cannot_start_is_no_panic_and_the_next_alarm_tries_again() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        static THREAD: OnceLock<TimerThread> = OnceLock::new();
        let thread = THREAD.get_or_init(|| {
            let mut thread = TimerThread::new(|| Nanos::ZERO);
            thread.start = |_| TRIES.fetch_add(1, Ordering::SeqCst) > 1;
            thread
        });
        let line: Weak<dyn OnAlarm> = Weak::<Silent>::new();
        let set = |_| {
            thread.replace(None, Some((Nanos::new(5), line.clone())));
            (TRIES.load(Ordering::SeqCst), thread.schedule.lock().running)
        };
        assert_eq!([(); 4].map(set), [(1, false), (2, false), (3, true), (3, true)]);
        assert_eq!(thread.schedule.lock().alarms.len(), 4);
    }

    /// How long a test waits for what must come.
    const LONG_ENOUGH: Duration = Duration::from_secs(20);

    /// Wakes these callers in its next round, and has others that go on waiting.
    struct Crowd {
        wake: Mutex<Vec<Waker>>,
        waiting: usize,
    }

    impl OnAlarm for Crowd {
        fn on_alarm(self: Arc<Self>, after: &mut AfterUnlock) -> usize {
            self.wake.lock().drain(..).for_each(|waker| after.wake(waker));
            self.waiting
        }
    }

    /// Says which caller was woken, and whether others were held back then.
    struct Caller(usize, &'static TimerThread, Sender<(usize, bool)>);

    impl Wake for Caller {
        fn wake(self: Arc<Self>) {
            self.2.send((self.0, self.1.wake_relay.holds_back())).expect("the test listens");
        }
    }

    fn callers(thread: &'static TimerThread, woken: &Sender<(usize, bool)>) -> Vec<Waker> {
        (0..5).map(|index| Arc::new(Caller(index, thread, woken.clone())).into()).collect()
    }

    #[test]
    fn the_thread_sleeps_until_an_alarm_is_due_and_while_none_is_set() {
        static READ: AtomicUsize = AtomicUsize::new(0);
        static START: OnceLock<Instant> = OnceLock::new();
        static THREAD: OnceLock<TimerThread> = OnceLock::new();
        fn now() -> Nanos {
            READ.fetch_add(1, Ordering::SeqCst);
            Nanos::ZERO.saturating_add(START.get_or_init(Instant::now).elapsed())
        }

        let thread = THREAD.get_or_init(|| TimerThread::new(now));
        let (woken, comes) = channel();
        // The last one shows that the thread has slept before it, when no alarm was set.
        for wait in [2, 40, 2, 40].map(Duration::from_millis) {
            let line: Arc<dyn OnAlarm> =
                Arc::new(Crowd { wake: Mutex::new(callers(thread, &woken)), waiting: 0 });
            let due = now().saturating_add(wait);
            thread.replace(None, Some((due, Arc::downgrade(&line))));
            (0..5).for_each(|_| _ = comes.recv_timeout(LONG_ENOUGH).expect("each caller is woken"));
            assert!(now() >= due);
        }
        let read = READ.load(Ordering::SeqCst);
        assert!(read < 100, "the thread looked {read} times for four rounds");
    }

    #[test]
    fn callers_that_were_held_back_are_woken_when_the_next_round_may_be() {
        static NOW: AtomicU64 = AtomicU64::new(1_000_000_000);
        static READ: AtomicUsize = AtomicUsize::new(0);
        static THREAD: OnceLock<TimerThread> = OnceLock::new();
        fn now() -> Nanos {
            READ.fetch_add(1, Ordering::SeqCst);
            Nanos::new(NOW.load(Ordering::SeqCst))
        }
        // The thread has seen the time as it is now.
        let has_looked = || {
            let (read, start) = (READ.load(Ordering::SeqCst), Instant::now());
            while READ.load(Ordering::SeqCst) < read + 3 {
                assert!(start.elapsed() < LONG_ENOUGH, "the thread does not look");
                thread::yield_now();
            }
        };
        let advance = |time: Duration| {
            let time = u64::try_from(time.as_nanos()).expect("short");
            NOW.fetch_add(time, Ordering::SeqCst) + time
        };

        let thread = THREAD.get_or_init(|| TimerThread::new(now));
        let (woken, comes) = channel();
        let next = || comes.recv_timeout(LONG_ENOUGH).expect("each caller is woken");
        let crowd = Arc::new(Crowd { wake: Mutex::default(), waiting: FEW + 1 });
        let round = |due: Nanos| {
            *crowd.wake.lock() = callers(thread, &woken);
            let line: Weak<dyn OnAlarm> = Arc::<Crowd>::downgrade(&crowd);
            thread.replace(None, Some((due, line)));
        };

        round(now());
        assert_eq!(next(), (0, true));
        for time in [Duration::ZERO, CROWD_GAP - Duration::from_nanos(1)] {
            advance(time);
            has_looked();
            assert!(comes.try_recv().is_err(), "the first caller was not polled");
        }
        advance(Duration::from_nanos(1));
        assert_eq!([(); 4].map(|()| next()), [1, 2, 3, 4].map(|caller| (caller, false)));

        // A round that begins late moves the next one by half a gap.
        let due = now().saturating_add(CROWD_GAP);
        let late = advance(10 * CROWD_GAP);
        round(due);
        assert_eq!(next(), (0, true));
        assert_eq!(thread.schedule.lock().last, Nanos::new(late).saturating_sub(GAP / 2));
    }
}

#[cfg(all(test, tollgate_loom))]
mod loom {
    use std::sync::Arc;
    use std::task::Wake;

    use ::loom::sync::atomic::AtomicUsize;
    use ::loom::thread;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Two callers are polled while the clock's thread ends one round and begins the next.
    #[test]
    fn each_caller_of_a_round_is_woken_once() {
        ::loom::model(|| {
            let (relay, woken) = (Arc::new(WakeRelay::new()), Arc::new(Woken::default()));
            let polled = || {
                let relay = Arc::clone(&relay);
                thread::spawn(move || relay.wake_others())
            };
            let polled = [polled(), polled()];
            let mut others = [(); 2].map(|()| Waker::from(Arc::clone(&woken))).into();
            relay.hold_back(&mut others);
            relay.wake_others();
            polled.into_iter().for_each(|caller| caller.join().expect("no panic"));
            assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        });
    }

    /// A caller that was woken before it is polled wakes those that were held back, while one of the round before does.
    /// The clock's thread does not come back.
    #[test]
    fn the_first_caller_of_a_round_wakes_the_others() {
        ::loom::model(|| {
            let (relay, woken) = (Arc::new(WakeRelay::new()), Arc::new(Woken::default()));
            let hold_back = || {
                let mut wakers = WakerList::default();
                wakers.push(Waker::from(Arc::clone(&woken)));
                relay.hold_back(&mut wakers);
                wake_each(&mut wakers);
            };
            hold_back();
            let is_woken = Arc::new(AtomicBool::new(false));
            let first = thread::spawn({
                let (relay, is_woken) = (Arc::clone(&relay), Arc::clone(&is_woken));
                move || is_woken.load(Ordering::Acquire).then(|| relay.wake_others()).is_some()
            });
            let other = thread::spawn({
                let relay = Arc::clone(&relay);
                move || relay.wake_others()
            });
            hold_back();
            is_woken.store(true, Ordering::Release);
            other.join().expect("no panic");
            if first.join().expect("no panic") {
                assert_eq!(woken.0.load(Ordering::SeqCst), 2);
            }
        });
    }
}
