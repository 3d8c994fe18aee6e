//! Grants that are kept: corrections of what they cost, and the end of that.

use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use super::entry::Slot;
use super::shard::SHARDS;
use super::table::Table;
use crate::error::Error;
use crate::line::Change;
use crate::policy::{Policy, Quota};
use crate::rate_limiter::{GrantId, Keys};

impl<K, P, S> Keys<P> for Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    fn change(&self, id: GrantId, change: &Change<P>) -> Result<Option<P::Receipt>, Error> {
        let mut shard = self.part(id.shard(SHARDS)).lock();
        let Some(index) = shard.held(id) else { return Ok(None) };
        let now = shard.now(&self.clock);
        let (policy, slot) = shard.parts(index);
        match slot {
            Slot::Quiet(state) => {
                change.check(policy, state, now)?;
                Ok(change.apply(policy, state, now, now))
            }
            Slot::Busy(line) => {
                let line = Arc::clone(line);
                drop(shard);
                line.change(change)
            }
        }
    }

    fn give_back(&self, id: GrantId, change: &Change<P>) {
        let mut shard = self.part(id.shard(SHARDS)).lock();
        let Some(index) = shard.held(id) else { return };
        let now = shard.now(&self.clock);
        let (policy, slot) = shard.parts(index);
        match slot {
            Slot::Quiet(state) => _ = change.apply(policy, state, now, now),
            Slot::Busy(line) => {
                let line = Arc::clone(line);
                drop(shard);
                line.give_back(change);
            }
        }
    }

    fn quota(&self, id: GrantId) -> Option<Quota<P::Cost>> {
        let mut shard = self.part(id.shard(SHARDS)).lock();
        let index = shard.held(id)?;
        let now = shard.now(&self.clock);
        match shard.parts_of(index) {
            (policy, Slot::Quiet(state)) => Some(Quota::of(policy, state, now)),
            (_, Slot::Busy(line)) => {
                let line = Arc::clone(line);
                drop(shard);
                Some(line.quota())
            }
        }
    }

    fn close(&self, id: GrantId) {
        let part = self.part(id.shard(SHARDS));
        // The lock would record it first.
        if part.close(id) {
            return;
        }
        let now = part.lock().let_go(id, &self.clock);
        if let Some(now) = now {
            self.look_again_after(now);
        }
    }

    fn share(&self) -> Arc<dyn Keys<P>> {
        Table::share(self)
    }
}
