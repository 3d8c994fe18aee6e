//! Connections that go on after the response: a WebSocket, a tunnel.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, StatusCode, header};

use crate::limiter::any::AnyGrant;
use crate::sync::Mutex;

/// The place [in flight](crate::InFlight) of a connection that is upgraded, for the handler of a server.
///
/// The response to an upgrade (101, or 2xx to a CONNECT) has no body that could hold the place until the
/// connection ends. So [`RefuseLayer`](super::RefuseLayer) puts this into the extensions of each request that asks
/// for an upgrade: one with the header `Upgrade`, or a CONNECT. The handler moves it, or a clone, to where the
/// connection is served; dropping the last one returns the place. If the handler does not take it, the place ends
/// with the response. Without an upgrade, the body of the response holds the place as always.
///
/// ```
/// use axum::Router;
/// use axum::extract::Extension;
/// use axum::http::StatusCode;
/// use axum::routing::any;
/// use tollgate::tower::{RefuseLayer, UpgradePlace};
/// use tollgate::{InFlight, RateLimiter};
///
/// // With axum's `WebSocketUpgrade`: `upgrade.on_upgrade(async move |socket| { .. drop(place) })`.
/// async fn handler(Extension(place): Extension<UpgradePlace>) -> StatusCode {
///     tokio::spawn(async move {
///         // serves the connection
///         drop(place);
///     });
///     StatusCode::SWITCHING_PROTOCOLS
/// }
///
/// let sockets = RateLimiter::new(InFlight::new(1000));
/// let app: Router = Router::new().route("/socket", any(handler)).layer(RefuseLayer::new(sockets));
/// ```
#[derive(Clone, Debug, Default)]
pub struct UpgradePlace(Arc<Mutex<Option<AnyGrant>>>);

impl UpgradePlace {
    pub(super) fn hold(&self, grant: AnyGrant) {
        *self.0.lock() = Some(grant);
    }
}

pub(super) fn asks_for_upgrade(request: &Parts) -> bool {
    request.method == Method::CONNECT || request.headers.contains_key(header::UPGRADE)
}

/// `connects`: whether the request was a CONNECT.
pub(super) fn is_upgrade(status: StatusCode, connects: bool) -> bool {
    status == StatusCode::SWITCHING_PROTOCOLS || connects && status.is_success()
}
