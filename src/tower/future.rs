//! The futures of the client layers.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Response;
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::ResponseBody;
use super::upgrade::is_upgrade;
use crate::error::Error;
use crate::limiter::Acquire;
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::policy::Cost;

/// The error of the client services: the inner service's, or a [`tollgate::Error`](crate::Error).
pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

pin_project! {
    /// A request on its way through the limiter and the inner service.
    #[project = StageProjection]
    #[project_replace = StageOwned]
    pub(super) enum Stage<S, R, C>
    where
        S: Service<R>,
        C: Cost,
    {
        /// It waits for permits. The inner service is ready.
        Waiting { acquire: Acquire<AnyRateLimiter<C>>, service: S, request: R },
        // The call is dropped before its place in flight is given back.
        Calling { #[pin] call: S::Future, grant: Option<AnyGrant<C>> },
        Refused { error: Option<Error> },
        Over,
    }
}

/// The result of a call that was granted, and its grant.
pub(super) type Answer<S, R, C> =
    (Result<<S as Service<R>>::Response, <S as Service<R>>::Error>, AnyGrant<C>);

impl<S: Service<R>, R, C: Cost> Stage<S, R, C> {
    pub(super) fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Answer<S, R, C>, Error>> {
        loop {
            match self.as_mut().project() {
                StageProjection::Waiting { acquire, .. } => {
                    let granted = ready!(Pin::new(acquire).poll(context));
                    let waited = self.as_mut().project_replace(Self::Over);
                    let StageOwned::Waiting { mut service, request, .. } = waited else {
                        unreachable!("it waited")
                    };
                    let grant = Some(granted?);
                    self.set(Self::Calling { call: service.call(request), grant });
                }
                StageProjection::Calling { call, grant } => {
                    let answer = ready!(call.poll(context));
                    let grant = grant.take().unwrap_or_else(|| unreachable!("taken here only"));
                    self.set(Self::Over);
                    return Poll::Ready(Ok((answer, grant)));
                }
                StageProjection::Refused { error } => {
                    let error = error.take().unwrap_or_else(|| unreachable!("taken here only"));
                    self.set(Self::Over);
                    return Poll::Ready(Err(error));
                }
                StageProjection::Over => panic!("a response future polled after it was ready"),
            }
        }
    }
}

impl<S: Service<R>, R, C: Cost> fmt::Debug for Stage<S, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Waiting { .. } => "waiting",
            Self::Calling { .. } => "calling",
            Self::Refused { .. } => "refused",
            Self::Over => "over",
        })
    }
}

pin_project! {
    /// The future of a call through [`RateLimit`](super::RateLimit) or [`RateLimitBy`](super::RateLimitBy).
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
    /// use tollgate::tower::{RateLimitLayer, ResponseFuture};
    /// use tollgate::{InFlight, RateLimiter};
    /// use tower::util::ServiceFn;
    /// use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let limiter = RateLimiter::new(InFlight::new(1));
    /// let inner = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(Response::new(String::new()))));
    /// let mut service = ServiceBuilder::new().layer(RateLimitLayer::new(limiter)).service(inner);
    /// let future: ResponseFuture<ServiceFn<_>, _> = service.ready().await?.call(Request::new(()));
    /// assert_eq!(future.await?.status(), 200);
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(()) }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct ResponseFuture<S, R, C = u32>
    where
        S: Service<R>,
        C: Cost,
    {
        #[pin]
        stage: Stage<S, R, C>,
        connects: bool,
    }
}

impl<S: Service<R>, R, C: Cost> ResponseFuture<S, R, C> {
    /// `connects`: whether the request is known to be a CONNECT.
    pub(super) fn new(stage: Stage<S, R, C>, connects: bool) -> Self {
        Self { stage, connects }
    }
}

impl<S, R, B, C> Future for ResponseFuture<S, R, C>
where
    S: Service<R, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body,
    C: Cost,
{
    type Output = Result<Response<ResponseBody<B, C>>, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (answer, grant) = ready!(this.stage.poll(context))?;
        let response = answer.map_err(Into::into)?;
        let is_upgrade = is_upgrade(response.status(), *this.connects);
        Poll::Ready(Ok(response.map(|body| ResponseBody::with_grant(body, grant, is_upgrade))))
    }
}
