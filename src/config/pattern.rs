//! Names with a `*`, which stands for any text: `*.github.com`, `customer-*`.

use std::cmp::Reverse;

/// A text, or one with a `*`. In the order in which they are tried: the most specific first, which has the most text; among
/// equals, the most text before the `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern {
    pub(super) has_star: bool,
    length: Reverse<usize>,
    before: Reverse<usize>,
    text: String,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let star = text.find('*');
        let (length, before) = (Reverse(text.len()), Reverse(star.unwrap_or_default()));
        Self { has_star: star.is_some(), length, before, text: text.to_owned() }
    }

    /// Whether a name is the same, or has any text where this has a `*`.
    pub(super) fn matches(&self, name: &str) -> bool {
        let Some((before, after)) = self.text.split_once('*') else { return self.text == name };
        // Something must stand between them.
        name.len() > before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use crate::{InvalidLimit, Limits, Per};

    fn limits(per: Per, names: &[&str]) -> Result<Limits, InvalidLimit> {
        // The limit says which name it is.
        let listed = names.iter().zip(1..);
        listed.fold(Limits::new(per).others("99/s"), |limits, (name, number)| {
            limits?.named(*name, &*format!("{number}/s"))
        })
    }

    /// The listed name whose limit a name has.
    #[track_caller]
    fn found<'a>(limits: &Limits, names: &[&'a str], name: &str) -> &'a str {
        let limit = limits.get(name).expect("the default").to_string();
        let number: usize = limit.trim_end_matches("/s").parse().expect("a number");
        names.get(number - 1).unwrap_or(&"default")
    }

    #[test]
    fn the_most_specific_host_wins_in_any_order_of_the_list() {
        let mut names = [
            "*.github.com",
            "api.github.com",
            "*.API.github.com",
            "*.com",
            "*.github.com:8080",
            "*.b.co.uk:443",
        ];
        for _ in 0..names.len() {
            names.rotate_left(1);
            let limits = limits(Per::Host, &names).expect("names");
            for (host, listed) in [
                ("api.github.com", "api.github.com"),
                ("raw.github.com", "*.github.com"),
                ("a.raw.github.com", "*.github.com"),
                ("v3.api.github.com", "*.API.github.com"),
                ("Raw.GitHub.com", "*.github.com"),
                // Not under itself, nor under a name that only ends like it.
                ("github.com", "*.com"),
                (".github.com", "*.com"),
                ("mygithub.com", "*.com"),
                ("raw.github.com:8080", "*.github.com:8080"),
                ("raw.github.com:9090", "default"),
                ("a.b.co.uk", "*.b.co.uk:443"),
                ("github.org", "default"),
                ("com", "default"),
            ] {
                assert_eq!(found(&limits, &names, host), listed, "{host} in {names:?}");
            }
        }
    }

    #[test]
    fn the_name_with_the_most_text_wins() {
        for per in [Per::Name, Per::All] {
            let mut names = ["search-*", "*-eu", "search-*-eu", "search-a-eu", "*earch-b"];
            for _ in 0..names.len() {
                names.rotate_left(1);
                let limits = limits(per, &names).expect("names");
                for (name, listed) in [
                    ("search-a", "search-*"),
                    ("search-a-eu", "search-a-eu"),
                    ("search-b-eu", "search-*-eu"),
                    ("search-eu", "search-*"), // as much text as none other
                    ("mail-eu", "*-eu"),
                    // Both match, with seven letters each.
                    ("search-b", "search-*"),
                    ("search-", "default"),
                    ("Search-a", "default"),
                ] {
                    assert_eq!(found(&limits, &names, name), listed, "{name} in {names:?}");
                }
            }
        }
        // A key is a key.
        let names = ["sk-*", "a*b*"];
        let limits = limits(Per::ApiKey, &names).expect("keys");
        assert_eq!(found(&limits, &names, "sk-1"), "default");
        assert_eq!(found(&limits, &names, "sk-*"), "sk-*");
    }

    #[test]
    fn a_name_has_one_star_beside_other_text() {
        for per in [Per::Name, Per::All] {
            for (name, column) in [("*", 1), ("a*b*", 4)] {
                let error = limits(per, &[name]).expect_err(name);
                assert_eq!((error.column(), error.word()), (column, "*"));
                assert!(error.reason().contains("one * for any text"), "{error}");
            }
        }
        // Spellings of one.
        let twice = limits(Per::Host, &["*.a.org", "*.A.org:443"]).expect_err("the same");
        assert_eq!(twice.reason(), "it is listed already, as \"*.a.org\"");
    }
}
