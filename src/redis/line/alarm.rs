//! When the queue of a key moves next by itself.

use super::KeyLine;
use crate::clock::Alarm;
use crate::redis::context::Context;
use crate::redis::health::State;
use crate::redis::script::Scripted;
use crate::units::Nanos;
use crate::wait_queue::AfterUnlock;

impl<P: Scripted> KeyLine<P> {
    /// When the line may move by itself: with a request in flight not before the reply.
    pub(crate) fn moves_at(&self, context: &Context<P>, now: Nanos) -> Option<Nanos> {
        if self.flight.is_some() { None } else { self.next_alarm(context, now) }
    }

    /// When the next waiter is granted or refused by itself.
    fn next_turn(&self) -> Option<Nanos> {
        let booking = self.front_booking().map(|booking| booking.due);
        let deadline = self.queue.first_deadline().map(|(deadline, _)| deadline);
        booking.into_iter().chain(deadline).chain(self.spare_until()).min()
    }

    /// The same as long as Redis is there.
    fn next_event(&self) -> Option<Nanos> {
        let ask = self.asks_at().filter(|_| self.flight.is_none() && self.head.is_some());
        let renew = self.lease.renew_at.filter(|_| self.flight.is_none());
        self.next_turn().into_iter().chain(ask).chain(renew).min()
    }

    /// When the line moves next by itself.
    fn next_alarm(&self, context: &Context<P>, now: Nanos) -> Option<Nanos> {
        let (state, failing) = (context.health.state(), &self.failing);
        if state == State::Up && failing.is_none() {
            return self.next_event();
        }
        // Another key may find out that Redis is back, but not whether this key can be reached.
        let is_needed = self.waiting > 0 || !self.changes.is_empty();
        let fails = failing.is_some();
        let has_business =
            is_needed || fails || self.lease.released || self.lease.renew_at.is_some();
        let own = failing.as_ref().map(|failing| failing.outage.retry_at);
        let again = match state {
            State::Up => own,
            // Not before both allow it.
            State::Doubtful => {
                let again = context.health.again(now, has_business, fails);
                again.map(|at| own.unwrap_or(at).max(at))
            }
            State::Down => context.health.again(now, has_business, fails),
        };
        let again = again.filter(|_| self.flight.is_none());
        let until = failing.as_ref().map(|failing| failing.outage.until);
        let until = until.filter(|&at| at > now && is_needed);
        self.next_turn().into_iter().chain(again).chain(until).min()
    }

    /// Sets the alarm for the next event. Returns what is left to do after the lock is released.
    pub(crate) fn arm(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        alarm: impl FnOnce() -> Alarm,
    ) -> AfterUnlock {
        let overdue = self.overdue_at(context, now);
        let due = self.next_alarm(context, now).into_iter().chain(overdue).min();
        if due.is_some() && context.options.clock.advances_by_itself() && self.flight.is_none() {
            // The first waiter that sees how long it has to wait moves the clock.
            self.queue.wake_all();
        }
        let timer_task = self.queue.arm(due, now, alarm);
        self.queue.after_unlock(timer_task)
    }

    /// The alarm went off: it has to be set again.
    pub(crate) fn disarm(&mut self) {
        self.queue.disarm();
    }

    /// Of the callers that a reply has served only the first is woken, and wakes the others: waking another
    /// thread costs much more than waking a task of one's own runtime. If it does not come soon, the alarm does.
    pub(crate) fn hold_back(&mut self, lands: bool, now: Nanos) {
        if lands && now < self.collect_until {
            self.queue.hold_back();
        } else {
            self.queue.wake_held_back();
        }
    }

    /// Wakes the callers that were held back, if there are any.
    pub(crate) fn wake_held_back(&mut self) -> Option<AfterUnlock> {
        let holds_back = self.queue.holds_back();
        holds_back.then(|| {
            self.queue.wake_held_back();
            self.queue.after_unlock(None)
        })
    }

    /// The alarm cannot be relied on: wakes all waiters, which then check for themselves.
    pub(crate) fn forget_alarm(&mut self) {
        self.queue.forget_alarm();
    }
}
