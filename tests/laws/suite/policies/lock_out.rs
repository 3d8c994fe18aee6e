//! `LockOut`: another rule, and the end of the last lock.

use std::time::Duration;

use proptest::prelude::*;
use tollgate::{LockOut, Policy};

use crate::history::History;
use crate::oracle::{Conforms, Oracle, Scale, Time, When, nanos};

#[derive(Clone, Debug)]
struct Lock {
    rule: Box<dyn Oracle>,
    durations: Vec<Time>,
    duration: Time,
    locked_until: Time,
}

impl Oracle for Lock {
    fn copy(&self) -> Box<dyn Oracle> {
        Box::new(self.clone())
    }

    fn ready(&self, now: Time, n: u32) -> When {
        match self.rule.ready(now, n) {
            When::At(at) => When::At(at.max(self.locked_until)),
            When::NotBefore(at) => When::NotBefore(at.max(self.locked_until)),
            When::Never => When::Never,
        }
    }

    fn charge(&mut self, id: usize, at: Time, n: u32) {
        self.rule.charge(id, at, n);
    }

    fn refund(&mut self, id: usize, now: Time) {
        self.rule.refund(id, now);
    }

    /// A lock that has begun stays as it is.
    fn set_policy(&mut self, index: usize, now: Time) {
        self.duration = self.durations[index];
        self.rule.set_policy(index, now);
    }

    fn pause(&mut self, now: Time, until: Time) {
        self.rule.pause(now, until);
    }

    fn holds(&self) -> bool {
        self.rule.holds()
    }

    fn release(&mut self, id: usize) {
        self.rule.release(id);
    }

    /// Only the rule's own refusal locks, and only where there is no lock.
    fn refused(&mut self, now: Time, n: u32) {
        self.rule.refused(now, n);
        let by_the_rule = match self.rule.ready(now, n) {
            When::At(at) => at > now,
            When::NotBefore(_) => true,
            When::Never => false,
        };
        if by_the_rule && now >= self.locked_until {
            self.locked_until = now + self.duration;
        }
    }

    fn is_doubtful(&self) -> bool {
        self.rule.is_doubtful()
    }

    fn is_bounded(&self) -> bool {
        self.rule.is_bounded()
    }

    fn room(&self, now: Time, queued: &[u32], n: u32) -> Time {
        self.rule.room(now, queued, n)
    }
}

impl<P: Conforms> Conforms for LockOut<P>
where
    LockOut<P>: std::fmt::Debug,
{
    type Policy = LockOut<P::Policy>;
    type Version = (P::Version, Time);

    const PUNISHES: bool = true;

    fn version(scale: Scale) -> BoxedStrategy<Self::Version> {
        let durations = (0u32..200).prop_map(move |eighths| scale.rate.eighths(eighths));
        (P::version(scale), durations).boxed()
    }

    fn policy((rule, duration): &Self::Version, catch_up: Duration) -> Self::Policy {
        LockOut::new(P::policy(rule, catch_up), nanos(*duration))
    }

    fn oracle(versions: &[Self::Version]) -> Box<dyn Oracle> {
        let (rules, durations): (Vec<_>, Vec<_>) = versions.iter().cloned().unzip();
        let (rule, duration) = (P::oracle(&rules), durations[0]);
        Box::new(Lock { rule, durations, duration, locked_until: 0 })
    }

    /// The law of the inner policy. Law 2 finds grants during a lock.
    fn kept(versions: &[Self::Version], history: &History) -> Result<(), String> {
        let rules: Vec<_> = versions.iter().map(|(rule, _)| rule.clone()).collect();
        P::kept(&rules, history)
    }

    fn cost(n: u32) -> <P::Policy as Policy>::Cost {
        P::cost(n)
    }
}
