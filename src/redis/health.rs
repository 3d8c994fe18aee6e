//! Whether Redis can be reached.
//!
//! A request that fails makes the connection *doubtful*: keys repeat what had no effect at growing intervals, and
//! their callers wait, for at most one deadline after the first failure, or after the last reply if that came later. Then
//! Redis is *down*: all callers get what [`Unavailable`](super::Unavailable) says, and one request at a time probes
//! whether it is back.
//!
//! The next reply ends that outage for every key. A key that fails while others are answered has an outage of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::connection::random;
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
}

/// An outage of all of Redis.
#[derive(Debug)]
struct Trouble {
    outage: Outage,
    is_down: bool,
    /// Whether a request probes if Redis is back.
    is_probed: bool,
}

/// A key looks again whether it may send after a time of this length at least and at most.
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
    /// The error of the last attempt.
    pub(super) error: StoreError,
}

impl Outage {
    pub(super) fn new(since: Nanos, deadline: Duration, error: &StoreError) -> Self {
        let until = since.saturating_add(deadline);
        Self { since, until, retry_at: since, pause: Duration::ZERO, error: error.clone() }
    }

    /// An attempt has failed. Of requests that were under way together the first one counts.
    pub(super) fn failed(&mut self, now: Nanos, error: &StoreError) {
        self.error = error.clone();
        if self.retry_at <= now {
            self.retry_at = now.saturating_add(about(self.pause));
            self.pause = (self.pause * 2).max(Duration::from_millis(1)).min(MAX_PAUSE);
        }
    }
}

/// A random time from half of `duration` to one and a half.
pub(super) fn about(duration: Duration) -> Duration {
    let part = (random() >> 40) as f64 / (1u64 << 24) as f64;
    whole(duration / 2 + duration.mul_f64(part))
}

/// In whole microseconds, as scripts count.
pub(super) fn whole(duration: Duration) -> Duration {
    duration - Duration::from_nanos(u64::from(duration.subsec_nanos() % 1_000))
}

impl Health {
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

    /// `has_failed`: whether the last request of the key has failed. One that has not need not wait in doubt.
    pub(super) fn may_send(&self, now: Nanos, has_failed: bool) -> SendPermission {
        let may_send = self.trouble(|it| match it.outage.retry_at <= now && !it.is_probed {
            _ if !it.is_down && !has_failed => SendPermission::Ask,
            true if it.is_down => SendPermission::Probe,
            true => SendPermission::Ask,
            false => SendPermission::Wait,
        });
        may_send.unwrap_or(SendPermission::Ask)
    }

    /// A request probes if Redis is back, or has failed to.
    pub(super) fn set_probed(&self, is_probed: bool) {
        self.trouble(|trouble| trouble.is_probed = is_probed);
    }

    /// When a key looks again whether it [may send](Self::may_send), if it waits for that.
    pub(super) fn look_at(&self, now: Nanos, has_failed: bool) -> Option<Nanos> {
        self.trouble(|Trouble { outage, is_down, is_probed }| {
            let soon = now.saturating_add(outage.pause.clamp(LOOK[0], LOOK[1]));
            let at = if !*is_probed && outage.retry_at > now { outage.retry_at } else { soon };
            (*is_down || has_failed).then_some(at)
        })?
    }

    /// A request that was sent at `sent` has failed, and none was answered since.
    pub(super) fn failed(
        &self,
        now: Nanos,
        sent: Nanos,
        deadline: Duration,
        error: &StoreError,
    ) -> Option<Event> {
        let mut trouble = self.trouble.lock();
        // Either this sees a reply that comes now, or the key that gets it sees the trouble.
        self.troubled.store(true, Ordering::SeqCst);
        // Redis was there when it last replied.
        let since = sent.max(self.last_reply());
        let trouble = trouble.get_or_insert_with(|| {
            let outage = Outage::new(since, deadline, error);
            Trouble { outage, is_down: false, is_probed: false }
        });
        trouble.outage.failed(now, error);
        trouble.pass(now)
    }

    /// A request was answered.
    pub(super) fn well(&self, now: Nanos) -> Option<Event> {
        self.answered.fetch_max(now.get(), Ordering::SeqCst);
        if self.is_well() {
            return None;
        }
        let mut trouble = self.trouble.lock();
        self.troubled.store(false, Ordering::Release);
        let Trouble { outage, is_down, .. } = trouble.take()?;
        is_down.then(|| Event::Up { after: now.since(outage.since) })
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

/// After this many probes a key that no caller needs is left alone. There may be many such keys.
const PROBES: u32 = 30;

/// Failures are in a row if no more than this and the deadline is between them.
const IN_A_ROW: Duration = Duration::from_secs(1);

/// The requests for one key that fail, while Redis may still answer for others.
#[derive(Default)]
pub(crate) struct KeyOutage {
    /// Set while requests for this key fail and others are answered.
    pub(super) failing: Option<Outage>,
    /// When the first and the last of the requests failed that have failed in a row.
    failed: Option<(Nanos, Nanos)>,
    /// Probes since a caller last needed this key.
    pub(super) probes: u32,
    pub(super) last_reply: Nanos,
}

impl KeyOutage {
    /// Whether the last request has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether requests fail: this key probes, also without callers.
    pub(super) fn is_on(&self, health: &Health) -> bool {
        self.failing.is_some() || self.has_failed() && !health.is_well()
    }

    /// The error of the last request, if requests have failed for so long that no caller waits any longer.
    pub(super) fn exceeds_deadline(&self, now: Nanos) -> Option<&StoreError> {
        let failing = self.failing.as_ref().filter(|outage| outage.until <= now);
        failing.map(|outage| &outage.error)
    }

    /// A request has failed that was sent at `sent`: an outage of all keys, unless Redis has answered for others since the
    /// requests for this one fail. Returns whether the key is left alone now.
    pub(super) fn failed(
        &mut self,
        (health, deadline): (&Health, Duration),
        now: Nanos,
        (sent, is_probe): (Nanos, bool),
        error: &StoreError,
    ) -> (bool, Option<Event>) {
        // Not one of an earlier outage of all keys.
        let in_a_row = deadline.saturating_add(IN_A_ROW);
        let first = self.failed.filter(|&(_, last)| now.since(last) <= in_a_row);
        let first = first.map(|(first, _)| first);
        self.failed = Some((first.unwrap_or(now), now));
        let since = first.unwrap_or(sent);
        if is_probe {
            health.set_probed(false);
        }
        if health.last_reply() <= since {
            // The outage of all has its own pauses.
            self.failing = None;
            return (false, health.failed(now, sent, deadline, error));
        }
        self.failing.get_or_insert_with(|| Outage::new(since, deadline, error)).failed(now, error);
        self.probes += u32::from(is_probe);
        let is_left = self.probes > PROBES;
        if is_left {
            *self = Self { last_reply: self.last_reply, ..Self::default() };
        }
        (is_left, None)
    }

    /// The server has answered.
    pub(super) fn answered(&mut self, health: &Health, now: Nanos) -> Option<Event> {
        *self = Self { last_reply: now, ..Self::default() };
        health.well(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_millis(500);

    fn at(ms: u64) -> Nanos {
        Nanos::new(ms * 1_000_000)
    }

    fn error() -> StoreError {
        StoreError::refused("away").at(&"key".into())
    }

    /// Down at the deadline after the last reply, or after the first request that failed if that was sent later.
    #[test]
    fn redis_is_down_after_a_deadline_without_a_reply() {
        let health = Health::default();
        assert!(health.is_well() && health.pass(at(1)).is_none());
        health.well(at(10));
        assert!(health.failed(at(30), at(20), DEADLINE, &error()).is_none());
        assert_eq!((health.state(), health.is_well()), (State::Doubtful, false));
        assert!(health.doubt().is_some() && health.down().is_none());
        assert!(health.pass(at(519)).is_none());
        assert!(matches!(health.pass(at(520)), Some(Event::Down { .. })));
        assert!(health.pass(at(521)).is_none(), "once");
        assert_eq!(health.state(), State::Down);
        assert!(health.down().is_some());
        let Some(Event::Up { after }) = health.well(at(620)) else { panic!("is back") };
        assert_eq!(after, Duration::from_millis(600));
        assert_eq!((health.state(), health.is_well()), (State::Up, true));
        assert!(health.down().is_none() && health.doubt().is_none());
        // It was only doubtful.
        health.failed(at(640), at(630), DEADLINE, &error());
        assert!(health.well(at(650)).is_none());
    }

    #[test]
    fn pauses_grow_to_the_longest() {
        let mut outage = Outage::new(at(1), DEADLINE, &error());
        assert_eq!((outage.until, outage.retry_at), (at(501), at(1)));
        let (mut pauses, mut now) = (Vec::new(), at(600));
        for ms in [0, 1, 2, 4, 8, 16, 32, 64, 128, 250, 250] {
            outage.failed(now, &error());
            let pause = outage.retry_at.since(now);
            let about = Duration::from_millis(ms);
            assert!(about / 2 <= pause && pause <= about * 3 / 2, "{pause:?} about {about:?}");
            pauses.push(pause);
            now = outage.retry_at;
        }
        assert_ne!(pauses[9], pauses[10], "at random");
        // Another one that was under way.
        outage.failed(at(601), &error());
        assert_eq!(outage.retry_at, now);
        let many: Vec<_> = (0..1_000).map(|_| about(Duration::from_millis(8))).collect();
        assert!(many.iter().all(|time| time.subsec_nanos() % 1_000 == 0), "whole microseconds");
        let sum: Duration = many.iter().sum();
        assert!((7_600..8_400).contains(&(sum.as_millis())), "{sum:?}");
    }

    /// One key at a time; the others look again.
    #[test]
    fn keys_take_turns_to_probe() {
        let health = Health::default();
        assert_eq!(
            (health.may_send(at(1), true), health.look_at(at(1), true)),
            (SendPermission::Ask, None)
        );
        let fail = |ms| drop(health.failed(at(ms), at(1), DEADLINE, &error()));
        fail(2);
        assert_eq!(health.may_send(at(2), true), SendPermission::Ask);
        health.pass(at(501));
        assert_eq!(health.may_send(at(501), false), SendPermission::Probe);
        health.set_probed(true);
        assert_eq!(health.may_send(at(501), false), SendPermission::Wait);
        assert_eq!(health.look_at(at(501), false), Some(at(511)), "another probes");
        fail(501);
        assert_eq!(health.may_send(at(503), false), SendPermission::Wait, "and goes on");
        health.set_probed(false);
        let turn = health.look_at(at(501), false).expect("the next turn");
        assert_eq!(health.may_send(turn, false), SendPermission::Probe);
    }
}
