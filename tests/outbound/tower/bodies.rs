//! A place in flight is held until the body of the response has ended or is dropped.

use std::future::pending;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use tokio::sync::mpsc;
use tollgate::tower::{RateLimitLayer, RefuseLayer, ResponseBody};
use tollgate::{InFlight, RateLimit, RateLimiter};
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};

type Item = Result<Frame<&'static [u8]>, &'static str>;

/// A body whose frames the test sends.
#[derive(Default)]
struct Streamed(Option<mpsc::UnboundedReceiver<Item>>);

impl Body for Streamed {
    type Data = &'static [u8];
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Item>> {
        self.0.as_mut().map_or(Poll::Ready(None), |frames| frames.poll_recv(context))
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = SizeHint::new();
        hint.set_upper(77);
        hint
    }
}

/// A response with extensions through a layer with one place in flight.
async fn respond<L, S>(layer: L) -> (mpsc::UnboundedSender<Item>, ResponseBody<Streamed>)
where
    L: Layer<tower::util::BoxCloneService<Request<()>, Response<Streamed>, BoxError>, Service = S>,
    S: Service<Request<()>, Response = Response<ResponseBody<Streamed>>>,
    S::Error: std::fmt::Debug,
{
    let (sender, frames) = mpsc::unbounded_channel();
    let frames = std::sync::Arc::new(std::sync::Mutex::new(Some(frames)));
    let inner = service_fn(move |_: Request<()>| {
        let body = Streamed(frames.lock().expect("no panic").take());
        async {
            let mut response = Response::new(body);
            response.extensions_mut().insert("kept");
            Ok::<_, BoxError>(response)
        }
    });
    let service = layer.layer(tower::util::BoxCloneService::new(inner));
    let response = service.oneshot(Request::new(())).await.expect("an answer");
    assert_eq!(response.extensions().get(), Some(&"kept"));
    (sender, response.into_body())
}

fn one_place() -> RateLimiter<InFlight> {
    RateLimiter::new(InFlight::new(1))
}

async fn is_held_until_the_body_ends<L, S>(layer: L, limiter: &RateLimiter<InFlight>)
where
    L: Layer<tower::util::BoxCloneService<Request<()>, Response<Streamed>, BoxError>, Service = S>,
    S: Service<Request<()>, Response = Response<ResponseBody<Streamed>>>,
    S::Error: std::fmt::Debug,
{
    let (sender, mut body) = respond(layer).await;
    assert_eq!(body.size_hint().upper(), Some(77));
    sender.send(Ok(Frame::data(b"one"))).expect("read");
    let frame = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.into_data().ok(), Some(b"one".as_slice()));
    let mut trailers = HeaderMap::new();
    trailers.insert("status", "0".parse().expect("a value"));
    sender.send(Ok(Frame::trailers(trailers.clone()))).expect("read");
    let frame = body.frame().await.expect("a frame").expect("no error");
    assert_eq!(frame.into_trailers().ok(), Some(trailers));
    assert_eq!(limiter.available(), 0);
    drop(sender);
    assert!(body.frame().await.is_none());
    assert_eq!(limiter.available(), 1);
}

#[tokio::test]
async fn until_it_ends() {
    let limiter = one_place();
    is_held_until_the_body_ends(RateLimitLayer::new(limiter.clone()), &limiter).await;
    let chosen = limiter.clone();
    is_held_until_the_body_ends(RateLimit::by(move |_| chosen.clone()), &limiter).await;
    is_held_until_the_body_ends(RefuseLayer::new(limiter.clone()), &limiter).await;
}

#[tokio::test]
async fn until_it_is_dropped() {
    let limiter = one_place();
    let (sender, mut body) = respond(RefuseLayer::new(limiter.clone())).await;
    sender.send(Ok(Frame::data(b"one"))).expect("read");
    assert!(body.frame().await.is_some());
    assert_eq!(limiter.available(), 0);
    drop(body);
    assert_eq!(limiter.available(), 1);
}

#[tokio::test]
async fn until_it_fails() {
    let limiter = one_place();
    let (sender, mut body) = respond(RateLimitLayer::new(limiter.clone())).await;
    sender.send(Err("broken")).expect("read");
    assert_eq!(body.frame().await.expect("a frame").err(), Some("broken"));
    assert_eq!(limiter.available(), 1);
}

#[tokio::test]
async fn an_empty_body_has_ended() {
    let limiter = one_place();
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(limiter.clone()))
        .service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(Empty::<&[u8]>::new())));
    let response = service.oneshot(Request::new(())).await.expect("an answer");
    assert!(response.body().is_end_stream());
    assert_eq!(limiter.available(), 1);
}

/// A reader that knows the length does not ask for more frames than that.
#[tokio::test]
async fn a_body_of_known_length_has_ended_with_its_last_frame() {
    let limiter = one_place();
    let service = ServiceBuilder::new()
        .layer(RateLimitLayer::new(limiter.clone()))
        .service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new("hello".to_owned())));
    let mut body = service.oneshot(Request::new(())).await.expect("an answer").into_body();
    assert_eq!(limiter.available(), 0);
    assert!(body.frame().await.is_some());
    assert_eq!(limiter.available(), 1);
}

/// To settle it after the body has been read.
#[tokio::test]
async fn a_grant_taken_out_of_the_body_holds_the_place() {
    let limiter = one_place();
    let (sender, mut body) = respond(RateLimitLayer::new(limiter.clone())).await;
    let grant = body.take_grant().expect("it has not ended");
    drop((sender, body));
    assert_eq!((grant.cost(), limiter.available()), (1, 0));
    drop(grant);
    assert_eq!(limiter.available(), 1);
}

#[tokio::test]
async fn a_call_that_fails_or_is_dropped_gives_its_place_back() {
    let limiter = one_place();
    let fails = service_fn(async |_: Request<()>| Err::<Response<String>, _>(BoxError::from("no")));
    let service = RateLimitLayer::new(limiter.clone()).layer(fails);
    service.oneshot(Request::new(())).await.expect_err("it fails");
    assert_eq!(limiter.available(), 1);
    let service = RefuseLayer::new(limiter.clone()).layer(fails);
    service.oneshot(Request::new(())).await.expect_err("it fails");
    assert_eq!(limiter.available(), 1);

    let hangs =
        service_fn(async |_: Request<()>| pending::<Result<Response<String>, BoxError>>().await);
    let mut call = tokio_test::task::spawn(
        RateLimitLayer::new(limiter.clone()).layer(hangs).oneshot(Request::new(())),
    );
    assert!(call.poll().is_pending());
    assert_eq!(limiter.available(), 0);
    drop(call);
    assert_eq!(limiter.available(), 1);
    let mut call = tokio_test::task::spawn(
        RefuseLayer::new(limiter.clone()).layer(hangs).oneshot(Request::new(())),
    );
    assert!(call.poll().is_pending());
    assert_eq!(limiter.available(), 0);
    drop(call);
    assert_eq!(limiter.available(), 1);
}

#[tokio::test]
async fn a_service_that_panics_gives_its_place_back() {
    let limiter = one_place();
    let panics =
        service_fn(|_: Request<()>| -> std::future::Ready<Result<Response<String>, BoxError>> {
            panic!("in `call`")
        });
    let service = RateLimitLayer::new(limiter.clone()).layer(panics);
    tokio::spawn(service.oneshot(Request::new(()))).await.expect_err("it panics");
    assert_eq!(limiter.available(), 1);
    let service = RefuseLayer::new(limiter.clone()).layer(panics);
    tokio::spawn(service.oneshot(Request::new(()))).await.expect_err("it panics");
    assert_eq!(limiter.available(), 1);
}

/// Layers around this one that answer by themselves, such as those of tower-http, make a body of their own.
#[tokio::test]
async fn a_layer_around_may_answer_without_a_body() {
    async fn answers<S, B>(_: S) -> Response<B>
    where
        S: Service<Request<()>, Response = Response<B>>,
        B: Body + Default,
    {
        Response::new(B::default())
    }
    let inner = service_fn(async |_: Request<()>| Ok::<_, BoxError>(Response::new(String::new())));
    let limiter = one_place();
    let waits = answers(RateLimitLayer::new(limiter.clone()).layer(inner)).await;
    let refuses = answers(RefuseLayer::new(limiter.clone()).layer(inner)).await;
    assert!(waits.into_body().is_end_stream() && refuses.into_body().is_end_stream());
}
