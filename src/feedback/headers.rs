//! A response: where its header fields come from, and what a program judges.

use std::borrow::Cow;
use std::fmt;

/// The header fields of a response.
///
/// For [`http::HeaderMap`] (reqwest, hyper, axum), for a list of names and values, and for a function that looks
/// a field up, so that any HTTP library will do.
///
/// ```
/// use tollgate::feedback::{Dialects, Headers};
///
/// let list = [("Retry-After", "7")];
/// assert_eq!(list.field("retry-after").as_deref(), Some("7"));
///
/// let function = |name: &str| (name == "retry-after").then(|| "7".to_owned());
/// assert!(Dialects::default().read(429u16, &function).is_refused());
/// ```
pub trait Headers {
    /// The value of a field, by its name in lower case. If there are several fields of this name, their values in
    /// order, joined by `", "`.
    fn field(&self, name: &str) -> Option<Cow<'_, str>>;

    /// The names of all fields, in any case. `None`, as by default: they cannot be listed. Then quotas with names of
    /// their own, such as `X-RateLimit-Remaining-short`, are not found.
    fn names(&self) -> Option<Vec<&str>> {
        None
    }
}

impl Headers for http::HeaderMap {
    fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        joined(self.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())))
    }

    fn names(&self) -> Option<Vec<&str>> {
        Some(self.keys().map(http::HeaderName::as_str).collect())
    }
}

impl<N: AsRef<str>, V: AsRef<str>> Headers for [(N, V)] {
    fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        let same = self.iter().filter(|(other, _)| other.as_ref().eq_ignore_ascii_case(name));
        joined(same.map(|(_, value)| Cow::Borrowed(value.as_ref())))
    }

    fn names(&self) -> Option<Vec<&str>> {
        Some(self.iter().map(|(name, _)| name.as_ref()).collect())
    }
}

impl<N: AsRef<str>, V: AsRef<str>, const M: usize> Headers for [(N, V); M] {
    fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        self.as_slice().field(name)
    }

    fn names(&self) -> Option<Vec<&str>> {
        self.as_slice().names()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> Headers for Vec<(N, V)> {
    fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        self.as_slice().field(name)
    }

    fn names(&self) -> Option<Vec<&str>> {
        self.as_slice().names()
    }
}

impl<F: Fn(&str) -> Option<String>> Headers for F {
    fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        self(name).map(Cow::Owned)
    }
}

/// Headers of any size.
pub(super) struct By<'a, H: ?Sized>(pub(super) &'a H);

impl<H: Headers + ?Sized> Headers for By<'_, H> {
    fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        self.0.field(name)
    }

    fn names(&self) -> Option<Vec<&str>> {
        self.0.names()
    }
}

fn joined<'a>(values: impl Iterator<Item = Cow<'a, str>>) -> Option<Cow<'a, str>> {
    values.reduce(|all, value| Cow::Owned(format!("{all}, {value}")))
}

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
