//! actix-governor: a burst, then a call each `MILLIS`. MODE: `headers`.

use actix_governor::{Governor, GovernorConfigBuilder};
use actix_web::{App, HttpServer, web};
use servers_of_crates::{address, mode, setting};

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    let mut builder = GovernorConfigBuilder::default();
    builder.milliseconds_per_request(setting("MILLIS", 500)).burst_size(setting("BURST", 5));
    let ok = || web::get().to(|| async { "ok" });
    if mode() == "headers" {
        let config = builder.use_headers().finish().expect("a quota");
        let app = move || App::new().wrap(Governor::new(&config)).route("/", ok());
        HttpServer::new(app).workers(2).bind(address())?.run().await
    } else {
        let config = builder.finish().expect("a quota");
        let app = move || App::new().wrap(Governor::new(&config)).route("/", ok());
        HttpServer::new(app).workers(2).bind(address())?.run().await
    }
}
