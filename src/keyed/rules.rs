//! Changes of the policies of all keys, or of one.

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use super::policy_source::PolicySource;
use super::table::Table;
use super::to_key::ToKey;
use crate::policy::Policy;
use crate::wait_queue::AfterUnlock;

impl<K, P, S> Table<K, P, S>
where
    K: Hash + Eq + Send + 'static,
    P: Policy,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Puts all keys under another rule, shard by shard. If several calls run at once, the last rule wins.
    pub(super) fn set_rule(&self, rule: &PolicySource<K, P>) {
        let number = self.rules.fetch_add(1, Ordering::Relaxed);
        for part in self.parts() {
            let mut after = After::default();
            let mut shard = part.lock();
            if shard.rule_number > number {
                continue;
            }
            let now = shard.now(&self.clock);
            // Compute all policies before applying any of them: the function of the key may panic.
            let own: Vec<_> = shard
                .entries
                .places()
                .map(|place| (place, rule.own(&shard.entries.get(place).key)))
                .collect();
            let old_rule = shard.rule.clone();
            let mut rest = Vec::new();
            match (&old_rule, rule) {
                // Words mean states under the one policy. All of them change together, after the last that may panic.
                (PolicySource::One(old), PolicySource::One(new)) => {
                    let mut states = Vec::new();
                    for (place, own) in own {
                        match shard.entries.get(place).word.read() {
                            Ok(word) => {
                                let mut state = shard.unpack(word);
                                new.migrate(old, &mut state, now);
                                states.push((place, state));
                            }
                            Err(_) => rest.push((place, own)),
                        }
                    }
                    after.rules.push(std::mem::replace(&mut shard.rule, rule.clone()));
                    for (place, state) in states {
                        shard.store(place, state, now);
                    }
                }
                // A key with its own policy does not need the rule. A key without one needs the old rule until
                // it has its own. In this order each key always has a policy, even after a panic.
                (PolicySource::Each(_), PolicySource::One(_)) => {
                    after.rules.push(std::mem::replace(&mut shard.rule, rule.clone()));
                    rest = own;
                }
                (_, PolicySource::Each(_)) => rest = own,
            }
            for (place, own) in rest {
                let old = shard.renew(place, own, (&old_rule, rule), now, |line, policy| {
                    after.lines.push(line.set_policy_quietly(policy));
                });
                after.policies.extend(old);
            }
            after.rules.push(std::mem::replace(&mut shard.rule, rule.clone()));
            shard.rule_number = number;
            after.rules.push(old_rule);
            drop(shard);
            drop(after);
            self.look_again_after(now);
        }
    }

    /// Calls the function of the key again for one key.
    pub(super) fn refresh<Q: ToKey<K> + ?Sized>(&self, key: &Q) {
        let hash = self.hash_of(key);
        let mut after = After::default();
        let mut shard = self.part(Self::shard_of(hash)).lock();
        let found = shard.entries.find(hash, |entry| key.is_key(&entry.key));
        let (Some(place), PolicySource::Each(_)) = (found, &shard.rule) else { return };
        let rule = shard.rule.clone();
        let own = rule.own(&shard.entries.get(place).key);
        let now = shard.now(&self.clock);
        let old = shard.renew(place, own, (&rule, &rule), now, |line, policy| {
            after.lines.push(line.set_policy_quietly(policy));
        });
        after.policies.extend(old);
        after.rules.push(rule);
        drop(shard);
        drop(after);
        self.look_again_after(now);
    }
}

/// The work that is left after unlocking. Wakers and drops may run any code.
struct After<K, P: Policy> {
    lines: Vec<AfterUnlock>,
    policies: Vec<Box<P>>,
    rules: Vec<PolicySource<K, P>>,
}

impl<K, P: Policy> Default for After<K, P> {
    fn default() -> Self {
        Self { lines: Vec::new(), policies: Vec::new(), rules: Vec::new() }
    }
}

impl<K, P: Policy> Drop for After<K, P> {
    fn drop(&mut self) {
        self.lines.drain(..).for_each(AfterUnlock::run);
    }
}
