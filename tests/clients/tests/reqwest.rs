//! reqwest, with a cache and retries around the limit.

use axum::Router;
use axum::routing::get;
use clients::{CALLS, call_all, json, limiter, serve};
use http_cache_reqwest::{Cache, CacheMode, HttpCache, HttpCacheOptions, MokaManager};
use reqwest_middleware::ClientBuilder;
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tollgate::RateLimit;

#[tokio::test]
async fn reqwest() {
    let fresh = || async { ([("cache-control", "max-age=3600")], "{}") };
    let (url, counts) = serve(json("{}").merge(Router::new().route("/cached", get(fresh)))).await;
    let limiter = limiter();
    let manager = MokaManager::default();
    let options = HttpCacheOptions::default();
    let backoff = ExponentialBackoff::builder().build_with_max_retries(3);

    // The limit.
    let client = ClientBuilder::new(reqwest::Client::new())
        .with(Cache(HttpCache { mode: CacheMode::Default, manager, options })) // takes no permits
        .with(RetryTransientMiddleware::new_with_policy(backoff)) // each attempt takes a permit
        .with(RateLimit::new(limiter))
        .build();
    // Until here.

    let cached = format!("{url}/cached");
    client.get(&cached).send().await.expect("a response");
    call_all(async || {
        assert_eq!(client.get(&url).send().await.expect("a response").status(), 200);
        assert_eq!(client.get(&cached).send().await.expect("a response").status(), 200);
    })
    .await;
    assert_eq!(counts.accepted(), CALLS + 1);
    counts.check("reqwest");
}
