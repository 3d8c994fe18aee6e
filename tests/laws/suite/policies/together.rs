//! Several policies together: granted at the latest of their times, and then charged in all of
//! them.
//!
//! One oracle for tuples and `Same`: a list of the parts' own oracles, each with its cost
//! for the `n` of the script. Law 9 is here too, and does not use the oracle.

use std::fmt::Debug;
use std::time::Duration;

use proptest::prelude::*;
use tollgate::state::PolicyExt;
use tollgate::{ManualClock, Nanos, Policy, Ready, Same};

use crate::driver::Driver;
use crate::history::History;
use crate::line::Outcome;
use crate::oracle::{CASES, Conforms, Oracle, Scale, Setup, Time, When, nanos, prove, setups};
use crate::script::Step;
use crate::subject::Subject;
use crate::turns::Rank;

type Share = fn(u32) -> u32;

/// The costs of the parts of a tuple: some a part of the whole, some more, and each zero now and
/// then.
const SHARES: [Share; 3] =
    [|n| if n % 4 == 3 { 0 } else { n.min(3) }, |n| 2 * n, |n| u32::from(n > 0 && n % 5 != 4)];

#[derive(Clone, Debug)]
struct Parts {
    parts: Vec<(Box<dyn Oracle>, Share)>,
}

impl Parts {
    /// Those that are asked for something.
    fn asked(&self, n: u32) -> impl Iterator<Item = (&dyn Oracle, u32)> {
        let parts = self.parts.iter().map(move |(part, share)| (&**part, share(n)));
        parts.filter(|&(_, n)| n > 0)
    }

    fn each(&mut self, mut act: impl FnMut(&mut dyn Oracle, Share)) {
        self.parts.iter_mut().for_each(|(part, share)| act(&mut **part, *share));
    }
}

impl Oracle for Parts {
    fn copy(&self) -> Box<dyn Oracle> {
        Box::new(self.clone())
    }

    fn ready(&self, now: Time, n: u32) -> When {
        let mut latest = Time::MIN;
        let mut is_known = true;
        for (part, n) in self.asked(n) {
            match part.ready(now, n) {
                When::At(at) => latest = latest.max(at),
                When::NotBefore(at) => (latest, is_known) = (latest.max(at), false),
                When::Never => return When::Never,
            }
        }
        if is_known { When::At(latest) } else { When::NotBefore(latest) }
    }

    fn charge(&mut self, id: usize, at: Time, n: u32) {
        self.each(|part, share| {
            if share(n) > 0 {
                part.charge(id, at, share(n));
            }
        });
    }

    fn refund(&mut self, id: usize, now: Time) {
        self.each(|part, _| part.refund(id, now));
    }

    fn set_policy(&mut self, index: usize, now: Time) {
        self.each(|part, _| part.set_policy(index, now));
    }

    fn pause(&mut self, now: Time, until: Time) {
        self.each(|part, _| part.pause(now, until));
    }

    fn holds(&self) -> bool {
        self.parts.iter().any(|(part, _)| part.holds())
    }

    fn release(&mut self, id: usize) {
        self.each(|part, _| part.release(id));
    }

    fn refused(&mut self, now: Time, n: u32) {
        self.each(|part, share| {
            if share(n) > 0 {
                part.refused(now, share(n));
            }
        });
    }

    fn is_doubtful(&self) -> bool {
        self.parts.iter().any(|(part, _)| part.is_doubtful())
    }

    fn is_bounded(&self) -> bool {
        self.parts.iter().any(|(part, _)| part.is_bounded())
    }

    fn room(&self, now: Time, queued: &[u32], n: u32) -> Time {
        let asked = self.parts.iter().filter(|(_, share)| share(n) > 0);
        let room = |(part, share): &(Box<dyn Oracle>, Share)| {
            let queued: Vec<_> = queued.iter().map(|&n| share(n)).collect();
            part.room(now, &queued, share(n))
        };
        asked.map(room).max().unwrap_or(Time::MIN)
    }
}

/// A rule of several.
pub(crate) trait Composed: Conforms {
    fn rules(setup: &Setup<Self>) -> Vec<Box<dyn Rule>>
    where
        Self: Sized;
}

/// One of several rules, by itself.
pub(crate) trait Rule {
    fn would_grant(&self, now: Nanos, n: u32) -> bool;

    fn charge(&mut self, now: Nanos, n: u32);

    fn release(&mut self, now: Nanos, n: u32);
}

struct Alone<P: Policy> {
    policy: P,
    state: P::State,
    share: Share,
}

fn alone<P: Conforms>(version: &P::Version, catch_up: Duration, share: Share) -> Box<dyn Rule>
where
    P::Policy: Policy<Cost = u32>,
{
    let policy = P::policy(version, catch_up);
    let state = policy.start(Nanos::ZERO);
    Box::new(Alone { policy, state, share })
}

impl<P: Policy<Cost = u32>> Rule for Alone<P> {
    fn would_grant(&self, now: Nanos, n: u32) -> bool {
        let n = (self.share)(n);
        let ready = self.policy.ready_at(&self.state, now, n);
        n == 0 || ready.is_ok_and(|ready| matches!(ready, Ready::At(at) if at <= now))
    }

    fn charge(&mut self, now: Nanos, n: u32) {
        let n = (self.share)(n);
        if n > 0 {
            self.policy.charge(&mut self.state, now, n);
        }
    }

    fn release(&mut self, now: Nanos, n: u32) {
        let n = (self.share)(n);
        if n > 0 {
            self.policy.release(&mut self.state, now, n);
        }
    }
}

/// Law 9: a call is granted exactly when each rule by itself would grant it. The rules by
/// themselves are charged only then, so a part that is charged for a refusal would show later.
pub(crate) fn granted_when_all_would<P: Composed, S: Subject<P::Policy>>() {
    let call = (0u32..24, 0u32..20, any::<Option<prop::sample::Index>>());
    let calls = prop::collection::vec(call, 1..60);
    prove(CASES, &(setups::<P>(), calls), |(setup, calls)| {
        let clock = ManualClock::new();
        let subject = S::new(setup.policy(0), &clock);
        let mut driver = Driver::new(&subject, &setup, clock);
        let mut rules = P::rules(&setup);
        let mut granted = Vec::new();
        for (n, eighths, dropped) in calls {
            driver.take(Step::Advance(setup.scale.rate.eighths(eighths)));
            let now = Nanos::ZERO.saturating_add(nanos(driver.now()));
            if let Some(index) = dropped.filter(|_| !granted.is_empty()) {
                let (id, n) = granted.swap_remove(index.index(granted.len()));
                driver.take(Step::Drop(id));
                rules.iter_mut().for_each(|rule| rule.release(now, n));
            }
            let would = rules.iter().all(|rule| rule.would_grant(now, n));
            driver.take(Step::Arrive { n, timeout: Some(0), polled: true, rank: Rank::default() });
            let last = driver.all().last().expect("who came just now");
            let does = matches!(last.outcome, Outcome::Granted { .. });
            prop_assert!(does == would, "{n} at {now:?}: {:?}, {setup:?}", last.outcome);
            if does {
                granted.push((driver.callers.len() - 1, n));
                rules.iter_mut().for_each(|rule| rule.charge(now, n));
            }
        }
        Ok(())
    });
}

/// The parts' versions, all of one part together.
macro_rules! conforms {
    ($($generic:ident: $part:ident $index:tt $share:expr),+; $whole:ty, $policy:ty, $build:expr, $cost:expr) => {
        impl<$($generic: Conforms),+> Conforms for $whole
        where
            $($generic::Policy: Policy<Cost = u32>,)+
        {
            type Policy = $policy;
            type Version = ($($generic::Version,)+);

            const CATCHES_UP: bool = $($generic::CATCHES_UP)&&+;
            const HOLDS: bool = $($generic::HOLDS)||+;
            const SHIFTS: bool = $($generic::BEGINS_WITH_A_GRANT)||+;

            fn version(scale: Scale) -> BoxedStrategy<Self::Version> {
                // Of several lengths, not only of several sizes.
                let scale = |part: Time| Scale { span: scale.span * (1 + 2 * part), ..scale };
                ($($generic::version(scale($index)),)+).boxed()
            }

            fn policy(version: &Self::Version, catch_up: Duration) -> Self::Policy {
                $build(($($generic::policy(&version.$index, catch_up),)+))
            }

            fn oracle(versions: &[Self::Version]) -> Box<dyn Oracle> {
                $(let $part: Vec<_> = versions.iter().map(|all| all.$index.clone()).collect();)+
                Box::new(Parts { parts: vec![$(($generic::oracle(&$part), $share)),+] })
            }

            fn kept(versions: &[Self::Version], history: &History) -> Result<(), String> {
                $(
                    let part: Vec<_> = versions.iter().map(|all| all.$index.clone()).collect();
                    $generic::kept(&part, &history.share($share))?;
                )+
                Ok(())
            }

            fn cost(n: u32) -> <Self::Policy as Policy>::Cost {
                $cost(n)
            }
        }

        impl<$($generic: Conforms),+> Composed for $whole
        where
            $($generic::Policy: Policy<Cost = u32>,)+
        {
            fn rules(setup: &Setup<Self>) -> Vec<Box<dyn Rule>> {
                let version = &setup.versions[0];
                vec![$(alone::<$generic>(&version.$index, setup.catch_up, $share)),+]
            }
        }
    };
}

conforms!(
    A: a 0 SHARES[0], B: b 1 SHARES[1];
    (A, B), (A::Policy, B::Policy), |parts| parts, |n| (SHARES[0](n), SHARES[1](n))
);
conforms!(
    A: a 0 SHARES[0], B: b 1 SHARES[1], C: c 2 SHARES[2];
    (A, B, C), (A::Policy, B::Policy, C::Policy), |parts| parts,
    |n| (SHARES[0](n), SHARES[1](n), SHARES[2](n))
);
conforms!(
    A: a 0 |n| n, B: b 1 |n| n;
    Same<(A, B)>, Same<(A::Policy, B::Policy)>, Same, |n| n
);
