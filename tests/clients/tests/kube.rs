//! kube: a layer around its default client.

use clients::{call_all, json, limiter, serve};
use kube::Config;
use kube::client::ClientBuilder;
use tollgate::feedback::Feedback;
use tollgate::tower::RateLimitLayer;

#[tokio::test]
async fn kube() {
    let (url, counts) = serve(json(r#"{"major": "1", "minor": "34"}"#)).await;
    let limiter = limiter();
    let config = Config::new(url.parse().expect("a URL"));

    // The limit.
    let builder = ClientBuilder::try_from(config).expect("a client");
    let limit = RateLimitLayer::new(Feedback::new(limiter)); // learns from the answers
    let client = builder.with_layer(&limit).build();
    // Until here.

    call_all(async || {
        let request = axum::http::Request::get("/version").body(Vec::new()).expect("a request");
        client.request_text(request).await.expect("an answer");
    })
    .await;
    counts.check("kube");
}
