//! Whether Redis can be reached, and which key may try it next.
//!
//! A request that fails makes the connection *doubtful*. Requests that had no effect are repeated at growing
//! intervals, and callers wait, but not longer than one deadline after the first failure, or after the last
//! reply if that came later. Then Redis is *down*: waiting and new callers get what
//! [`Unavailable`](super::Unavailable) says, and one request at a time probes whether it is back.

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

/// What may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendPermission {
    Ask,
    /// One request at a time.
    Try,
    Probe,
    Wait,
}

#[derive(Debug)]
pub(super) struct Health {
    /// Whether `trouble` is set: without any, nothing locks.
    troubled: AtomicBool,
    trouble: Mutex<Option<Trouble>>,
    /// When the last reply came, in nanoseconds.
    answered: AtomicU64,
    /// When the latest of the requests that were answered was sent.
    answered_sent: AtomicU64,
    max_pause: Duration,
    random: u64,
}

/// An outage of all of Redis.
#[derive(Debug)]
struct Trouble {
    outage: Outage,
    is_down: bool,
    /// One request at a time.
    probing: bool,
    /// Whether keys that have not failed themselves wait for that turn: they may be well.
    others_wait: bool,
}

/// At least this often a key looks again while requests of other keys try Redis.
const SOON: Duration = Duration::from_millis(10);

/// Consecutive failures of the requests for one key, or for all: how long callers wait for the end of the
/// outage, and when the next request may try.
#[derive(Debug)]
pub(super) struct Outage {
    since: Nanos,
    /// Until then callers wait.
    pub(super) until: Nanos,
    /// The next attempt: at once after the first failure, then at growing intervals.
    pub(super) retry_at: Nanos,
    pause: Duration,
    max_pause: Duration,
    random: u64,
    /// When the last attempt failed.
    failed: Nanos,
    /// The error of the last attempt.
    pub(super) error: StoreError,
}

impl Outage {
    /// `health`: how long the pauses may become.
    pub(super) fn new(
        health: &Health,
        since: Nanos,
        deadline: Duration,
        error: StoreError,
        random: u64,
    ) -> Self {
        let until = since.saturating_add(deadline);
        let (pause, max_pause) = (Duration::ZERO, health.max_pause);
        Self { since, until, retry_at: since, pause, max_pause, random, failed: since, error }
    }

    pub(super) fn failed(&mut self, now: Nanos, error: &StoreError) {
        self.failed = now;
        self.error = error.clone();
        self.retry_at = now.saturating_add(about(&mut self.random, self.pause));
        self.pause = (self.pause * 2).max(Duration::from_millis(1)).min(self.max_pause);
    }

    pub(super) fn exceeds_deadline(&self, now: Nanos) -> bool {
        now >= self.until
    }
}

/// An outage of one key: Redis may still answer for others.
pub(super) struct KeyOutage {
    pub(super) outage: Outage,
    /// Probes since a caller last needed this key.
    pub(super) probes: u32,
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
    pub(super) fn new(max_pause: Duration, random: u64) -> Self {
        let (troubled, trouble, answered, answered_sent) = Default::default();
        Self { troubled, trouble, answered, answered_sent, max_pause, random: random | 1 }
    }

    /// Whether a request that was sent at `sent` is not merely in a crowd in front of a server: a later one was
    /// answered, or none was for `time`.
    pub(super) fn has_passed_over(&self, sent: Nanos, now: Nanos, time: Duration) -> bool {
        let read = |time: &AtomicU64| Nanos::new(time.load(Ordering::Relaxed));
        read(&self.answered_sent) > sent.saturating_add(SOON)
            || read(&self.answered).max(sent).saturating_add(time) <= now
    }

    pub(super) fn is_well(&self) -> bool {
        !self.troubled.load(Ordering::SeqCst)
    }

    /// `None` without trouble.
    fn trouble<R>(&self, look: impl FnOnce(&mut Trouble) -> R) -> Option<R> {
        if self.is_well() {
            return None;
        }
        self.trouble.lock().as_mut().map(look)
    }

    pub(super) fn state(&self) -> State {
        let state = |trouble: &mut Trouble| match trouble.is_down {
            true => State::Down,
            false => State::Doubtful,
        };
        self.trouble(state).unwrap_or(State::Up)
    }

    /// The error for callers that cannot wait for Redis any longer.
    pub(super) fn down(&self) -> Option<StoreError> {
        self.trouble(|trouble| trouble.is_down.then(|| trouble.outage.error.clone()))?
    }

    /// The error of the last request, if it failed.
    pub(super) fn doubt(&self) -> Option<StoreError> {
        self.trouble(|trouble| trouble.outage.error.clone())
    }

    /// Lets time pass. An event if callers have waited for the deadline.
    pub(super) fn pass(&self, now: Nanos) -> Option<Event> {
        self.trouble(|trouble| trouble.pass(now))?
    }

    /// `fails`: whether requests of the same key have failed.
    pub(super) fn may_ask(&self, now: Nanos, fails: bool) -> SendPermission {
        self.trouble(|trouble| trouble.may_ask(now, fails)).unwrap_or(SendPermission::Ask)
    }

    /// When the key may try Redis. While another key tries, a key that needs Redis looks again soon.
    pub(super) fn again(&self, now: Nanos, needed: bool, fails: bool) -> Option<Nanos> {
        self.trouble(|trouble| trouble.again(now, needed, fails))?
    }

    /// A request of a key has failed that was sent at `sent`. `key`: the outage of that key before. `tries`:
    /// whether it tried for all keys if Redis is back.
    pub(super) fn failed(
        &self,
        now: Nanos,
        sent: Nanos,
        deadline: Duration,
        key: Option<&KeyOutage>,
        error: &StoreError,
        tries: bool,
    ) -> Option<Event> {
        let unheard = key.map_or(sent, |key| key.outage.failed);
        if Nanos::new(self.answered.load(Ordering::SeqCst)) > unheard {
            // Redis has answered requests of other keys since: only this key cannot be reached.
            if tries {
                self.abandoned();
            }
            return None;
        }
        let mut trouble = self.trouble.lock();
        // Either this sees a reply that comes now, or the key that gets it sees the trouble.
        self.troubled.store(true, Ordering::SeqCst);
        // Redis was there when it last replied.
        let since = sent.max(Nanos::new(self.answered.load(Ordering::SeqCst)));
        let trouble = trouble.get_or_insert_with(|| Trouble {
            outage: Outage::new(self, since, deadline, error.clone(), self.random),
            is_down: false,
            probing: false,
            others_wait: false,
        });
        trouble.probing &= !tries;
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
        trouble.is_down.then(|| Event::Up { after: now.since(trouble.outage.since) })
    }

    /// A request shows nothing about Redis: it was not sent, or only its key fails.
    pub(super) fn abandoned(&self) {
        self.trouble(|trouble| trouble.probing = false);
    }
}

impl Trouble {
    fn may_ask(&mut self, now: Nanos, fails: bool) -> SendPermission {
        if self.probing || now < self.turn(fails) {
            self.others_wait |= !fails;
            return SendPermission::Wait;
        }
        self.probing = true;
        self.others_wait = false;
        if self.is_down { SendPermission::Probe } else { SendPermission::Try }
    }

    fn again(&self, now: Nanos, needed: bool, fails: bool) -> Option<Nanos> {
        let until = (!self.is_down).then_some(self.outage.until);
        let again = match self.turn(fails) {
            _ if self.probing => now.saturating_add(self.outage.pause.max(SOON)),
            // The key may ask at any time, and has nothing to ask now.
            Nanos::ZERO => now.saturating_add(SOON),
            turn => turn,
        };
        // While Redis is down, some key must probe.
        let again = (needed || self.is_down && !self.probing).then_some(again);
        again.into_iter().chain(until).min()
    }

    /// When the key may try. A key that has not failed may be well: it does not wait for failed keys, and they
    /// do not take its turn.
    fn turn(&self, fails: bool) -> Nanos {
        match fails {
            true if self.others_wait => self.outage.retry_at.saturating_add(2 * SOON),
            false if !self.is_down => Nanos::ZERO,
            _ => self.outage.retry_at,
        }
    }

    fn pass(&mut self, now: Nanos) -> Option<Event> {
        if self.is_down || !self.outage.exceeds_deadline(now) {
            return None;
        }
        self.is_down = true;
        Some(Event::Down { error: self.outage.error.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key has failed before the last reply, so it alone is at fault; it does not end the turn of another.
    #[test]
    fn a_failure_of_one_key_does_not_end_the_turn_of_another() {
        let health = Health::new(Duration::from_millis(500), 1);
        let (at, deadline) = (|ms: u64| Nanos::new(ms * 1_000_000), Duration::from_millis(500));
        let error = StoreError::foreign(&"key".into(), None, None);
        let mut one = KeyOutage {
            outage: Outage::new(&health, at(1), deadline, error.clone(), 1),
            probes: 0,
        };
        one.outage.failed(at(1), &error);
        health.well(at(2), at(1));
        health.failed(at(4), at(3), deadline, None, &error, false);
        assert_eq!(health.may_ask(at(4), true), SendPermission::Try, "another key tries");
        health.failed(at(5), at(1), deadline, Some(&one), &error, false);
        assert_eq!(health.may_ask(at(5), true), SendPermission::Wait, "one at a time");
        // Nor does a request that was sent before, and did not try.
        health.failed(at(5), at(3), deadline, None, &error, false);
        assert_eq!(health.may_ask(at(5), false), SendPermission::Wait);
        health.failed(at(6), at(4), deadline, None, &error, true);
        assert_eq!(health.may_ask(at(6), false), SendPermission::Try, "it has tried");
    }
}
