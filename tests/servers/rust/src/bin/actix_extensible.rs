//! actix-extensible-rate-limit, in memory, with its fields.

use std::time::Duration;

use actix_extensible_rate_limit::RateLimiter;
use actix_extensible_rate_limit::backend::SimpleInputFunctionBuilder;
use actix_extensible_rate_limit::backend::memory::InMemoryBackend;
use actix_web::{App, HttpServer, web};
use servers_of_crates::{address, setting};

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let backend = InMemoryBackend::builder().build();
    let app = move || {
        let window = Duration::from_secs(setting("WINDOW", 10));
        let input =
            SimpleInputFunctionBuilder::new(window, setting("LIMIT", 20)).real_ip_key().build();
        let limit = RateLimiter::builder(backend.clone(), input).add_headers().build();
        App::new().wrap(limit).route("/", web::get().to(|| async { "ok" }))
    };
    HttpServer::new(app).workers(2).bind(address())?.run().await
}
