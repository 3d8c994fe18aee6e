//! A limit with any numbers, and what callers do with it.
//!
//! The first line is the text of a limit. Each further line is one step: `take 5` without a wait, `wait 5` in the queue, `+ 5`
//! nanoseconds later, `again` once what the last refusal said is over, `pause 5` nanoseconds, `refund` or `drop` of the
//! oldest grant that is held, `leave` the queue, `set 10/s` for another limit.

mod law;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate::{Acquire, AllOf, Clock, Error, Grant, ManualClock, Nanos, RateLimiter};

use law::Granted;

/// Runs all steps.
pub(crate) fn judge(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    let mut lines = text.lines();
    let Some(Ok(policy)) = lines.next().map(str::parse::<AllOf>) else { return };
    let mut run = Run::new(policy);
    for line in lines.take(48) {
        run.step(line);
        run.poll();
        run.judge();
    }
}

struct Run {
    policy: AllOf,
    clock: ManualClock,
    limiter: RateLimiter<AllOf>,
    /// Grants of this policy.
    granted: Vec<Granted>,
    held: Vec<Held>,
    waiting: Vec<Waiting>,
    /// The last refusal: how many permits, and when they are there.
    refused: Option<(u32, Duration)>,
    paused_until: u64,
}

struct Held {
    grant: Grant<'static, AllOf>,
    at: u64,
    /// Among those of this policy.
    index: Option<usize>,
}

struct Waiting {
    n: u32,
    joined: u64,
    call: Pin<Box<Acquire<RateLimiter<AllOf>>>>,
}

impl Run {
    fn new(policy: AllOf) -> Self {
        let clock = ManualClock::new();
        let limiter = RateLimiter::with_clock(policy.clone(), &clock);
        Self {
            policy,
            clock,
            limiter,
            granted: Vec::new(),
            held: Vec::new(),
            waiting: Vec::new(),
            refused: None,
            paused_until: 0,
        }
    }

    fn now(&self) -> u64 {
        Clock::from(&self.clock).now().get()
    }

    fn step(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = || rest.trim().parse::<u64>().ok();
        let permits = || rest.trim().parse::<u32>().ok();
        match word {
            "take" => {
                let _ = permits().map(|n| self.take(n));
            }
            "wait" => {
                if let Some(n) = permits().filter(|_| self.waiting.len() < 8) {
                    let call = Box::pin(self.limiter.acquire_owned(n));
                    self.waiting.push(Waiting { n, joined: self.now(), call });
                }
            }
            "+" => self.clock.advance(Duration::from_nanos(number().unwrap_or(0))),
            "again" => self.again(),
            "pause" => {
                let span = number().unwrap_or(0).min(1 << 62);
                self.limiter.pause_for(Duration::from_nanos(span));
                self.refused = None;
                self.paused_until = self.paused_until.max(self.now().saturating_add(span));
            }
            "refund" => {
                let oldest = self.oldest();
                // The marks by which a policy knows its charges wrap after the horizon.
                let is_known =
                    |held: &Held| u128::from(self.now() - held.at) < Nanos::HORIZON.as_nanos();
                if let Some(held) = oldest.filter(is_known) {
                    if let Some(index) = held.index {
                        self.granted[index].kept = false;
                    }
                    held.grant.refund();
                }
            }
            "drop" => drop(self.oldest()),
            "leave" => drop(self.waiting.pop()),
            "set" => {
                if let Ok(policy) = rest.parse::<AllOf>() {
                    self.limiter.set_policy(policy.clone());
                    self.policy = policy;
                    self.refused = None;
                    self.granted.clear();
                    self.held.iter_mut().for_each(|held| held.index = None);
                }
            }
            _ => {}
        }
    }

    fn oldest(&mut self) -> Option<Held> {
        (!self.held.is_empty()).then(|| self.held.remove(0))
    }

    fn take(&mut self, n: u32) -> Result<(), Error> {
        let foreseen = self.limiter.would_wait(n);
        match self.limiter.try_acquire(n).map(Grant::into_owned) {
            Ok(grant) => {
                let foreseen = foreseen.expect("it was granted");
                assert_eq!(foreseen, Some(Duration::ZERO), "{n} were granted");

                self.accept(n, self.now(), grant);
                Ok(())
            }
            Err(error) => {
                match &error {
                    Error::ExceedsCapacity(exceeds) => {
                        assert!(foreseen.is_err(), "{error}, and not {foreseen:?}");
                        assert!(exceeds.max < u64::from(n), "{error}: it was {n}");
                    }
                    _ => assert!(!matches!(foreseen, Ok(Some(Duration::ZERO))), "{error}"),
                }
                let there = error.retry_after().filter(|_| self.limiter.queue_len() == 0);
                self.refused =
                    there.map(|after| (n, Duration::from_nanos(self.now()).saturating_add(after)));
                Err(error)
            }
        }
    }

    /// The time that a refusal gave has come: it is not too short.
    fn again(&mut self) {
        let Some((n, at)) = self.refused.take() else { return };
        let now = Duration::from_nanos(self.now());
        // No other caller came between, and the clock gets there.
        if at <= now || at.as_nanos() > Nanos::END.get().into() || !self.waiting.is_empty() {
            return;
        }
        self.clock.advance(at.saturating_sub(now));
        let answer = self.take(n);
        assert!(answer.is_ok(), "{n} at {at:?}: {answer:?}");
    }

    fn accept(&mut self, n: u32, at: u64, grant: Grant<'static, AllOf>) {
        let index = (n > 0).then_some(self.granted.len());
        if n > 0 {
            assert!(at >= self.paused_until.min(Nanos::END.get()), "{n} granted at {at}");
            assert!(self.granted.last().is_none_or(|last| last.at <= at), "not in order");
            self.refused = None;
            self.granted.push(Granted { at, n: n.into(), kept: true });
        }
        self.held.push(Held { grant, at, index });
        if n > 0 {
            let out: u64 = self.held.iter().map(|held| u64::from(held.grant.cost())).sum();
            for max in self.policy.parts().iter().filter_map(law::in_flight) {
                assert!(out <= max.into(), "{out} of {max} out at once");
            }
        }
    }

    /// The queue is served in its order.
    fn poll(&mut self) {
        for mut waiting in std::mem::take(&mut self.waiting) {
            match waiting.call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => self.waiting.push(waiting),
                Poll::Ready(Err(error)) => {
                    assert!(!matches!(error, Error::Denied { .. }), "{error}");
                }
                Poll::Ready(Ok(grant)) => {
                    let at = waiting.joined
                        + u64::try_from(grant.waited().as_nanos()).expect("on the clock");
                    assert!(at <= self.now());
                    self.accept(waiting.n, at, grant);
                }
            }
        }
    }

    /// Law 1, and what anyone can see.
    fn judge(&mut self) {
        for part in self.policy.parts() {
            law::holds(part, &self.granted);
        }
        assert_eq!(self.limiter.queue_len(), self.waiting.len());
        let _ = (self.limiter.available(), self.limiter.quota());
    }
}
