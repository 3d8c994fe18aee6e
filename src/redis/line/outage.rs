//! The requests for one key that fail, while Redis may still answer for others.

use crate::error::store::StoreError;
use crate::observe::Event;
use crate::redis::context::Context;
use crate::redis::health::{Outage, State};
use crate::redis::script::Scripted;
use crate::units::Nanos;

use super::flight::InFlightRequest;

/// After this many probes a key that no caller needs is left alone.
const PROBES: u32 = 20;

#[derive(Default)]
pub(super) struct KeyOutage {
    /// Set while requests for this key fail.
    failing: Option<Failing>,
    /// When the first and the last of the requests failed that have failed in a row.
    failed: Option<(Nanos, Nanos)>,
    pub(super) last_reply: Nanos,
}

struct Failing {
    outage: Outage,
    /// Probes since a caller last needed this key.
    probes: u32,
}

impl KeyOutage {
    pub(super) fn is_on(&self) -> bool {
        self.failing.is_some()
    }

    /// The error of the last request.
    pub(super) fn error(&self) -> Option<StoreError> {
        self.failing.as_ref().map(|failing| failing.outage.error.clone())
    }

    /// The same, if requests have failed for so long that no caller waits any longer.
    pub(super) fn exceeds_deadline(&self, now: Nanos) -> Option<&StoreError> {
        let failing = self.failing.as_ref().map(|failing| &failing.outage);
        failing.filter(|outage| outage.exceeds_deadline(now)).map(|outage| &outage.error)
    }

    /// Until then callers wait.
    pub(super) fn until(&self) -> Option<Nanos> {
        self.failing.as_ref().map(|failing| failing.outage.until)
    }

    /// When the next request may be sent.
    pub(super) fn retry_at(&self) -> Option<Nanos> {
        self.failing.as_ref().map(|failing| failing.outage.retry_at)
    }

    /// Whether the pause after a failure keeps the next request. While Redis is down, the pauses are those of all
    /// keys.
    pub(super) fn pauses<P: Scripted>(&self, context: &Context<P>, now: Nanos) -> bool {
        self.retry_at().is_some_and(|at| now < at) && context.health.state() != State::Down
    }

    /// Callers need this key.
    pub(super) fn note_need(&mut self) {
        if let Some(failing) = &mut self.failing {
            failing.probes = 0;
        }
    }

    /// A request has failed. `random`: for the pauses.
    pub(super) fn failed<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        request: &InFlightRequest<P::Cost>,
        error: &StoreError,
        random: u64,
    ) -> Option<Event> {
        let (deadline, sent) = (context.options.deadline, request.at);
        let first = self.failed.map(|(first, _)| first);
        let down = context.health.failed(now, sent, deadline, first, error, request.tries);
        self.failed = Some((first.unwrap_or(now), now));
        context.slots.narrow();
        let failing = self.failing.get_or_insert_with(|| Failing {
            outage: Outage::new(&context.health, sent, deadline, error.clone(), random),
            probes: 0,
        });
        failing.outage.failed(now, error);
        failing.probes += u32::from(request.is_probe());
        // There may be many such keys.
        self.failing.take_if(|failing| failing.probes > PROBES);
        down
    }

    /// The server has answered a request that was sent at `sent`.
    pub(super) fn answered<P: Scripted>(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        sent: Nanos,
    ) -> Option<Event> {
        (self.failed, self.last_reply) = (None, now);
        if self.failing.take().is_some() {
            context.slots.widen();
        }
        context.health.well(now, sent)
    }

    /// An outage of all keys that has ended says nothing about this one: its callers ask at once, and it needs no
    /// probe.
    pub(super) fn forget<P: Scripted>(&mut self, context: &Context<P>) {
        if let Some((_, last)) = self.failed.filter(|_| self.failing.is_some())
            && context.health.has_recovered_since(last)
        {
            self.failing = None;
        }
    }
}
