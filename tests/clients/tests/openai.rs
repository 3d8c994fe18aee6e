//! async-openai: its middleware of tower, whose requests are no `http::Request`.

use async_openai::Client;
use async_openai::config::OpenAIConfig;
use async_openai::middleware::ReqwestService;
use clients::{call_all, json, limiter, serve};
use tollgate::feedback::Feedback;
use tollgate::tower::RateLimitLayer;
use tower::ServiceBuilder;

const MODELS: &str = r#"{"object": "list", "data": []}"#;

#[tokio::test]
async fn openai() {
    let (url, counts) = serve(json(MODELS)).await;
    let limiter = limiter();
    let config = OpenAIConfig::new().with_api_base(url).with_api_key("none");

    // The limit.
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(Feedback::new(limiter))) // learns from the answers
        .service(ReqwestService::new(reqwest::Client::new()));
    let client = Client::with_config(config).with_http_service(service);
    // Until here.

    call_all(async || {
        client.models().list().await.expect("an answer");
    })
    .await;
    counts.check("async-openai");
}
