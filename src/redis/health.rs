//! Whether Redis can be reached, and which key may try it next.
//!
//! A request that fails makes the connection *doubtful*. Requests that had no effect are repeated at growing
//! intervals, and callers wait, but not longer than one deadline after the first failure, or after the last
//! reply if that came later. Then Redis is *down*: waiting and new callers get what
//! [`Unavailable`](super::Unavailable) says, and one request at a time probes whether it is back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::events::Event;
use crate::error::store::StoreError;
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
    /// The next attempt: at once after the first failure, then ever later.
    pub(super) retry_at: Nanos,
    pause: Duration,
    /// What the last request said.
    pub(super) error: StoreError,
}

impl Outage {
    /// The longest time from the end of an attempt to the next: service is back within a second of the server.
    const LONGEST_PAUSE: Duration = Duration::from_millis(250);

    pub(super) fn new(since: Nanos, now: Nanos, deadline: Duration, error: StoreError) -> Self {
        let until = since.saturating_add(deadline);
        Self { since, until, retry_at: now, pause: Duration::ZERO, error }
    }

    pub(super) fn failed(&mut self, now: Nanos) {
        self.retry_at = now.saturating_add(self.pause);
        self.pause = (self.pause * 2).clamp(Duration::from_millis(1), Self::LONGEST_PAUSE);
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
    /// Nothing has failed: too many other requests are in flight.
    pub(super) crowded: bool,
}

impl Health {
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

    /// When the key may try Redis. If another key is trying now, a key that needs Redis looks again soon.
    pub(super) fn again(&self, now: Nanos, needed: bool, fails: bool) -> Option<Nanos> {
        self.trouble(|trouble| trouble.again(now, needed, fails))?
    }

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
        let since = sent.max(Nanos::new(self.answered.load(Ordering::SeqCst)));
        let trouble = trouble.get_or_insert_with(|| Trouble {
            outage: Outage::new(since, now, deadline, error.clone()),
            is_down: false,
            probing: false,
            others_wait: false,
        });
        trouble.probing = false;
        trouble.outage.error = error.clone();
        trouble.outage.failed(now);
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
        let trouble = trouble.take()?;
        trouble.is_down.then(|| Event::Up { after: now.since(trouble.outage.since) })
    }

    /// A request ended without a reply or failure: its task has ended.
    pub(super) fn abandoned(&self) {
        self.trouble(|trouble| trouble.probing = false);
    }

    /// A request could not be sent: the next waits.
    pub(super) fn unsent(&self, now: Nanos) {
        self.trouble(|trouble| {
            trouble.probing = false;
            trouble.outage.failed(now);
        });
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
            // It may ask at any time, and has nothing to ask now.
            Nanos::ZERO => now.saturating_add(SOON),
            turn => turn,
        };
        // While Redis is down, some key must probe.
        let again = (needed || self.is_down && !self.probing).then_some(again);
        again.into_iter().chain(until).min()
    }

    /// When the key may try. A key that has not failed may be well: it does not wait for the keys that have,
    /// nor do these take its turn.
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
