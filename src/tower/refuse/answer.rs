//! How a request at a server is answered.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::choose::Ask;
use crate::error::Error;
use crate::limiter::Limiter;
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::policy::Limit;
use crate::tower::body::ResponseBody;
use crate::tower::fields::{add_limits, set_retry_after};
use crate::tower::future::Stage;
use crate::tower::grpc;

pub(super) type Partition = Arc<dyn Fn(&Parts) -> Option<Vec<u8>> + Send + Sync>;
pub(super) type Respond = Arc<dyn Fn(&Error, &mut response::Parts) + Send + Sync>;

#[derive(Clone)]
pub(super) struct Rules {
    pub(super) ask: Ask<u32>,
    pub(super) max_wait: Duration,
    pub(super) fields: bool,
    pub(super) partition: Option<Partition>,
    pub(super) respond: Option<Respond>,
}

/// What a request says of its answer.
#[derive(Default)]
pub(super) struct Asked {
    /// The content type of gRPC.
    grpc: Option<HeaderValue>,
    /// The partition key of its limits.
    partition: Option<Vec<u8>>,
}

impl Rules {
    pub(super) fn asked(&self, request: &Parts) -> Asked {
        let partition = self.partition.as_ref().filter(|_| self.fields);
        Asked {
            grpc: grpc::content_type(&request.headers).cloned(),
            partition: partition.and_then(|key| key(request)),
        }
    }

    /// The response to a refused request.
    fn refusal<B: Default>(
        &self,
        error: Error,
        limiter: &AnyRateLimiter,
        limits: Option<&[Limit<u32>]>,
        asked: Asked,
    ) -> Response<B> {
        let (mut head, body) = Response::new(B::default()).into_parts();
        head.status = match error {
            Error::Denied { .. } | Error::QueueFull { .. } => StatusCode::TOO_MANY_REQUESTS,
            // A limit of zero is closed, whatever the request. A client that slows down or asks for less cannot help it.
            Error::ExceedsCapacity(error) if error.max > 0 => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        if let Some(retry_after) = error.retry_after() {
            set_retry_after(&mut head.headers, retry_after);
        }
        if let Some(limits) = limits {
            add_limits(&mut head.headers, limiter.name(), asked.partition.as_deref(), limits);
        }
        if let Some(kind) = asked.grpc {
            grpc::translate(&mut head, kind, &error);
        }
        if let Some(respond) = &self.respond {
            respond(&error, &mut head);
        }
        head.extensions.insert(error);
        Response::from_parts(head, body)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("ask", &self.ask)
            .field("max_wait", &self.max_wait)
            .field("fields", &self.fields)
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The future of a call through [`Refuse`](super::Refuse).
    ///
    /// # Cancel safety
    ///
    /// Dropping it leaves the queue. A call that has been made stays charged; its place in flight is returned.
    ///
    /// # Panics
    ///
    /// If it is polled again after it returned `Poll::Ready`.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use std::future::{Ready, ready};
    /// use http::{Request, Response};
    /// use tollgate::tower::{RefuseFuture, RefuseLayer};
    /// use tollgate::{InFlight, RateLimiter};
    /// use tower::util::ServiceFn;
    /// use tower::{Layer, Service, service_fn};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    /// let mut service = RefuseLayer::new(RateLimiter::new(InFlight::new(0))).layer(inner);
    /// let future: RefuseFuture<ServiceFn<_>, _> = service.call(Request::new(()));
    /// assert_eq!(future.await?.status(), 503);
    /// # Ok::<(), Infallible>(()) }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct RefuseFuture<S, R>
    where
        S: Service<R>,
    {
        #[pin]
        pub(super) stage: Stage<S, R, u32>,
        pub(super) outcome: Option<Outcome<S::Response>>,
        pub(super) cost: u32,
        pub(super) asked: Asked,
        pub(super) limits: Option<LimitsFuture>,
        pub(super) limiter: AnyRateLimiter,
        pub(super) rules: Arc<Rules>,
    }
}

pub(super) type LimitsFuture = Pin<Box<dyn Future<Output = Result<Vec<Limit<u32>>, Error>> + Send>>;

fn limits_of(limiter: AnyRateLimiter, cost: u32) -> LimitsFuture {
    Box::pin(async move { limiter.limits(cost).await })
}

pub(super) enum Outcome<T> {
    Answered(T, AnyGrant),
    Refused(Error),
}

impl<S, R, B> Future for RefuseFuture<S, R>
where
    S: Service<R, Response = Response<B>>,
    B: Body + Default,
{
    type Output = Result<Response<ResponseBody<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.outcome.is_none() {
            *this.outcome = Some(match ready!(this.stage.poll(context)) {
                Ok(answer) => {
                    let (response, grant) = answer?;
                    Outcome::Answered(response, grant)
                }
                Err(error) => Outcome::Refused(error),
            });
            *this.limits = this.rules.fields.then(|| limits_of(this.limiter.clone(), *this.cost));
        }
        let limits = match this.limits {
            // Without the fields if the store does not answer.
            Some(limits) => ready!(Pin::new(limits).poll(context)).ok(),
            None => None,
        };
        let name = this.limiter.name();
        let asked = mem::take(this.asked);
        Poll::Ready(Ok(match this.outcome.take() {
            Some(Outcome::Answered(mut response, grant)) => {
                if let Some(limits) = &limits {
                    add_limits(response.headers_mut(), name, asked.partition.as_deref(), limits);
                }
                response.map(|body| ResponseBody::with_grant(body, grant, false))
            }
            Some(Outcome::Refused(error)) => {
                let refusal = this.rules.refusal(error, this.limiter, limits.as_deref(), asked);
                refusal.map(ResponseBody::without_grant)
            }
            None => unreachable!("set above"),
        }))
    }
}

impl<S: Service<R>, R> fmt::Debug for RefuseFuture<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefuseFuture").field("stage", &self.stage).finish_non_exhaustive()
    }
}
