//! Whether Redis can be reached, and which key may try it next.
//!
//! A request that fails makes the connection *doubtful*. Requests that had no effect are repeated at growing
//! intervals, and callers wait, but not longer than one deadline after the first failure, or after the last
//! reply if that came later. Then Redis is *down*: waiting and new callers get what
//! [`Unavailable`](super::Unavailable) says, and one request at a time probes whether it is back.
//!
//! The next reply ends that outage for every key: what failed before it says nothing about a key. A key that fails
//! while others are answered has an outage of its own.

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
    /// One request of the group at a time.
    Try(Group),
    Probe(Group),
    Wait,
}

impl SendPermission {
    /// The group whose turn it is.
    pub(super) fn group(self) -> Option<Group> {
        match self {
            Self::Try(group) | Self::Probe(group) => Some(group),
            Self::Ask | Self::Wait => None,
        }
    }
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
    /// When the last outage of all ended.
    recovered: AtomicU64,
    max_pause: Duration,
    random: u64,
}

/// An outage of all of Redis.
#[derive(Debug)]
struct Trouble {
    outage: Outage,
    is_down: bool,
    /// Whether a request tries Redis, of each group of keys.
    tried: [bool; 2],
}

/// The keys of a group take turns, and do not wait for the other group: one request of each at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// They may be well.
    Others,
    /// Their last request has failed.
    Failing,
}

impl Group {
    fn of(fails: bool) -> Self {
        if fails { Self::Failing } else { Self::Others }
    }
}

/// A key does not look again earlier than this while requests of other keys try Redis.
const SOON: Duration = Duration::from_millis(10);

/// Nor later than this, however long the pauses are, while it is in doubt whether Redis is there, and while Redis
/// is down.
const LATEST: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

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
        Self { since, until, retry_at: since, pause, max_pause, random, error }
    }

    pub(super) fn failed(&mut self, now: Nanos, error: &StoreError) {
        self.error = error.clone();
        self.retry_at = now.saturating_add(about(&mut self.random, self.pause));
        self.pause = (self.pause * 2).max(Duration::from_millis(1)).min(self.max_pause);
    }

    pub(super) fn exceeds_deadline(&self, now: Nanos) -> bool {
        now >= self.until
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
    pub(super) fn new(max_pause: Duration, random: u64) -> Self {
        let (troubled, trouble, answered, answered_sent, recovered) = Default::default();
        let random = random | 1;
        Self { troubled, trouble, answered, answered_sent, recovered, max_pause, random }
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

    /// Whether an outage of all has ended since a key failed.
    pub(super) fn has_recovered_since(&self, failed: Nanos) -> bool {
        Nanos::new(self.recovered.load(Ordering::SeqCst)) > failed
    }

    /// A request of a key has failed that was sent at `sent`. `before`: when the first of those before it
    /// failed that have failed in a row. `tries`: the group for which it tried if Redis is back.
    pub(super) fn failed(
        &self,
        now: Nanos,
        sent: Nanos,
        deadline: Duration,
        before: Option<Nanos>,
        error: &StoreError,
        tries: Option<Group>,
    ) -> Option<Event> {
        if self.last_reply() > before.unwrap_or(sent) {
            // Redis has answered requests of other keys since: only this key cannot be reached.
            self.abandoned(tries);
            return None;
        }
        let mut trouble = self.trouble.lock();
        // Either this sees a reply that comes now, or the key that gets it sees the trouble.
        self.troubled.store(true, Ordering::SeqCst);
        // Redis was there when it last replied.
        let since = sent.max(self.last_reply());
        let trouble = trouble.get_or_insert_with(|| Trouble {
            outage: Outage::new(self, since, deadline, error.clone(), self.random),
            is_down: false,
            tried: [false; 2],
        });
        trouble.end_turn(tries);
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

    /// A request shows nothing about Redis: it was not sent, or only its key fails.
    pub(super) fn abandoned(&self, tries: Option<Group>) {
        self.trouble(|trouble| trouble.end_turn(tries));
    }
}

impl Trouble {
    fn may_ask(&mut self, now: Nanos, fails: bool) -> SendPermission {
        let group = Group::of(fails);
        if self.tried[group as usize] || now < self.turn(group) {
            return SendPermission::Wait;
        }
        self.tried[group as usize] = true;
        match self.is_down {
            true => SendPermission::Probe(group),
            false => SendPermission::Try(group),
        }
    }

    fn end_turn(&mut self, tries: Option<Group>) {
        if let Some(group) = tries {
            self.tried[group as usize] = false;
        }
    }

    fn again(&self, now: Nanos, needed: bool, fails: bool) -> Option<Nanos> {
        let until = (!self.is_down).then_some(self.outage.until);
        let group = Group::of(fails);
        let again = match self.turn(group) {
            _ if self.tried[group as usize] => {
                let latest = LATEST[usize::from(self.is_down)];
                now.saturating_add(self.outage.pause.clamp(SOON, latest))
            }
            // The key may ask at any time, and has nothing to ask now.
            Nanos::ZERO => now.saturating_add(SOON),
            turn => turn,
        };
        // While Redis is down, some key must probe.
        let again = (needed || self.is_down && self.tried == [false; 2]).then_some(again);
        again.into_iter().chain(until).min()
    }

    /// When a key of the group may try.
    fn turn(&self, group: Group) -> Nanos {
        match group {
            Group::Others if !self.is_down => Nanos::ZERO,
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
    use super::SendPermission::Try;
    use super::*;

    /// The key has failed before the last reply, so it alone is at fault; it does not end the turn of another.
    #[test]
    fn a_failure_of_one_key_does_not_end_the_turn_of_another() {
        let health = Health::new(Duration::from_millis(500), 1);
        let (at, deadline) = (|ms: u64| Nanos::new(ms * 1_000_000), Duration::from_millis(500));
        let error = StoreError::foreign(&"key".into(), None);
        health.well(at(2), at(1));
        health.failed(at(4), at(3), deadline, None, &error, None);
        assert_eq!(health.may_ask(at(4), true), Try(Group::Failing), "another key tries");
        health.failed(at(5), at(1), deadline, Some(at(1)), &error, None);
        assert_eq!(health.may_ask(at(5), true), SendPermission::Wait, "one at a time");
        // Nor does a request that was sent before, and did not try.
        health.failed(at(5), at(3), deadline, None, &error, None);
        assert_eq!(health.may_ask(at(5), true), SendPermission::Wait);
        // Those that have not failed do not wait for it.
        assert_eq!(health.may_ask(at(5), false), Try(Group::Others));
        health.failed(at(6), at(4), deadline, None, &error, Some(Group::Failing));
        assert_eq!(health.may_ask(at(6), false), SendPermission::Wait);
        assert_eq!(health.may_ask(at(10), true), Try(Group::Failing), "it has tried");
    }

    const DEADLINE: Duration = Duration::from_millis(500);

    fn at(ms: u64) -> Nanos {
        Nanos::new(ms * 1_000_000)
    }

    fn error() -> StoreError {
        StoreError::foreign(&"key".into(), None)
    }

    /// Down at the deadline after the last reply, or after the first request that failed if that was sent later.
    #[test]
    fn redis_is_down_after_a_deadline_without_a_reply() {
        let health = Health::new(Duration::from_millis(8), 1);
        assert!(health.is_well() && health.pass(at(1)).is_none());
        health.well(at(10), at(9));
        assert!(health.failed(at(20), at(5), DEADLINE, None, &error(), None).is_none());
        assert_eq!((health.state(), health.is_well()), (State::Up, true), "only that key fails");
        assert!(health.failed(at(30), at(20), DEADLINE, None, &error(), None).is_none());
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
        health.failed(at(640), at(630), DEADLINE, None, &error(), None);
        assert!(health.well(at(650), at(645)).is_none());
        assert!(!health.has_recovered_since(at(620)));
    }

    #[test]
    fn pauses_grow_to_the_longest() {
        let longest = Duration::from_millis(8);
        let health = Health::new(longest, 1);
        let mut outage = Outage::new(&health, at(1), DEADLINE, error(), 77);
        assert_eq!((outage.until, outage.retry_at), (at(501), at(1)));
        assert!(outage.exceeds_deadline(at(501)) && !outage.exceeds_deadline(at(500)));
        let mut pauses = Vec::new();
        for ms in [0, 1, 2, 4, 8, 8] {
            outage.failed(at(600), &error());
            let pause = outage.retry_at.since(at(600));
            let about = Duration::from_millis(ms);
            assert!(about / 2 <= pause && pause <= about * 3 / 2, "{pause:?} about {about:?}");
            pauses.push(pause);
        }
        assert_ne!(pauses[4], pauses[5], "at random");
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
        let health = Health::new(DEADLINE, 1);
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

    /// A key that needs Redis looks again soon, and at the end of the deadline; one that does not looks only while
    /// it is in doubt, or where no other probes.
    #[test]
    fn a_key_looks_again_when_it_may_ask() {
        let health = Health::new(Duration::from_secs(1), 1);
        assert_eq!(health.again(at(1), true, false), None);
        health.failed(at(2), at(1), DEADLINE, None, &error(), None);
        assert_eq!(health.again(at(2), true, false), Some(at(12)), "at any time");
        assert_eq!(health.again(at(2), true, true), Some(at(2)), "its turn");
        assert_eq!(health.again(at(2), false, true), Some(at(501)));
        assert_eq!(health.again(at(495), true, false), Some(at(501)));
        assert_eq!(health.may_ask(at(2), true), Try(Group::Failing));
        assert_eq!(health.again(at(2), true, true), Some(at(12)), "another tries");
        // The pauses are long now.
        for _ in 0..9 {
            health.failed(at(2), at(1), DEADLINE, None, &error(), None);
        }
        assert_eq!(health.again(at(2), true, true), Some(at(52)));
        health.pass(at(501));
        assert_eq!(health.again(at(501), true, true), Some(at(1_001)));
        assert_eq!(health.again(at(501), false, true), None, "another probes");
        health.abandoned(Some(Group::Failing));
        let turn = health.again(at(501), false, false).expect("some key must");
        assert_eq!(health.again(at(501), true, true), Some(turn));
        assert_eq!(health.may_ask(turn, false), SendPermission::Probe(Group::Others));
        assert_eq!(health.may_ask(turn, false).group(), None);
        assert_eq!(health.may_ask(turn, true).group(), Some(Group::Failing));
    }
}
