//! A response, as a program judges it.

use std::borrow::Cow;
use std::fmt;

use super::headers::Headers;

/// A response, as [`FeedbackBuilder::judge`](super::FeedbackBuilder::judge) sees it.
pub struct Judged<'a> {
    pub(super) headers: &'a dyn Headers,
    pub(super) body: Option<&'a [u8]>,
}

impl Judged<'_> {
    /// The value of a header field, by its name in lower case; see [`Headers::field`]. Of gRPC also of the trailer.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        self.headers.field(name)
    }

    /// The body, if the client has it: see [`Call::observe_body`](super::Call::observe_body).
    #[must_use]
    pub fn body(&self) -> Option<&[u8]> {
        self.body
    }

    /// Whether the body is there and has this text in it.
    ///
    /// ```
    /// use tollgate::feedback::Feedback;
    /// use tollgate::{InFlight, RateLimiter};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let api = Feedback::builder(RateLimiter::new(InFlight::new(10)))
    ///     .judge(|response, answer| answer.is_final = response.contains("insufficient_quota"))
    ///     .build();
    /// let none: [(&str, &str); 0] = [];
    /// let body = br#"{"error":{"code":"insufficient_quota"}}"#;
    /// assert!(api.acquire(1).await?.observe_body(429u16, &none, body).await.is_final);
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn contains(&self, text: &str) -> bool {
        let text = text.as_bytes();
        self.body.is_some_and(|body| body.windows(text.len().max(1)).any(|part| part == text))
    }
}

impl fmt::Debug for Judged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judged").field("body", &self.body.map(<[u8]>::len)).finish_non_exhaustive()
    }
}
