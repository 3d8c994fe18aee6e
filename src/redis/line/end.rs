//! How a request ends, and what that means for its waiters and changes.

use super::KeyLine;
use super::change::refuse_all;
use super::failure::{crowded, lost_with_runtime, no_runtime, without_redis};
use super::request::{InFlightRequest, RequestEnd, RequestKind, Rest};
use super::waiter::Outcome;
use crate::error::store::StoreError;
use crate::redis::connection::request::Reply;
use crate::redis::rules::Rules;
use crate::redis::script::policies::Scripted;
use crate::units::Nanos;

impl<P: Scripted> KeyLine<P> {
    /// Applies the end of a request.
    pub(crate) fn end(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        mut request: InFlightRequest<P::Cost>,
        end: RequestEnd,
    ) {
        let rest = match &end {
            RequestEnd::Replied(reply) => self.replied(rules, now, &mut request, reply),
            RequestEnd::Failed(failure) => self.failed(rules, now, &request, failure),
            RequestEnd::NoSlot | RequestEnd::Withdrawn => {
                if matches!(end, RequestEnd::NoSlot) {
                    let error = crowded().error(&self.key);
                    self.wait_for_slot(rules, now, error);
                }
                if request.tries {
                    rules.health.abandoned();
                }
                Rest::Repeat
            }
            RequestEnd::Unsent => {
                // The alarm may try again, and find the same runtime.
                rules.health.unsent(now);
                if let Some(failing) = &mut self.failing {
                    failing.outage.failed(now);
                }
                Rest::Refuse(no_runtime().error(&self.key))
            }
            RequestEnd::Abandoned => {
                rules.health.abandoned();
                let cost = self.spare_cost;
                for _ in std::mem::take(&mut self.spare) {
                    self.let_go(cost);
                }
                Rest::Refuse(lost_with_runtime().error(&self.key))
            }
        };
        match rest {
            Rest::Settled => {}
            Rest::Repeat => self.repeat(request.kind),
            Rest::Refuse(error) => self.refuse(rules, request.kind, &error),
        }
        if let RequestEnd::Replied(Reply::Told(..)) = end {
            self.turn_away_the_too_large(now);
        }
        if !matches!(end, RequestEnd::Unsent) {
            self.hand_on_spare();
        }
    }

    fn repeat(&mut self, kind: RequestKind<P::Cost>) {
        self.released |= P::HELD;
        match kind {
            RequestKind::Take(ids) => {
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

    fn refuse(&mut self, rules: &Rules<P>, kind: RequestKind<P::Cost>, error: &StoreError) {
        // A probe takes nothing, so nothing is lost with it.
        if error.may_have_charged() && !matches!(kind, RequestKind::Probe) {
            rules.counters.lost.add(1);
        }
        // Redis has not heard of the permits that came back; but a key at fault is left alone.
        self.released |= P::HELD && error.is_unavailable();
        match kind {
            RequestKind::Take(ids) => {
                for id in ids {
                    if self.unask(id) {
                        let outcome = match error.is_unavailable() {
                            true => without_redis(rules, error.clone()),
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

    /// Refuses the changes that wait, after the task that was to send them has ended.
    pub(crate) fn refuse_changes(&mut self) {
        self.released |= P::HELD;
        refuse_all(std::mem::take(&mut self.changes), &no_runtime().error(&self.key));
    }
}
