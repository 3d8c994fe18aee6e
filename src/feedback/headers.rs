//! Where header fields come from.

use std::borrow::Cow;

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
