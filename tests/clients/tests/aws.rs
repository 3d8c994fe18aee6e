//! An SDK of AWS: whole operations, by `run`.

use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::{Client, Config};
use clients::{call_all, json, limiter, serve};
use tollgate::Limiter;

#[tokio::test]
async fn aws() {
    let (url, counts) = serve(json("{}")).await;
    let limiter = limiter();
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(Credentials::for_tests())
        .region(Region::new("none"))
        .retry_config(RetryConfig::disabled()) // a retry would be a call that takes no permit
        .endpoint_url(&url)
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .build();
    let client = Client::from_conf(config);

    call_all(async || {
        // The limit.
        let queues = limiter.run(1, client.list_queues().send()).await;
        // Until here.

        queues.expect("granted").expect("an answer");
    })
    .await;
    counts.check("aws-sdk-sqs");
}
