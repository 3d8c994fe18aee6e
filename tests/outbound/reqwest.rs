//! The middleware for reqwest.

mod calls;
mod names;
mod taught;

use futures::future::BoxFuture;
use http::Extensions;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next};

/// A client with one middleware.
fn client(middleware: impl Middleware) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new()).with(middleware).build()
}

/// The refusal of a limit, if that is the error of a request.
fn refusal(error: &reqwest_middleware::Error) -> Option<&tollgate::Error> {
    let reqwest_middleware::Error::Middleware(error) = error else { return None };
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// A client whose calls are answered without a server.
fn answered(middleware: impl Middleware) -> ClientWithMiddleware {
    ClientBuilder::new(reqwest::Client::new()).with(middleware).with(answer).build()
}

pub(crate) fn answer<'a>(
    _: Request,
    _: &'a mut Extensions,
    _: Next<'a>,
) -> BoxFuture<'a, reqwest_middleware::Result<Response>> {
    Box::pin(async { Ok(http::Response::new("hello").into()) })
}
