//! What all servers are told by the environment.

use std::env;
use std::net::SocketAddr;
use std::str::FromStr;

use axum::Router;
use tokio::net::TcpListener;

pub fn setting<T: FromStr>(name: &str, default: T) -> T {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

pub fn mode() -> String {
    setting("MODE", String::new())
}

pub fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], setting("PORT", 0)))
}

pub async fn serve(app: Router) {
    let listener = TcpListener::bind(address()).await.expect("a port");
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, app).await.expect("a server");
}
