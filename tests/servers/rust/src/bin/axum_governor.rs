//! axum-governor. MODE: `second` (2 a second), `minute` (20), or `stack` (20 a minute and 5 a second).

use axum::Router;
use axum::routing::get;
use axum_governor::extractor::Global;
use axum_governor::{GovernorConfigBuilder, GovernorLayer, Quota, nz};
use servers_of_crates::{mode, serve};

#[tokio::main]
async fn main() {
    let minute = Quota::requests_per_minute(nz!(20u32));
    let builder = GovernorConfigBuilder::default().with_extractor(Global);
    let builder = match mode().as_str() {
        "second" => builder.quota_default(Quota::requests_per_second(nz!(2u32))),
        "minute" => builder.quota_default(minute),
        _ => builder.quota_default(minute).stack(
            "second",
            Global,
            Quota::requests_per_second(nz!(5u32)),
        ),
    };
    let config = builder.finish().expect("a quota");
    serve(Router::new().route("/", get(|| async { "ok" })).layer(GovernorLayer::new(config))).await;
}
