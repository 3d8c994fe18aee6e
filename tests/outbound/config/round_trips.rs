//! What is written is read again: as text, in JSON, in TOML, and in `MessagePack`, which writes the length of a table
//! before its entries.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_core::Serialize;
use serde_core::de::DeserializeOwned;
use tollgate::{AllOf, AnyPolicy, Limits};

use super::policies::{policies, rates, several};

type Fields<T> = BTreeMap<String, T>;

/// Through JSON, TOML and `MessagePack`, as a field of a table.
fn through_files<T: Serialize + DeserializeOwned + Clone>(value: &T) -> [T; 3] {
    let fields = Fields::from([("limit".to_owned(), value.clone())]);
    let json = serde_json::to_string(&fields).expect("JSON");
    let toml = toml::to_string(&fields).expect("TOML");
    let json: Fields<T> =
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{json}: {error}"));
    let toml: Fields<T> = toml::from_str(&toml).unwrap_or_else(|error| panic!("{toml}: {error}"));
    let bytes = rmp_serde::to_vec_named(&fields).expect("MessagePack");
    let bytes: Fields<T> = rmp_serde::from_slice(&bytes).expect("the same table");
    [json, toml, bytes].map(|fields| fields["limit"].clone())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_text_of_a_rate_is_the_rate(rate in rates()) {
        prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        prop_assert_eq!(through_files(&rate), [rate; 3]);
    }

    #[test]
    fn the_text_of_a_policy_is_the_policy(policy in policies()) {
        let text = policy.to_string();
        let read = text.parse::<AnyPolicy>();
        prop_assert_eq!(read.as_ref(), Ok(&policy), "{}", text);
        prop_assert_eq!(read.map(|policy| policy.to_string()), Ok(text));
        prop_assert_eq!(through_files(&policy), [&policy; 3].map(Clone::clone));
    }

    #[test]
    fn several_policies_are_a_text(policy in several()) {
        prop_assert_eq!(policy.to_string().parse::<AllOf>(), Ok(policy.clone()));
        prop_assert_eq!(through_files(&policy), [&policy; 3].map(Clone::clone));
    }
}

#[test]
fn words_may_be_in_capitals_and_a_text_may_be_a_string() {
    for (text, plain) in [
        ("15 RPM", "15/min"),
        ("15RPM", "15/min"),
        ("2 Requests Per Minute", "2/min"),
        ("10/S", "10/s"),
        ("10 calls / Hour", "10/h"),
    ] {
        assert_eq!(text.parse::<AnyPolicy>(), plain.parse(), "{text}");
    }
    // A month.
    assert!("10/M".parse::<AnyPolicy>().is_err());
    let text = format!("{}/s", 10);
    assert_eq!(Limits::per_host(&text), Limits::per_host("10/s"));
    let named = |limit| Limits::per_host("1/s").and_then(|limits| limits.named("a.org", limit));
    assert_eq!(named(&text), named(&String::from("10/s")));
    assert_eq!(Limits::per_name(text), Limits::per_name("10/s"));
    assert!(Limits::per_host(String::from("ten a second")).is_err());
}
