//! What each number of a cost counts of a server's.

use super::answer::Unit;
use crate::policy::Cost;

/// What each number of a cost counts.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    of: Vec<Option<Unit>>,
    /// Whether the program has said so. Else a call is one request, whatever its first number is.
    is_said: bool,
}

impl Default for Counts {
    fn default() -> Self {
        Self { of: vec![Some(Unit::Requests), Some(Unit::Tokens)], is_said: false }
    }
}

impl FromIterator<Option<Unit>> for Counts {
    fn from_iter<I: IntoIterator<Item = Option<Unit>>>(units: I) -> Self {
        Self { of: units.into_iter().collect(), is_said: true }
    }
}

impl Counts {
    /// How much of each unit a cost is. If no number counts requests, a call is one.
    pub(super) fn units<C: Cost>(&self, cost: C) -> [u32; 4] {
        let mut units = [0; 4];
        let numbers = self.of.iter().enumerate().take(C::NUMBERS);
        for (index, unit) in numbers.clone().filter_map(|(index, unit)| Some((index, (*unit)?))) {
            let sum = &mut units[unit.index()];
            *sum = u32::saturating_add(*sum, cost.number(index));
        }
        let requests = &mut units[Unit::Requests.index()];
        if !numbers.into_iter().any(|(_, &unit)| unit == Some(Unit::Requests)) {
            *requests = 1;
        } else if !self.is_said {
            *requests = 1.min(*requests);
        }
        units
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_request_unless_a_number_counts_them() {
        let tokens = Counts::from_iter([Some(Unit::Tokens)]);
        assert_eq!([0, 3].map(|cost| tokens.units(cost)), [[1, 0, 0, 0], [1, 3, 0, 0]]);
        let requests = Counts::from_iter([Some(Unit::Requests)]);
        assert_eq!([0, 3].map(|cost| requests.units(cost)), [[0, 0, 0, 0], [3, 0, 0, 0]]);
        // Nothing was said: the first number may count something else.
        let unsaid = Counts::default();
        assert_eq!([0, 3].map(|cost| unsaid.units(cost)), [[0, 0, 0, 0], [1, 0, 0, 0]]);
    }
}
