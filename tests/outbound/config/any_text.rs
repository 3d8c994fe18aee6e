//! Whatever a text is: it is read without a panic, an error points into it, and what is read is written so that
//! it reads the same.

use proptest::prelude::*;
use tollgate::{AllOf, AnyPolicy, Limits};

use crate::any_input::text::limit;
use crate::any_input::{files, text};

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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2048, ..ProptestConfig::default() })]

    #[test]
    fn words_of_limits(text in words()) {
        limit::<AnyPolicy>(&text);
        limit::<AllOf>(&text);
    }

    #[test]
    fn any_text(text in any::<String>()) {
        text::judge(text.as_bytes());
        files::judge(text.as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_file_with_any_values(words in words(), number in any::<i64>(), float in any::<f64>()) {
        for value in [format!("{words:?}"), number.to_string(), format!("{float:?}"), format!("[{words:?}, {number}]")] {
            let field = |name: &str| toml::from_str::<Limits>(&format!("{name} = {value}"));
            for name in ["per", "default", "limits", "limits.x"] {
                // Alone, they are no limit.
                let is_limit = field(name).is_ok();
                prop_assert!(!is_limit || name != "per", "{name}");
            }
        }
    }
}
