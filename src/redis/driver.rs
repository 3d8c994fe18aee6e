//! The task that sends the requests of a key, and the way into its queue that starts it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::connection::{Connection, Request};
use super::line::KeyLine;
use super::line::flight::{RequestEnd, Step};
use super::script::{Scripted, script};
use super::shared::SharedKey;
use crate::clock::OnAlarm;
use crate::limiter::Limiter;
use crate::wait_queue::End;

impl<P: Scripted, C: Connection> SharedKey<P, C> {
    /// Locks the line, lets time pass, runs `act`, and does what follows from it. All changes of the line
    /// come this way.
    pub(super) fn with_lock<R>(&self, act: impl FnOnce(&mut KeyLine<P>) -> R) -> R {
        let (result, driver) = self.act(false, act);
        if let Some(driver) = driver {
            self.core.connection.spawn(Box::pin(driver.drive()));
        }
        result
    }

    /// As [`KeyLine::close`], of the local limiter as well.
    pub(super) fn end(&self, end: End<'_>) -> bool {
        let (context, key) = (&self.core.context, &self.key);
        let local = || self.core.local.as_ref().is_none_or(|local| local.at(key).end(end));
        let answer = context.options.clock.ask(|| self.with_lock(|line| line.close(end)));
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
        let after_unlock = line.arm(|| self.alarm());
        // A caller that waits for a change does not move a clock that advances by itself.
        let clock = &self.core.context.options.clock;
        let moves = clock.advances_by_itself() && line.has_changes();
        let due = moves.then(|| line.moves_at()).flatten();
        self.unlock(line, after_unlock);
        if let Some(due) = due {
            clock.skip_to(due);
        }
        (result, driver)
    }

    /// Takes the next request, if one is due. Its driver ends it even if a waker or listener panics.
    fn driver(&self, line: &mut KeyLine<P>) -> Option<Driver<P, C>> {
        let flight = Some(line.next()?);
        let shared = self.this.upgrade().expect("borrowed from its owner");
        Some(Driver { shared, flight })
    }

    fn request(&self, arguments: Vec<Vec<u8>>) -> Request {
        let deadline = self.core.context.options.deadline;
        Request::new(script(), Arc::clone(&self.key), arguments, deadline)
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
        let mut slot = None;
        while let Some(flight) = self.flight {
            // If this task begins too late, another is spawned for the next request.
            let step = shared.with_lock(|line| line.begin(flight, slot.take()));
            let (_, next) = match step {
                Step::Send(arguments, idle) => {
                    let mut request = shared.request(arguments);
                    request.idle = idle;
                    shared.core.context.counters.requests.add(1);
                    let outcome = shared.core.connection.run(&request).await;
                    let end = outcome.map_or_else(RequestEnd::Failed, RequestEnd::Replied);
                    shared.act(true, |line| line.land(flight, end))
                }
                Step::WaitForSlot(slots) => {
                    slot = slots.acquire_owned().await.ok();
                    shared.act(false, |line| line.free(flight))
                }
                Step::Next => shared.act(false, |line| line.free(flight)),
            };
            self.flight = next.and_then(|mut next| next.flight.take());
        }
    }
}

/// The task has ended early, by a panic or because there is no thread for it: another goes on.
impl<P: Scripted, C: Connection> Drop for Driver<P, C> {
    fn drop(&mut self) {
        let Some(flight) = self.flight.take() else { return };
        // A second panic would end the process.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.shared.with_lock(|line| line.abandon(flight));
        }));
    }
}
