//! How requests end, and what callers get while Redis is away.

use std::time::Duration;

use super::KeyLine;
use super::change::refuse_all;
use super::request::{InFlightRequest, RequestKind};
use super::waiter::{GrantInfo, Outcome};
use crate::error::store::StoreError;
use crate::redis::connection::failure::{Effect, Failure};
use crate::redis::health::Failing;
use crate::redis::options::Unavailable;
use crate::redis::rules::Rules;
use crate::redis::script::policies::Scripted;
use crate::units::Nanos;

fn no_runtime() -> Failure {
    let what = "no tokio runtime to send it, or one that has ended: without one use `Blocking`";
    Failure::new(Effect::None, what.into())
}

/// What somebody gets while Redis is away.
pub(super) fn without_redis<P>(rules: &Rules<P>, error: StoreError) -> Outcome {
    rules.counters.without_redis();
    match &rules.options.unavailable {
        Unavailable::Fail => Outcome::Refused(error.into()),
        Unavailable::Allow => {
            Outcome::Granted(GrantInfo { waited: Duration::ZERO, booking: None, limited_by: None })
        }
        Unavailable::Local(_) => Outcome::Local,
    }
}

impl<P: Scripted> KeyLine<P> {
    /// The request that was under way is lost with whoever sent it.
    pub(crate) fn abandoned(&mut self, rules: &Rules<P>, sent: InFlightRequest<P::Cost>) {
        rules.health.abandoned();
        let cost = self.spare_cost;
        for _ in std::mem::take(&mut self.spare) {
            self.let_go(cost);
        }
        let failure = Failure::new(Effect::Unknown, "the runtime that sent it has ended".into());
        self.lose(rules, sent.kind, &failure.error(&self.key));
    }

    /// A request cannot be sent: the runtime that was to do it has ended.
    pub(crate) fn unsent(&mut self, rules: &Rules<P>, sent: InFlightRequest<P::Cost>) {
        // Whoever tries it next may be the alarm, and find the same runtime.
        let now = self.time.latest();
        rules.health.unsent(now);
        if let Some(failing) = &mut self.failing {
            failing.retry.failed(now);
        }
        self.refuse(rules, sent.kind, &no_runtime().error(&self.key));
    }

    /// What was to be done to the key cannot be sent by whoever was to.
    pub(crate) fn refuse_changes(&mut self, rules: &Rules<P>) {
        let changes = RequestKind::Change(std::mem::take(&mut self.changes).into());
        self.refuse(rules, changes, &no_runtime().error(&self.key));
    }

    /// Whoever sends requests has nothing to do with the last one any more.
    pub(crate) fn free(&mut self) {
        self.under_way = false;
        self.failing.take_if(|failing| failing.crowded);
    }

    /// So many others are under way that it has to wait. Nobody waits for that longer than for an answer.
    pub(crate) fn no_slot(&mut self, rules: &Rules<P>, now: Nanos, sent: InFlightRequest<P::Cost>) {
        self.failing.get_or_insert_with(|| {
            let crowd = Failure::new(Effect::None, "too many other requests are under way".into());
            let error = crowd.error(&self.key);
            Failing { crowded: true, ..Failing::new(now, now, error) }
        });
        self.withdrawn(rules, sent);
    }

    /// It was not sent after all.
    pub(crate) fn withdrawn(&mut self, rules: &Rules<P>, sent: InFlightRequest<P::Cost>) {
        if sent.tries {
            rules.health.abandoned();
        }
        self.put_back(sent.kind);
        self.hand_on_spare();
    }

    /// Nothing has happened: they are asked for again.
    pub(super) fn put_back(&mut self, kind: RequestKind<P::Cost>) {
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

    /// All of them hear the same.
    pub(super) fn refuse(
        &mut self,
        rules: &Rules<P>,
        kind: RequestKind<P::Cost>,
        error: &StoreError,
    ) {
        // What it was to tell of places given back is not told; but a key that is at fault is left alone.
        self.released |= P::HELD && error.is_unavailable();
        match kind {
            RequestKind::Take(ids) => {
                for id in ids {
                    if self.unask(id) {
                        let outcome = if !error.is_unavailable() {
                            Outcome::Refused(error.clone().into())
                        } else {
                            without_redis(rules, error.clone())
                        };
                        self.turn_away(id, outcome);
                    }
                }
            }
            RequestKind::Change(changes) => {
                refuse_all(changes, error);
            }
            RequestKind::Probe => {}
        }
    }

    pub(super) fn failed(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        sent: InFlightRequest<P::Cost>,
        failure: Failure,
    ) {
        let error = failure.error(&self.key);
        if failure.key {
            // The server is there.
            self.well(rules, now);
            self.ask_again();
            return self.refuse(rules, sent.kind, &error);
        }
        let failing = self.failing.get_or_insert_with(|| Failing::new(sent.at, now, error.clone()));
        failing.retry.failed(now);
        failing.error = error.clone();
        failing.idle += u32::from(sent.is_probe());
        // There may be many keys that cannot be reached, and nobody who wants to.
        self.failing.take_if(|failing| failing.idle > Failing::LOOKS);
        let down = rules.health.failed(now, sent.at, rules.options.deadline, &error);
        self.events.extend(down);
        if failure.effect == Effect::None {
            self.put_back(sent.kind);
        } else {
            self.lose(rules, sent.kind, &error);
        }
    }

    /// Nobody knows whether the request was carried out. A probe asks for nothing that would be owed.
    fn lose(&mut self, rules: &Rules<P>, kind: RequestKind<P::Cost>, error: &StoreError) {
        if !matches!(kind, RequestKind::Probe) {
            rules.counters.lost();
        }
        self.refuse(rules, kind, error);
    }

    /// The server has answered.
    pub(super) fn well(&mut self, rules: &Rules<P>, now: Nanos) {
        self.failing = None;
        let up = rules.health.well(now);
        self.events.extend(up);
    }

    /// Whether requests for this key have failed for so long that callers are served without Redis.
    pub(crate) fn is_away(&self, now: Nanos, deadline: Duration) -> bool {
        self.failing.as_ref().is_some_and(|failing| now >= failing.until(deadline))
    }

    /// Why Redis is not asked as usual, if it is not.
    pub(super) fn trouble(&self, rules: &Rules<P>) -> Option<StoreError> {
        let own = self.failing.as_ref().map(|failing| failing.error.clone());
        own.or_else(|| rules.health.doubt())
    }
}
