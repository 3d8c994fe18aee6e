//! Tokio's clock, and the tasks that end waits in paused time.
//!
//! A waiter depends on its own runtime at most. Time can be paused only in a current-thread runtime, and moves
//! there only by timers of that runtime. So each such runtime with waiters has a task of its own, the *timer
//! task*, that sleeps until the alarm and then calls the limiter. Everywhere else tokio's time is the system's,
//! and the thread of the system's clock calls the limiter. It does so only if there are waiters elsewhere: those
//! in paused time are not decided by the system's time.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::time::{Instant, Sleep, sleep_until};

use super::alarm::{OnAlarm, TimedAlarm, sound};
use super::other::{OtherAlarm, OtherClock, since_epoch};
use super::system::{System, SystemAlarms};
use super::timer_thread::Slack;
use crate::units::Nanos;

#[derive(Clone)]
pub(super) struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    pub(super) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    fn alarm(&self, line: Weak<dyn OnAlarm>) -> TokioAlarm {
        let (clock, state) = (self.clone(), Mutex::default());
        TokioAlarm { shared: Arc::new(Shared { line, clock, state }), rests: true }
    }

    fn instant(&self, time: Nanos) -> Instant {
        self.origin + time.min(Nanos::END).since(Nanos::ZERO)
    }
}

impl OtherClock for TokioClock {
    fn now(&self) -> Nanos {
        // Never a panic: a clock made outside may be ahead of a runtime whose time is paused.
        Nanos::ZERO.saturating_add(Instant::now().saturating_duration_since(self.origin))
    }

    fn alarm(&self, line: Weak<dyn OnAlarm>) -> Box<dyn OtherAlarm> {
        Box::new(self.alarm(line))
    }

    fn since_epoch(&self) -> Duration {
        since_epoch(self.now())
    }

    fn wake_others(&self) {
        System::get().thread.wake_others();
    }

    /// An alarm without callers would need a timer, which moves paused time.
    fn sounds_without_callers(&self) -> bool {
        false
    }
}

impl fmt::Debug for TokioClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock::tokio()")
    }
}

/// The alarm of one limiter.
#[derive(Debug)]
struct TokioAlarm {
    shared: Arc<Shared>,
    /// No caller waits.
    rests: bool,
}

#[derive(Debug)]
struct Shared {
    line: Weak<dyn OnAlarm>,
    clock: TokioClock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether callers wait. Without any the tasks end.
    waiting: bool,
    /// `None` as long as it is unknown.
    due: Option<Nanos>,
    /// The runtimes with a task. The waker is there while the task waits for another alarm.
    tasks: Vec<(Id, Option<Waker>)>,
    /// If callers wait outside of these: the alarm of the system's clock.
    elsewhere: Option<TimedAlarm<SystemAlarms>>,
}

impl OtherAlarm for TokioAlarm {
    fn set(&mut self, due: Nanos) -> bool {
        self.change(|state| {
            state.due = Some(due);
            self.shared.set_elsewhere(state);
        });
        // A task or the thread comes for it, however early it is due.
        false
    }

    /// It is unknown when the next caller is due. A timer that went on sleeping would move paused time.
    fn unset(&mut self) {
        // The system's clock may call the limiter once for nothing.
        self.change(|state| state.due = None);
    }

    /// No caller waits: the tasks end.
    fn rest(&mut self) {
        if !std::mem::replace(&mut self.rests, true) {
            self.change(|state| {
                (state.waiting, state.due) = (false, None);
                state.elsewhere = None;
            });
        }
    }

    fn timer_task(&mut self, is_here: bool, _is_missed: bool) -> Option<super::other::TimerTask> {
        let task = self.timer_task(is_here)?;
        Some(Box::new(|| task.start()))
    }
}

impl TokioAlarm {
    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers: Vec<_> = {
            let mut state = self.shared.state.lock();
            change(&mut state);
            state.tasks.iter_mut().filter_map(|(_, waker)| waker.take()).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sees to it that this place hears of the alarm if a caller `is_here`, or no other place does. Returns a task
    /// to start.
    fn timer_task(&mut self, is_here: bool) -> Option<TimerTask> {
        if !is_here && !self.rests {
            return None;
        }
        self.rests = false;
        let mut state = self.shared.state.lock();
        state.waiting = true;
        let Some(id) = with_own_time() else {
            if state.elsewhere.is_none() {
                let alarms = SystemAlarms { system: System::get(), slack: Slack::AUTO };
                state.elsewhere = Some(TimedAlarm::new(alarms, self.shared.line.clone()));
                self.shared.set_elsewhere(&mut state);
            }
            return None;
        };
        if state.tasks.iter().any(|&(other, _)| other == id) {
            return None;
        }
        state.tasks.push((id, None));
        Some(TimerTask { id, shared: Arc::clone(&self.shared), sleep: None, over: false })
    }
}

impl Drop for TokioAlarm {
    fn drop(&mut self) {
        self.rest();
    }
}

impl Shared {
    /// Sets the alarm of the system's clock. That is late by some microseconds, never early: what is due by it is
    /// due by tokio's clock.
    fn set_elsewhere(&self, state: &mut State) {
        if let (Some(alarm), Some(due)) = (&mut state.elsewhere, state.due) {
            alarm.set(System::get().at(self.clock.instant(due).into_std()));
        }
    }
}

/// The current runtime, if its time may be another one than the system's.
fn with_own_time() -> Option<Id> {
    let handle = Handle::try_current().ok()?;
    let is_own = handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
    is_own.then(|| handle.id()).filter(|id| !WITHOUT_TASKS.lock().contains(id))
}

/// Runtimes that dropped a task: they are shutting down, or have no timers. A caller within them waits by the
/// system's clock. Only the latest few matter: in another one the next task is dropped again.
static WITHOUT_TASKS: Mutex<Vec<Id>> = Mutex::new(Vec::new());

const MOST_WITHOUT_TASKS: usize = 64;

/// The task that calls a limiter at its alarm, until no caller waits there.
struct TimerTask {
    id: Id,
    shared: Arc<Shared>,
    sleep: Option<Pin<Box<Sleep>>>,
    over: bool,
}

impl TimerTask {
    fn start(self) {
        // Dropping the handle detaches the task. If the runtime has ended meanwhile, `Drop` below does the
        // rest.
        if let Ok(handle) = Handle::try_current() {
            drop(handle.spawn(self));
        }
    }

    /// The next alarm, if it is known. Ends this task if no caller waits.
    fn due(&mut self, waker: &Waker) -> Option<Nanos> {
        let mut state = self.shared.state.lock();
        if !state.waiting {
            state.tasks.retain(|&(id, _)| id != self.id);
            self.over = true;
        } else if let Some((_, entry)) = state.tasks.iter_mut().find(|(id, _)| *id == self.id) {
            *entry = Some(waker.clone());
        }
        state.due
    }

    /// The alarm goes off here, unless it has gone off elsewhere or was set for another time. Returns whether it
    /// does.
    fn goes_off(&self, due: Nanos) -> bool {
        let mut state = self.shared.state.lock();
        let goes_off = state.due.take_if(|latest| *latest == due).is_some();
        // The limiter sets the next alarm, of which this task needs no news.
        if let Some((_, entry)) = state.tasks.iter_mut().find(|(id, _)| *id == self.id) {
            *entry = None;
        }
        goes_off
    }
}

impl Future for TimerTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let due = self.due(context.waker());
            if self.over {
                return Poll::Ready(());
            }
            let Some(due) = due else {
                self.sleep = None;
                return Poll::Pending;
            };
            // Rounded up by tokio to its tick of a millisecond: late, never early.
            let deadline = self.shared.clock.instant(due);
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if sleep.deadline() != deadline {
                sleep.as_mut().reset(deadline);
            }
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if self.goes_off(due) {
                sound(&self.shared.line);
            }
        }
    }
}

/// The runtime shuts down or has no timers: waiters within it, or elsewhere, must not depend on it.
impl Drop for TimerTask {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.shared.state.lock().tasks.retain(|&(id, _)| id != self.id);
        {
            let mut without_tasks = WITHOUT_TASKS.lock();
            without_tasks.retain(|&id| id != self.id);
            without_tasks.truncate(MOST_WITHOUT_TASKS - 1);
            without_tasks.insert(0, self.id);
        }
        if let Some(line) = self.shared.line.upgrade() {
            line.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Says which alarm has gone off.
    struct Line(Sender<()>);

    impl OnAlarm for Line {
        fn on_alarm(&self) {
            let _ = self.0.send(());
        }

        fn wake_all(&self) {}
    }

    /// A limiter, and what is heard of its alarms.
    fn line() -> (Arc<dyn OnAlarm>, Receiver<()>) {
        let (goes_off, heard) = channel();
        (Arc::new(Line(goes_off)), heard)
    }

    #[test]
    fn an_alarm_outside_of_runtimes_is_set_as_often_as_the_limiter_sets_it() {
        let (line, heard) = line();
        let clock = TokioClock::new();
        let mut alarm = clock.alarm(Arc::downgrade(&line));
        assert!(alarm.timer_task(true).is_none());
        // It may have gone off too early: then the limiter sets it again, for the same time.
        let due = clock.now();
        for _ in 0..3 {
            alarm.set(due);
            heard.recv_timeout(LONG).expect("it goes off");
        }
        alarm.rest();
        alarm.set(due);
        heard.recv_timeout(Duration::from_millis(20)).expect_err("no caller is there");
        // The next caller has the alarm that is set.
        assert!(alarm.timer_task(true).is_none());
        heard.recv_timeout(LONG).expect("it goes off");
    }

    #[test]
    fn an_alarm_is_heard_outside_of_runtimes_if_no_other_place_does() {
        let (line, heard) = line();
        let clock = TokioClock::new();
        let mut alarm = clock.alarm(Arc::downgrade(&line));
        alarm.set(clock.now());
        assert!(alarm.timer_task(false).is_none(), "not a task, but the thread");
        heard.recv_timeout(LONG).expect("it goes off");
    }

    fn paused() -> tokio::runtime::Runtime {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().expect("a runtime")
    }

    #[test]
    fn paused_time_does_not_stop_at_an_alarm_that_was_unset() {
        let (line, heard) = line();
        paused().block_on(async {
            let clock = TokioClock::new();
            let mut alarm = clock.alarm(Arc::downgrade(&line));
            alarm.timer_task(true).expect("a task").start();
            alarm.set(clock.now().saturating_add(LONG));
            tokio::time::sleep(LONG / 2).await;
            alarm.unset();
            tokio::time::sleep(LONG).await;
            heard.try_recv().expect_err("it was unset");
            drop(alarm);
            tokio::task::yield_now().await;
            assert_eq!(Handle::current().metrics().num_alive_tasks(), 0, "the limiter is gone");
        });
    }

    #[test]
    fn a_runtime_that_ends_keeps_no_other_from_its_alarm() {
        let (line, heard) = line();
        let [first, second] = [paused(), paused()];
        let clock = second.block_on(async { TokioClock::new() });
        let mut alarm = clock.alarm(Arc::downgrade(&line));
        for runtime in [&first, &second] {
            runtime.block_on(async {
                alarm.timer_task(true).expect("a task").start();
                tokio::task::yield_now().await;
            });
        }
        drop(first);
        second.block_on(async {
            alarm.set(clock.now().saturating_add(LONG));
            tokio::time::sleep(2 * LONG).await;
        });
        heard.try_recv().expect("it goes off");
    }

    #[test]
    fn a_runtime_with_paused_time_has_one_task_which_sleeps_only_for_a_known_time() {
        let (line, heard) = line();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let alarms = Handle::current();
            let alarms = alarms.metrics();
            let clock = TokioClock::new();
            let mut alarm = clock.alarm(Arc::downgrade(&line));
            alarm.timer_task(true).expect("a task").start();
            assert!(alarm.timer_task(true).is_none());
            tokio::task::yield_now().await;
            assert_eq!(alarms.num_alive_tasks(), 1);
            heard.try_recv().expect_err("the time is unknown");
            alarm.set(clock.now());
            while heard.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
            alarm.unset();
            tokio::task::yield_now().await;
            assert_eq!(alarms.num_alive_tasks(), 1);
            alarm.rest();
            while alarms.num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
            heard.try_recv().expect_err("once is enough");
        });
    }
}
