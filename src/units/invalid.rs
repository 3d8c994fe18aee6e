//! The error of an invalid limit, rate or name.

use std::fmt;

use super::text::Fault;

/// A text is not a limit or a rate, a rate is out of range, or a name cannot have a limit. The error points at a word.
///
/// ```
/// use tollgate::Rate;
///
/// let error = "100 per fortnight".parse::<Rate>().unwrap_err();
/// assert_eq!((error.column(), error.word()), (9, "fortnight"));
/// assert_eq!(
///     error.to_string(),
///     "in the rate \"100 per fortnight\", column 9, \"fortnight\": expected ns, us, ms, s, min, h or day"
/// );
/// let error = Rate::try_per_second(0.0).unwrap_err();
/// assert_eq!(error.reason(), "a rate must be from 1 per day to 1e9 per second, not 0.0 per second");
/// # #[cfg(feature = "config")] {
/// let error = "10/s, 1000/h brust 20".parse::<tollgate::AllOf>().unwrap_err();
/// assert_eq!((error.column(), error.word()), (14, "brust"));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidLimit {
    text: String,
    fault: Fault,
    /// A limit, a rate, or a name.
    what: &'static str,
}

impl InvalidLimit {
    pub(crate) fn new(what: &'static str, text: &str, fault: Fault) -> Self {
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
