//! The task that sends the requests of a key, and the way into its queue that starts it.

use std::sync::Arc;
use std::task::{Poll, Waker};

use super::connection::{Connection, Request};
use super::line::KeyLine;
use super::line::request::{InFlightRequest, RequestEnd};
use super::line::waiter::Outcome;
use super::rules::Rules;
use super::script::Scripted;
use super::shared::SharedKey;
use crate::clock::OnAlarm;
use crate::units::Nanos;
use crate::wait_queue::WaiterId;

impl<P: Scripted, C: Connection> SharedKey<P, C> {
    /// Locks the line, lets time pass, runs `act`, and does what follows from it. All changes of the line
    /// come this way.
    pub(super) fn with_lock<R>(&self, act: impl FnOnce(&mut KeyLine<P>, Nanos) -> R) -> R {
        let (result, driver) = self.act(act);
        if let Some(driver) = driver {
            self.core.connection.spawn(&self.core.runtime, Box::pin(driver.drive()));
        }
        result
    }

    /// As [`KeyLine::poll`], and takes the outcome: under a lock of its own, because it would be lost if a
    /// listener panicked.
    pub(super) fn poll(
        &self,
        id: WaiterId,
        waiter: (bool, &Waker),
    ) -> Result<Option<Outcome>, Option<Nanos>> {
        let outcome = self.outcome(id);
        if outcome.is_some() {
            return Ok(outcome);
        }
        self.with_lock(|line, now| line.poll(&self.core.rules, now, id, waiter))?;
        Ok(self.outcome(id))
    }

    fn act<R>(&self, act: impl FnOnce(&mut KeyLine<P>, Nanos) -> R) -> (R, Option<Driver<P, C>>) {
        let rules = &self.core.rules;
        let mut line = self.line.lock();
        let now = line.time.read(rules.options.clock.now());
        line.pump(rules, now);
        let result = act(&mut line, now);
        line.pump(rules, now);
        let driver = self.driver(&mut line, now);
        let after_unlock = line.arm(rules, now, || self.alarm());
        // A caller that waits for a change does not move a clock that advances by itself.
        let moves = rules.options.clock.advances_by_itself() && !line.changes.is_empty();
        let due = moves.then(|| line.moves_at(rules, now)).flatten();
        self.unlock(line, after_unlock);
        if let Some(due) = due {
            rules.options.clock.skip_to(due);
        }
        (result, driver)
    }

    /// Takes the next request, if one is due. Its driver answers for it even if a waker or listener panics.
    fn driver(&self, line: &mut KeyLine<P>, now: Nanos) -> Option<Driver<P, C>> {
        if line.under_way {
            return None;
        }
        let shared = self.this.upgrade()?;
        let request = line.next(&self.core.rules, now)?;
        Some(Driver { shared, step: Step::Due(request) })
    }

    fn end(&self, request: InFlightRequest<P::Cost>, end: RequestEnd) {
        self.act(|line, now| line.end(&self.core.rules, now, request, end));
    }

    fn request(&self, request: &mut InFlightRequest<P::Cost>) -> Request {
        let Rules { scripts, options, .. } = &self.core.rules;
        let script = if request.is_take() { &scripts.take } else { &scripts.change };
        Request {
            script: Arc::clone(script),
            key: Arc::clone(&self.key),
            arguments: std::mem::take(&mut request.arguments),
            deadline: options.deadline,
        }
    }
}

impl<P: Scripted, C: Connection> OnAlarm for SharedKey<P, C> {
    fn on_alarm(&self) {
        self.with_lock(|line, _| line.disarm());
    }

    fn wake_all(&self) {
        self.with_lock(|line, _| {
            line.disarm();
            line.wake_all();
        });
    }
}

/// Sends one request after the other until none is due.
struct Driver<P: Scripted, C: Connection> {
    shared: Arc<SharedKey<P, C>>,
    step: Step<P::Cost>,
}

enum Step<C> {
    /// Nothing has been sent yet.
    Due(InFlightRequest<C>),
    InFlight(InFlightRequest<C>),
    /// Lets callers that were just served come again for the next request; or waits for a slot.
    Collecting,
    Done,
}

impl<P: Scripted, C: Connection> Driver<P, C> {
    fn take(&mut self, next: Step<P::Cost>) -> Step<P::Cost> {
        std::mem::replace(&mut self.step, next)
    }

    async fn drive(mut self) {
        let slots = Arc::clone(&self.shared.core.slots);
        let mut slot = None;
        while let Step::Due(mut request) = self.take(Step::Collecting) {
            slot = slot.or_else(|| Arc::clone(&slots).try_acquire_owned().ok());
            let core = &self.shared.core;
            if slot.is_none() {
                self.shared.end(request, RequestEnd::NoSlot);
                slot = Arc::clone(&slots).acquire_owned().await.ok();
            } else if core.rules.health.down().is_some() && !request.is_probe() {
                // Another key has found out while this one waited for the connection.
                self.shared.end(request, RequestEnd::Withdrawn);
            } else {
                let script = self.shared.request(&mut request);
                core.rules.counters.requests.add(1);
                self.step = Step::InFlight(request);
                let outcome = core.connection.run(&script).await;
                let end = outcome.map_or_else(RequestEnd::Failed, RequestEnd::Replied);
                if let Step::InFlight(request) = self.take(Step::Collecting) {
                    self.shared.end(request, end);
                }
                slot = None;
            }
            yield_now().await;
            let Self { shared, step } = &mut self;
            let next = shared.act(|line, _| {
                line.free();
                // If a listener panics now, another may be under way already.
                *step = Step::Done;
            });
            self.step = next.1.map_or(Step::Done, |mut next| next.take(Step::Done));
        }
        self.step = Step::Done;
    }
}

/// Lets other tasks run first.
async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The runtime has ended, with a request in flight or before the next: another task must go on.
impl<P: Scripted, C: Connection> Drop for Driver<P, C> {
    fn drop(&mut self) {
        let step = self.take(Step::Done);
        if matches!(step, Step::Done) {
            return;
        }
        let rules = &self.shared.core.rules;
        let mut line = self.shared.line.lock();
        let now = line.time.latest();
        match step {
            // Another task would only find the same runtime.
            Step::Due(request) => line.end(rules, now, request, RequestEnd::Unsent),
            Step::InFlight(request) => line.end(rules, now, request, RequestEnd::Abandoned),
            Step::Collecting | Step::Done => {}
        }
        line.free();
        // There may be no other task for these.
        line.refuse_changes();
        line.wake_all();
        let after_unlock = line.arm(rules, now, || self.shared.alarm());
        self.shared.unlock(line, after_unlock);
    }
}
