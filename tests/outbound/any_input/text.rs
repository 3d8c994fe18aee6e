//! The text of a limit.

use std::fmt::Debug;
use std::str::FromStr;

use tollgate::{AllOf, AnyPolicy, InvalidLimit, Rate};

/// Reads a text as a limit, as several and as a rate.
pub(crate) fn judge(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    limit::<AnyPolicy>(text);
    limit::<AllOf>(text);
    if let Ok(rate) = text.parse::<Rate>() {
        assert_eq!(rate.to_string().parse(), Ok(rate));
        assert!((1.0 / 86_400.0..=1e9).contains(&rate.as_per_second()), "{rate}");
    }
}

/// A text is a limit that is written so that it reads the same, or its error points at a word.
pub(crate) fn limit<T: FromStr<Err = InvalidLimit> + ToString + PartialEq + Debug>(text: &str) {
    match text.parse::<T>() {
        Ok(policy) => {
            let written = policy.to_string();
            assert_eq!(written.parse::<T>().as_ref(), Ok(&policy), "{written}");
        }
        Err(error) => {
            let start = text.char_indices().map(|(at, _)| at).nth(error.column() - 1);
            let start = start.unwrap_or(text.len());
            assert!(text[start..].starts_with(error.word()));
            assert!(!error.reason().is_empty());
            let is_end = start == text.len();
            assert!(is_end || !error.word().trim().is_empty(), "{error}");
        }
    }
}
