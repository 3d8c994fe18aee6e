//! Salvo's limiter with its fields. MODE: `fixed`, or `sliding` of ten cells.

use salvo::conn::TcpListener;
use salvo::rate_limiter::{
    BasicQuota, CelledQuota, FixedGuard, MokaStore, RateLimiter, RemoteIpIssuer, SlidingGuard,
};
use salvo::{Listener, Router, Server, handler};
use servers_of_crates::{address, mode};

#[handler]
async fn ok() -> &'static str {
    "ok"
}

#[tokio::main]
async fn main() {
    let router = if mode() == "sliding" {
        let quota = CelledQuota::set_seconds(20, 10, 10);
        let limit = RateLimiter::new(SlidingGuard::new(), MokaStore::new(), RemoteIpIssuer, quota);
        Router::new().hoop(limit.add_headers(true)).get(ok)
    } else {
        let quota = BasicQuota::set_seconds(20, 10);
        let limit = RateLimiter::new(FixedGuard::new(), MokaStore::new(), RemoteIpIssuer, quota);
        Router::new().hoop(limit.add_headers(true)).get(ok)
    };
    Server::new(TcpListener::new(address()).bind().await).serve(router).await;
}
