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

fn greeter(layer: RefuseLayer) -> Router {
    Router::new().route_service("/test.Greeter/Greet", Greeter).layer(layer)
}

async fn channel(app: Router) -> tonic::transport::Channel {
    tonic::transport::Endpoint::new(serve(app).await).expect("a URL").connect_lazy()
}

/// Refuses in gRPC's words.
async fn in_grpc(response: axum::response::Response) -> axum::response::Response {
    let Some(error) = response.extensions().get::<tollgate::Error>() else { return response };
    let mut refused = Status::resource_exhausted(error.to_string()).into_http();
    if let Some(wait) = error.retry_after() {
        let millis = u64::try_from(wait.as_millis()).expect("short");
        refused.headers_mut().insert("grpc-retry-pushback-ms", millis.into());
    }
    refused
}

#[tokio::test]
async fn tonic() {
    let (_, servers) = limiter(3);
    let channel = channel(greeter(RefuseLayer::new(servers.clone()))).await;

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
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(servers.stats().granted, 3);
}

/// A server that refuses by gRPC's own words, in a response without a message, teaches the layer.
#[tokio::test]
async fn tonic_is_taught_by_push_back() {
    let servers = greeter(RefuseLayer::new(limiter(1).1).fields(false));
    let channel = channel(servers.layer(axum::middleware::map_response(in_grpc))).await;
    let (clock, ours) = limiter(100);
    let limited = RateLimitLayer::learn(ours).max_wait(Duration::from_secs(1)).layer(channel);
    assert_eq!(greet(limited.clone()).await.expect("an answer"), "hello tonic");
    let refused = greet(limited.clone()).await.expect_err("by the server");
    assert_eq!(refused.code(), Code::ResourceExhausted);
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
