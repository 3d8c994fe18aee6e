//! The thread that ends the waits of the system's clock: when it wakes, and which callers.
//!
//! A *round* sounds all alarms that are due and wakes their callers. What a round costs is the wake-up of the
//! thread and of a worker of each runtime, not the callers in it: so a crowd gets fewer rounds, 1.2 ms apart, and
//! a few callers get the precision that they can use. No round is before an alarm is due, so no caller is early.
//!
//! One thread for the process, and not a timer of some async runtime: it works with every runtime
//! and without one, it is more precise than the 1 ms tick of tokio's timers, and no runtime that is
//! blocked or shut down can hold up waiters elsewhere.

use std::io;
use std::sync::Weak;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::alarm::{Alarms, OnAlarm, sound_in_round};
use super::wakes::{WakeRelay, wake_each};
use crate::units::Nanos;

/// The least time between two rounds while few callers wait. Late grants cost no throughput, see
/// [`Facts::catch_up`](crate::state::Facts::catch_up).
const GAP: Duration = Duration::from_micros(100);

/// The same while many wait.
const CROWD_GAP: Duration = Duration::from_micros(1200);

/// A processor that has slept for long wakes up late, by tenths of a millisecond. So the thread ends a long sleep
/// this much early, and sleeps again for the rest, from which it wakes sooner.
const EARLY: Duration = Duration::from_micros(250);

/// How long a sleep is long. A shorter one is not worth a second wake-up.
const LONG: Duration = Duration::from_millis(20);

/// More callers and limiters than these are many.
const FEW: usize = 16;

/// In a round of more callers than these the first one wakes the others.
const CHAIN: usize = 2;

/// When the first caller does not come, because its runtime is blocked or busy, the clock's thread wakes all
/// callers by itself for this many rounds.
const DIRECT: u32 = 32;

/// How late a wait may end so that others can end with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slack(u32);

impl Slack {
    /// By how many wait.
    pub(super) const AUTO: Self = Self(u32::MAX);

    /// Rounded down to zero or a power of two, in microseconds, so that there are few different ones.
    pub(super) fn new(slack: Duration) -> Self {
        let micros = u32::try_from(slack.as_micros()).unwrap_or(u32::MAX >> 1);
        Self(micros.checked_ilog2().map_or(0, |log| 1 << log))
    }

    /// `None` if it depends on how many wait.
    pub(super) fn get(self) -> Option<Duration> {
        (self != Self::AUTO).then(|| self.gap(false))
    }

    /// The least time between two rounds.
    fn gap(self, is_crowd: bool) -> Duration {
        match self {
            Self::AUTO if is_crowd => CROWD_GAP,
            Self::AUTO => GAP,
            Self(micros) => Duration::from_micros(micros.into()),
        }
    }
}

#[derive(Debug)]
pub(super) struct TimerThread {
    now: fn() -> Nanos,
    /// Starts the thread.
    start: fn(&'static Self) -> io::Result<()>,
    schedule: Mutex<Schedule>,
    changed: Condvar,
    wake_relay: WakeRelay,
}

#[derive(Debug, Default)]
struct Schedule {
    /// The alarms by their slack.
    alarms: Vec<(Slack, Alarms)>,
    running: bool,
    /// Until when the thread sleeps, if it does.
    sleeps_until: Option<Nanos>,
    /// When the last round was due.
    last: Nanos,
    is_crowd: bool,
}

impl Schedule {
    fn alarms(&mut self, slack: Slack) -> &mut Alarms {
        let place = self.alarms.iter().position(|&(other, _)| other == slack);
        let place = place.unwrap_or_else(|| {
            self.alarms.push((slack, Alarms::default()));
            self.alarms.len() - 1
        });
        &mut self.alarms[place].1
    }

    /// When the next round is due.
    fn next(&self) -> Option<Nanos> {
        let due = |(slack, alarms): &(Slack, Alarms)| {
            Some(alarms.first()?.max(self.last.saturating_add(slack.gap(self.is_crowd))))
        };
        self.alarms.iter().filter_map(due).min()
    }

    /// After a round the thread looks again without being asked. A task that is paced has set its next alarm
    /// by then, and need not wake the thread for that.
    fn looks_again(&self) -> Nanos {
        self.last.saturating_add(Slack::AUTO.gap(self.is_crowd))
    }

    /// Takes out an alarm that is due.
    fn pop(&mut self, now: Nanos) -> Option<Weak<dyn OnAlarm>> {
        self.alarms.iter_mut().find_map(|(_, alarms)| alarms.pop(now)).map(|(_, line)| line)
    }

    fn len(&self) -> usize {
        self.alarms.iter().map(|(_, alarms)| alarms.len()).sum()
    }
}

impl TimerThread {
    pub(super) fn new(now: fn() -> Nanos) -> Self {
        let (schedule, changed) = (Mutex::default(), Condvar::new());
        Self { now, start: Self::start, schedule, changed, wake_relay: WakeRelay::new() }
    }

    /// Wakes the other callers of the round of one that is polled.
    #[inline]
    pub(super) fn wake_others(&self) {
        self.wake_relay.wake_others();
    }

    pub(super) fn change<R>(
        &'static self,
        slack: Slack,
        change: impl FnOnce(&mut Alarms) -> R,
    ) -> R {
        let mut schedule = self.schedule.lock();
        let result = change(schedule.alarms(slack));
        let Some(next) = schedule.next() else { return result };
        if !schedule.running {
            // Never a panic: this is under the lock of a limiter, and may be in a drop. If the process has too
            // many threads now, the next change tries again; until then calls alone grant what is due.
            schedule.running = (self.start)(self).is_ok();
        } else if schedule.sleeps_until.is_some_and(|until| next < until) {
            schedule.sleeps_until = None;
            self.changed.notify_one();
        }
        result
    }

    fn start(&'static self) -> io::Result<()> {
        thread::Builder::new().name("tollgate-clock".to_owned()).spawn(|| self.run()).map(drop)
    }

    /// Holds the rounds, for ever.
    fn run(&self) -> ! {
        wake_precisely();
        // For how many rounds this thread wakes all callers.
        let (mut wake, mut direct) = (Vec::new(), 0);
        let mut schedule = self.schedule.lock();
        loop {
            let now = (self.now)();
            let next = schedule.next();
            let looks_again = schedule.looks_again();
            let is_due = next.is_some_and(|next| next <= now);
            // Callers are held back until the next round, and no longer than until then.
            let is_owed = self.wake_relay.holds_back() && looks_again <= now;
            if !is_due && !is_owed {
                let again = Some(looks_again).filter(|&time| time > now);
                let until = next.into_iter().chain(again).min();
                schedule.sleeps_until = Some(until.unwrap_or(Nanos::END));
                match until {
                    // By another clock than `now`; the loop waits again for the difference.
                    Some(until) => {
                        let until = Instant::now() + in_two_steps(until.since(now));
                        self.changed.wait_until(&mut schedule, until);
                    }
                    None => self.changed.wait(&mut schedule),
                }
                continue;
            }
            schedule.sleeps_until = None;
            // A late start moves the next rounds by as much as half a gap only.
            let late_start = now.saturating_sub(GAP / 2);
            schedule.last = next.unwrap_or(now).max(late_start).min(now);
            let mut waiting = 0;
            // Without the lock: a caller that goes on may set an alarm.
            let wake_others = || self.wake_relay.wake_others();
            if self.wake_relay.holds_back()
                && parking_lot::MutexGuard::unlocked(&mut schedule, wake_others)
            {
                direct = DIRECT;
            }
            while let Some(line) = schedule.pop(now) {
                parking_lot::MutexGuard::unlocked(&mut schedule, || {
                    waiting += sound_in_round(&line, &mut wake);
                });
            }
            schedule.is_crowd = schedule.len() + waiting > FEW;
            parking_lot::MutexGuard::unlocked(&mut schedule, || {
                if direct > 0 {
                    direct -= 1;
                } else if wake.len() > CHAIN {
                    self.wake_relay.hold_back(wake.drain(1..));
                }
                wake_each(&mut wake.drain(..));
            });
        }
    }
}

/// How long to sleep first.
fn in_two_steps(sleep: Duration) -> Duration {
    if sleep > LONG { sleep - EARLY } else { sleep }
}

/// Asks the kernel to wake this thread when it wants to be woken, and not up to 50 us later, the default
/// *timer slack* of Linux. Where that is not possible, callers are later by as much.
fn wake_precisely() {
    #[cfg(target_os = "linux")]
    if let Some(file) = kernel_slack() {
        let _ = std::fs::write(file, "1");
    }
}

/// Where the kernel keeps the slack of this thread.
#[cfg(target_os = "linux")]
fn kernel_slack() -> Option<std::path::PathBuf> {
    let thread = std::fs::read_link("/proc/thread-self").ok()?;
    Some(std::path::Path::new("/proc").join(thread.file_name()?).join("timerslack_ns"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, OnceLock};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::clock::alarm::Silent;

    #[test]
    fn a_slack_is_rounded_down_to_a_power_of_two() {
        let rounded = |micros| Slack::new(Duration::from_micros(micros)).get();
        let micros = |micros| Some(Duration::from_micros(micros));
        assert_eq!([0, 1, 2, 3, 1000, 5000].map(rounded), [0, 1, 2, 2, 512, 4096].map(micros));
        assert!(Slack::new(Duration::MAX).get() > Some(Duration::from_secs(1000)));
        assert_eq!(Slack::AUTO.get(), None);
    }

    #[test]
    fn a_round_is_not_before_an_alarm_is_due_and_late_by_the_slack_at_most() {
        let micros = |micros: u64| Nanos::new(micros * 1000);
        let line: Weak<dyn OnAlarm> = Weak::<Silent>::new();
        let mut schedule = Schedule { last: micros(10_000), ..Schedule::default() };
        assert_eq!(schedule.next(), None);
        let next = |schedule: &Schedule| schedule.next().map(|next| next.get() / 1000);

        let set = |schedule: &mut Schedule, slack, due| {
            schedule.alarms(slack).replace(None, micros(due), line.clone());
        };
        set(&mut schedule, Slack::new(Duration::from_millis(3)), 10_005);
        assert_eq!(next(&schedule), Some(12_048));
        set(&mut schedule, Slack::AUTO, 10_010);
        assert_eq!(next(&schedule), Some(10_100));
        schedule.is_crowd = true;
        assert_eq!(next(&schedule), Some(11_200));
        set(&mut schedule, Slack::new(Duration::ZERO), 10_020);
        assert_eq!(next(&schedule), Some(10_020));
        // All that is due goes off with the first.
        assert_eq!(schedule.len(), 3);
        assert!((0..3).all(|_| schedule.pop(micros(10_020)).is_some()));
        set(&mut schedule, Slack::AUTO, 50_000);
        assert!(schedule.pop(micros(49_999)).is_none());
        assert_eq!(next(&schedule), Some(50_000));
    }

    /// As where the process has too many threads: alarms are set under the locks of limiters and in drops.
    #[test]
    fn a_thread_that_cannot_start_is_no_panic_and_the_next_alarm_tries_again() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        static THREAD: OnceLock<TimerThread> = OnceLock::new();
        let thread = THREAD.get_or_init(|| {
            let mut thread = TimerThread::new(|| Nanos::ZERO);
            thread.start = |_| match TRIES.fetch_add(1, Ordering::SeqCst) {
                0 | 1 => Err(io::ErrorKind::OutOfMemory.into()),
                _ => Ok(()),
            };
            thread
        });
        let line: Weak<dyn OnAlarm> = Weak::<Silent>::new();
        let set = |_| {
            thread.change(Slack::AUTO, |alarms| alarms.replace(None, Nanos::new(5), line.clone()));
            (TRIES.load(Ordering::SeqCst), thread.schedule.lock().running)
        };
        assert_eq!([(); 4].map(set), [(1, false), (2, false), (3, true), (3, true)]);
        assert_eq!(thread.schedule.lock().len(), 4);
    }

    /// How long a test waits for what must come.
    const LONG_ENOUGH: Duration = Duration::from_secs(20);

    /// Wakes these callers in its next round, and has others that go on waiting.
    struct Crowd {
        wake: Mutex<Vec<Waker>>,
        waiting: usize,
    }

    impl OnAlarm for Crowd {
        fn on_alarm(&self) {
            unreachable!("a round has its own method")
        }

        fn on_round(&self, wake: &mut Vec<Waker>) -> usize {
            wake.append(&mut self.wake.lock());
            self.waiting
        }

        fn wake_all(&self) {}
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
            thread.change(Slack::AUTO, |alarms| {
                alarms.replace(None, due, Arc::downgrade(&line));
            });
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
            thread.change(Slack::AUTO, |alarms| alarms.replace(None, due, line));
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

        // As the first did not come, the thread wakes all of them in the next round, which begins late.
        let due = now().saturating_add(CROWD_GAP);
        let late = advance(10 * CROWD_GAP);
        round(due);
        assert_eq!([(); 5].map(|()| next()), [0, 1, 2, 3, 4].map(|caller| (caller, false)));
        assert_eq!(thread.schedule.lock().last, Nanos::new(late).saturating_sub(GAP / 2));
    }

    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "its threads are one thread of the system")]
    #[test]
    fn the_thread_asks_to_be_woken_precisely() {
        // Where the slack cannot be read, it cannot be set.
        if !std::path::Path::new("/proc/self/timerslack_ns").exists() {
            return;
        }
        let slack = || {
            let file = kernel_slack().expect("the file of this thread");
            std::fs::read_to_string(file).expect("its slack")
        };
        thread::spawn(move || {
            assert_ne!(slack().trim(), "1");
            wake_precisely();
            assert_eq!(slack().trim(), "1");
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn a_long_sleep_ends_early_and_a_short_one_follows() {
        let slept = in_two_steps(Duration::from_secs(60));
        assert_eq!(slept, Duration::from_secs(60) - EARLY);
        assert_eq!(in_two_steps(EARLY), EARLY);
        assert_eq!(in_two_steps(LONG), LONG);
    }
}
