//! hyper-util's client.

use axum::http::Request;
use bytes::Bytes;
use clients::{call_all, json, limiter, serve};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::tower::RateLimitLayer;
use tower::{ServiceBuilder, ServiceExt};

#[tokio::test]
async fn hyper() {
    let (url, counts) = serve(json("{}")).await;
    let limiter = limiter();
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();

    // The limit.
    let client = ServiceBuilder::new().layer(RateLimitLayer::learn(limiter)).service(client);
    // Until here.

    call_all(async || {
        let request = Request::get(&url).body(Empty::new()).expect("a request");
        let response = client.clone().oneshot(request).await.expect("a response");
        assert_eq!(response.status(), 200);
        response.into_body().collect().await.expect("a body");
    })
    .await;
    counts.check("hyper-util");
}
