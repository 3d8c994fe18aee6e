//! The committed texts: what each limit in `limits.txt` means, or what is wrong with it and where; and what a
//! reader of each broken file in `files.txt` sees.

use std::collections::BTreeMap;
use std::fmt::Write;

use tollgate::{AllOf, Limits};

#[test]
fn limits_mean_what_the_corpus_says() {
    let corpus = include_str!("limits.txt");
    let mut found = String::new();
    let (mut good, mut bad) = (0, 0);
    for line in corpus.lines() {
        if line.is_empty() || line.starts_with('#') {
            writeln!(found, "{line}").expect("a string");
            continue;
        }
        let text = line.split(" => ").next().unwrap_or(line);
        let text = text.split(" !! ").next().unwrap_or(text);
        match text.trim_matches('`').parse::<AllOf>() {
            Ok(policy) => {
                good += 1;
                writeln!(found, "{text} => {policy}").expect("a string");
            }
            Err(error) => {
                bad += 1;
                let (column, word, reason) = (error.column(), error.word(), error.reason());
                writeln!(found, "{text} !! {column} `{word}` {reason}").expect("a string");
            }
        }
    }
    assert!(good > 30 && bad > 50, "{good} and {bad}");
    assert!(found == corpus, "what the texts mean now:\n{found}");
}

/// Sections `=== name`, each with a file, a line `---`, and the error.
#[test]
fn errors_in_files_point_at_the_place() {
    let corpus = include_str!("files.txt");
    let mut found = String::new();
    for section in corpus.split("=== ").skip(1) {
        let (name, rest) = section.split_once('\n').expect("a name");
        let file = rest.split("---\n").next().unwrap_or(rest);
        let error = match toml::from_str::<Limits>(file) {
            Ok(limits) => format!("no error: {limits:?}\n"),
            Err(error) => error.to_string(),
        };
        writeln!(found, "=== {name}\n{file}---\n{error}").expect("a string");
    }
    assert!(found == corpus, "what the files say now:\n{found}");
}

#[test]
fn the_files_in_the_docs_are_limits() {
    let docs =
        [include_str!("../../../docs/config.md"), include_str!("../../../src/config/limits.rs")];
    let mut files = 0;
    for doc in docs.map(|doc| doc.replace("\n///", "\n").replace("\n per", "\nper")) {
        for block in doc.split("```toml\n").skip(1) {
            let file = block.split("```").next().expect("its end");
            if file.contains("[limits]") {
                let limits: Limits = toml::from_str(file).unwrap_or_else(|error| panic!("{error}"));
                assert!(limits.names().count() >= 3, "{limits:?}");
                files += 1;
            }
        }
    }
    assert_eq!(files, 2);
}

#[test]
fn a_limit_of_ten_thousand_lock_outs_is_an_error_and_no_deep_policy() {
    let text = format!("1/s{}", " lock out 1s".repeat(10_000));
    let error = text.parse::<AllOf>().expect_err("too many");
    assert_eq!((error.word(), error.column()), ("lock", 5 + 12));
}

#[test]
fn a_value_of_another_type_is_answered_with_what_is_expected() {
    for (file, expected) in [
        ("5", "a table with `default` or `limits`"),
        (r#"{"limits": 5}"#, "a map"),
        (r#"{"default": 5}"#, "limits such as \"10/s, 1000/h\""),
    ] {
        let error = serde_json::from_str::<Limits>(file).expect_err(file).to_string();
        let expected = format!("invalid type: integer `5`, expected {expected} at");
        assert!(error.starts_with(&expected), "{error}");
    }
    // In a format whose fields may be numbers.
    let table = rmp_serde::to_vec(&BTreeMap::from([(5, "1/s")])).expect("a table");
    let error = rmp_serde::from_slice::<Limits>(&table).expect_err("no field").to_string();
    assert!(error.contains("expected field"), "{error}");
}

/// By formats that do not refuse it themselves.
#[test]
fn a_field_that_is_there_twice_is_refused() {
    for (field, value) in
        [("per", "\"host\""), ("default", "\"1/s\""), ("limits", "{\"a\": \"1/s\"}")]
    {
        let text = format!("{{\"{field}\": {value}, \"{field}\": {value}}}");
        let error = serde_json::from_str::<Limits>(&text).expect_err(&text).to_string();
        assert!(error.starts_with(&format!("duplicate field `{field}`")), "{text}: {error}");
    }
}
