//! ureq, on threads.

use clients::{call_all_on_threads, json, limiter, serve};
use tollgate::RateLimit;

#[tokio::test(flavor = "multi_thread")]
async fn ureq() {
    let (url, counts) = serve(json("{}")).await;
    let limiter = limiter();

    // The limit.
    let agent = ureq::Agent::config_builder()
        .middleware(RateLimit::new(limiter))
        .http_status_as_error(false) // so that the fields of a 429 are read
        .build()
        .new_agent();
    // Until here.

    tokio::task::spawn_blocking(move || {
        call_all_on_threads(|| {
            let mut response = agent.get(&url).call().expect("a response");
            assert_eq!(response.status(), 200);
            response.body_mut().read_to_string().expect("a body");
        });
    })
    .await
    .expect("no panic");
    counts.check("ureq");
}
