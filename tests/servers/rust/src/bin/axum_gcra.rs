//! axum_gcra: a burst of five, then two a second.

use std::num::NonZeroU64;
use std::time::Duration;

use axum_07::Router;
use axum_07::routing::get;
use axum_gcra::RateLimitLayer;
use axum_gcra::gcra::Quota;
use servers_of_crates::address;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() {
    let quota = Quota::new(Duration::from_millis(500), NonZeroU64::new(5).expect("not zero"));
    let limit = RateLimitLayer::<()>::builder().with_default_quota(quota).default_handle_error();
    let app = Router::new().route("/", get(|| async { "ok" })).route_layer(limit);
    let listener = TcpListener::bind(address()).await.expect("a port");
    axum_07::serve(listener, app).await.expect("a server");
}
