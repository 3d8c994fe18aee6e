//! What a program imports.

use tollgate::prelude::*;

#[test]
fn the_prelude_hides_no_crate() {
    assert!(redis::Client::open("redis://127.0.0.1").is_ok());
    let _client = reqwest::Client::new();
    metrics::counter!("calls").increment(1);
    let _service = tower::service_fn(|()| async { Ok::<_, std::convert::Infallible>(()) });
    assert!(RateLimiter::new(InFlight::new(1)).try_acquire(1).is_ok());
}
