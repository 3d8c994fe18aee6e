//! A list of alarms in the order of their times.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Weak;

use super::Turn;
use crate::units::Nanos;

/// When, and a number that tells alarms of one time apart, in the order in which they were set.
pub(crate) type Place = (Nanos, u64);

#[derive(Default)]
pub(crate) struct Alarms {
    places: BTreeMap<Place, Weak<dyn Turn>>,
    count: u64,
}

impl Alarms {
    /// Moves an alarm to another time, or adds it.
    pub(super) fn replace(
        &mut self,
        old: Option<Place>,
        due: Nanos,
        line: Weak<dyn Turn>,
    ) -> Place {
        if let Some(old) = old {
            self.remove(old);
        }
        self.count += 1;
        let place = (due, self.count);
        self.places.insert(place, line);
        place
    }

    /// Takes an alarm out, if it has not gone off.
    pub(super) fn remove(&mut self, place: Place) {
        self.places.remove(&place);
    }

    pub(super) fn first(&self) -> Option<Nanos> {
        self.places.first_key_value().map(|(&(due, _), _)| due)
    }

    /// Takes out the first alarm, if it is due by `time`.
    pub(super) fn pop(&mut self, time: Nanos) -> Option<(Nanos, Weak<dyn Turn>)> {
        let entry = self.places.first_entry().filter(|entry| entry.key().0 <= time)?;
        let ((due, _), line) = entry.remove_entry();
        Some((due, line))
    }
}

impl fmt::Debug for Alarms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.places.keys()).finish()
    }
}
