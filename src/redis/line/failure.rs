//! The end of a request, and the outcome of callers while Redis is away.

use super::KeyLine;
use super::change::refuse_all;
use super::flight::{InFlightRequest, RequestEnd, RequestKind};
use super::request::Rest;
use super::waiter::{GrantInfo, Outcome};
use crate::error::store::StoreError;
use crate::redis::connection::{Effect, Failure, Reply};
use crate::redis::context::Context;
use crate::redis::health::{KeyOutage, Outage};
use crate::redis::options::Unavailable;
use crate::redis::script::Scripted;
use crate::units::Nanos;

/// After this many probes a key that no caller needs is left alone.
const PROBES: u32 = 20;

/// What a caller gets while Redis is away.
pub(super) fn without_redis<P>(context: &Context<P>, error: StoreError) -> Outcome {
    context.counters.without_redis.add(1);
    match &context.options.unavailable {
        Unavailable::Fail => Outcome::Refused(error.into()),
        Unavailable::Allow => Outcome::Granted(GrantInfo::default()),
        Unavailable::Local(_) => Outcome::Local,
    }
}

impl<P: Scripted> KeyLine<P> {
    /// Applies the end of a request.
    pub(crate) fn end(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        mut request: InFlightRequest<P::Cost>,
        end: RequestEnd,
    ) {
        let rest = match &end {
            RequestEnd::Replied(reply) => match self.replied(context, now, &mut request, reply) {
                Some(rest) => {
                    context.counters.answered.add(1);
                    context.counters.latency.add_time(now.since(request.at));
                    rest
                }
                None => self.failed(context, now, &request, &Failure::strange(reply)),
            },
            RequestEnd::Failed(failure) => self.failed(context, now, &request, failure),
            RequestEnd::NoSlot | RequestEnd::Withdrawn => {
                if matches!(end, RequestEnd::NoSlot) {
                    self.crowded.get_or_insert(now);
                }
                context.health.abandoned(request.tries);
                Rest::Repeat
            }
        };
        match rest {
            Rest::Settled => {}
            Rest::Repeat => self.repeat(context, now, request.kind),
            Rest::Refuse(error) => self.refuse(context, now, request.kind, &error),
        }
        if let RequestEnd::Replied(Reply::PolicyMismatch(..)) = end {
            self.turn_away_the_too_large(now);
        }
        self.hand_on_spare();
    }

    fn repeat(&mut self, context: &Context<P>, now: Nanos, kind: RequestKind<P::Cost>) {
        self.lease.failed(context, now, false);
        match kind {
            RequestKind::Take(_, ids) => {
                for id in ids {
                    self.unask(id);
                }
            }
            RequestKind::Change(changes) => {
                for change in changes.into_iter().rev() {
                    self.changes.push_front(change);
                }
            }
            RequestKind::Probe => {}
        }
    }

    fn refuse(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        kind: RequestKind<P::Cost>,
        error: &StoreError,
    ) {
        // A probe takes nothing, so nothing is lost with it.
        if error.may_have_charged() && !matches!(kind, RequestKind::Probe) {
            context.counters.lost.add(1);
        }
        // A key at fault is left alone.
        if error.is_unavailable() {
            let may_have_booked = matches!(kind, RequestKind::Take(..)) && error.may_have_charged();
            self.lease.failed(context, now, may_have_booked);
        }
        match kind {
            RequestKind::Take(_, ids) => {
                for id in ids {
                    if self.unask(id) {
                        let outcome = match error.is_unavailable()
                            || context.options.foreign_is_unavailable
                        {
                            true => without_redis(context, error.clone()),
                            false => Outcome::Refused(error.clone().into()),
                        };
                        self.turn_away(id, outcome);
                    }
                }
            }
            RequestKind::Change(changes) => refuse_all(changes, error),
            RequestKind::Probe => {}
        }
    }

    fn failed(
        &mut self,
        context: &Context<P>,
        now: Nanos,
        request: &InFlightRequest<P::Cost>,
        failure: &Failure,
    ) -> Rest {
        context.counters.failed.add(1);
        let error = failure.error(&self.key);
        if failure.key {
            // The server is there.
            context.counters.foreign.add(1);
            self.well(context, now, request.at);
            self.ask_again();
            return Rest::Refuse(error);
        }
        let deadline = context.options.deadline;
        let down = context.health.failed(
            now,
            request.at,
            deadline,
            self.failed.map(|(first, _)| first),
            &error,
            request.tries,
        );
        self.events.extend(down);
        self.failed = Some((self.failed.map_or(now, |(first, _)| first), now));
        context.slots.narrow();
        let random = self.random;
        let failing = self.failing.get_or_insert_with(|| {
            let outage = Outage::new(&context.health, request.at, deadline, error.clone(), random);
            KeyOutage { outage, probes: 0 }
        });
        failing.outage.failed(now, &error);
        failing.probes += u32::from(request.is_probe());
        // There may be many such keys.
        self.failing.take_if(|failing| failing.probes > PROBES);
        if failure.effect == Effect::None { Rest::Repeat } else { Rest::Refuse(error) }
    }

    /// The server has answered a request that was sent at `sent`.
    pub(super) fn well(&mut self, context: &Context<P>, now: Nanos, sent: Nanos) {
        self.failed = None;
        if self.failing.take().is_some() {
            context.slots.widen();
        }
        let up = context.health.well(now, sent);
        self.events.extend(up);
    }

    /// An outage of all keys that has ended says nothing about this one: its callers ask at once, and it needs no
    /// probe.
    pub(super) fn forget_outage(&mut self, context: &Context<P>) {
        if let Some((_, last)) = self.failed.filter(|_| self.failing.is_some())
            && context.health.has_recovered_since(last)
        {
            self.failing = None;
        }
    }

    /// Lets time pass: if Redis has been away for the deadline, no caller waits for it any longer.
    pub(super) fn give_up_on_redis(&mut self, context: &Context<P>, now: Nanos) {
        if context.health.is_well() && self.failing.is_none() {
            return;
        }
        self.events.extend(context.health.pass(now));
        let failing = self.failing.as_ref().map(|failing| &failing.outage);
        let failing = failing.filter(|outage| outage.exceeds_deadline(now));
        let failing = failing.map(|outage| outage.error.clone());
        if let Some(error) = context.health.down().or(failing) {
            let error = error.unsent(&self.key);
            let waiting: Vec<_> = self.unasked().collect();
            if let Some(failing) = self.failing.as_mut().filter(|_| !waiting.is_empty()) {
                failing.probes = 0;
            }
            for id in waiting {
                let outcome = without_redis(context, error.clone());
                self.turn_away(id, outcome);
            }
            refuse_all(std::mem::take(&mut self.changes), &error);
        }
    }

    /// Whether requests for this key have failed for so long that callers are served without Redis.
    pub(crate) fn is_away(&mut self, context: &Context<P>, now: Nanos) -> bool {
        self.forget_outage(context);
        self.failing.as_ref().is_some_and(|failing| failing.outage.exceeds_deadline(now))
            || self.is_crowded_out(context.options.deadline, now)
    }

    /// Why requests are not sent as usual, if they are not.
    pub(super) fn trouble(&self, context: &Context<P>) -> Option<StoreError> {
        let own = self.failing.as_ref().map(|failing| failing.outage.error.clone());
        let crowd = || self.crowded.map(|_| self.crowd(Effect::None));
        own.or_else(crowd).or_else(|| context.health.doubt())
    }
}
