//! Whatever a text is: it is read without a panic, an error points into it, and what is read is written so that
//! it reads the same.

use proptest::prelude::*;
use tollgate::{AllOf, AnyPolicy, InvalidLimit, Limits, Rate};

const WORDS: &[&str] = &[
    "100/min",
    "10/s",
    "1/5s",
    "90_000/min",
    "0/s",
    "1/0s",
    "-1/s",
    "0.5/h",
    "7/3days",
    "5",
    "20",
    "0",
    "1s",
    "20ms",
    "burst",
    "initial",
    "refill",
    "every",
    "max",
    "warm",
    "up",
    "cold",
    "factor",
    "gcra",
    "queue",
    "meter",
    "fixed",
    "sliding",
    "window",
    "buckets",
    "aligned",
    "in",
    "flight",
    "at",
    "once",
    "lock",
    "out",
    "catch",
    ",",
    "/",
    "é",
    "4294967296",
    "99999999999999999999999999999999999999999/s",
    "1e300/s",
    "9/99999999999999999999999999999ns",
    "\u{a0}",
    "per",
    "a",
    "minute",
    "month",
    "requests",
    "rpm",
    "20rps",
    "concurrent",
    "unlimited",
];

/// Words of limits in any order, some of them broken.
fn words() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(WORDS), 0..9)
        .prop_map(|words| words.join(" "))
}

fn judge<T>(text: &str, read: Result<T, InvalidLimit>) -> Result<(), TestCaseError>
where
    T: std::str::FromStr<Err = InvalidLimit> + ToString + PartialEq + std::fmt::Debug,
{
    match read {
        Ok(policy) => prop_assert_eq!(policy.to_string().parse::<T>(), Ok(policy)),
        Err(error) => {
            prop_assert_eq!(error.text(), text);
            prop_assert_eq!(error.word(), &text[error.span()]);
            prop_assert_eq!(error.column(), text[..error.span().start].chars().count() + 1);
            prop_assert!(!error.reason().is_empty());
            // It points at a word, or at the end.
            let is_end = error.span().start == text.len();
            prop_assert!(is_end || !error.word().trim().is_empty(), "{}", error);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn words_of_limits(text in words()) {
        judge::<AnyPolicy>(&text, text.parse())?;
        judge::<AllOf>(&text, text.parse())?;
    }

    #[test]
    fn any_text(text in any::<String>()) {
        judge::<AnyPolicy>(&text, text.parse())?;
        judge::<AllOf>(&text, text.parse())?;
        let _ = text.parse::<Rate>();
        let _ = toml::from_str::<Limits>(&text);
        let _ = serde_json::from_str::<Limits>(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_file_with_any_values(words in words(), number in any::<i64>(), float in any::<f64>()) {
        for value in [format!("{words:?}"), number.to_string(), format!("{float:?}"), format!("[{words:?}, {number}]")] {
            let field = |name: &str| toml::from_str::<Limits>(&format!("{name} = {value}"));
            for name in ["per", "default", "headroom", "limits", "limits.x", "limits.x.policy", "limits.x.max_waiters"] {
                // Alone, they are no limit.
                let is_limit = field(name).is_ok();
                prop_assert!(!is_limit || !["per", "headroom", "limits.x.max_waiters"].contains(&name), "{name}");
            }
            for kind in ["token-bucket", "fixed-window", "smooth-warming-up", "lock-out", "in-flight"] {
                for name in ["rate", "capacity", "initial", "window", "warm_up", "cold_factor", "aligned", "of", "max"] {
                    let _ = toml::from_str::<Limits>(&format!("default = {{ policy = \"{kind}\", {name} = {value} }}"));
                }
            }
        }
    }
}
