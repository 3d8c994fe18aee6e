//! The client layer around the clients of hyper and tonic, on loopback.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tollgate::tower::{RateLimitLayer, RefuseLayer};
use tollgate::{FixedWindow, InFlight, ManualClock, RateLimiter, Same};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};
use tower::{Layer, Service, ServiceExt};

use crate::support::serve;

type Limiter = RateLimiter<Same<(FixedWindow, InFlight)>>;

/// `calls` a minute, one at a time.
fn limiter(calls: u32) -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    let policy = Same((FixedWindow::new(calls, Duration::from_secs(60)), InFlight::new(1)));
    (clock.clone(), RateLimiter::with_clock(policy, clock))
}

fn max_wait(limiter: &Limiter) -> RateLimitLayer {
    RateLimitLayer::new(limiter.clone()).max_wait(Duration::ZERO)
}

#[tokio::test]
async fn hyper() {
    let url = serve(Router::new().route("/", get(async || "hello"))).await;
    let (clock, limiter) = limiter(1);
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<&[u8]>>();
    let mut client = max_wait(&limiter).layer(client);
    let request = || Request::get(&url).body(Empty::new()).expect("a URL");
    let response = client.ready().await.expect("ready").call(request()).await.expect("an answer");
    let stats = limiter.stats();
    assert_eq!((stats.granted, limiter.try_acquire(1).is_err()), (1, true));
    clock.advance(Duration::from_secs(60));
    // The window is new, but the first response has not been read.
    let error = client.ready().await.expect("ready").call(request()).await.expect_err("in flight");
    assert!(error.is::<tollgate::Error>());
    assert_eq!(response.into_body().collect().await.expect("a body").to_bytes(), "hello");
    client.ready().await.expect("ready").call(request()).await.expect("an answer");
}

/// Messages are text, so that no code needs to be generated.
#[derive(Clone, Copy, Default)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, text: String, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, text.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = bytes::Buf::copy_to_bytes(buffer, bytes::Buf::remaining(buffer));
        String::from_utf8(bytes.into()).map(Some).map_err(|_| Status::internal("not text"))
    }
}

/// Greets: one RPC, `/test.Greeter/Greet`.
#[derive(Clone)]
struct Greeter;

impl Service<axum::extract::Request> for Greeter {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future =
        std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: axum::extract::Request) -> Self::Future {
        let greet = tower::service_fn(async |name: tonic::Request<String>| {
            Ok::<_, Status>(tonic::Response::new(format!("hello {}", name.into_inner())))
        });
        Box::pin(async move { Ok(tonic::server::Grpc::new(Text).unary(greet, request).await) })
    }
}

async fn greet<C>(channel: C) -> Result<String, Status>
where
    C: tonic::client::GrpcService<tonic::body::Body>,
    C::ResponseBody: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    <C::ResponseBody as http_body::Body>::Error: Into<tower::BoxError>,
    C::Error: Into<tower::BoxError>,
{
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::from_error(error.into()))?;
    let path = http::uri::PathAndQuery::from_static("/test.Greeter/Greet");
    let request = tonic::Request::new("tonic".to_owned());
    client.unary(request, path, Text).await.map(tonic::Response::into_inner)
}

async fn serve_greeter(layer: RefuseLayer) -> tonic::transport::Channel {
    let app = Router::new().route_service("/test.Greeter/Greet", Greeter);
    let url = serve(app.layer(layer)).await;
    tonic::transport::Endpoint::new(url).expect("a URL").connect_lazy()
}

/// A refusal by `layer` that a client of tonic sees, and its push-back.
async fn refused_by(layer: RefuseLayer) -> (Code, Option<String>) {
    let refused = greet(serve_greeter(layer).await).await.expect_err("refused");
    let pushback = refused.metadata().get("grpc-retry-pushback-ms");
    (refused.code(), pushback.map(|millis| millis.to_str().expect("ASCII").to_owned()))
}

#[tokio::test]
async fn tonic_reads_a_status_of_grpc() {
    let (clock, servers) = limiter(1);
    let channel = serve_greeter(RefuseLayer::new(servers)).await;
    assert_eq!(greet(channel.clone()).await.expect("an answer"), "hello tonic");
    clock.advance(Duration::from_micros(1_999_001));
    let refused = greet(channel.clone()).await.expect_err("one a minute");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let sent = |name| refused.metadata().get(name).expect("it is known").to_str().expect("ASCII");
    assert_eq!((sent("retry-after"), sent("grpc-retry-pushback-ms")), ("59", "58001"));
    clock.advance(Duration::from_millis(58_001));
    assert_eq!(greet(channel).await.expect("an answer"), "hello tonic");
}

#[tokio::test]
async fn each_kind_of_refusal_has_a_status_of_grpc() {
    let held = RateLimiter::new(InFlight::new(1));
    let _place = held.try_acquire(1).expect("free");
    assert_eq!(refused_by(RefuseLayer::new(held.clone())).await, (Code::ResourceExhausted, None));
    let large = RefuseLayer::new(limiter(1).1).cost(|_| 2);
    assert_eq!(refused_by(large).await, (Code::ResourceExhausted, Some("-1".to_owned())));
    let closed = RefuseLayer::new(RateLimiter::new(InFlight::new(0)));
    assert_eq!(refused_by(closed).await, (Code::Unavailable, None));
    let year = FixedWindow::new(1, Duration::from_secs(365 * 86_400));
    let year = RateLimiter::with_clock(year, ManualClock::new());
    let _grant = year.try_acquire(1).expect("new");
    let most = Some(i32::MAX.to_string());
    assert_eq!(refused_by(RefuseLayer::new(year.clone())).await, (Code::ResourceExhausted, most));
}

/// The answer has the content type of the request; for others than gRPC's it stays with the status of HTTP.
#[tokio::test]
async fn only_grpc_is_answered_in_its_words() {
    let limiter = RateLimiter::new(InFlight::new(0));
    let app = Router::new().route("/", get(async || "hello")).layer(RefuseLayer::new(limiter));
    let ask = async |kind: Option<&'static str>| {
        let mut request = Request::new(axum::body::Body::empty());
        if let Some(kind) = kind {
            request.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
        }
        app.clone().oneshot(request).await.expect("infallible")
    };
    for kind in ["application/grpc", "application/grpc+proto", "application/grpc-web-text"] {
        let answer = ask(Some(kind)).await;
        assert_eq!(
            (answer.status(), &answer.headers()["grpc-status"]),
            (http::StatusCode::OK, &"14".parse().expect("a value"))
        );
        assert_eq!(answer.headers()["content-type"], kind);
    }
    for kind in [None, Some("application/json"), Some("text/application/grpc")] {
        let answer = ask(kind).await;
        assert_eq!(answer.status(), http::StatusCode::SERVICE_UNAVAILABLE);
        assert!(!answer.headers().contains_key("grpc-status"));
    }
}

#[tokio::test]
async fn tonic() {
    let (_, servers) = limiter(3);
    let channel = serve_greeter(RefuseLayer::new(servers.clone())).await;

    let (clock, ours) = limiter(2);
    let limited = max_wait(&ours).layer(channel.clone());
    for _ in 0..2 {
        assert_eq!(greet(limited.clone()).await.expect("an answer"), "hello tonic");
    }
    let refused = greet(limited.clone()).await.expect_err("two a minute");
    let source = std::error::Error::source(&refused)
        .and_then(|error| error.downcast_ref::<tollgate::Error>());
    assert_eq!(source.and_then(tollgate::Error::retry_after), Some(Duration::from_secs(60)));
    clock.advance(Duration::from_secs(60));
    assert!(greet(limited).await.is_ok());

    // The server has had its three.
    let refused = greet(channel).await.expect_err("three a minute");
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(servers.stats().granted, 3);
}

/// A server that refuses by gRPC's own words, in a response without a message, teaches the layer.
#[tokio::test]
async fn tonic_is_taught_by_push_back() {
    let servers = RefuseLayer::new(limiter(1).1);
    let channel = serve_greeter(servers.fields(false)).await;
    let (clock, ours) = limiter(100);
    let limited = RateLimitLayer::learn(ours).max_wait(Duration::from_secs(1)).layer(channel);
    assert_eq!(greet(limited.clone()).await.expect("an answer"), "hello tonic");
    let refused = greet(limited.clone()).await.expect_err("by the server");
    assert_eq!(refused.metadata().get("grpc-retry-pushback-ms").expect("sent"), "60000");
    // From here on the layer holds calls back.
    let refused = greet(limited.clone()).await.expect_err("by the layer");
    let source = std::error::Error::source(&refused)
        .and_then(|error| error.downcast_ref::<tollgate::Error>());
    assert_eq!(source.and_then(tollgate::Error::retry_after), Some(Duration::from_secs(60)));
    clock.advance(Duration::from_secs(60));
    let refused = greet(limited).await.expect_err("by the server");
    assert!(refused.metadata().get("grpc-retry-pushback-ms").is_some(), "it was sent");
}
