//! tower_governor: a burst, then a call each `MILLIS`. MODE: `headers`.

use axum::Router;
use axum::routing::get;
use servers_of_crates::{mode, serve, setting};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

#[tokio::main]
async fn main() {
    let mut builder = GovernorConfigBuilder::default();
    builder.per_millisecond(setting("MILLIS", 500)).burst_size(setting("BURST", 5));
    let app = Router::new().route("/", get(|| async { "ok" }));
    if mode() == "headers" {
        let config = builder.use_headers().finish().expect("a quota");
        serve(app.layer(GovernorLayer::new(config))).await;
    } else {
        let config = builder.finish().expect("a quota");
        serve(app.layer(GovernorLayer::new(config))).await;
    }
}
