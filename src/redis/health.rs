//! Whether Redis can be reached.
//!
//! A request that fails makes the connection *doubtful*: each key repeats what had no effect at growing intervals, and
//! its callers wait, for at most one deadline after the first failure, or after the last reply if that came later. Then
//! Redis is *down*: all callers get what [`Unavailable`](super::Unavailable) says, and one request at a time probes
//! whether it is back.
//!
//! The next reply ends that outage for every key. A key that fails while others are answered has an outage of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::store::StoreError;
use crate::observe::Event;
use crate::sync::Mutex;
use crate::units::Nanos;

/// Whether Redis can be reached, as far as this process knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// The last request was answered.
    Up,
    /// The last request failed; it is tried again.
    Doubtful,
    /// Callers are served without it.
    Down,
}

/// What a key may send now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendPermission {
    Ask,
    Probe,
    Wait,
}

#[derive(Debug, Default)]
pub(super) struct Health {
    /// Whether `trouble` is set: without any, nothing locks.
    troubled: AtomicBool,
    trouble: Mutex<Option<Trouble>>,
    /// When the last reply came, in nanoseconds.
    answered: AtomicU64,
    /// When the latest of the requests that were answered was sent.
    answered_sent: AtomicU64,
    /// When the last outage of all ended.
    recovered: AtomicU64,
    random: u64,
}

/// An outage of all of Redis.
#[derive(Debug)]
struct Trouble {
    outage: Outage,
    is_down: bool,
    /// Whether a request probes if Redis is back.
    is_probed: bool,
}

/// While Redis is down, a key looks again whether it may probe after a time of this length at least and at most.
const LOOK: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

/// The longest pause between two attempts, on average. Each is random, so that processes do not keep step.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Consecutive failures of the requests for one key, or for all.
#[derive(Debug)]
pub(super) struct Outage {
    since: Nanos,
    /// Until then callers wait.
    pub(super) until: Nanos,
    /// The next attempt: at once after the first failure, then at growing intervals.
    pub(super) retry_at: Nanos,
    pause: Duration,
    random: u64,
    /// The error of the last attempt.
    pub(super) error: StoreError,
}

impl Outage {
    pub(super) fn new(since: Nanos, deadline: Duration, error: &StoreError, random: u64) -> Self {
        let until = since.saturating_add(deadline);
        let (pause, error) = (Duration::ZERO, error.clone());
        Self { since, until, retry_at: since, pause, random, error }
    }

    pub(super) fn failed(&mut self, now: Nanos, error: &StoreError) {
        self.error = error.clone();
        self.retry_at = now.saturating_add(about(&mut self.random, self.pause));
        self.pause = (self.pause * 2).max(Duration::from_millis(1)).min(MAX_PAUSE);
    }
}

/// A random time from half of `duration` to one and a half.
pub(super) fn about(random: &mut u64, duration: Duration) -> Duration {
    // Xorshift.
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    let about = duration / 2 + duration.mul_f64((*random >> 40) as f64 / (1u64 << 24) as f64);
    whole(about)
}

/// In whole microseconds, as scripts count.
pub(super) fn whole(duration: Duration) -> Duration {
    duration - Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000))
}

impl Health {
    pub(super) fn new(random: u64) -> Self {
        Self { random: random | 1, ..Self::default() }
    }

    /// Whether a request that was sent at `sent` is not merely in a crowd in front of a server: a later one was
    /// answered, or none was for `time`.
    pub(super) fn has_passed_over(&self, sent: Nanos, now: Nanos, time: Duration) -> bool {
        let later = Nanos::new(self.answered_sent.load(Ordering::Relaxed));
        later > sent.saturating_add(LOOK[0])
            || self.last_reply().max(sent).saturating_add(time) <= now
    }

    pub(super) fn is_well(&self) -> bool {
        !self.troubled.load(Ordering::SeqCst)
    }

    /// When the last reply came.
    pub(super) fn last_reply(&self) -> Nanos {
        Nanos::new(self.answered.load(Ordering::SeqCst))
    }

    /// `None` without trouble.
    fn trouble<R>(&self, look: impl FnOnce(&mut Trouble) -> R) -> Option<R> {
        if self.is_well() {
            return None;
        }
        self.trouble.lock().as_mut().map(look)
    }

    pub(super) fn state(&self) -> State {
        match self.trouble(|trouble| trouble.is_down) {
            None => State::Up,
            Some(false) => State::Doubtful,
            Some(true) => State::Down,
        }
    }

    /// The error for callers that cannot wait for Redis any longer.
    pub(super) fn down(&self) -> Option<StoreError> {
        self.trouble(|trouble| trouble.is_down.then(|| trouble.outage.error.clone()))?
    }

    /// The error of the last request, if it failed, and until when callers wait.
    pub(super) fn doubt(&self) -> Option<(StoreError, Nanos)> {
        self.trouble(|trouble| (trouble.outage.error.clone(), trouble.outage.until))
    }

    /// Lets time pass. An event if callers have waited for the deadline.
    pub(super) fn pass(&self, now: Nanos) -> Option<Event> {
        self.trouble(|trouble| trouble.pass(now))?
    }

    pub(super) fn may_send(&self, now: Nanos) -> SendPermission {
        let may_probe = |it: &mut Trouble| !it.is_probed && it.outage.retry_at <= now;
        match self.trouble(|trouble| trouble.is_down.then(|| may_probe(trouble))).flatten() {
            None => SendPermission::Ask,
            Some(true) => SendPermission::Probe,
            Some(false) => SendPermission::Wait,
        }
    }

    /// A request probes if Redis is back.
    pub(super) fn probe(&self) {
        self.trouble(|trouble| trouble.is_probed = true);
    }

    /// While Redis is down: when a key looks again whether it may probe.
    pub(super) fn look_at(&self, now: Nanos) -> Option<Nanos> {
        self.trouble(|Trouble { outage, is_down, is_probed }| {
            let soon = now.saturating_add(outage.pause.clamp(LOOK[0], LOOK[1]));
            let is_set = !*is_probed && outage.retry_at > now;
            is_down.then_some(if is_set { outage.retry_at } else { soon })
        })?
    }

    /// Whether an outage of all has ended since a key failed.
    pub(super) fn has_recovered_since(&self, failed: Nanos) -> bool {
        Nanos::new(self.recovered.load(Ordering::SeqCst)) > failed
    }

    /// A request of a key has failed that was sent at `sent`. `before`: when the first of those before it
    /// failed that have failed in a row.
    pub(super) fn failed(
        &self,
        now: Nanos,
        (sent, is_probe): (Nanos, bool),
        deadline: Duration,
        before: Option<Nanos>,
        error: &StoreError,
    ) -> Option<Event> {
        if self.last_reply() > before.unwrap_or(sent) {
            // Redis has answered requests of other keys since: only this key cannot be reached.
            return None;
        }
        if is_probe {
            self.trouble(|trouble| trouble.is_probed = false);
        }
        let mut trouble = self.trouble.lock();
        // Either this sees a reply that comes now, or the key that gets it sees the trouble.
        self.troubled.store(true, Ordering::SeqCst);
        // Redis was there when it last replied.
        let since = sent.max(self.last_reply());
        let trouble = trouble.get_or_insert_with(|| {
            let outage = Outage::new(since, deadline, error, self.random);
            Trouble { outage, is_down: false, is_probed: false }
        });
        trouble.outage.failed(now, error);
        trouble.pass(now)
    }

    /// A request was answered.
    pub(super) fn well(&self, now: Nanos, sent: Nanos) -> Option<Event> {
        self.answered_sent.fetch_max(sent.get(), Ordering::Relaxed);
        self.answered.fetch_max(now.get(), Ordering::SeqCst);
        if self.is_well() {
            return None;
        }
        let mut trouble = self.trouble.lock();
        self.troubled.store(false, Ordering::Release);
        let trouble = trouble.take()?;
        trouble.is_down.then(|| {
            self.recovered.fetch_max(now.get(), Ordering::SeqCst);
            Event::Up { after: now.since(trouble.outage.since) }
        })
    }
}

impl Trouble {
    fn pass(&mut self, now: Nanos) -> Option<Event> {
        if self.is_down || now < self.outage.until {
            return None;
        }
        self.is_down = true;
        Some(Event::Down { error: self.outage.error.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::store::{Effect, Failure};

    const DEADLINE: Duration = Duration::from_millis(500);

    fn at(ms: u64) -> Nanos {
        Nanos::new(ms * 1_000_000)
    }

    fn error() -> StoreError {
        StoreError::new(&"key".into(), Failure::new(Effect::None, "away".into()))
    }

    /// Down at the deadline after the last reply, or after the first request that failed if that was sent later.
    #[test]
    fn redis_is_down_after_a_deadline_without_a_reply() {
        let health = Health::new(1);
        assert!(health.is_well() && health.pass(at(1)).is_none());
        health.well(at(10), at(9));
        assert!(health.failed(at(20), (at(5), false), DEADLINE, None, &error()).is_none());
        assert_eq!((health.state(), health.is_well()), (State::Up, true), "only that key fails");
        assert!(health.failed(at(30), (at(20), false), DEADLINE, None, &error()).is_none());
        assert_eq!((health.state(), health.is_well()), (State::Doubtful, false));
        assert!(health.doubt().is_some() && health.down().is_none());
        assert!(health.pass(at(519)).is_none());
        assert!(matches!(health.pass(at(520)), Some(Event::Down { .. })));
        assert!(health.pass(at(521)).is_none(), "once");
        assert_eq!(health.state(), State::Down);
        assert!(health.down().is_some());
        let Some(Event::Up { after }) = health.well(at(620), at(610)) else { panic!("is back") };
        assert_eq!(after, Duration::from_millis(600));
        assert_eq!((health.state(), health.is_well()), (State::Up, true));
        assert!(health.down().is_none() && health.doubt().is_none());
        assert!(health.has_recovered_since(at(619)) && !health.has_recovered_since(at(620)));
        // It was only doubtful.
        health.failed(at(640), (at(630), false), DEADLINE, None, &error());
        assert!(health.well(at(650), at(645)).is_none());
        assert!(!health.has_recovered_since(at(620)));
    }

    #[test]
    fn pauses_grow_to_the_longest() {
        let longest = Duration::from_millis(8);
        let mut outage = Outage::new(at(1), DEADLINE, &error(), 77);
        assert_eq!((outage.until, outage.retry_at), (at(501), at(1)));
        let mut pauses = Vec::new();
        for ms in [0, 1, 2, 4, 8, 16, 32, 64, 128, 250, 250] {
            outage.failed(at(600), &error());
            let pause = outage.retry_at.since(at(600));
            let about = Duration::from_millis(ms);
            assert!(about / 2 <= pause && pause <= about * 3 / 2, "{pause:?} about {about:?}");
            pauses.push(pause);
        }
        assert_ne!(pauses[9], pauses[10], "at random");
        let mut random = 5;
        let many: Vec<_> = (0..1_000).map(|_| about(&mut random, longest)).collect();
        assert!(many.iter().all(|time| time.subsec_nanos() % 1_000 == 0), "whole microseconds");
        let sum: Duration = many.iter().sum();
        assert!((7_800..8_200).contains(&(sum.as_millis())), "{sum:?}");
        let most = [many.iter().min(), many.iter().max()].map(|time| time.expect("a thousand"));
        assert!(
            *most[0] < Duration::from_micros(4_100) && *most[1] > Duration::from_micros(11_900)
        );
    }

    /// One that waits in front of a server is not passed over: nothing that was sent later is answered.
    #[test]
    fn a_request_is_passed_over_by_later_ones_or_by_silence() {
        let health = Health::new(1);
        let time = Duration::from_millis(30);
        health.well(at(100), at(60));
        assert!(!health.has_passed_over(at(50), at(129), time), "sent at about the same time");
        assert!(!health.has_passed_over(at(100), at(129), time));
        assert!(health.has_passed_over(at(49), at(101), time), "a later one was answered");
        assert!(health.has_passed_over(at(50), at(130), time), "none was for a time");
        assert!(!health.has_passed_over(at(120), at(149), time));
        assert!(health.has_passed_over(at(120), at(150), time));
        // Replies that come in another order.
        health.well(at(90), at(40));
        assert!(health.has_passed_over(at(49), at(101), time));
        assert!(!health.has_passed_over(at(50), at(129), time));
    }

    /// One key at a time; the others look again.
    #[test]
    fn keys_take_turns_to_probe() {
        let health = Health::new(1);
        assert_eq!((health.may_send(at(1)), health.look_at(at(1))), (SendPermission::Ask, None));
        let fail = |is_probe| health.failed(at(2), (at(1), is_probe), DEADLINE, None, &error());
        (0..9).for_each(|_| drop(fail(false)));
        assert_eq!((health.may_send(at(2)), health.look_at(at(2))), (SendPermission::Ask, None));
        health.pass(at(501));
        assert_eq!(health.may_send(at(501)), SendPermission::Probe);
        health.probe();
        assert_eq!(health.may_send(at(501)), SendPermission::Wait);
        assert_eq!(health.look_at(at(501)), Some(at(751)), "another probes");
        fail(false);
        assert_eq!(health.may_send(at(501)), SendPermission::Wait, "and goes on");
        fail(true);
        let turn = health.look_at(at(2)).expect("the next turn");
        assert_eq!(health.may_send(turn), SendPermission::Probe);
    }
}
