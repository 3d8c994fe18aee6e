//! The requests for one key that fail, while Redis may still answer for others.

use crate::error::store::StoreError;
use crate::observe::Event;
use crate::redis::context::Context;
use crate::redis::health::{Health, Outage, State};
use crate::redis::script::Scripted;
use crate::units::Nanos;

/// After this many probes a key that no caller needs is left alone. There may be many such keys.
const PROBES: u32 = 20;

#[derive(Default)]
pub(super) struct KeyOutage {
    /// Set while requests for this key fail.
    pub(super) failing: Option<Outage>,
    /// When the first and the last of the requests failed that have failed in a row.
    failed: Option<(Nanos, Nanos)>,
    /// Probes since a caller last needed this key.
    pub(super) probes: u32,
    pub(super) last_reply: Nanos,
}

impl KeyOutage {
    pub(super) fn is_on(&self) -> bool {
        self.failing.is_some()
    }

    /// Whether Redis has answered for other keys since the requests for this one fail.
    pub(super) fn is_alone(&self, health: &Health) -> bool {
        self.failed.is_some_and(|(first, _)| health.last_reply() > first)
    }

    /// The error of the last request, if requests have failed for so long that no caller waits any longer.
    pub(super) fn exceeds_deadline(&self, now: Nanos) -> Option<&StoreError> {
        let failing = self.failing.as_ref().filter(|outage| outage.until <= now);
        failing.map(|outage| &outage.error)
    }

    /// A request has failed that was sent at `sent`. `random`: for the pauses.
    pub(super) fn failed<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        (sent, is_probe): (Nanos, bool),
        error: &StoreError,
        random: u64,
    ) -> Option<Event> {
        let (health, deadline) = (&context.health, context.options.deadline);
        let first = self.failed.map(|(first, _)| first);
        let down = health.failed(now, (sent, is_probe), deadline, first, error);
        self.failed = Some((first.unwrap_or(now), now));
        context.widen(false);
        let new = || Outage::new(sent, deadline, error, random);
        self.failing.get_or_insert_with(new).failed(now, error);
        // While Redis is down some key must probe.
        self.probes += u32::from(is_probe && health.state() != State::Down);
        if self.probes > PROBES {
            (self.failing, self.probes) = (None, 0);
        }
        down
    }

    /// The server has answered a request that was sent at `sent`.
    pub(super) fn answered<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        sent: Nanos,
    ) -> Option<Event> {
        if self.is_on() {
            context.widen(true);
        }
        *self = Self { last_reply: now, ..Self::default() };
        context.health.well(now, sent)
    }

    /// An outage of all keys that has ended says nothing about this one: its callers ask at once, and it needs no
    /// probe.
    pub(super) fn forget<P: Scripted>(&mut self, context: &Context<P>) {
        if let Some((_, last)) = self.failed
            && context.health.has_recovered_since(last)
        {
            (self.failing, self.probes) = (None, 0);
        }
    }
}
