//! Spare bookings, whose caller has left: they go to the next waiters, or are returned to Redis.

use std::collections::VecDeque;
use std::time::Duration;

use super::waiter::Booking;
use crate::units::Nanos;

/// Adds a spare booking. They are handed on in the order in which they are due.
pub(super) fn put_aside(spare: &mut VecDeque<Booking>, booking: Booking) {
    let place = spare.partition_point(|other| other.due <= booking.due);
    spare.insert(place, booking);
}

#[derive(Default)]
pub(super) struct Spares<C> {
    /// All of one cost, for the waiters that are being asked for.
    bookings: VecDeque<Booking>,
    cost: C,
    /// When the last booking is due, spare or not.
    pub(super) last_due: Nanos,
    /// When it was noticed that the process had stood still, until the next grant.
    stood_still: Option<Nanos>,
}

impl<C: Copy + PartialEq> Spares<C> {
    pub(super) fn is_empty(&self) -> bool {
        self.bookings.is_empty()
    }

    /// Takes all of them, and their cost.
    pub(super) fn take(&mut self) -> (VecDeque<Booking>, C) {
        (std::mem::take(&mut self.bookings), self.cost)
    }

    /// The same as `take`, for the bookings of a reply to be added. `has_booked`: whether a waiter has one.
    pub(super) fn take_for_reply(&mut self, has_booked: bool) -> (VecDeque<Booking>, C) {
        if !has_booked {
            self.last_due = self.bookings.back().map_or(Nanos::ZERO, |booking| booking.due);
        }
        self.take()
    }

    /// A booking of a reply to a request that was sent at `sent` under `policy`.
    pub(super) fn booking(
        &mut self,
        now: Nanos,
        (sent, policy): (Nanos, u32),
        sequence: u32,
        wait: Duration,
    ) -> Booking {
        // Never before an earlier booking, even if this reply was quicker.
        self.last_due = now.saturating_add(wait).max(self.last_due);
        Booking { sequence, due: self.last_due, earliest: sent.saturating_add(wait), policy }
    }

    /// Whether there is none of another cost.
    pub(super) fn has_room_for(&self, cost: C) -> bool {
        self.bookings.is_empty() || self.cost == cost
    }

    pub(super) fn put_aside(&mut self, cost: C, spare: VecDeque<Booking>) {
        self.cost = cost;
        for booking in spare {
            put_aside(&mut self.bookings, booking);
        }
    }

    /// Whether it was noticed that the process had stood still.
    pub(super) fn stood_still(&self) -> bool {
        self.stood_still.is_some()
    }

    pub(super) fn note_standstill(&mut self, now: Nanos) {
        self.stood_still.get_or_insert(now);
    }

    /// Whether what was booked by a request that was sent at `sent` may be lost.
    pub(super) fn is_overdue(&self, sent: Nanos) -> bool {
        self.stood_still.is_some_and(|at| sent < at)
    }

    pub(super) fn note_grant(&mut self) {
        self.stood_still = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Nanos {
        Nanos::new(ms * 1_000_000)
    }

    fn booking(due: u64) -> Booking {
        Booking { sequence: 1, due: at(due), earliest: at(due), policy: 0 }
    }

    fn dues(bookings: &VecDeque<Booking>) -> Vec<Nanos> {
        bookings.iter().map(|booking| booking.due).collect()
    }

    #[test]
    fn spare_bookings_wait_in_the_order_in_which_they_are_due() {
        let mut spares = Spares::<u32>::default();
        assert!(spares.is_empty() && spares.has_room_for(3));
        spares.put_aside(3, [30, 10, 20].map(booking).into());
        assert!(!spares.is_empty() && spares.has_room_for(3) && !spares.has_room_for(4));
        let (all, cost) = spares.take();
        assert_eq!((dues(&all), cost), (vec![at(10), at(20), at(30)], 3));
        assert!(spares.is_empty());
    }

    /// None is due before another that was booked earlier, though its reply was quicker; and in the worst case the
    /// server counts from when the request was sent.
    #[test]
    fn a_booking_is_due_behind_those_before_it() {
        let mut spares = Spares::<u32>::default();
        let book = |spares: &mut Spares<u32>, now, wait| {
            let booking = spares.booking(at(now), (at(now - 5), 7), 9, Duration::from_millis(wait));
            assert_eq!((booking.sequence, booking.policy), (9, 7));
            assert_eq!(booking.earliest, at(now - 5 + wait));
            booking.due
        };
        assert_eq!(book(&mut spares, 100, 50), at(150));
        assert_eq!(book(&mut spares, 110, 20), at(150));
        assert_eq!(book(&mut spares, 110, 60), at(170));
        assert_eq!(spares.last_due, at(170));
        // Where no waiter has one, only the spare ones count.
        spares.put_aside(1, [booking(160)].into());
        assert_eq!(dues(&spares.take_for_reply(true).0), [at(160)]);
        assert_eq!(spares.last_due, at(170));
        spares.put_aside(1, [booking(160)].into());
        spares.take_for_reply(false);
        assert_eq!(spares.last_due, at(160));
        spares.take_for_reply(false);
        assert_eq!(spares.last_due, Nanos::ZERO);
    }

    #[test]
    fn what_was_booked_before_a_standstill_may_be_lost_until_the_next_grant() {
        let mut spares = Spares::<u32>::default();
        assert!(!spares.stood_still() && !spares.is_overdue(at(1)));
        spares.note_standstill(at(10));
        spares.note_standstill(at(20));
        assert!(spares.stood_still());
        assert!(spares.is_overdue(at(9)) && !spares.is_overdue(at(10)));
        spares.note_grant();
        assert!(!spares.stood_still() && !spares.is_overdue(at(9)));
    }
}
