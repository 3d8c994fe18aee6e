//! opendal: whole operations, by `run`.

use axum::Router;
use clients::{call_all, limiter, serve};
use opendal::{Operator, services};
use tollgate::Limiter;

#[tokio::test]
async fn opendal() {
    let (url, counts) = serve(Router::new().fallback(async || "hello")).await;
    let limiter = limiter();
    let operator =
        Operator::new(services::Http::default().endpoint(&url)).expect("a service").finish();

    call_all(async || {
        // The limit.
        let read = limiter.run(1, operator.read("file")).await;
        // Until here.

        assert_eq!(read.expect("granted").expect("an answer").to_vec(), b"hello");
    })
    .await;
    counts.check("opendal");
}
