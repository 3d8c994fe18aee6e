//! octocrab: layers around a client of hyper-util.

use clients::{call_all, json, limiter, serve};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use octocrab::service::middleware::base_uri::BaseUriLayer;
use octocrab::{AuthState, OctocrabBuilder};
use tollgate::tower::RateLimitLayer;

#[tokio::test]
async fn octocrab() {
    let (url, counts) = serve(json("{}")).await;
    let limiter = limiter();
    let base = BaseUriLayer::new(url.parse().expect("a URL"));
    let client = Client::builder(TokioExecutor::new()).build_http();

    // The limit.
    let builder = OctocrabBuilder::new_empty().with_service(client);
    let builder = builder.with_layer(&RateLimitLayer::learn(limiter)).with_layer(&base);
    // Until here.

    let github = builder.with_auth(AuthState::None).build().expect("a client");
    call_all(async || {
        let answer: std::collections::HashMap<String, String> =
            github.get("/rate_limit", None::<&()>).await.expect("an answer");
        assert!(answer.is_empty());
    })
    .await;
    counts.check("octocrab");
}
