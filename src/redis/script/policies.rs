//! The script of each policy, and how its parameters and costs are written.

use std::time::Duration;

use super::parts::Lua;
use crate::policy::any::each_rule;
use crate::policy::grant_log::Span;
use crate::policy::parts::each_tuple;
use crate::units::saturating_nanos;
use crate::{
    FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Policy, Rate, Rated, Same,
    SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

/// A [`Policy`] that a Redis server can run, too: all of this crate's.
///
/// It exists in Rust and in Lua, and both decide the same to a microsecond. This trait writes the policy for
/// the script. It is sealed: a policy of one's own has no script.
///
/// ```
/// use tollgate::redis::Scripted;
/// use tollgate::{Rate, SmoothBursty};
///
/// let mut parameters = Vec::new();
/// SmoothBursty::new(Rate::per_second(5.0)).write(&mut parameters);
/// assert_eq!(parameters, [5.0, 1_000_000.0]);
/// ```
pub trait Scripted: sealed::Sealed + Policy {
    /// The policy's script.
    #[doc(hidden)]
    fn lua() -> Lua;

    /// Appends the parameters as the script takes them: spans in microseconds, rates per second.
    fn write(&self, parameters: &mut Vec<f64>);

    /// The same policy with the parameters that another process has written. `None` if they are none.
    #[must_use]
    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self>;

    /// Whether a new limiter equals one that was idle for long, as far as the script knows.
    #[doc(hidden)]
    fn starts_idle(&self) -> bool {
        true
    }
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! seal {
    ($($policy:ty),+) => {
        $(impl sealed::Sealed for $policy {})+
    };
}

each_rule!(seal);

/// The script of a policy that is not composed.
macro_rules! leaf {
    ($name:literal) => {
        fn lua() -> Lua {
            Lua::leaf($name, include_str!(concat!("lua/", $name, ".lua")))
        }
    };
}

#[allow(clippy::cast_precision_loss)] // beyond 2^53 us, 285 years, nothing is exact
fn micros(nanos: u128) -> f64 {
    nanos as f64 / 1e3
}

fn span(micros: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(micros / 1e6).ok()
}

fn number(number: f64) -> Option<u32> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked
    (0.0..=f64::from(u32::MAX)).contains(&number).then_some(number as u32)
}

/// A window, which must not be empty.
fn window(micros: f64) -> Option<Duration> {
    span(micros).filter(|span| !span.is_zero() && *span <= crate::Nanos::HORIZON)
}

/// A capacity as far as it comes within the horizon.
#[allow(clippy::cast_precision_loss)] // at most a capacity of u32
fn capacity(most: u64, capacity: u32) -> f64 {
    most.min(u64::from(capacity)) as f64
}

impl Scripted for SmoothBursty {
    leaf!("smooth_bursty");

    fn write(&self, parameters: &mut Vec<f64>) {
        let burst = self.max_burst.min(crate::Nanos::HORIZON);
        parameters.extend([self.rate.as_per_second(), micros(burst.as_nanos())]);
    }

    fn starts_idle(&self) -> bool {
        self.max_burst.is_zero()
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        let rate = Rate::try_per_second(parameters.next()?).ok()?;
        Some(self.max_burst(span(parameters.next()?)?).with_rate(rate))
    }
}

impl Scripted for SmoothWarmingUp {
    leaf!("smooth_warming_up");

    fn write(&self, parameters: &mut Vec<f64>) {
        let warm_up = micros(self.warm_up.as_nanos());
        parameters.extend([self.rate.as_per_second(), warm_up, self.cold_factor]);
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        let rate = Rate::try_per_second(parameters.next()?).ok()?;
        let warm_up = window(parameters.next()?)?;
        let cold_factor = parameters.next().filter(|factor| (1.0..=1e9).contains(factor))?;
        let catch_up = self.catch_up();
        Some(Self::new(rate, warm_up).cold_factor(cold_factor).with_catch_up(catch_up))
    }
}

impl Scripted for TokenBucket {
    leaf!("token_bucket");

    /// Rate, capacity, what a new bucket holds, the time between two steps or zero.
    fn write(&self, parameters: &mut Vec<f64>) {
        let capacity = |tokens| capacity(self.schedule.most(), tokens);
        parameters.extend([
            self.rate.as_per_second(),
            capacity(self.capacity),
            capacity(self.initial),
            micros(u128::from(self.period)),
        ]);
    }

    fn starts_idle(&self) -> bool {
        self.initial >= self.capacity
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        let rate = Rate::try_per_second(parameters.next()?).ok()?;
        let bucket = Self::new(rate, number(parameters.next()?)?);
        let bucket = bucket.initial(number(parameters.next()?)?).with_catch_up(self.catch_up());
        match parameters.next()? {
            0.0 => Some(bucket),
            period => Some(bucket.refill_every(window(period)?)),
        }
    }
}

/// A token bucket in other words.
impl Scripted for Gcra {
    leaf!("token_bucket");

    fn write(&self, parameters: &mut Vec<f64>) {
        let burst = capacity(self.schedule.most(), self.max_burst.saturating_add(1));
        parameters.extend([self.rate.as_per_second(), burst, burst, 0.0]);
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        let rate = Rate::try_per_second(parameters.next()?).ok()?;
        let burst = parameters.next()?;
        // Otherwise it is another bucket.
        let is_gcra = parameters.next()? == burst && parameters.next()? == 0.0;
        let max_burst = number(burst).filter(|_| is_gcra)?.checked_sub(1)?;
        Some(Self { max_burst, ..self }.with_rate(rate))
    }
}

impl Scripted for LeakyBucket {
    leaf!("leaky_bucket");

    /// Rate, capacity, whether it is a meter.
    fn write(&self, parameters: &mut Vec<f64>) {
        let most = capacity(self.schedule.most(), self.capacity);
        parameters.extend([self.rate.as_per_second(), most, f64::from(u8::from(self.meter))]);
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        let rate = Rate::try_per_second(parameters.next()?).ok()?;
        let capacity = number(parameters.next()?)?;
        let meter = parameters.next()? != 0.0;
        let bucket = if meter { Self::meter(rate, capacity) } else { Self::new(rate, capacity) };
        Some(bucket.with_catch_up(self.catch_up()))
    }
}

impl Scripted for FixedWindow {
    leaf!("fixed_window");

    /// Limit, window, and how far into a window of the grid the epoch was; -1 if there is no grid.
    fn write(&self, parameters: &mut Vec<f64>) {
        let grid = self.grid.map_or(-1.0, |grid| micros(u128::from(grid)));
        parameters.extend([f64::from(self.limit), micros(u128::from(self.window)), grid]);
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        let policy = Self::new(number(parameters.next()?)?, window(parameters.next()?)?);
        let grid = parameters.next()?;
        Some(if grid < 0.0 { policy } else { policy.aligned(span(grid)?) })
    }
}

/// Limit, window, the length of a part of it.
fn write_sliding(limit: u32, span: Span, parameters: &mut Vec<f64>) {
    let Span { part, window } = span;
    parameters.extend([f64::from(limit), micros(u128::from(window)), micros(u128::from(part))]);
}

fn read_sliding(parameters: &mut dyn Iterator<Item = f64>) -> Option<(u32, Span)> {
    let limit = number(parameters.next()?)?;
    let window = saturating_nanos(window(parameters.next()?)?);
    let part = saturating_nanos(span(parameters.next()?)?);
    (part > 0).then_some((limit, Span { part, window }))
}

impl Scripted for SlidingWindowLog {
    leaf!("sliding_window");

    fn write(&self, parameters: &mut Vec<f64>) {
        write_sliding(self.limit, self.span, parameters);
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        // With longer parts it is a counter.
        let (limit, span) = read_sliding(parameters).filter(|(_, span)| span.part == 1)?;
        Some(Self { limit, span })
    }
}

impl Scripted for SlidingWindowCounter {
    leaf!("sliding_window");

    fn write(&self, parameters: &mut Vec<f64>) {
        write_sliding(self.limit, self.span, parameters);
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        let (limit, span) = read_sliding(parameters).filter(|(_, span)| span.part > 1)?;
        Some(Self { limit, span })
    }
}

impl Scripted for InFlight {
    leaf!("in_flight");

    fn write(&self, parameters: &mut Vec<f64>) {
        parameters.push(f64::from(self.max));
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        Some(Self::new(number(parameters.next()?)?))
    }
}

impl<P: Scripted> sealed::Sealed for LockOut<P> {}

impl<P: Scripted> Scripted for LockOut<P> {
    fn lua() -> Lua {
        Lua::of("lock_out", include_str!("lua/lock_out.lua"), vec![P::lua()], true)
    }

    fn write(&self, parameters: &mut Vec<f64>) {
        parameters.push(micros(self.duration.as_nanos()));
        self.policy.write(parameters);
    }

    fn starts_idle(&self) -> bool {
        self.policy.starts_idle()
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        let duration = span(parameters.next()?)?;
        Some(Self::new(self.policy.read(parameters)?, duration))
    }
}

fn together(parts: Vec<Lua>, same: bool) -> Lua {
    Lua::of("compose", include_str!("lua/compose.lua"), parts, same)
}

macro_rules! tuple {
    ($first:ident 0, $($part:ident $index:tt),+) => {
        impl<$first: Scripted, $($part: Scripted),+> sealed::Sealed for ($first, $($part),+) {}

        impl<$first: Scripted, $($part: Scripted),+> Scripted for ($first, $($part),+) {
            fn lua() -> Lua {
                together(vec![$first::lua(), $($part::lua()),+], false)
            }

            fn write(&self, parameters: &mut Vec<f64>) {
                self.0.write(parameters);
                $(self.$index.write(parameters);)+
            }

            fn starts_idle(&self) -> bool {
                self.0.starts_idle() $(&& self.$index.starts_idle())+
            }

            fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
                Some((self.0.read(parameters)?, $(self.$index.read(parameters)?),+))
            }
        }

        impl<$first: Scripted, $($part: Scripted<Cost = $first::Cost>),+> sealed::Sealed
            for Same<($first, $($part),+)>
        {
        }

        impl<$first: Scripted, $($part: Scripted<Cost = $first::Cost>),+> Scripted
            for Same<($first, $($part),+)>
        {
            fn lua() -> Lua {
                together(vec![$first::lua(), $($part::lua()),+], true)
            }

            fn write(&self, parameters: &mut Vec<f64>) {
                self.0.0.write(parameters);
                $(self.0.$index.write(parameters);)+
            }

            fn starts_idle(&self) -> bool {
                self.0.0.starts_idle() $(&& self.0.$index.starts_idle())+
            }

            fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
                Some(Self((self.0.0.read(parameters)?, $(self.0.$index.read(parameters)?),+)))
            }
        }
    };
}

each_tuple!(tuple);

impl<P: Scripted, const N: usize> sealed::Sealed for [P; N] {}

impl<P: Scripted, const N: usize> Scripted for [P; N] {
    fn lua() -> Lua {
        together((0..N).map(|_| P::lua()).collect(), true)
    }

    fn write(&self, parameters: &mut Vec<f64>) {
        for part in self {
            part.write(parameters);
        }
    }

    fn starts_idle(&self) -> bool {
        self.iter().all(Scripted::starts_idle)
    }

    fn read(self, parameters: &mut dyn Iterator<Item = f64>) -> Option<Self> {
        let parts: Vec<P> = self.into_iter().map_while(|part| part.read(parameters)).collect();
        parts.try_into().ok()
    }
}
