//! The requests for one key that fail, while Redis may still answer for others.

use std::time::Duration;

use crate::error::store::StoreError;
use crate::observe::Event;
use crate::redis::context::Context;
use crate::redis::health::{Health, Outage};
use crate::redis::script::Scripted;
use crate::units::Nanos;

/// After this many probes a key that no caller needs is left alone. There may be many such keys.
const PROBES: u32 = 30;

/// Failures are in a row if no more than this and the deadline is between them.
const IN_A_ROW: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct KeyOutage {
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
    pub(super) fn failed<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        (sent, is_probe): (Nanos, bool),
        error: &StoreError,
    ) -> (bool, Option<Event>) {
        let (health, deadline) = (&context.health, context.options.deadline);
        // Not one of an earlier outage of all keys.
        let in_a_row = deadline.saturating_add(IN_A_ROW);
        let first = self.failed.filter(|&(_, last)| now.since(last) <= in_a_row);
        let first = first.map(|(first, _)| first);
        self.failed = Some((first.unwrap_or(now), now));
        let since = first.unwrap_or(sent);
        if is_probe {
            health.has_probed();
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
    pub(super) fn answered<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
    ) -> Option<Event> {
        *self = Self { last_reply: now, ..Self::default() };
        context.health.well(now)
    }
}
