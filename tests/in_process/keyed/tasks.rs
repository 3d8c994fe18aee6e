//! Many tasks at one key, one task at many keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate::{Clock, KeyedRateLimiter, Rate, SmoothBursty, TokenBucket};

use crate::support::{ms, paused, secs};

#[test]
fn a_thousand_tasks_at_one_key_are_served_at_its_rate() {
    paused().block_on(async {
        let policy = SmoothBursty::new(Rate::per_second(100.0)).max_burst(ms(0));
        let limiter = KeyedRateLimiter::<String, _>::with_clock(policy, Clock::tokio());
        let start = tokio::time::Instant::now();
        let order = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..1000)
            .map(|_| {
                let (limiter, order) = (limiter.clone(), Arc::clone(&order));
                tokio::spawn(async move {
                    limiter.at("one").acquire(1).await.expect("a grant");
                    order.fetch_add(1, Ordering::Relaxed)
                })
            })
            .collect();
        for (place, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await.expect("no panic"), place);
        }
        let elapsed = start.elapsed();
        assert!((ms(9_990)..ms(9_995)).contains(&elapsed), "{elapsed:?}");
        assert_eq!((limiter.len(), limiter.stats().granted), (1, 1000));
    });
}

#[test]
fn one_task_at_a_thousand_keys_waits_at_none_for_another() {
    paused().block_on(async {
        let policy = TokenBucket::new(Rate::per_second(1.0), 1);
        let limiter = KeyedRateLimiter::with_clock(policy, Clock::tokio());
        let start = tokio::time::Instant::now();
        let all = || async {
            for key in 0..1000 {
                limiter.at(&key).acquire(1).await.expect("a grant");
            }
        };
        all().await;
        assert_eq!(start.elapsed(), ms(0));
        // All at once in one task.
        let again = (0..1000).map(|key| {
            let limiter = &limiter;
            async move { limiter.at(&key).acquire(1).await.map(|grant| grant.waited()) }
        });
        for waited in futures::future::join_all(again).await {
            assert_eq!(waited.expect("a grant"), secs(1));
        }
        assert!(start.elapsed() < ms(1005), "{:?}", start.elapsed());
    });
}
