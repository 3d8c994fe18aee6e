//! Servers on loopback.

use axum::Router;
use tokio::net::TcpListener;

/// Starts a server and returns its address, `http://127.0.0.1:port`. It ends with the runtime of the test.
pub(crate) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}
