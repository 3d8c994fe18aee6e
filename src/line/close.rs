//! The end of a line.

use super::Line;
use super::inner::Inner;
use crate::error::Error;
use crate::policy::Policy;
use crate::units::Nanos;
use crate::wait_queue::End;

impl<P: Policy> Line<P> {
    /// As `Inner::end`.
    pub(crate) fn end(&self, end: End<'_>) -> bool {
        self.clock.ask(|| self.with_lock(|inner, now| inner.end(now, end)))
    }
}

impl<P: Policy> Inner<P> {
    /// Whether no caller waits and no place in flight is held.
    fn is_drained(&self) -> bool {
        self.queue_len() == 0 && (!P::HELD || self.policy.idle_at(&self.state).is_some())
    }

    pub(super) fn wake_if_drained(&mut self) {
        if self.is_closed() && self.is_drained() {
            self.waiting().queue.wake_drained();
        }
    }

    /// `Err`: not yet, and when the line moves next, if that is known.
    pub(crate) fn end(&mut self, now: Nanos, end: End<'_>) -> Result<bool, Option<Nanos>> {
        match end {
            End::IsClosed => return Ok(self.is_closed()),
            End::IsDrained(_) if self.is_drained() => {}
            End::IsDrained(waker) => {
                let waiting = self.waiting();
                waiting.queue.keep_until_drained(waker);
                return Err(waiting.next_event());
            }
            End::Serve => self.waiting().queue.is_closed = true,
            End::Close => {
                self.waiting().queue.is_closed = true;
                while let Some(key) = self.waiting().queue.front() {
                    self.turn_away(key, now);
                    self.waiting().finish(key, Err(Error::Closed));
                }
            }
        }
        Ok(true)
    }
}
