//! Many tasks at one key, one task at many keys.

use tollgate::{Clock, KeyedRateLimiter, Rate, TokenBucket};

use crate::support::{ms, paused, secs};

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
