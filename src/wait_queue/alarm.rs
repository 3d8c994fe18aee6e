//! The wakers of a queue, and its alarm.

use std::mem;
use std::task::Waker;

use super::wakers::{AfterUnlock, WakeList, Wakers};
use super::{NEVER, WaitQueue, WaiterId, Waits};
use crate::clock::{Alarm, TimerTask};
use crate::units::Nanos;

impl<T: Waits> WaitQueue<T> {
    /// A caller that waits for something else of the owner, and is no waiter, is here.
    #[cfg(feature = "redis")]
    pub(crate) fn note_caller(&mut self) {
        self.wakers.polled_since_armed = true;
    }

    /// Keeps the waker to be called for a waiter, instead of the last one.
    pub(crate) fn keep_waker(&mut self, id: WaiterId, waker: &Waker) {
        self.wakers.polled_since_armed = true;
        let kept = &mut self.entries[id.place()].waker;
        if !kept.will_wake(waker) {
            self.wakers.discard.push(mem::replace(kept, waker.clone()));
        }
    }

    /// Drops the waker of a waiter that will not be woken.
    #[cfg(feature = "redis")]
    pub(crate) fn drop_waker(&mut self, id: WaiterId) {
        let waker = self.take_waker(id);
        self.wakers.discard(waker);
    }

    fn take_waker(&mut self, id: WaiterId) -> Waker {
        mem::replace(&mut self.entries[id.place()].waker, Waker::noop().clone())
    }

    /// Wakes a waiter after the lock is released.
    pub(crate) fn wake(&mut self, id: WaiterId) {
        let waker = self.take_waker(id);
        if !waker.will_wake(Waker::noop()) {
            self.wakers.wake.push(waker);
        }
    }

    /// Wakes all waiters after the lock is released, and keeps their wakers.
    pub(crate) fn wake_all(&mut self) {
        let wakers = self.ahead_of(None).map(|id| self.entries[id.place()].waker.clone());
        let wakers: WakeList = wakers.collect();
        self.wakers.wake.extend(wakers);
    }

    /// Keeps the waker of a caller that waits until all others are served.
    pub(crate) fn keep_until_drained(&mut self, waker: &Waker) {
        self.wakers.polled_since_armed = true;
        let draining = &mut self.wakers.draining;
        if !draining.iter().any(|kept| kept.will_wake(waker)) {
            draining.push(waker.clone());
        }
    }

    /// Wakes such callers after the lock is released.
    pub(crate) fn wake_drained(&mut self) {
        self.wakers.wake.extend(self.wakers.draining.drain(..));
    }

    /// Holds back all wakers but the first.
    #[cfg(feature = "redis")]
    pub(crate) fn hold_back(&mut self) {
        let Wakers { wake, deferred, .. } = &mut self.wakers;
        deferred.extend(wake.drain(wake.len().min(1)..));
    }

    #[cfg(feature = "redis")]
    pub(crate) fn holds_back(&self) -> bool {
        !self.wakers.deferred.is_empty()
    }

    /// Wakes those that were held back after the lock is released.
    #[cfg(feature = "redis")]
    pub(crate) fn wake_held_back(&mut self) {
        self.wakers.wake.extend(self.wakers.deferred.drain(..));
    }

    /// Sets the alarm for `due`, unless it is set for an earlier time: an early alarm is harmless, and to set it
    /// at each departure would cost more. `None`: nothing is due at a known time. `now`: as the owner has read it.
    pub(crate) fn arm(
        &mut self,
        due: Option<Nanos>,
        now: Nanos,
        alarm: impl FnOnce() -> Alarm,
    ) -> Option<TimerTask> {
        let is_empty = self.len == 0;
        let wakers = &mut self.wakers;
        let was_polled = mem::take(&mut wakers.polled_since_armed);
        let no_next_event = !is_empty && due.is_none_or(|due| due > Nanos::END);
        let had_none = mem::replace(&mut wakers.no_next_event, no_next_event);
        let Some(due) = due else {
            let unset = |alarm: &mut Alarm| if is_empty { alarm.rest() } else { alarm.unset() };
            if (is_empty || wakers.armed != NEVER) && wakers.alarm.as_mut().is_some_and(unset) {
                wakers.armed = NEVER;
            }
            // A caller that comes later, in another place, may make the time known.
            let waits_here = was_polled && !is_empty;
            let alarm = waits_here.then(|| wakers.alarm.get_or_insert_with(alarm));
            return alarm.and_then(|alarm| alarm.timer_task(true, false));
        };
        let alarm = wakers.alarm.get_or_insert_with(alarm);
        let is_earlier = due < wakers.armed;
        // What was due before `now` is for the owner to see.
        let is_missed = is_earlier && alarm.set(due) && due > now;
        wakers.armed = wakers.armed.min(due);
        let is_needed = is_earlier || was_polled;
        let task = is_needed.then(|| alarm.timer_task(was_polled, is_missed)).flatten();
        if had_none && !no_next_event && alarm.is_moved_by_callers() {
            self.wake_all();
        }
        task
    }

    /// The alarm went off.
    pub(crate) fn disarm(&mut self) {
        self.wakers.armed = NEVER;
    }

    /// The alarm cannot be relied on in some place: wakes all waiters, each of which looks for itself.
    pub(crate) fn forget_alarm(&mut self) {
        self.disarm();
        self.wake_all();
        self.wake_drained();
        // There may be none, but an owner that waits.
        self.wakers.polled_since_armed = true;
    }

    pub(crate) fn after_unlock(&mut self, timer_task: Option<TimerTask>) -> AfterUnlock {
        let Wakers { wake, discard, .. } = &mut self.wakers;
        // An empty list is not written, or the processor of the next caller would have to fetch it.
        let wake = if wake.is_empty() { WakeList::new() } else { mem::take(wake) };
        let discard = if discard.is_empty() { Vec::new() } else { mem::take(discard) };
        AfterUnlock { timer_task, wake, discard }
    }
}
