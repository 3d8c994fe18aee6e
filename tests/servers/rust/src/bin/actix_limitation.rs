//! actix-limitation, over Redis.

use std::time::Duration;

use actix_limitation::{Limiter, RateLimiter};
use actix_web::dev::ServiceRequest;
use actix_web::{App, HttpServer, web};
use servers_of_crates::{address, setting};

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let redis = format!("redis://127.0.0.1:{}", setting("PORT2", 0_u16));
    let limiter = Limiter::builder(redis)
        .key_by(|_: &ServiceRequest| Some("one".to_owned()))
        .limit(setting("LIMIT", 20))
        .period(Duration::from_secs(setting("WINDOW", 10)))
        .build()
        .expect("a limiter");
    let limiter = web::Data::new(limiter);
    let app = move || {
        let ok = web::get().to(|| async { "ok" });
        App::new().wrap(RateLimiter::default()).app_data(limiter.clone()).route("/", ok)
    };
    HttpServer::new(app).workers(2).bind(address())?.run().await
}
