//! Tokio's clock, and the task that ends its waits.
//!
//! Paused time moves only by tokio's own timers, so a wait needs one of those: a task, the *timer task*,
//! that sleeps until the alarm and then calls the limiter. Each runtime with waiters has one, so that a stopped
//! runtime does not delay waiters in another.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until};

use super::alarm::{OnAlarm, TimedAlarm};
use super::rounds::Slack;
use super::system::{System, SystemAlarms};
use crate::units::Nanos;

#[derive(Clone, Debug)]
pub(super) struct TokioClock {
    origin: Instant,
}

impl TokioClock {
    pub(super) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    pub(super) fn now(&self) -> Nanos {
        // Never a panic: a clock made outside may be ahead of a runtime whose time is paused.
        Nanos::ZERO.saturating_add(Instant::now().saturating_duration_since(self.origin))
    }

    pub(super) fn alarm(&self, line: Weak<dyn OnAlarm>) -> TokioAlarm {
        let outside = TimedAlarm::new(
            SystemAlarms { system: System::get(), slack: Slack::AUTO },
            line.clone(),
        );
        let shared = Arc::new(Shared { line, clock: self.clone(), state: Mutex::default() });
        TokioAlarm { shared, outside, outside_due: Nanos::ZERO }
    }
}

/// The alarm of one limiter.
#[derive(Debug)]
pub(crate) struct TokioAlarm {
    shared: Arc<Shared>,
    /// For waiters outside any runtime: time is never paused there.
    outside: TimedAlarm<SystemAlarms>,
    /// The time for which `outside` was set last, by tokio's clock.
    outside_due: Nanos,
}

#[derive(Debug)]
struct Shared {
    line: Weak<dyn OnAlarm>,
    clock: TokioClock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    due: Option<Nanos>,
    tasks: Vec<(Id, Option<Waker>)>,
    /// Runtimes that dropped a task: they are shutting down.
    ended: Vec<Id>,
}

const MOST_ENDED: usize = 16;

impl TokioAlarm {
    pub(super) fn set(&mut self, due: Nanos) {
        self.change(Some(due));
    }

    /// No caller waits: the tasks end. A timer that went on sleeping would move paused time.
    pub(super) fn rest(&mut self) {
        self.change(None);
    }

    fn change(&self, due: Option<Nanos>) {
        let wakers: Vec<_> = {
            let mut state = self.shared.state.lock();
            state.due = due;
            state.tasks.iter_mut().filter_map(|(_, waker)| waker.take()).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// A task for the current runtime, if it has none. Outside any runtime, or in one that shuts down, the
    /// system clock's thread calls the limiter at `due`.
    pub(super) fn timer_task(&mut self, due: Nanos) -> Option<TimerTask> {
        let mut state = self.shared.state.lock();
        let Some(id) = running().filter(|id| !state.ended.contains(id)) else {
            drop(state);
            let now = self.shared.clock.now();
            if due < self.outside_due || self.outside_due <= now {
                self.outside_due = due;
                self.outside.set(System::get().now().saturating_add(due.since(now)));
            }
            return None;
        };
        if state.due.is_none() || state.tasks.iter().any(|&(other, _)| other == id) {
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

fn running() -> Option<Id> {
    Handle::try_current().ok().map(|handle| handle.id())
}

/// The task that calls a limiter at its alarm, until no caller waits there.
pub(crate) struct TimerTask {
    id: Id,
    shared: Arc<Shared>,
    sleep: Option<Pin<Box<Sleep>>>,
    over: bool,
}

impl TimerTask {
    pub(crate) fn start(self) {
        // Dropping the handle detaches the task. If the runtime has ended meanwhile, `Drop` below does the
        // rest.
        if let Ok(handle) = Handle::try_current() {
            drop(handle.spawn(self));
        }
    }

    /// The next alarm; `None` ends this task.
    fn due(&mut self, waker: &Waker) -> Option<Nanos> {
        let mut state = self.shared.state.lock();
        if state.due.is_none() {
            state.tasks.retain(|&(id, _)| id != self.id);
            self.over = true;
        } else if let Some((_, entry)) = state.tasks.iter_mut().find(|(id, _)| *id == self.id) {
            *entry = Some(waker.clone());
        }
        state.due
    }
}

impl Future for TimerTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        while let Some(due) = self.due(context.waker()) {
            // Rounded up by tokio to its tick of a millisecond: late, never early.
            let time = due.min(Nanos::END).since(Nanos::ZERO);
            let deadline = self.shared.clock.origin + time;
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            sleep.as_mut().reset(deadline);
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            if let Some(line) = self.shared.line.upgrade() {
                line.on_alarm();
            }
            // If callers still wait, the alarm is now set for later.
            self.shared.state.lock().due.take_if(|latest| *latest == due);
        }
        Poll::Ready(())
    }
}

/// The runtime shuts down: waiters in other runtimes must not depend on it.
impl Drop for TimerTask {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        {
            let mut state = self.shared.state.lock();
            state.tasks.retain(|&(id, _)| id != self.id);
            // Callers still inside a runtime that shuts down must not start another task there. Only the latest
            // few matter: later no caller is left inside.
            state.ended.truncate(MOST_ENDED - 1);
            state.ended.insert(0, self.id);
        }
        if let Some(line) = self.shared.line.upgrade() {
            line.wake_all();
        }
    }
}
