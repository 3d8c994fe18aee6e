//! The grant of a response: kept until its body has ended, or taken out to be settled.

use ::reqwest::{Body, Response, ResponseBuilderExt};
use http::response::Parts;
use http::{HeaderMap, StatusCode};

use crate::body::{AnyResponse, ResponseBody, Slot};
use crate::limiter::Granted;
use crate::limiter::any::AnyGrant;
use crate::policy::Cost;

impl AnyResponse for Response {
    type Held<C: Cost> = Self;

    fn head(&self) -> (StatusCode, &HeaderMap) {
        (self.status(), self.headers())
    }

    /// In the extensions, for [`take_grant`]; and around the body if it holds places.
    fn hold<C: Cost>(mut self, grant: AnyGrant<C>) -> Self {
        let is_wrapped = grant.holds_places();
        let slot = Slot::new(grant);
        self.extensions_mut().insert(slot.clone());
        if !is_wrapped {
            return self;
        }
        let (head, inner) = into_parts(self);
        let body = Body::wrap(ResponseBody::new(inner, slot));
        http::Response::from_parts(head, body).into()
    }
}

fn into_parts(response: Response) -> (Parts, Body) {
    let url = http::Response::builder().url(response.url().clone()).body(());
    let (mut head, body) = http::Response::from(response).into_parts();
    if let Ok(url) = url {
        // Where reqwest keeps the URL of a response that it did not make.
        head.extensions.extend(url.into_parts().0.extensions);
    }
    (head, body)
}

/// Reads the body. The response has it all the same.
pub(super) async fn read(response: Response) -> ::reqwest::Result<(Response, Vec<u8>)> {
    let (head, body) = into_parts(response);
    let text = Response::from(http::Response::new(body)).bytes().await?.to_vec();
    Ok((http::Response::from_parts(head, Body::from(text.clone())).into(), text))
}

/// Takes the grant out of a response, to correct the cost of the call once it is known. Do it before the body is
/// read: a place in flight is then held by the grant and not by the body. A body that is empty, as that of an upgrade
/// (101), has given its place back.
///
/// `None` if the request was not limited, if its body has ended already and held a place, or if the cost has
/// another type: `C` is `u32`, or the tuple of the limiter.
///
/// ```
/// use reqwest_middleware::{ClientWithMiddleware, Result};
/// use tollgate::reqwest::take_grant;
///
/// /// Tokens are the second cost of the limiter; 800 was the estimate.
/// async fn ask(client: &ClientWithMiddleware) -> Result<String> {
///     let mut response = client.post("http://llm.example/").send().await?;
///     let grant = take_grant::<(u32, u32)>(&mut response);
///     let text = response.text().await?;
///     if let Some(mut grant) = grant {
///         let tokens = u32::try_from(text.len() / 4).unwrap_or(u32::MAX);
///         grant.settle((1, tokens)).await.map_err(reqwest_middleware::Error::middleware)?;
///     }
///     Ok(text)
/// }
/// ```
#[must_use = "a grant that is dropped gives its places in flight back"]
pub fn take_grant<C: Cost>(response: &mut Response) -> Option<AnyGrant<C>> {
    response.extensions_mut().remove::<Slot<C>>()?.take()
}
