//! Headroom: a policy that leaves a quarter of its quota keeps the laws of three quarters of it. The oracle gets
//! what is left by its own arithmetic.

mod arrivals;

use std::marker::PhantomData;
use std::time::Duration;

use proptest::strategy::{BoxedStrategy, Strategy};
use tollgate::{
    FixedWindow, Gcra, Headroom, LeakyBucket, Policy, RateLimiter, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use crate::history::History;
use crate::line::{Line, Outcome};
use crate::oracle::{Conforms, Fraction, Oracle, Scale, Scales, Time};
use crate::policies::{
    Aligned, Meter, bursty, fixed_window, leaky_queue, sliding, token_bucket, warming_up,
};
use crate::turns::Rank;
use crate::{trace, windows};

const SHARE: f64 = 0.25;

/// Three quarters of a policy's quota.
trait Quota {
    fn less(&self) -> Self;
}

impl Quota for Fraction {
    fn less(&self) -> Self {
        Self { permits: 3 * self.permits, nanos: 4 * self.nanos }
    }
}

impl Quota for u32 {
    fn less(&self) -> Self {
        let quarters = 3 * self;
        if *self == 1 { 1 } else { quarters / 4 }
    }
}

impl Quota for bursty::Version {
    fn less(&self) -> Self {
        Self { rate: self.rate.less(), ..self.clone() }
    }
}

impl Quota for warming_up::Version {
    fn less(&self) -> Self {
        Self { rate: self.rate.less(), ..*self }
    }
}

impl Quota for token_bucket::Version {
    fn less(&self) -> Self {
        let capacity = self.capacity.less();
        let initial = self.initial.min(capacity);
        Self { rate: self.rate.less(), capacity, initial, ..self.clone() }
    }
}

/// The room in the queue is not a quota.
impl Quota for leaky_queue::Version {
    fn less(&self) -> Self {
        Self { rate: self.rate.less(), ..self.clone() }
    }
}

/// On a grid there are fewer permits; without one the window is longer.
impl Quota for fixed_window::Version {
    fn less(&self) -> Self {
        match self.epoch {
            Some(_) => Self { limit: self.limit.less(), ..*self },
            None => Self { length: longer(self.length), ..*self },
        }
    }
}

impl Quota for sliding::Version {
    fn less(&self) -> Self {
        let Some(parts) = self.parts.map(i128::from) else {
            return Self { window: longer(self.window), ..*self };
        };
        let part = (self.window + parts - 1) / parts;
        Self { window: longer(part) * parts, ..*self }
    }
}

/// Four thirds, up to a whole number of the longest unit of which there are a thousand.
fn longer(time: Time) -> Time {
    let exact = (4 * time + 2) / 3;
    let units = [
        24 * 3_600_000_000_000,
        3_600_000_000_000,
        60_000_000_000,
        1_000_000_000,
        1_000_000,
        1_000,
        1,
    ];
    let unit = units.into_iter().find(|unit| exact / unit >= 1_000).unwrap_or(1);
    (exact + unit - 1) / unit * unit
}

/// A policy with headroom.
#[derive(Debug)]
struct Spare<P>(PhantomData<P>);

fn less<V: Quota>(versions: &[V]) -> Vec<V> {
    versions.iter().map(Quota::less).collect()
}

impl<P: Conforms<Policy: Headroom, Version: Quota>> Conforms for Spare<P> {
    type Policy = P::Policy;
    type Version = P::Version;

    const CATCHES_UP: bool = P::CATCHES_UP;
    const PREPAID: bool = P::PREPAID;
    const KNOWS_LAST: bool = P::KNOWS_LAST;
    const TOLERANCE: Time = P::TOLERANCE;
    const SLOWER: u64 = P::SLOWER;

    /// Three quarters of a power of two is not exact.
    const SCALES: Scales = match P::SCALES {
        Scales::Exact => Scales::Exact,
        _ => Scales::Rounded,
    };

    fn version(scale: Scale) -> BoxedStrategy<P::Version> {
        P::version(scale).boxed()
    }

    fn policy(version: &P::Version, catch_up: Duration) -> P::Policy {
        P::policy(version, catch_up).headroom(SHARE).expect("a share")
    }

    fn oracle(versions: &[P::Version]) -> Box<dyn Oracle> {
        P::oracle(&less(versions))
    }

    fn kept(versions: &[P::Version], history: &History) -> Result<(), String> {
        P::kept(&less(versions), history)
    }

    fn cost(n: u32) -> <P::Policy as Policy>::Cost {
        P::cost(n)
    }

    fn ramp(version: &P::Version) -> Time {
        P::ramp(&version.less())
    }

    fn with_thousand(rate: Fraction) -> Option<P::Version> {
        P::with_thousand(rate)
    }
}

macro_rules! headroom {
    ($($name:ident: $policy:ty),+ $(,)?) => {$(
        mod $name {
            use super::*;

            type Policy = Spare<$policy>;
            type Subject = RateLimiter<<Policy as Conforms>::Policy>;

            laws! {
                law_1_no_span_grants_more_than_its_share: windows::no_span_grants_more_than_its_share;
                law_2_grants_and_their_times_are_those_of_the_oracle: trace::the_oracle_agrees;
                law_7_refunds_and_changes_mint_nothing: windows::refunds_and_changes_mint_nothing;
            }
        }
    )+};
}

headroom!(
    bursty_policy: SmoothBursty,
    warming_up_policy: SmoothWarmingUp,
    bucket: TokenBucket,
    gcra: Gcra,
    leaky_bucket: LeakyBucket,
    meter: Meter,
    window: FixedWindow,
    aligned: Aligned,
    log: SlidingWindowLog,
    counter: SlidingWindowCounter,
);

/// The second grant is due at 18.1 ns, the fourth caller's, ahead of the third, at 36.2: rounding decides whether the third
/// is at the head of the queue before its deadline at 37 ns, or never. So does the wait in its refusal.
#[test]
fn a_deadline_just_as_the_caller_ahead_is_granted_proves_nothing() {
    let ahead = |ahead| Rank { ahead, tenant: None };
    let rate = Fraction { permits: 7, nanos: 95 };
    let versions = [leaky_queue::Version { rate, capacity: 7 }];
    let third_with = |deadline| {
        let mut line = Line::new(Spare::<LeakyBucket>::oracle(&versions), 0, 8);
        line.arrive(1, Rank::default(), None);
        line.arrive(1, Rank::default(), None);
        let third = line.arrive(1, Rank::default(), Some(deadline));
        line.advance(1);
        line.arrive(1, ahead(1), None);
        line.arrive(1, ahead(2), None);
        line.arrive(1, Rank::default(), None);
        line.advance(100);
        (line.callers[third].outcome, line.is_doubtful())
    };
    let (at_the_deadline, is_doubtful) = third_with(37);
    assert!(matches!(at_the_deadline, Outcome::Refused { decided: 37, .. }) && is_doubtful);
    let at_the_head = Outcome::Refused { decided: 37, retry_after: Some(18) };
    assert_eq!(third_with(46), (at_the_head, false));
}
