//! The error of a text that is not a limit, or of a name that is none.

use std::fmt;

use crate::units::text::Fault;

/// A text is not a limit, or a name cannot have one. The error points at a word.
///
/// ```
/// use tollgate::{AllOf, Limits};
///
/// let error = "10/s, 1000/h brust 20".parse::<AllOf>().unwrap_err();
/// assert_eq!((error.column(), error.word()), (14, "brust"));
/// assert!(error.to_string().starts_with(
///     "in the limit \"10/s, 1000/h brust 20\", column 14, \"brust\": expected burst, "
/// ));
/// let error = "0/s".parse::<AllOf>().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "in the limit \"0/s\", column 1, \"0/s\": \
///      a rate must be from 1 per day to 1e9 per second, not 0.0 per second"
/// );
/// let error = Limits::per_host("10/s")?.named("https://example.org", "5/s").unwrap_err();
/// assert_eq!((error.column(), error.word()), (1, "https://example.org"));
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLimit {
    text: String,
    fault: Fault,
    /// A limit, or a name.
    what: &'static str,
}

impl InvalidLimit {
    pub(super) fn new(what: &'static str, text: &str, fault: Fault) -> Self {
        Self { text: text.to_owned(), fault, what }
    }

    /// The part of the text that is wrong; empty at the end, where something is missing.
    #[must_use]
    pub fn word(&self) -> &str {
        &self.text[self.fault.at.clone()]
    }

    /// Where that part begins, in characters; the first is 1.
    #[must_use]
    pub fn column(&self) -> usize {
        self.text[..self.fault.at.start].chars().count() + 1
    }

    /// What is wrong, without the place.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.fault.reason
    }
}

impl fmt::Display for InvalidLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in the {} {:?}, ", self.what, self.text)?;
        match self.word() {
            "" => write!(f, "at its end: ")?,
            word => write!(f, "column {}, {word:?}: ", self.column())?,
        }
        f.write_str(self.reason())
    }
}

impl std::error::Error for InvalidLimit {}
