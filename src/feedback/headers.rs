//! A response: where its header fields come from, and what a program judges.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue, StatusCode};

/// The header fields of a response: an [`http::HeaderMap`] (reqwest, hyper, axum), or a list of names and values, so that
/// any HTTP library will do.
///
/// ```
/// use tollgate::feedback::Dialects;
///
/// let list = vec![("Retry-After".to_owned(), "7".to_owned())];
/// assert!(Dialects::default().read(429u16, &list).wait.is_some());
/// ```
#[diagnostic::on_unimplemented(note = "pass an `http::HeaderMap`, or a list of names and values")]
pub trait Headers {
    /// All fields in order. The names may be in any case.
    fn fields(&self) -> Vec<(&str, Cow<'_, str>)>;
}

impl Headers for http::HeaderMap {
    fn fields(&self) -> Vec<(&str, Cow<'_, str>)> {
        let fields = self.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        fields.map(|(name, value)| (name, String::from_utf8_lossy(value))).collect()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> Headers for [(N, V)] {
    fn fields(&self) -> Vec<(&str, Cow<'_, str>)> {
        self.iter().map(|(name, value)| (name.as_ref(), value.as_ref().into())).collect()
    }
}

impl<N: AsRef<str>, V: AsRef<str>, const M: usize> Headers for [(N, V); M] {
    fn fields(&self) -> Vec<(&str, Cow<'_, str>)> {
        self.as_slice().fields()
    }
}

impl<N: AsRef<str>, V: AsRef<str>> Headers for Vec<(N, V)> {
    fn fields(&self) -> Vec<(&str, Cow<'_, str>)> {
        self.as_slice().fields()
    }
}

/// No more fields are read, as each is compared with each.
const MOST: usize = 256;

/// A response, as it is read.
#[derive(Debug)]
pub(super) struct Judged<'a> {
    /// Names in lower case. Fields of one name are one, with all values.
    pub(super) fields: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub(super) body: &'a [u8],
}

impl<'a> Judged<'a> {
    pub(super) fn new(headers: &'a (impl Headers + ?Sized), body: &'a [u8]) -> Self {
        let all = headers.fields();
        let mut fields = Vec::<(Cow<'_, str>, Cow<'_, str>)>::with_capacity(all.len().min(MOST));
        for (name, text) in all {
            let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
            let name = if is_lower { name.into() } else { name.to_ascii_lowercase().into() };
            if let Some((_, same)) = fields.iter_mut().find(|(other, _)| *other == name) {
                *same = format!("{same}, {text}").into();
            } else if fields.len() < MOST {
                fields.push((name, text));
            }
        }
        Self { fields, body }
    }

    /// The value of a header field, whose name is in lower case. If there are several fields of this name, their
    /// values in order, joined by `", "`.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, text)| &**text)
    }

    /// The response for a program that judges it.
    pub(super) fn to_http(&self, status: u16) -> http::Response<&'a [u8]> {
        let mut response = http::Response::new(self.body);
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
        for (name, text) in &self.fields {
            if let (Ok(name), Ok(text)) = (name.parse(), HeaderValue::from_bytes(text.as_bytes())) {
                response.headers_mut().insert::<HeaderName>(name, text);
            }
        }
        response
    }
}
