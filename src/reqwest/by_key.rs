//! What the servers have said, for each key.

use std::collections::HashMap;

use crate::feedback::{Feedback, FeedbackBuilder};
use crate::limiter::any::AnyRateLimiter;
use crate::policy::Cost;
use crate::sync::Mutex;

type Options<C> = Box<
    dyn Fn(FeedbackBuilder<AnyRateLimiter<C>>) -> FeedbackBuilder<AnyRateLimiter<C>> + Send + Sync,
>;

/// A [`Feedback`] for each key in use. One that holds nothing back is dropped some time after.
pub(super) struct Teachers<C: Cost> {
    options: Option<Options<C>>,
    table: Mutex<Table<C>>,
}

struct Table<C: Cost> {
    by_key: HashMap<String, Feedback<AnyRateLimiter<C>>>,
    /// How many keys were added, or found no room, since all keys were looked at, and how many that left.
    misses: usize,
    left: usize,
}

/// Each is about a kilobyte.
const MOST: usize = 1 << 16;
/// Up to this number of keys a look is not worth its time.
const FEW: usize = 64;

impl<C: Cost> Teachers<C> {
    pub(super) fn new(options: Option<Options<C>>) -> Self {
        let table = Table { by_key: HashMap::new(), misses: 0, left: 0 };
        Self { options, table: Mutex::new(table) }
    }

    /// `None` if there is no room for another key.
    pub(super) fn at(
        &self,
        key: String,
        limiter: &AnyRateLimiter<C>,
    ) -> Option<Feedback<AnyRateLimiter<C>>> {
        let mut table = self.table.lock();
        if let Some(feedback) = table.by_key.get(&key) {
            return Some(feedback.clone());
        }
        table.misses += 1;
        if table.misses > table.left.max(FEW) {
            table.by_key.retain(|_, feedback| !feedback.is_idle());
            (table.misses, table.left) = (0, table.by_key.len());
        }
        if table.by_key.len() >= MOST {
            return None;
        }
        let builder = Feedback::builder(limiter.clone());
        let builder = match &self.options {
            Some(options) => options(builder),
            None => builder,
        };
        let feedback = builder.build();
        table.by_key.insert(key, feedback.clone());
        Some(feedback)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{InFlight, KeyedRateLimiter, ManualClock};

    #[test]
    fn a_key_without_news_is_dropped_and_one_that_is_paused_or_in_use_stays() {
        let clock = ManualClock::new();
        let keyed = KeyedRateLimiter::<String, _>::with_clock(InFlight::new(10), &clock);
        let teachers = Teachers::<u32>::new(None);
        let at = |key: String| {
            let limiter = AnyRateLimiter::new(keyed.at(key.clone()));
            teachers.at(key, &limiter).expect("room")
        };
        let mut call = at("paused".to_owned()).blocking_acquire(1).expect("granted");
        call.blocking_observe(429u16, &[("retry-after", "60")]);
        drop(call);
        let mut sent = at("in use".to_owned()).blocking_acquire(1).expect("granted");
        let keys = || teachers.table.lock().by_key.len();
        let has = |key: &str| teachers.table.lock().by_key.contains_key(key);
        for key in 0..10_000 {
            at(format!("key {key}")).blocking_acquire(1).expect("granted").refund();
            assert!(keys() <= 2 * FEW + 8, "{} keys", keys());
        }
        assert!(has("paused") && has("in use"));
        sent.blocking_observe(200u16, &[("x-ratelimit-remaining", "5")]);
        drop(sent);
        clock.advance(Duration::from_secs(61));
        // Its pause is over, but the server is trusted with one call at a time.
        let mut call = at("paused".to_owned()).blocking_acquire(1).expect("granted");
        call.blocking_observe(200u16, &[("x-ratelimit-remaining", "5")]);
        drop(call);
        clock.advance(Duration::from_secs(61));
        for key in 0..10 * FEW {
            at(format!("key {key}"));
        }
        assert!(!has("in use"));
    }
}
