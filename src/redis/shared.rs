//! The lines of all keys, one key with its connection, and the task that sends its requests.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::connection::Connection;
use super::context::Context;
use super::line::{KeyLine, UNUSED};
use super::script::Scripted;
use crate::clock::{AfterUnlock, Alarm, OnAlarm};
use crate::limiter::Limiter;
use crate::stats::Stats;
use crate::sync::Mutex;
use crate::unwinding::in_drop;
use crate::wait_queue::End;

/// The lines of all keys.
pub(super) struct Keys<P: Scripted, C> {
    connection: C,
    pub(super) context: Arc<Context<P>>,
    lines: Mutex<Lines<P, C>>,
    this: Weak<Self>,
}

struct Lines<P: Scripted, C> {
    by_key: HashMap<Arc<str>, Arc<SharedKey<P, C>>>,
    /// All of them, in the order in which they are looked at next.
    round: VecDeque<Arc<SharedKey<P, C>>>,
    /// The counts of those that were dropped.
    dropped: Stats,
    /// New ones are closed.
    is_closed: bool,
    /// Goes off so that lines go without calls, and whether it is set.
    alarm: Option<Alarm>,
    is_armed: bool,
}

/// How many lines the alarm looks at.
const STEP: usize = 1024;

impl<P: Scripted, C: Connection> Keys<P, C> {
    pub(super) fn new(connection: C, context: Arc<Context<P>>) -> Arc<Self> {
        let (by_key, round, dropped, is_closed, alarm, is_armed) = Default::default();
        let lines = Mutex::new(Lines { by_key, round, dropped, is_closed, alarm, is_armed });
        Arc::new_cyclic(|this: &Weak<Self>| Self { connection, context, lines, this: this.clone() })
    }

    fn set_alarm(&self, lines: &mut Lines<P, C>, after: Duration) {
        let clock = &self.context.clock;
        // One key is the limiter's own.
        lines.is_armed = lines.round.len() > 1 && clock.sounds_without_callers();
        if lines.is_armed {
            let due = clock.now().saturating_add(after);
            // If a manual clock was moved past it just now, calls drop lines, or the next alarm.
            let _ = lines.alarm.get_or_insert_with(|| clock.alarm(self.this.clone())).set(due);
        }
    }

    /// The line of a key.
    pub(super) fn of(&self, key: Arc<str>) -> Arc<SharedKey<P, C>> {
        let mut lines = self.lines.lock();
        // Two, as there may be a new one.
        for _ in 0..2 {
            lines.look_at_next();
        }
        let line = lines.by_key.get(&key).cloned().unwrap_or_else(|| {
            let (connection, context) = (self.connection.clone(), Arc::clone(&self.context));
            let line = SharedKey::new(connection, context, Arc::clone(&key));
            if lines.is_closed {
                line.line.lock().roster.queue.is_closed = true;
            }
            lines.by_key.insert(key, Arc::clone(&line));
            lines.round.push_back(Arc::clone(&line));
            line
        });
        if !lines.is_armed {
            self.set_alarm(&mut lines, UNUSED);
        }
        line
    }

    pub(super) fn len(&self) -> usize {
        self.lines.lock().by_key.len()
    }

    /// Those in memory.
    pub(super) fn all(&self) -> Vec<Arc<SharedKey<P, C>>> {
        self.lines.lock().round.iter().cloned().collect()
    }

    /// Closes all keys, those that come later included. Returns those in memory.
    pub(super) fn close(&self, end: End<'_>) -> Vec<Arc<SharedKey<P, C>>> {
        self.lines.lock().is_closed = true;
        let keys = self.all();
        keys.iter().for_each(|key| _ = key.end(end));
        keys
    }

    /// The counts of all keys, and their waiters.
    pub(super) fn total(&self) -> (Stats, usize) {
        let lines = self.lines.lock();
        let stats = lines.dropped.clone().with(&self.context.observer.waits);
        lines.round.iter().fold((stats, 0), |(mut stats, waiting), key| {
            let line = key.line.lock();
            stats.add(line.stats.clone());
            (stats, waiting + line.roster.len())
        })
    }
}

impl<P: Scripted, C: Connection> OnAlarm for Keys<P, C> {
    fn on_alarm(self: Arc<Self>, _: &mut AfterUnlock) -> usize {
        let mut lines = self.lines.lock();
        let most = lines.round.len().min(STEP);
        let dropped = (0..most).filter(|_| lines.look_at_next()).count();
        self.set_alarm(&mut lines, if dropped > 0 { Duration::ZERO } else { UNUSED });
        0
    }
}

impl<P: Scripted, C: Connection> Lines<P, C> {
    /// Drops the next line in the round unless it is in use. Returns whether it did.
    fn look_at_next(&mut self) -> bool {
        let Some(line) = self.round.pop_front() else { return false };
        // Here, and by its key.
        if Arc::strong_count(&line) > 2 || !line.line.lock().is_quiet(self.is_closed) {
            self.round.push_back(line);
            return false;
        }
        self.by_key.remove(&line.key);
        self.dropped.add(line.line.lock().stats.clone());
        if self.round.len() < self.round.capacity() / 8 {
            self.by_key.shrink_to(2 * self.round.len());
            self.round.shrink_to(2 * self.round.len());
        }
        true
    }
}

/// One key.
pub(super) struct SharedKey<P: Scripted, C> {
    pub(super) connection: C,
    pub(super) context: Arc<Context<P>>,
    pub(super) key: Arc<str>,
    pub(super) line: Mutex<KeyLine<P>>,
    pub(super) this: Weak<Self>,
}

impl<P: Scripted, C: Connection> SharedKey<P, C> {
    fn new(connection: C, context: Arc<Context<P>>, key: Arc<str>) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let line = KeyLine::new(Arc::clone(&key), Arc::clone(&context));
            Self { connection, context, key, line: Mutex::new(line), this: this.clone() }
        })
    }

    /// Counts what happened outside the line.
    pub(super) fn count(&self, count: impl FnOnce(&mut Stats)) {
        count(&mut self.line.lock().stats);
    }

    /// Whether callers are served without Redis, for this key or for all.
    pub(super) fn is_away(&self) -> bool {
        self.context.health.down().is_some() || {
            let mut line = self.line.lock();
            line.read_clock();
            line.is_away()
        }
    }

    /// Locks the line, lets time pass, runs `act`, and does what follows from it. All changes of the line
    /// come this way.
    pub(super) fn with_lock<R>(&self, act: impl FnOnce(&mut KeyLine<P>) -> R) -> R {
        self.lock_and_send(act).0
    }

    /// The same. Returns also whether a request was sent, which a connection may have answered at once.
    pub(super) fn lock_and_send<R>(&self, act: impl FnOnce(&mut KeyLine<P>) -> R) -> (R, bool) {
        let (result, driver) = self.act(false, act);
        let is_sent = driver.is_some();
        if let Some(driver) = driver {
            self.connection.spawn(Box::pin(driver.drive()));
        }
        (result, is_sent)
    }

    /// As [`KeyLine::close`], of the local limiter as well.
    pub(super) fn end(&self, end: End<'_>) -> bool {
        let (clock, key) = (&self.context.clock, &self.key);
        let local = || self.context.local.as_ref().is_none_or(|local| local.at(key).end(end));
        let answer = clock.ask(|| self.with_lock(|line| line.close(end)));
        answer && (matches!(end, End::IsClosed) || local())
    }

    /// `lands`: whether `act` ends the request in flight. A reply that is late, but here, counts.
    fn act<R>(
        &self,
        lands: bool,
        act: impl FnOnce(&mut KeyLine<P>) -> R,
    ) -> (R, Option<Driver<P, C>>) {
        let mut line = self.line.lock();
        line.read_clock();
        if !lands {
            line.give_up_on_flight();
        }
        line.pump();
        let result = act(&mut line);
        line.give_up_on_flight();
        line.pump();
        // The task for the next request, if one is due.
        let driver = line.take_off().map(|flight| {
            let shared = self.this.upgrade().expect("borrowed from its owner");
            Driver { shared, flight: Some(flight) }
        });
        line.hold_back(lands);
        line.wake_if_drained();
        let clock = &self.context.clock;
        let after_unlock = line.arm(|| clock.alarm(self.this.clone()));
        // A caller that waits for a change does not move a clock that advances by itself.
        let moves = clock.advances_by_itself() && !line.outbox.is_empty();
        let due = moves.then(|| line.moves_at()).flatten();
        let events = std::mem::take(&mut line.events);
        drop(line);
        // The listener runs before the callers of the same request wake up; they do even if it panics.
        let observer = &self.context.observer;
        let told = catch_unwind(AssertUnwindSafe(|| {
            events.iter().for_each(|event| observer.report(event));
        }));
        after_unlock.run();
        if let Err(panic) = told {
            resume_unwind(panic);
        }
        if let Some(due) = due {
            clock.skip_to(due);
        }
        (result, driver)
    }
}

impl<P: Scripted, C: Connection> OnAlarm for SharedKey<P, C> {
    fn on_alarm(self: Arc<Self>, _: &mut AfterUnlock) -> usize {
        self.with_lock(|line| line.roster.queue.disarm());
        0
    }

    fn wake_all(self: Arc<Self>) {
        self.with_lock(|line| line.forget_alarm());
    }
}

/// Sends one request after the other until none is due. It ends the flight even if a waker or listener panics.
struct Driver<P: Scripted, C: Connection> {
    shared: Arc<SharedKey<P, C>>,
    /// The number of its flight; `None` when it is done.
    flight: Option<u64>,
}

impl<P: Scripted, C: Connection> Driver<P, C> {
    async fn drive(mut self) {
        let shared = Arc::clone(&self.shared);
        while let Some(flight) = self.flight {
            // If there is nothing to send any more, another task is spawned for the next request.
            let Some(request) = shared.with_lock(|line| line.begin(flight)) else { break };
            let end = shared.connection.run(&request).await;
            let next = shared.act(true, |line| line.land(flight, end)).1;
            self.flight = next.and_then(|mut next| next.flight.take());
        }
    }
}

/// The task has ended early, by a panic or because there is no thread for it: another goes on.
impl<P: Scripted, C: Connection> Drop for Driver<P, C> {
    fn drop(&mut self) {
        let Some(flight) = self.flight.take() else { return };
        in_drop(|| self.shared.with_lock(|line| line.abandon(flight)));
    }
}
