//! The limiters that can be taught.

use super::answer::Unit;
use crate::limiter::Limiter;
use crate::policy::Cost;

/// A limiter that a [`Feedback`](super::Feedback) can teach: a [`RateLimiter`], one [key](AtKey) of a
/// [`KeyedRateLimiter`](crate::KeyedRateLimiter), a `RedisRateLimiter`, or any of them as
/// `AnyRateLimiter`. The trait is sealed.
///
/// ```
/// use tollgate::feedback::Feedback;
/// use tollgate::{AnyRateLimiter, InFlight, KeyedRateLimiter, RateLimiter};
///
/// let one = Feedback::new(RateLimiter::new(InFlight::new(10)));
/// let key = Feedback::new(KeyedRateLimiter::new(InFlight::new(10)).at("api.example.com"));
/// let any = Feedback::new(AnyRateLimiter::new(RateLimiter::new(InFlight::new(10))));
/// ```
pub trait Taught: Limiter<Cost: Counted, Grant: 'static> + 'static {}

impl<L: Limiter<Cost: Counted, Grant: 'static> + 'static> Taught for L {}

mod sealed {
    /// Keeps the traits of this module to this crate.
    pub trait Sealed {}
}

/// A cost whose numbers count something of a server: a number, or a tuple of up to six. The trait is sealed.
///
/// What they count, [`units`](super::FeedbackBuilder::units) says.
pub trait Counted: Cost + sealed::Sealed {
    /// How many numbers it has.
    #[doc(hidden)]
    const NUMBERS: usize;

    #[doc(hidden)]
    fn number(self, index: usize) -> u32;

    #[doc(hidden)]
    fn of(number: impl Fn(usize) -> u32) -> Self;
}

impl sealed::Sealed for u32 {}

impl Counted for u32 {
    const NUMBERS: usize = 1;

    fn number(self, _: usize) -> u32 {
        self
    }

    fn of(number: impl Fn(usize) -> u32) -> Self {
        number(0)
    }
}

macro_rules! counted {
    ($($number:ident $index:tt),+) => {
        impl sealed::Sealed for ($($number,)+) {}

        impl Counted for ($($number,)+) {
            const NUMBERS: usize = [$($index),+].len();

            fn number(self, index: usize) -> u32 {
                [$(self.$index),+][index]
            }

            fn of(number: impl Fn(usize) -> u32) -> Self {
                ($(number($index),)+)
            }
        }
    };
}

counted!(u32 0, u32 1);
counted!(u32 0, u32 1, u32 2);
counted!(u32 0, u32 1, u32 2, u32 3);
counted!(u32 0, u32 1, u32 2, u32 3, u32 4);
counted!(u32 0, u32 1, u32 2, u32 3, u32 4, u32 5);

/// What each number of a cost counts.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) of: Vec<Option<Unit>>,
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
    pub(super) fn units<C: Counted>(&self, cost: C) -> [u32; 4] {
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

    /// Whether a call of this cost shows that the first number does not count requests: a call is one.
    pub(super) fn differs<C: Counted>(&self, cost: C) -> bool {
        !self.is_said && cost.number(0) > 1
    }
}
