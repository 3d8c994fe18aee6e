//! The end of the line in this process.

use super::KeyLine;
use super::waiter::Outcome;
use crate::error::Error;
use crate::redis::script::Scripted;
use crate::units::Nanos;
use crate::wait_queue::End;

impl<P: Scripted> KeyLine<P> {
    pub(crate) fn is_closed(&self) -> bool {
        self.roster.queue.is_closed
    }

    /// Whether no caller waits and this process holds no place in flight.
    fn is_drained(&self) -> bool {
        self.roster.waiting == 0
            && self.roster.front_booking().is_none()
            && self.lease.holds_nothing()
    }

    /// `Err`: not yet, and when the line moves next, if that is known.
    pub(crate) fn close(&mut self, end: End<'_>) -> Result<bool, Option<Nanos>> {
        match end {
            End::IsClosed => return Ok(self.is_closed()),
            End::IsDrained(_) if self.is_drained() => {}
            End::IsDrained(waker) => {
                self.roster.queue.keep_until_drained(waker);
                return Err(self.moves_at());
            }
            End::Serve => self.roster.queue.is_closed = true,
            End::Close => {
                self.roster.queue.is_closed = true;
                self.return_bookings();
                let waiting: Vec<_> = self.roster.unanswered().collect();
                for id in waiting {
                    self.turn_away(id, Outcome::Refused(Error::Closed));
                }
            }
        }
        Ok(true)
    }

    pub(crate) fn wake_if_drained(&mut self) {
        if self.is_closed() && self.is_drained() {
            self.roster.queue.wake_drained();
        }
    }
}
