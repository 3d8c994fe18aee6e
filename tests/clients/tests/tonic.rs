//! A channel of tonic.

use axum::Router;
use axum::body::Body;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use bytes::{Buf, BufMut, Bytes};
use clients::{call_all, limiter, serve};
use futures::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use tollgate::tower::RateLimitLayer;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Endpoint;
use tonic::{Request, Status};
use tower::Layer;

/// Messages are bytes, so that no code needs to be generated.
#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// A message of five bytes, and the trailers of a call that went well.
async fn greet() -> Response {
    let trailers = HeaderMap::from_iter([(
        "grpc-status".parse().expect("a name"),
        HeaderValue::from_static("0"),
    )]);
    let frames = [Frame::data(Bytes::from_static(b"\0\0\0\0\x05hello")), Frame::trailers(trailers)];
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Status>)));
    ([("content-type", "application/grpc")], Body::new(body)).into_response()
}

#[tokio::test]
async fn tonic() {
    let (url, counts) = serve(Router::new().fallback(greet)).await;
    let limiter = limiter();
    let channel = Endpoint::from_shared(url).expect("a URL").connect().await.expect("a connection");

    // The limit.
    let channel = RateLimitLayer::learn(limiter).layer(channel); // for `GreeterClient::new(channel)`
    // Until here.

    call_all(async || {
        let mut client = tonic::client::Grpc::new(channel.clone());
        client.ready().await.expect("ready");
        let path = PathAndQuery::from_static("/test.Greeter/Greet");
        let request = Request::new(Bytes::from_static(b"tonic"));
        let answer = client.unary(request, path, Raw).await.expect("an answer");
        assert_eq!(answer.into_inner(), "hello");
    })
    .await;
    counts.check("tonic");
}
