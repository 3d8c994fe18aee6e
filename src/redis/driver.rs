//! The task that sends the requests of a key, and the way into its queue that starts it.

use std::sync::Arc;

use super::connection::Connection;
use super::line::KeyLine;
use super::script::Scripted;
use super::shared::SharedKey;
use crate::clock::OnAlarm;
use crate::limiter::Limiter;
use crate::unwinding::in_drop;
use crate::wait_queue::End;

impl<P: Scripted, C: Connection> SharedKey<P, C> {
    /// Locks the line, lets time pass, runs `act`, and does what follows from it. All changes of the line
    /// come this way.
    pub(super) fn with_lock<R>(&self, act: impl FnOnce(&mut KeyLine<P>) -> R) -> R {
        let (result, driver) = self.act(false, act);
        if let Some(driver) = driver {
            self.connection.spawn(Box::pin(driver.drive()));
        }
        result
    }

    /// As [`KeyLine::close`], of the local limiter as well.
    pub(super) fn end(&self, end: End<'_>) -> bool {
        let (clock, key) = (&self.context.options.clock, &self.key);
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
        let driver = self.driver(&mut line);
        line.hold_back(lands);
        line.wake_if_drained();
        let clock = &self.context.options.clock;
        let after_unlock = line.arm(|| clock.alarm(self.this.clone()));
        // A caller that waits for a change does not move a clock that advances by itself.
        let moves = clock.advances_by_itself() && line.has_changes();
        let due = moves.then(|| line.moves_at()).flatten();
        self.unlock(line, after_unlock);
        if let Some(due) = due {
            clock.skip_to(due);
        }
        (result, driver)
    }

    /// The task for the next request, if one is due. It ends the flight even if a waker or listener panics.
    fn driver(&self, line: &mut KeyLine<P>) -> Option<Driver<P, C>> {
        let flight = Some(line.take_off()?);
        let shared = self.this.upgrade().expect("borrowed from its owner");
        Some(Driver { shared, flight })
    }
}

impl<P: Scripted, C: Connection> OnAlarm for SharedKey<P, C> {
    fn on_alarm(&self) {
        self.with_lock(|line| line.disarm());
    }

    fn wake_all(&self) {
        self.with_lock(|line| line.forget_alarm());
    }
}

/// Sends one request after the other until none is due.
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
