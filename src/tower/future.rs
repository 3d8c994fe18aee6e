//! The futures of the client layers.

use std::error::Error as StdError;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::inner::Inner;
use super::response::AnyResponse;
use crate::error::Error;
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::limiter::{Acquire, Granted};
use crate::policy::Cost;

/// The error of the client services: the inner service's, or a [`tollgate::Error`](crate::Error).
pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

/// What a program makes of a refusal.
pub(super) type RefuseWith = Arc<dyn Fn(Error) -> BoxError + Send + Sync>;

pin_project! {
    /// A request on its way through the limiter and the inner service.
    #[project = StageProjection]
    pub(super) enum Stage<S, R, C>
    where
        S: Service<R>,
        C: Cost,
    {
        /// It waits for permits.
        Waiting { acquire: Acquire<AnyRateLimiter<C>>, service: Option<Inner<S>>, request: Option<R> },
        /// It waits for the inner service, which was ready before and is used by others meanwhile.
        Granted { grant: Option<AnyGrant<C>>, service: Inner<S>, request: Option<R> },
        // The call is dropped before its place in flight is given back.
        Calling { #[pin] call: S::Future, grant: Option<AnyGrant<C>> },
        Refused { error: Option<Error> },
        Over,
    }
}

/// The result of a call that was granted: the response and its grant, or the error of the inner service.
pub(super) type Answer<S, R, C> =
    Result<(<S as Service<R>>::Response, AnyGrant<C>), <S as Service<R>>::Error>;

impl<S: Service<R>, R, C: Cost> Stage<S, R, C> {
    pub(super) fn waiting(
        acquire: Acquire<AnyRateLimiter<C>>,
        service: Inner<S>,
        request: R,
    ) -> Self {
        Self::Waiting { acquire, service: Some(service), request: Some(request) }
    }

    pub(super) fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Answer<S, R, C>, Error>> {
        loop {
            match self.as_mut().project() {
                StageProjection::Waiting { acquire, service, request } => {
                    let grant = Some(ready!(Pin::new(acquire).poll(context))?);
                    let service = service.take().unwrap_or_else(|| unreachable!("taken here only"));
                    let request = request.take();
                    self.set(Self::Granted { grant, service, request });
                }
                StageProjection::Granted { grant, service, request } => {
                    let called = ready!(service.poll_call(context, request));
                    let grant = grant.take();
                    match called {
                        Ok(call) => self.set(Self::Calling { call, grant }),
                        Err(error) => {
                            self.set(Self::Over);
                            // Nothing was sent.
                            grant.into_iter().for_each(Granted::refund);
                            return Poll::Ready(Ok(Err(error)));
                        }
                    }
                }
                StageProjection::Calling { call, grant } => {
                    let answer = ready!(call.poll(context));
                    let mut grant = grant.take().unwrap_or_else(|| unreachable!("taken here only"));
                    self.set(Self::Over);
                    if answer.is_err() {
                        grant.hear_failure();
                    }
                    return Poll::Ready(Ok(answer.map(|response| (response, grant))));
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
            Self::Granted { .. } => "granted",
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
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct ResponseFuture<S, R, C = u32>
    where
        S: Service<R>,
        C: Cost,
    {
        #[pin]
        stage: Stage<S, R, C>,
        connects: bool,
        refuse_with: Option<RefuseWith>,
        // What the limiter has still to do about the response.
        hearing: Option<Hearing<S::Response, C>>,
    }
}

struct Hearing<T, C: Cost> {
    rest: Pin<Box<dyn Future<Output = ()> + Send>>,
    answer: Option<(T, AnyGrant<C>)>,
}

impl<S: Service<R>, R, C: Cost> ResponseFuture<S, R, C> {
    /// `connects`: whether the request is known to be a CONNECT.
    pub(super) fn new(
        stage: Stage<S, R, C>,
        connects: bool,
        refuse_with: Option<RefuseWith>,
    ) -> Self {
        Self { stage, connects, refuse_with, hearing: None }
    }
}

impl<S, R, C> Future for ResponseFuture<S, R, C>
where
    S: Service<R>,
    S::Response: AnyResponse,
    S::Error: Into<BoxError>,
    C: Cost,
{
    type Output = Result<<S::Response as AnyResponse>::Held<C>, BoxError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if this.hearing.is_none() {
            let answered =
                ready!(this.stage.poll(context)).map_err(|error| match this.refuse_with {
                    Some(refuse_with) => refuse_with(error),
                    None => error.into(),
                })?;
            let (response, mut grant) = answered.map_err(Into::into)?;
            match grant.hear(response.status(), response.headers()) {
                None => return Poll::Ready(Ok(held(response, grant, *this.connects))),
                Some(rest) => {
                    *this.hearing = Some(Hearing { rest, answer: Some((response, grant)) });
                }
            }
        }
        let Some(Hearing { rest, answer }) = this.hearing else { unreachable!("set above") };
        if answer.is_some() {
            ready!(rest.as_mut().poll(context));
        }
        let (response, grant) = answer.take().expect("a response future polled after it was ready");
        Poll::Ready(Ok(held(response, grant, *this.connects)))
    }
}

fn held<T: AnyResponse, C: Cost>(response: T, grant: AnyGrant<C>, connects: bool) -> T::Held<C> {
    let status = response.status();
    let is_upgrade = status == StatusCode::SWITCHING_PROTOCOLS || connects && status.is_success();
    response.hold(grant, is_upgrade)
}

impl<S: Service<R>, R, C: Cost> fmt::Debug for ResponseFuture<S, R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").field("stage", &self.stage).finish_non_exhaustive()
    }
}
