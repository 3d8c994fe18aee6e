//! Generations of a policy: one policy for a key in the whole fleet.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::KeyLine;
use super::change::{Done, KeyChange};
use super::flight::RequestKind;
use super::request::Rest;
use crate::error::store::StoreError;
use crate::redis::events::Event;
use crate::redis::rules::Rules;
use crate::redis::script::wire::PolicyHeader;
use crate::redis::script::{Scripted, wire};
use crate::units::Nanos;

impl<P: Scripted> KeyLine<P> {
    /// Sets a new policy, here and for the fleet.
    pub(crate) fn set_policy(
        &mut self,
        rules: &Rules<P>,
        now: Nanos,
        policy: P,
    ) -> oneshot::Receiver<Done<P::Cost>> {
        self.header = rules.header(&policy, self.header.generation.wrapping_add(1));
        self.policy = policy;
        self.unheard = true;
        self.turn_away_the_too_large(now);
        self.request(KeyChange { policy: true, ..KeyChange::of(vec![b'N']) })
    }

    /// The key holds another policy than ours, or something unknown. Decides which of the two policies
    /// counts.
    pub(super) fn disagree(
        &mut self,
        rules: &Rules<P>,
        kind: &RequestKind<P::Cost>,
        word: &str,
        generation: i64,
        parameters: &[u8],
    ) -> Rest {
        let generation = u32::try_from(generation).unwrap_or_default();
        let sets_policy = self.changes.iter().any(|change| change.policy)
            || matches!(kind, RequestKind::Change(changes) if changes.iter().any(|c| c.policy));
        // Another policy was set at the same time and arrived first; without this, ours would be lost.
        let is_new = sets_policy || (word == "conflict" && self.unheard);
        self.ask_again();
        let foreign = Rest::Refuse(StoreError::foreign(&self.key, None));
        match word {
            "older" => self.changes.push_front(KeyChange::of(vec![b'N'])),
            // It is older than our own.
            "adopt" if generation < self.header.generation => {}
            "adopt" | "conflict" if is_new => {
                // Another process has set one meanwhile; ours is the later one.
                let generation = generation.max(self.header.generation);
                let Some(next) = generation.checked_add(1) else { return foreign };
                self.header = rules.header(&self.policy, next);
            }
            // Even of the same generation: the earlier policy was lost, as by a fail-over.
            "adopt" | "conflict" if generation > 0 => {
                let policy = self.policy.clone().read(&mut wire::floats(parameters));
                let Some(policy) = policy else { return foreign };
                let idle = rules.options.absent_is_idle;
                self.header = PolicyHeader::of(&rules.scripts.kind, parameters, generation, idle);
                self.policy = policy;
                self.unheard = false;
                self.events.push(Event::PolicyAdopted { key: Arc::clone(&self.key), generation });
            }
            "conflict" => return Rest::Refuse(StoreError::conflict(&self.key)),
            _ => return foreign,
        }
        Rest::Repeat
    }
}
