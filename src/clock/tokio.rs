//! Tokio's clock, and the tasks that end waits in paused time.
//!
//! A waiter depends on its own runtime at most. Time can be paused only in a current-thread runtime, and moves there only by
//! timers of that runtime. So each such runtime with waiters has a task of its own, the *timer task*, that sleeps until the
//! alarm and then calls the limiter. Everywhere else tokio's time is the system's, and the thread of the system's clock calls
//! the limiter. It does so only if there are waiters elsewhere: those in paused time are not decided by the system's time.

use std::sync::Weak;

use crate::sync::real::Mutex;
use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::alarm::{OnAlarm, TimerTask, sound};
use super::system::System;
use crate::units::Nanos;

#[derive(Clone, Copy)]
pub(super) struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    pub(super) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    #[inline(never)]
    pub(super) fn now(self) -> Nanos {
        // Never a panic: a clock made outside may be ahead of a runtime whose time is paused.
        Nanos::ZERO.saturating_add(Instant::now().saturating_duration_since(self.origin))
    }

    fn instant(self, time: Nanos) -> Instant {
        self.origin + time.min(Nanos::END).since(Nanos::ZERO)
    }

    /// What the system's clock shows at a time of this one, where this one shows the system's time. It may be early by
    /// microseconds: then the limiter sets its alarm again.
    pub(super) fn system_time(self, time: Nanos) -> Nanos {
        System::get().now().saturating_add(time.since(self.now()))
    }
}

/// What makes the alarm of one limiter go off where callers wait.
#[derive(Debug, Default)]
pub(super) struct TimerTasks {
    /// `None` as long as it is unknown. The tasks hear of each change, and end with this sender.
    pub(super) due: watch::Sender<Option<Nanos>>,
    /// The runtimes with a task.
    runtimes: Vec<Id>,
    /// Whether callers wait outside of these, by the alarm of the system's clock.
    pub(super) elsewhere: bool,
}

impl TimerTasks {
    /// Whether no caller waits.
    pub(super) fn is_resting(&self) -> bool {
        !self.elsewhere && self.runtimes.is_empty()
    }

    /// Sees to it that this place hears of the alarm if a caller `is_here`, or no other place does. Returns what starts a task.
    pub(super) fn start(
        &mut self,
        clock: TokioClock,
        line: &Weak<dyn OnAlarm>,
        is_here: bool,
    ) -> Option<TimerTask> {
        if !is_here && !self.is_resting() {
            return None;
        }
        let Some(id) = with_own_time() else {
            self.elsewhere = true;
            return None;
        };
        if self.runtimes.contains(&id) {
            return None;
        }
        self.runtimes.push(id);
        let task = Task { id, line: line.clone(), is_over: false };
        let task = task.run(clock, self.due.subscribe());
        // Dropping the handle detaches the task. If the runtime has ended meanwhile, its `Drop` does the rest.
        Some(Box::new(|| _ = Handle::try_current().map(|handle| handle.spawn(task))))
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
struct Task {
    id: Id,
    line: Weak<dyn OnAlarm>,
    is_over: bool,
}

impl Task {
    async fn run(mut self, clock: TokioClock, mut due: watch::Receiver<Option<Nanos>>) {
        while !self.is_over {
            let next = *due.borrow_and_update();
            let changed = match next {
                // Rounded up by tokio to its tick of a millisecond: late, never early.
                Some(next) => timeout_at(clock.instant(next), due.changed()).await.ok(),
                None => Some(due.changed().await),
            };
            let changed = match changed {
                Some(changed) => changed,
                None => {
                    sound(&self.line);
                    // It may go off elsewhere too, for nothing. Here it goes off again once it is set again.
                    due.changed().await
                }
            };
            self.is_over = changed.is_err();
        }
    }
}

/// The runtime shuts down or has no timers: waiters within it, or elsewhere, must not depend on it.
impl Drop for Task {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        {
            let mut without_tasks = WITHOUT_TASKS.lock();
            without_tasks.retain(|&id| id != self.id);
            without_tasks.truncate(MOST_WITHOUT_TASKS - 1);
            without_tasks.insert(0, self.id);
        }
        if let Some(line) = self.line.upgrade() {
            line.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;
    use crate::clock::{AfterUnlock, Clock};

    const LONG: Duration = Duration::from_secs(60);

    /// Says which alarm has gone off.
    struct Line(Sender<()>);

    impl OnAlarm for Line {
        fn on_alarm(self: Arc<Self>, _: &mut AfterUnlock) -> usize {
            let _ = self.0.send(());
            0
        }
    }

    /// A limiter, and what is heard of its alarms.
    fn line() -> (Arc<dyn OnAlarm>, Receiver<()>) {
        let (goes_off, heard) = channel();
        (Arc::new(Line(goes_off)), heard)
    }

    #[test]
    fn an_alarm_outside_of_runtimes_is_set_as_often_as_the_limiter_sets_it() {
        let (line, heard) = line();
        let clock = Clock::tokio();
        let mut alarm = clock.alarm(Arc::downgrade(&line));
        assert!(alarm.timer_task(true).is_none());
        // It may have gone off too early: then the limiter sets it again, for the same time.
        let due = clock.now();
        for _ in 0..3 {
            alarm.set(due);
            heard.recv_timeout(LONG).expect("it goes off");
        }
        alarm.unset(true, true);
        alarm.set(due);
        heard.recv_timeout(Duration::from_millis(20)).expect_err("no caller is there");
        // The next caller has the alarm that is set.
        assert!(alarm.timer_task(true).is_none());
        heard.recv_timeout(LONG).expect("it goes off");
    }

    #[test]
    fn an_alarm_is_heard_outside_of_runtimes_if_no_other_place_does() {
        let (line, heard) = line();
        let clock = Clock::tokio();
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
            let clock = Clock::tokio();
            let mut alarm = clock.alarm(Arc::downgrade(&line));
            alarm.timer_task(true).expect("a task")();
            alarm.set(clock.now().saturating_add(LONG));
            tokio::time::sleep(LONG / 2).await;
            alarm.unset(false, true);
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
        let clock = second.block_on(async { Clock::tokio() });
        let mut alarm = clock.alarm(Arc::downgrade(&line));
        for runtime in [&first, &second] {
            runtime.block_on(async {
                alarm.timer_task(true).expect("a task")();
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
            let clock = Clock::tokio();
            let mut alarm = clock.alarm(Arc::downgrade(&line));
            alarm.timer_task(true).expect("a task")();
            assert!(alarm.timer_task(true).is_none());
            tokio::task::yield_now().await;
            assert_eq!(alarms.num_alive_tasks(), 1);
            heard.try_recv().expect_err("the time is unknown");
            alarm.set(clock.now());
            while heard.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
            alarm.unset(false, true);
            tokio::task::yield_now().await;
            assert_eq!(alarms.num_alive_tasks(), 1);
            alarm.unset(true, true);
            while alarms.num_alive_tasks() > 0 {
                tokio::task::yield_now().await;
            }
            heard.try_recv().expect_err("once is enough");
        });
    }
}
