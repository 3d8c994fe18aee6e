//! A server whose clients have keys: addresses and headers. What keys show, what happens when there are too many, and
//! the layers that servers have around this one.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderName, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use tollgate::tower::{ClientIp, RefuseLayer};
use tollgate::{
    Error, InFlight, KeyedRateLimiter, Limiter, ManualClock, Rate, RateLimiter, TokenBucket,
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_http::compression::CompressionLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;

type Keys<K> = KeyedRateLimiter<K, TokenBucket>;

/// One a second, `burst` at once.
fn bucket(burst: u32) -> TokenBucket {
    TokenBucket::new(Rate::per_second(1.0), burst)
}

fn app(layer: RefuseLayer) -> Router {
    Router::new().route("/", get(async || "hello")).layer(layer)
}

async fn send(app: &Router, request: Request<Body>) -> Response {
    app.clone().oneshot(request).await.expect("infallible")
}

fn request(headers: &[(&str, &str)]) -> Request<Body> {
    let request =
        headers.iter().fold(Request::get("/"), |it, &(name, value)| it.header(name, value));
    request.body(Body::empty()).expect("valid")
}

fn key_of(request: &http::request::Parts) -> &str {
    request.headers["x-api-key"].to_str().expect("ASCII")
}

/// From `peer`, for the client that a proxy names.
async fn from(app: &Router, peer: &str, client: &str) -> StatusCode {
    let mut request = request(&[("x-forwarded-for", client)]);
    let peer = ConnectInfo::<SocketAddr>(peer.parse().expect("an address"));
    request.extensions_mut().insert(peer);
    send(app, request).await.status()
}

fn behind_proxies() -> ClientIp {
    let peer = ClientIp::peer::<ConnectInfo<SocketAddr>>();
    peer.trusted_proxies("x-forwarded-for", ["10.0.0.0/8".parse().expect("a network")])
}

const OK: StatusCode = StatusCode::OK;
const REFUSED: StatusCode = StatusCode::TOO_MANY_REQUESTS;
const UNAVAILABLE: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

#[tokio::test]
async fn each_address_has_a_limit_and_so_have_all_together() {
    let clock = ManualClock::new();
    let clients = Keys::<IpAddr>::with_clock(bucket(2), &clock);
    let all = RateLimiter::with_clock(bucket(4), &clock);
    let layer =
        RefuseLayer::by_ip(behind_proxies(), move |ip| clients.at(&ip).into_owned().and(&all));
    let app = app(layer);
    let proxy = "10.0.0.1:80";
    assert_eq!(from(&app, proxy, "203.0.113.7").await, OK);
    assert_eq!(from(&app, proxy, "192.0.2.1, 203.0.113.7").await, OK);
    assert_eq!(from(&app, "203.0.113.7:81", "192.0.2.2").await, REFUSED);
    // Two hosts of one network.
    assert_eq!(from(&app, proxy, "2001:db8::1").await, OK);
    assert_eq!(from(&app, proxy, "2001:db8::2").await, OK);
    assert_eq!(from(&app, proxy, "203.0.113.8").await, REFUSED);
    clock.advance(Duration::from_secs(1));
    assert_eq!(from(&app, proxy, "203.0.113.8").await, OK);
}

#[tokio::test]
async fn a_server_that_does_not_say_who_calls_refuses_all() {
    let clients = Keys::<IpAddr>::with_clock(bucket(2), ManualClock::new());
    let keys = clients.clone();
    let app = app(RefuseLayer::by_ip(behind_proxies(), move |ip| clients.at(&ip).into_owned()));
    let answer = send(&app, request(&[("x-forwarded-for", "203.0.113.7")])).await;
    assert_eq!((answer.status(), keys.len()), (UNAVAILABLE, 0));
    let limit = answer.headers()["ratelimit"].to_str().expect("ASCII");
    assert!(limit.starts_with("\"no-peer-address\";r=0"), "{limit}");
}

#[tokio::test]
async fn axum_tells_the_address() {
    let clients = Keys::<IpAddr>::with_clock(bucket(1), ManualClock::new());
    let ip = ClientIp::peer::<ConnectInfo<SocketAddr>>();
    let app = app(RefuseLayer::by_ip(ip, move |ip| clients.at(&ip).into_owned()));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let app = app.into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    let statuses = [reqwest::get(&url).await, reqwest::get(&url).await]
        .map(|answer| answer.expect("an answer").status());
    assert_eq!(statuses, [OK, REFUSED]);
}

/// Neither what the layer prints nor what it answers has the key.
#[tokio::test]
async fn keys_stay_secret() {
    const SECRET: &str = "sk-very-secret";
    let keys = Keys::<String>::builder(bucket(1)).max_keys(1).clock(ManualClock::new()).build();
    let layer = RefuseLayer::by(move |request| keys.at(key_of(request)).into_owned());
    let inner = service_fn(async |_: Request<Body>| Ok::<_, Error>(Response::new(String::new())));
    let mut service = layer.layer(inner.boxed_clone());
    let mut shown = format!("{layer:?}{service:?}");
    for key in [SECRET.to_owned(), SECRET.to_owned(), format!("{SECRET}-2")] {
        let call = service.ready().await.expect("ready").call(request(&[("x-api-key", &key)]));
        let answer = call.await.expect("an answer");
        shown += &format!("{answer:?}");
        if let Some(error) = answer.extensions().get::<Error>() {
            shown += &format!("{error} {error:?}");
        }
    }
    assert!(
        ["RefuseLayer", "no key is idle", "no permits"].iter().all(|word| shown.contains(word)),
        "{shown}"
    );
    assert!(!shown.contains(SECRET), "{shown}");
}

/// The limit, with the usual layers around it.
fn layered(limiter: &RateLimiter<InFlight>) -> Router {
    let fields = ["retry-after", "ratelimit", "ratelimit-policy"].map(HeaderName::from_static);
    Router::new()
        .route("/", get(async || "hello ".repeat(1000)))
        .route("/hang", get(async || std::future::pending::<()>().await))
        .layer(RefuseLayer::new(limiter.clone()))
        .layer(CompressionLayer::new())
        .layer(TimeoutLayer::with_status_code(StatusCode::REQUEST_TIMEOUT, Duration::from_secs(10)))
        .layer(CorsLayer::new().allow_origin(Any).expose_headers(fields))
        .layer(TraceLayer::new_for_http())
}

#[tokio::test(start_paused = true)]
async fn timeout_cors_compression_and_trace_stand_around_it() {
    let limiter = RateLimiter::with_clock(InFlight::new(1), ManualClock::new());
    let app = layered(&limiter);
    let ask = || request(&[("origin", "http://localhost"), ("accept-encoding", "gzip")]);

    let first = send(&app, ask()).await;
    assert_eq!(
        (first.status(), &first.headers()[header::CONTENT_ENCODING]),
        (OK, &"gzip".parse().expect("a value"))
    );
    // Its body is not read yet.
    let refused = send(&app, ask()).await;
    assert_eq!(refused.status(), REFUSED);
    let headers = refused.headers();
    assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], "*");
    let exposed = headers[header::ACCESS_CONTROL_EXPOSE_HEADERS].to_str().expect("ASCII");
    assert!(
        exposed.contains("ratelimit-policy") && headers.contains_key("ratelimit"),
        "{headers:?}"
    );
    assert!(first.into_body().collect().await.expect("a body").to_bytes().len() < 6000);
    assert_eq!(limiter.available(), 1);

    let mut hang = ask();
    *hang.uri_mut() = "/hang".parse().expect("a path");
    assert_eq!(send(&app, hang).await.status(), StatusCode::REQUEST_TIMEOUT);
    assert_eq!(limiter.available(), 1);

    // A browser asks first whether it may ask.
    let mut preflight = ask();
    *preflight.method_mut() = Method::OPTIONS;
    preflight
        .headers_mut()
        .insert(header::ACCESS_CONTROL_REQUEST_METHOD, "GET".parse().expect("a value"));
    let granted = limiter.stats().granted;
    assert_eq!(send(&app, preflight).await.status(), OK);
    assert_eq!(limiter.stats().granted, granted);
}
