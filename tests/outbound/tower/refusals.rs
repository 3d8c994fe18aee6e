//! The layer for servers, in axum on loopback, as a client sees it.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use reqwest::{Response, StatusCode};
use sfv::{BareItem, List, ListEntry, Parser};
use tollgate::tower::RefuseLayer;
use tollgate::{
    Error, FixedWindow, InFlight, KeyedRateLimiter, Limiter, LockOut, ManualClock, Rate,
    RateLimiter, Same, TokenBucket,
};

use crate::support::serve;

fn app(layer: RefuseLayer) -> Router {
    Router::new()
        .route("/{*path}", get(async || "hello"))
        .route("/", get(async || "hello"))
        .layer(layer)
}

async fn ask(url: &str) -> Response {
    reqwest::get(url).await.expect("an answer")
}

/// Each with its name and its parameters.
type Items = Vec<(String, Vec<(String, String)>)>;

fn field(response: &Response, name: &str) -> Items {
    let values: Vec<_> = response
        .headers()
        .get_all(name)
        .iter()
        .map(|value| value.to_str().expect("ASCII"))
        .collect();
    let list: List = Parser::new(&values.join(", ")).parse().expect("a structured field");
    list.iter()
        .map(|entry| {
            let ListEntry::Item(item) = entry else { panic!("an inner list") };
            let BareItem::String(name) = &item.bare_item else { panic!("not a string") };
            let shown = |value: &BareItem| match value {
                BareItem::String(text) => text.to_string(),
                BareItem::Integer(number) => number.to_string(),
                other => panic!("{other:?}"),
            };
            let params = item.params.iter().map(|(key, value)| (key.to_string(), shown(value)));
            (name.to_string(), params.collect())
        })
        .collect()
}

fn one(name: &str, params: &[(&str, i64)]) -> Items {
    let params = params.iter().map(|&(key, value)| (key.to_owned(), value.to_string()));
    vec![(name.to_owned(), params.collect())]
}

fn retry_after(response: &Response) -> Option<u64> {
    let value = response.headers().get("retry-after")?;
    Some(value.to_str().expect("ASCII").parse().expect("whole seconds"))
}

/// 100 a minute, ten at once.
fn bucket() -> TokenBucket {
    TokenBucket::new(Rate::per_minute(100.0), 10)
}

#[tokio::test]
async fn a_client_that_obeys_retry_after_gets_through() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::builder(bucket()).clock(&clock).name("per \"user\"").build();
    let url = serve(app(RefuseLayer::new(limiter))).await;
    let name = "per \"user\"";
    for left in (0..10).rev() {
        let granted = ask(&url).await;
        assert_eq!(granted.status(), StatusCode::OK);
        assert_eq!(field(&granted, "ratelimit-policy"), one(name, &[("q", 10), ("w", 6)]));
        // One more comes in 600 ms.
        assert_eq!(field(&granted, "ratelimit"), one(name, &[("r", left), ("t", 1)]));
        assert_eq!(retry_after(&granted), None);
        assert_eq!(granted.text().await.expect("a body"), "hello");
    }
    let refused = ask(&url).await;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&refused, "ratelimit-policy"), one(name, &[("q", 10), ("w", 6)]));
    assert_eq!(field(&refused, "ratelimit"), one(name, &[("r", 0), ("t", 1)]));
    let wait = Duration::from_secs(retry_after(&refused).expect("it is known"));
    clock.advance(wait - Duration::from_millis(401)); // of 600 ms
    assert_eq!(ask(&url).await.status(), StatusCode::TOO_MANY_REQUESTS);
    clock.advance(Duration::from_millis(401));
    assert_eq!(ask(&url).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_client_that_obeys_the_fields_alone_gets_through() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(bucket(), &clock);
    let url = serve(app(RefuseLayer::new(limiter).cost(|_| 3))).await;
    let (mut granted, mut remaining, mut seconds) = (0, 0, 0);
    while granted < 40 {
        if remaining < 3 {
            clock.advance(Duration::from_secs(seconds));
        }
        let answer = ask(&url).await;
        assert_eq!(answer.status(), StatusCode::OK, "after {granted}");
        let fields = field(&answer, "ratelimit");
        let number = |index: usize| fields[0].1[index].1.parse::<u64>().expect("not negative");
        (remaining, seconds) = (number(0), number(1));
        granted += 1;
    }
    // 120 permits, of which ten were there: the rate of 100 a minute.
    assert_eq!(clock.elapsed(), Duration::from_secs(66));
}

#[tokio::test]
async fn each_kind_of_refusal_has_its_status() {
    let clock = ManualClock::new();
    let large = RefuseLayer::new(RateLimiter::with_clock(bucket(), &clock)).cost(|_| 11);
    let refused = ask(&serve(app(large)).await).await;
    assert_eq!((refused.status(), retry_after(&refused)), (StatusCode::PAYLOAD_TOO_LARGE, None));
    assert_eq!(field(&refused, "ratelimit"), one("default", &[("r", 10)]));

    let keys = KeyedRateLimiter::<String, _>::builder(bucket()).max_keys(1).clock(&clock).build();
    let by_path = move |request: &http::request::Parts| keys.at(request.uri.path()).into_owned();
    let url = serve(app(RefuseLayer::by(by_path))).await;
    assert_eq!(ask(&format!("{url}/one")).await.status(), StatusCode::OK);
    let refused = ask(&format!("{url}/two")).await;
    assert_eq!((refused.status(), retry_after(&refused)), (StatusCode::SERVICE_UNAVAILABLE, None));

    let closed = RefuseLayer::new(RateLimiter::with_clock(
        Same((InFlight::new(9), InFlight::new(0))),
        &clock,
    ));
    let refused = ask(&serve(app(closed)).await).await;
    assert_eq!((refused.status(), retry_after(&refused)), (StatusCode::SERVICE_UNAVAILABLE, None));

    let limiter = RateLimiter::with_clock(bucket(), &clock);
    let url = serve(app(RefuseLayer::new(limiter.clone()))).await;
    assert_eq!(ask(&url).await.status(), StatusCode::OK);
    limiter.close();
    let refused = ask(&url).await;
    assert_eq!((refused.status(), retry_after(&refused)), (StatusCode::SERVICE_UNAVAILABLE, None));

    let places = RateLimiter::with_clock(InFlight::new(1), &clock);
    let _held = places.try_acquire(1).expect("free");
    let refused = ask(&serve(app(RefuseLayer::new(places.clone()))).await).await;
    assert_eq!((refused.status(), retry_after(&refused)), (StatusCode::TOO_MANY_REQUESTS, None));
    let policy = &field(&refused, "ratelimit-policy")[0].1;
    let parameter = |at: usize| (policy[at].0.as_str(), policy[at].1.as_str());
    assert_eq!([parameter(0), parameter(1)], [("q", "1"), ("qu", "concurrent-requests")]);
    assert_eq!(field(&refused, "ratelimit"), one("default", &[("r", 0)]));

    let locked = LockOut::new(FixedWindow::new(1, Duration::from_secs(1)), Duration::from_secs(90));
    let url = serve(app(RefuseLayer::new(RateLimiter::with_clock(locked, &clock)))).await;
    ask(&url).await;
    ask(&url).await;
    assert_eq!(retry_after(&ask(&url).await), Some(90));
}

#[tokio::test]
async fn a_cost_of_zero_passes() {
    let limiter = RateLimiter::with_clock(bucket(), ManualClock::new());
    let cost =
        |request: &http::request::Parts| if request.uri.path() == "/health" { 0 } else { 10 };
    let url = serve(app(RefuseLayer::new(limiter).cost(cost))).await;
    assert_eq!(ask(&url).await.status(), StatusCode::OK);
    assert_eq!(ask(&url).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(ask(&format!("{url}/health")).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn responses_can_be_changed() {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(bucket(), &clock);
    let layer = RefuseLayer::new(limiter).cost(|_| 10).fields(false);
    let write = async |mut response: axum::response::Response| {
        let Some(error) = response.extensions().get::<Error>().cloned() else { return response };
        assert!(matches!(error, Error::Denied { .. }));
        *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert("x-why", "limit".parse().expect("a value"));
        response.map(|_| axum::body::Body::from(error.to_string()))
    };
    let url = serve(app(layer).layer(axum::middleware::map_response(write))).await;
    let granted = ask(&url).await;
    assert_eq!(granted.headers().get("ratelimit"), None);
    assert_eq!(granted.text().await.expect("a body"), "hello");
    let refused = ask(&url).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(
        (refused.headers()["x-why"].as_bytes(), retry_after(&refused)),
        (&b"limit"[..], Some(6))
    );
    assert_eq!(refused.text().await.expect("a body"), "no permits available, retry after 6s");
}

#[tokio::test]
async fn two_layers_tell_both_limits() {
    let clock = ManualClock::new();
    let named = |policy: TokenBucket, name| {
        RefuseLayer::new(RateLimiter::builder(policy).name(name).clock(&clock).build())
    };
    let inner = named(bucket(), "user");
    let outer = named(TokenBucket::new(Rate::per_second(50.0), 100), "all");
    let url = serve(app(inner).layer(outer)).await;
    let policies = field(&ask(&url).await, "ratelimit-policy");
    let user = one("user", &[("q", 10), ("w", 6)]);
    assert_eq!(policies, [user, one("all", &[("q", 100), ("w", 2)])].concat());
}

#[tokio::test]
async fn a_short_wait_saves_a_refusal() {
    let limiter = RateLimiter::with_clock(
        TokenBucket::new(Rate::per_second(10.0), 1),
        ManualClock::auto_advance(),
    );
    let url = serve(app(RefuseLayer::new(limiter).max_wait(Duration::from_millis(100)))).await;
    for _ in 0..5 {
        assert_eq!(ask(&url).await.status(), StatusCode::OK);
    }
}

/// The client closes its connection while the server works.
#[tokio::test]
async fn a_client_that_goes_away_gives_its_place_back() {
    let limiter =
        RateLimiter::new(Same((InFlight::new(1), FixedWindow::new(9, Duration::from_secs(3600)))));
    let (began, mut begun) = tokio::sync::mpsc::channel(1);
    let hang = get(async move || {
        let _ = began.send(()).await;
        std::future::pending::<&str>().await
    });
    let url = serve(Router::new().route("/", hang).layer(RefuseLayer::new(limiter.clone()))).await;
    let first = tokio::spawn(reqwest::get(url.clone()));
    begun.recv().await.expect("the call");
    assert_eq!(ask(&url).await.status(), StatusCode::TOO_MANY_REQUESTS);
    first.abort();
    // The server notices when the connection is closed; the queue of the limiter tells when.
    tokio::time::timeout(Duration::from_secs(10), limiter.acquire(1))
        .await
        .expect("in time")
        .expect("a place");
}

/// Redis does not answer: the layer says so at once, and a limiter that allows all meanwhile lets requests
/// through, without fields.
#[tokio::test]
async fn a_store_that_is_away_is_a_503_or_what_the_limiter_does_without_it() {
    use tollgate::redis::{Reconnecting, RedisRateLimiter, Unavailable};

    // A port that was free a moment ago.
    let port =
        std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let url = format!("redis://127.0.0.1:{}/", port.expect("bound").port());
    let limiter = |without| {
        let connection = Reconnecting::open(url.as_str()).expect("a URL");
        RedisRateLimiter::builder(bucket(), connection, "key").unavailable(without).build()
    };
    let closed = serve(app(RefuseLayer::new(limiter(Unavailable::Fail)))).await;
    let refused = ask(&closed).await;
    assert_eq!((refused.status(), retry_after(&refused)), (StatusCode::SERVICE_UNAVAILABLE, None));
    assert_eq!(refused.headers().get("ratelimit"), None);
    let open = serve(app(RefuseLayer::new(limiter(Unavailable::Allow)))).await;
    let granted = ask(&open).await;
    assert_eq!((granted.status(), granted.headers().get("ratelimit")), (StatusCode::OK, None));
}

/// A request that one limit refuses takes nothing of the other one.
#[tokio::test]
async fn each_customer_has_a_limit_and_so_have_all_together() {
    let clock = ManualClock::new();
    let bucket = |capacity| TokenBucket::new(Rate::per_second(1.0), capacity);
    let customers = KeyedRateLimiter::<String, _>::with_clock(bucket(3), &clock);
    let all = RateLimiter::with_clock(bucket(4), &clock);
    let layer = RefuseLayer::by({
        let (customers, all) = (customers.clone(), all.clone());
        move |request| customers.at(request.uri.path()).into_owned().and(&all)
    });
    let url = serve(app(layer)).await;
    let ask = async |customer: &str| ask(&format!("{url}/{customer}")).await;
    for _ in 0..3 {
        assert_eq!(ask("ann").await.status(), StatusCode::OK);
    }
    let refused = ask("ann").await;
    assert_eq!((refused.status(), retry_after(&refused)), (StatusCode::TOO_MANY_REQUESTS, Some(1)));
    assert_eq!(field(&refused, "ratelimit-policy").len(), 2);
    assert_eq!((customers.at("/ann").available(), all.available()), (0, 1));
    assert_eq!(ask("bob").await.status(), StatusCode::OK);
    assert_eq!(ask("bob").await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!((customers.at("/bob").available(), all.available()), (2, 0));
    clock.advance(Duration::from_secs(1));
    assert_eq!(ask("bob").await.status(), StatusCode::OK);
}
