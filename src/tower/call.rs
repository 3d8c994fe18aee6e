//! A call through a layer: it waits for its permits and for the inner service, and its limiter learns from the answer.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;

use tower_service::Service;

use crate::body::{AnyResponse, held};
use crate::error::Error;
use crate::limiter::any::{AnyGrant, AnyRateLimiter};
use crate::limiter::{Acquire, Granted};
use crate::policy::Cost;

/// The error of the client services: the inner service's, or a [`tollgate::Error`](crate::Error).
pub(super) type BoxError = Box<dyn StdError + Send + Sync>;

pub(super) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A response that holds the grant of its call, or the error of the inner service.
type Answer<T, E, C> = Result<<T as AnyResponse>::Held<C>, E>;

/// Waits for permits, then for the service, and calls it. The outer error is the limiter's.
pub(super) async fn send<S: Service<R, Response: AnyResponse>, R, C: Cost>(
    acquire: Acquire<AnyRateLimiter<C>>,
    mut service: S,
    request: R,
) -> Result<Answer<S::Response, S::Error, C>, Error> {
    let grant = acquire.await?;
    if let Err(error) = poll_fn(|context| service.poll_ready(context)).await {
        // Nothing was sent.
        grant.refund();
        return Ok(Err(error));
    }
    Ok(answer(service.call(request), grant).await)
}

/// Waits for the answer. If this future is dropped, the call is dropped before its place in flight is given back.
pub(super) async fn answer<F, T: AnyResponse, E, C: Cost>(
    call: F,
    mut grant: AnyGrant<C>,
) -> Answer<T, E, C>
where
    F: Future<Output = Result<T, E>>,
{
    let response = call.await.inspect_err(|_| grant.hear_failure())?;
    Ok(held(response, grant).await)
}
