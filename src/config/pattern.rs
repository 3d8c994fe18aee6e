//! Names with a `*`, which stands for any text: `*.github.com`, `customer-*`.

use std::cmp::Reverse;

use crate::units::text::Fault;

/// Whether a name that is no host may stand in a list.
pub(super) fn check(name: &str) -> Result<(), Fault> {
    match name.rfind('*') {
        Some(_) if name == "*" => {
            Err(Fault::new(0..1, "the limit of all names that are not listed is the default"))
        }
        Some(last) if name.find('*') != Some(last) => {
            Err(Fault::new(last..last + 1, "a name has one *, which stands for any text"))
        }
        _ => Ok(()),
    }
}

/// Whether a listed name matches another: it is the same, or has a `*` where the other has any text.
pub(crate) fn matches(listed: &str, name: &str) -> bool {
    let Some((before, after)) = listed.split_once('*') else { return listed == name };
    // Something must stand between them.
    name.len() > before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
}

/// The order in which listed names are tried: the most specific first, which has the most text; among equals, the most
/// text before the `*`.
pub(crate) fn rank(listed: &str) -> (bool, Reverse<usize>, Reverse<usize>) {
    let before = listed.find('*');
    (before.is_some(), Reverse(listed.len()), Reverse(before.unwrap_or_default()))
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
    fn what_can_match_nothing_is_an_error_that_says_how_it_is_written() {
        let hosts = "all hosts under one are written \"*.example.org\"; the limit of all others is the default";
        let such = "such as \"api.example.org\" or \"localhost:3000\"";
        let none = "there are no hosts under an address";
        for (name, column, word, reason) in [
            ("*", 1, "*", hosts),
            ("*github.com", 1, "*", hosts),
            ("api.*.com", 5, "*", hosts),
            ("*.*.com", 3, "*", hosts),
            ("api.github.*", 12, "*", hosts),
            ("*.0.0.1", 3, "0.0.1", &format!("an IPv4 address has four numbers up to 255, {such}")),
            ("*.127.0.0.1:80", 3, "127.0.0.1:80", none),
            ("*.[::1]", 3, "[::1]", none),
            ("*.", 3, "", &format!("a host is a name or an address, {such}")),
            ("*..com", 3, ".com", &format!("a host is a name or an address, {such}")),
            ("*.a.org/x", 8, "/x", &format!("a host is written without a path, {such}")),
            (
                "*.b\u{fc}cher.example",
                3,
                "b\u{fc}cher.example",
                "after a * it is written as in a URL, such as \"*.xn--bcher-kva.example\"",
            ),
        ] {
            let error = limits(Per::Host, &[name]).expect_err(name);
            assert_eq!(
                (error.column(), error.word(), error.reason()),
                (column, word, reason),
                "{name}"
            );
            let name = format!("GET {name}{}", if name.contains('/') { "" } else { "/users" });
            let path_is_its_own = name.ends_with("/x");
            assert_eq!(limits(Per::Route, &[&*name]).is_ok(), path_is_its_own, "{name}");
        }
        for per in [Per::Name, Per::All] {
            let shown = |name| limits(per, &[name]).expect_err(name).to_string();
            let default = "the limit of all names that are not listed is the default";
            assert_eq!(shown("*"), format!("in the name \"*\", column 1, \"*\": {default}"));
            let one = "a name has one *, which stands for any text";
            assert_eq!(shown("a*b*"), format!("in the name \"a*b*\", column 4, \"*\": {one}"));
        }
        // Spellings of one.
        let twice = limits(Per::Host, &["*.a.org", "*.A.org:443"]).expect_err("the same");
        assert_eq!(twice.reason(), "it is listed already, as \"*.a.org\"");
    }
}
