//! Which limit a request takes.

use std::time::Duration;

use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};
use tollgate::reqwest::LimitName;
use tollgate::{
    AnyRateLimiter, KeyedRateLimiter, Limits, ManualClock, RateLimit, RateLimiter, RateLimiters,
    SlidingWindowLog, Unlimited,
};

use super::{answered, refusal};

/// Refuses the second call of a name.
fn once_an_hour(limits: Limits) -> (RateLimiters, ClientWithMiddleware) {
    let limiters = RateLimiters::with_clock(limits, ManualClock::new());
    let middleware = RateLimit::limits(limiters.clone()).max_wait(Duration::ZERO);
    (limiters, answered(middleware))
}

async fn passes(request: RequestBuilder) -> bool {
    match request.send().await {
        Ok(_) => true,
        Err(error) => {
            let error = refusal(&error).expect("refused by the limit");
            assert!(error.retry_after().is_some(), "{error}");
            false
        }
    }
}

/// What becomes of calls of these URLs, one after another.
async fn get(client: &ClientWithMiddleware, urls: &[&str]) -> Vec<bool> {
    let mut passed = Vec::new();
    for url in urls {
        passed.push(passes(client.get(*url)).await);
    }
    passed
}

#[tokio::test]
async fn a_host_is_one_in_all_spellings() {
    let limits = Limits::per_host("1/h").expect("a limit");
    let (_, client) = once_an_hour(limits);
    let urls = [
        "http://api.example.org/a",
        "https://API.example.org:443/b",
        "https://api.example.org./",
        "http://api.example.org:8080/",
        "http://api.example.org:8080/x",
        "http://user:secret@xn--bcher-kva.example",
        "http://Bücher.example",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://127.0.0.1/",
        "http://127.1/",
    ];
    let passed = get(&client, &urls).await;
    assert_eq!(passed, [true, false, false, true, false, true, false, true, false, true, false],);
}

#[tokio::test]
async fn a_listed_host_is_found_in_any_spelling_also_after_a_reload() {
    let others = Limits::per_host("unlimited").expect("a limit");
    let limits = |name: &str| others.clone().named(name, "1/h").expect("a limit");
    let (limiters, client) = once_an_hour(limits("API.Example.org:443"));
    let urls =
        ["https://api.example.org/", "http://api.example.org/", "http://b.org", "http://b.org"];
    // Others are not limited.
    assert_eq!(get(&client, &urls).await, [true, false, true, true]);
    limiters.reload(limits("B.org"));
    assert_eq!(get(&client, &urls).await, [true, true, true, false]);
}

#[tokio::test]
async fn a_route_is_listed_as_a_url_writes_its_host() {
    let limits = Limits::per_route("unlimited")
        .and_then(|limits| limits.named("xn--Bcher-kva.example/all", "1/h"));
    let (_, client) = once_an_hour(limits.expect("a limit"));
    let urls = ["http://xn--bcher-kva.example/all", "http://b\u{fc}cher.example/all"];
    assert_eq!(get(&client, &urls).await, [true, false]);
}

#[tokio::test]
async fn a_route_has_one_limit_for_all_ids_and_the_rest_of_a_host_one() {
    let limits = Limits::per_route("1/h")
        .and_then(|limits| limits.named("GET /users/{id}", "2/h burst 2"))
        .and_then(|limits| limits.named("/users/me", "1/h"))
        .and_then(|limits| limits.named("search.org/{*rest}", "1/h"))
        .expect("limits");
    let (limiters, client) = once_an_hour(limits);
    let urls = [
        "http://a.org/users/1",
        "http://a.org/users/2?page=3",
        "http://b.org/users/3",
        "http://a.org/users/me",
        "http://a.org/users/me",
        "http://search.org/a/b",
        "http://search.org/c",
        // In no route.
        "http://a.org/1",
        "http://a.org/2",
        "http://b.org/1",
    ];
    assert_eq!(
        get(&client, &urls).await,
        [true, true, false, true, false, true, false, true, false, true],
    );
    // Another method is in no route.
    assert!(!passes(client.post("http://a.org/users/1")).await);
    assert!(passes(client.post("http://c.org/users/1")).await);
    for id in 0..1000 {
        passes(client.get(format!("http://a.org/items/{id}"))).await;
    }
    assert!(limiters.keyed().len() <= 6, "{} keys", limiters.keyed().len());
}

#[tokio::test]
async fn a_listed_star_is_a_limit_of_each_host_or_of_one_route() {
    let limits = |limits: Limits| {
        limits
            .named("*.a.org", "2/h burst 2")
            .and_then(|limits| limits.named("api.a.org", "1/h"))
            .and_then(|limits| limits.named("*.free.org", "unlimited"))
            .expect("limits")
    };
    let urls = [
        "http://x.A.org/1",
        "http://x.a.org/2",
        "https://x.a.org/3",
        "http://x.y.a.org./",
        "http://api.a.org",
        "http://api.a.org",
        "http://a.org",
        "http://a.org",
        "http://x.free.org",
        "http://x.free.org",
    ];
    let (_, client) = once_an_hour(limits(Limits::per_host("1/h").expect("a limit")));
    assert_eq!(
        get(&client, &urls).await,
        [true, true, false, true, true, false, true, false, true, true],
    );
    // A route is one limit for all that it matches.
    let (limiters, client) = once_an_hour(limits(Limits::per_route("1/h").expect("a limit")));
    assert_eq!(
        get(&client, &urls).await,
        [true, true, false, false, true, false, true, false, true, true],
    );
    limiters.reload(Limits::per_route("1/h").expect("a limit"));
    assert_eq!(get(&client, &["http://x.y.a.org", "http://x.y.a.org"]).await, [true, false]);
}

#[tokio::test]
async fn a_name_given_with_the_request_counts_whatever_the_limits_are_per() {
    let all = |limits: Result<Limits, _>| {
        let limits = limits.and_then(|limits: Limits| limits.named("search", "1/h"));
        once_an_hour(limits.expect("limits")).1
    };
    for client in
        [all(Limits::per_host("1/h")), all(Limits::per_route("1/h")), all(Limits::per_name("1/h"))]
    {
        let search = || client.get("http://a.org").with_extension(LimitName::new("search"));
        assert!(passes(search()).await);
        assert!(!passes(search()).await);
        assert!(passes(client.get("http://a.org")).await);
        assert!(!passes(client.get("http://a.org")).await);
    }
}

#[tokio::test]
async fn one_limit_for_all_hosts() {
    let (_, client) = once_an_hour(Limits::per_name("1/h").expect("a limit"));
    assert_eq!(get(&client, &["http://a.org", "http://b.org"]).await, [true, false]);
}

#[tokio::test]
async fn own_keys_own_limiters_and_own_costs() {
    let log = SlidingWindowLog::new(10, Duration::from_secs(60));
    let tenants = KeyedRateLimiter::<String, _>::with_clock(log.clone(), ManualClock::new());
    let table = tenants.clone();
    let tenant = RateLimit::by(move |request| match request.headers.get("x-tenant") {
        Some(tenant) => AnyRateLimiter::new(table.at(tenant.to_str().expect("a")).into_owned()),
        None => AnyRateLimiter::new(RateLimiter::new(Unlimited)),
    });
    let client =
        answered(tenant.cost(|request| u32::try_from(request.uri.path().len()).expect("short")));
    let of = |tenant, path| client.get(format!("http://a.org{path}")).header("x-tenant", tenant);
    of("a", "/123456").send().await.expect("seven of ten");
    of("b", "/").send().await.expect("one of ten");
    client.get("http://a.org/without/a/tenant/it/is/not/limited").send().await.expect("no limit");
    assert_eq!((tenants.at("a").available(), tenants.at("b").available()), (3, 9));
    let error = of("a", "/12345678901").send().await.expect_err("more than there ever is");
    let error = refusal(&error).expect("refused by the limit");
    assert!(matches!(error, tollgate::Error::ExceedsCapacity(_)), "{error}");

    // A tuple of costs, and a limiter without a type.
    let limiter = RateLimiter::with_clock((log.clone(), log), ManualClock::new());
    let any = AnyRateLimiter::new(limiter.clone());
    let client = answered(RateLimit::new(any).cost(|_| (1, 4)));
    client.get("http://a.org").send().await.expect("granted");
    assert_eq!(limiter.available(), (9, 6));
}
