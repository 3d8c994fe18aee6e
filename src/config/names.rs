//! How hosts and routes are written as names of [`Limits`](super::limits::Limits), and which requests they match.
//!
//! A name that could match nothing is an error when it is listed, and so is a second spelling of a name.

use std::cmp::Reverse;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::units::text::Fault;

/// What the names of [`Limits`](super::limits::Limits) stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "lowercase"))]
pub(super) enum Per {
    /// The program says which limit a call takes.
    #[default]
    Name,
    /// The host that is called.
    Host,
    /// The route that is called, if it is listed; else the host.
    Route,
}

/// What a listed host or route matches: `GET api.example.org/users/{id}`. Spellings of one name are equal. In the order in
/// which they are tried: the most specific first, by the path, then the host, then the method.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Template {
    path: Vec<Part>,
    pub(super) host: Host,
    method: Reverse<Option<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Text(String),
    /// `{id}`
    Any,
    /// `{*rest}`: any segments, or none.
    Rest,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    Named(String),
    /// `.github.com`, of `*.github.com`. Of several the longest is tried first.
    Under(Reverse<usize>, String),
    /// Of a route that names none.
    Any,
}

impl Host {
    pub(super) fn matches(&self, name: &str) -> bool {
        match self {
            Self::Named(host) => host == name,
            Self::Under(_, parent) => name.len() > parent.len() && name.ends_with(parent),
            Self::Any => true,
        }
    }
}

/// Checks a name. Returns what it matches, if it has spellings or a `*`.
pub(super) fn check(per: Per, name: &str) -> Result<Option<Template>, Fault> {
    match (per, name.find('*')) {
        _ if name.is_empty() => Err(Fault::new(0..0, "a name must not be empty")),
        (Per::Host, _) => {
            let host = host(name, 0..name.len())?;
            Ok(Some(Template { path: vec![Part::Rest], host, method: Reverse(None) }))
        }
        (Per::Route, _) => Template::parse(name).map(Some),
        (Per::Name, None) => Ok(None),
        (Per::Name, Some(at)) => {
            let reason = "a * is for hosts: list each name, the limit of all others is the default";
            Err(Fault::new(at..at + 1, reason))
        }
    }
}

/// The host in this part of a name.
fn host(name: &str, at: Range<usize>) -> Result<Host, Fault> {
    const REASON: &str = "a host is written as \"api.example.org\", \"localhost:3000\", \"[::1]:3000\" or \
        \"*.example.org\": in ASCII, without a scheme or a path";
    let host = canonical(&name[at.clone()]).ok_or_else(|| Fault::new(at, REASON))?;
    Ok(match host.strip_prefix('*') {
        Some(parent) => Host::Under(Reverse(parent.len()), parent.to_owned()),
        None => Host::Named(host),
    })
}

/// A host in lower case, without a dot at its end and the ports of HTTP and HTTPS. `None` if it is none.
fn canonical(text: &str) -> Option<String> {
    let (star, text) = text.strip_prefix("*.").map_or(("", text), |parent| ("*.", parent));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            (host, Some(port).filter(|port| is_number(port))?.parse().ok()?)
        }
        _ => (text, 80),
    };
    let host = match host.strip_prefix('[') {
        Some(address) => format!("[{}]", address.strip_suffix(']')?.parse::<Ipv6Addr>().ok()?),
        None => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    };
    // In a URL a host that ends with a number is an address. There are no hosts under one.
    let is_host = if host.starts_with('[') {
        star.is_empty()
    } else if host.rsplit('.').next().is_some_and(is_number) {
        star.is_empty() && host.parse::<Ipv4Addr>().is_ok()
    } else {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        host.split('.').all(|label| !label.is_empty() && label.bytes().all(is_allowed))
    };
    is_host.then(|| match port {
        80 | 443_u16 => format!("{star}{host}"),
        _ => format!("{star}{host}:{port}"),
    })
}

impl Template {
    /// `[METHOD ][host]/path/{any}/{*rest}`. Without a path: all paths of the host.
    fn parse(name: &str) -> Result<Self, Fault> {
        let method = name.split_once(' ').map(|(method, _)| method);
        let start = method.map_or(0, |method| method.len() + 1);
        let path = name[start..].find('/').map_or(name.len(), |at| start + at);
        // Methods are in capitals. Without the space it would be a host.
        let word = method.unwrap_or(&name[..path]);
        let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        let is_method = !word.is_empty() && word.bytes().all(is_capital);
        if is_method != method.is_some() {
            let reason = "a method is in capitals, with a space behind it: \"GET /users\"";
            return Err(Fault::new(0..word.len(), reason));
        }
        let host = match &name[start..path] {
            "" if path < name.len() => Host::Any,
            _ => host(name, start..path)?,
        };
        let (mut parts, mut at) = (Vec::new(), path + 1);
        for segment in name[path..].split('/').skip(1) {
            match Part::read(segment) {
                _ if segment.is_empty() => {}
                Some(part) if parts.last() != Some(&Part::Rest) => parts.push(part),
                _ => {
                    let reason =
                        "a part of a path is text as in a URL, or {id}, or {*rest} at the end";
                    return Err(Fault::new(at..at + segment.len(), reason));
                }
            }
            at += segment.len() + 1;
        }
        if path == name.len() {
            parts.push(Part::Rest);
        }
        Ok(Self { path: parts, host, method: Reverse(method.map(str::to_owned)) })
    }

    /// Whether a request matches.
    #[cfg(feature = "reqwest")]
    pub(super) fn matches(&self, method: &str, host: &str, path: &str) -> bool {
        if !self.host.matches(host) || self.method.0.as_ref().is_some_and(|only| only != method) {
            return false;
        }
        // Without a slash at the end.
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        for part in &self.path {
            match (part, segments.next()) {
                (Part::Rest, _) => return true,
                (Part::Any, Some(_)) => {}
                (Part::Text(text), Some(segment)) if text == segment => {}
                _ => return false,
            }
        }
        segments.next().is_none()
    }
}

impl Part {
    /// A segment of a path.
    fn read(segment: &str) -> Option<Self> {
        let is_in_urls = |c: char| c.is_ascii_graphic() && !"\"`\\{}*<>?#".contains(c);
        match segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            Some(name) if name.starts_with('*') => Some(Self::Rest),
            Some(name) => name.chars().all(is_in_urls).then_some(Self::Any),
            None => {
                let is_text = segment.chars().all(is_in_urls)
                    && !segment.starts_with(':')
                    && ![".", ".."].contains(&segment);
                is_text.then(|| Self::Text(segment.to_owned()))
            }
        }
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{AllOf, InvalidLimit, Limits};

    fn none(per: Per) -> Limits {
        Limits::new(per, "99/s".parse::<AllOf>().expect("a limit"))
    }

    /// Where a name is wrong, and what is said of it.
    #[track_caller]
    fn fault(per: Per, name: &str) -> (usize, String, String) {
        let error = none(per).named(name, "1/s").expect_err(name);
        (error.column(), error.word().to_owned(), error.reason().to_owned())
    }

    #[test]
    fn a_name_that_can_match_nothing_is_an_error_that_says_how_it_is_written() {
        for per in [Per::Name, Per::Host, Per::Route] {
            assert_eq!(fault(per, ""), (1, String::new(), "a name must not be empty".to_owned()));
        }
        let hosts = "https://api.github.com|api.github.com/|api.github.com?q|api github.com|me@github.com|\
            github.com:http|github.com:|github.com:+80|github.com:65536|a..b|::1|[::g]|[::1|10.0.0.256:80|v.1|\
            b\u{fc}cher.example|*|*github.com|api.*.com|*.*.com|api.github.*|*.0.0.1|*.127.0.0.1:80|*.[::1]|*.|\
            *..com|*.a.org/x|*.b\u{fc}cher.example";
        for host in hosts.split('|') {
            let (column, word, reason) = fault(Per::Host, host);
            assert_eq!((column, word.as_str()), (1, host));
            assert!(
                reason.contains("\"localhost:3000\", \"[::1]:3000\" or \"*.example.org\""),
                "{reason}"
            );
            if !host.contains(['/', ' ']) {
                assert_eq!(fault(Per::Route, &format!("GET {host}/a")), (5, word, reason));
            }
        }
        for (route, column, word) in [
            ("GET/x", 1, "GET"),
            ("Get a/x", 1, "Get"),
            ("get /x", 1, "get"),
            ("users/{id} /x", 1, "users/{id}"),
            (" ", 1, ""),
        ] {
            let reason = "a method is in capitals, with a space behind it: \"GET /users\"";
            assert_eq!(fault(Per::Route, route), (column, word.to_owned(), reason.to_owned()));
        }
        for (route, column, word) in [
            ("/users/:id", 8, ":id"),
            ("GET /users/<id>", 12, "<id>"),
            ("/users/*", 8, "*"),
            ("/users/*/{*rest}", 8, "*"),
            ("/a/{*rest}/b", 12, "b"),
            ("/users/}id{", 8, "}id{"),
            ("/a?b=1", 2, "a?b=1"),
            ("/users/{id", 8, "{id"),
            ("/a/x{*rest}", 4, "x{*rest}"),
            ("/a/{id}.json", 4, "{id}.json"),
            ("/b\u{e4}", 2, "b\u{e4}"),
            ("/a/../b", 4, ".."),
        ] {
            let reason = "a part of a path is text as in a URL, or {id}, or {*rest} at the end";
            assert_eq!(fault(Per::Route, route), (column, word.to_owned(), reason.to_owned()));
        }
        let (at, word, reason) = fault(Per::Route, "GET https://a.org/x");
        assert_eq!((at, word.as_str()), (5, "https:"));
        assert!(reason.contains("without a scheme"), "{reason}");
    }

    #[test]
    fn two_spellings_of_one_name_are_an_error() {
        for (per, spellings) in [
            (
                Per::Host,
                &["api.github.com", "API.GitHub.com", "api.github.com.", "api.github.com:443"][..],
            ),
            (Per::Host, &["[::1]:3000", "[0:0::1]:3000", "[::1]:03000"]),
            (
                Per::Route,
                &["GET a.org/users/{id}", "GET A.org/users/{name}/", "GET a.org:80/users/{id}"],
            ),
            (Per::Route, &["a.org", "a.org/{*rest}", "A.org./{*all}"]),
        ] {
            for (first, second) in spellings
                .iter()
                .flat_map(|&first| spellings.iter().map(move |&second| (first, second)))
            {
                let limits = none(per).named(first, "1/s").expect(first);
                let both = limits.named(second, "2/s");
                if first == second {
                    // The later one counts.
                    assert_eq!(both, none(per).named(first, "2/s"));
                    continue;
                }
                let error = both.expect_err(second);
                assert_eq!(error.reason(), format!("it is listed already, as {first:?}"));
            }
        }
        let others = none(Per::Host)
            .named("a.org", "1/s")
            .and_then(|limits| limits.named("a.org:8080", "1/s"));
        assert_eq!(others.expect("two hosts").names().count(), 2);
    }

    #[cfg(feature = "reqwest")]
    #[track_caller]
    fn matches(template: &str, request: &str) -> bool {
        let (method, url) = request.split_once(' ').expect("GET url");
        let url = ::reqwest::Url::parse(url).expect("a URL");
        let port = url.port().map_or(String::new(), |port| format!(":{port}"));
        let host = format!("{}{port}", url.host_str().expect("a host"));
        Template::parse(template).expect("a route").matches(method, &host, url.path())
    }

    #[cfg(feature = "reqwest")]
    #[test]
    fn a_template_is_a_method_a_host_and_a_path_with_holes() {
        let issue = "POST https://api.example.org/repos/rust/cargo/issues?state=open";
        let templates = "/repos/{owner}/{repo}/issues|POST /repos/{owner}/{repo}/issues|\
            POST api.example.org/repos/{owner}/{repo}/issues/|API.example.org/repos/{*rest}|api.example.org|\
            POST api.example.org|/repos/rust/{*rest}|/{a}/{b}/{c}/{d}|/{*rest}|\
            *.example.org|POST *.org/repos/{*rest}";
        for template in templates.split('|') {
            assert!(matches(template, issue), "{template}");
        }
        let templates = "GET /repos/{owner}/{repo}/issues|example.org/repos/{owner}/{repo}/issues|\
            /repos/{owner}/{repo}|/repos/{owner}/{repo}/issues/{number}|/Repos/{owner}/{repo}/issues|/|\
            /repos/{owner}/{repo}/issues.json|*.api.example.org|*.example.org:8080";
        for template in templates.split('|') {
            assert!(!matches(template, issue), "{template}");
        }
        assert!(matches("/", "GET http://a.org"));
        assert!(matches("/a/{*rest}", "GET http://a.org/a"));
        assert!(matches("PURGE-ALL /a", "PURGE-ALL http://a.org/a"));
        assert!(matches("a.org:8080/{id}", "GET http://a.org:8080/7.json"));
        assert!(!matches("a.org:8080/{id}", "GET http://a.org/7.json"));
    }

    #[test]
    fn the_most_specific_template_is_tried_first() {
        let order = "/users|/users/me|a.org/users/{id}|*.a.org/users/{id}|GET /users/{id}|\
            /users/{id}|/users/{*rest}|a.org|*.a.org|*.org|/{*rest}";
        let template = |text| (Template::parse(text).expect("a route"), text);
        let sorted: BTreeMap<_, _> = order.rsplit('|').map(template).collect();
        assert_eq!(sorted.into_values().collect::<Vec<_>>().join("|"), order);
    }

    fn limits(per: Per, names: &[&str]) -> Result<Limits, InvalidLimit> {
        // The limit says which name it is.
        let mut listed = names.iter().zip(1..);
        listed.try_fold(none(per), |limits, (name, number)| {
            limits.named(*name, &*format!("{number}/s"))
        })
    }

    /// The listed name whose limit a name has.
    #[track_caller]
    fn found<'a>(limits: &Limits, names: &[&'a str], name: &str) -> &'a str {
        let limit = limits.get(name).to_string();
        let number: usize = limit.trim_end_matches("/s").parse().expect("a number");
        names.get(number - 1).unwrap_or(&"default")
    }

    #[test]
    fn the_most_specific_host_wins_in_any_order_of_the_list() {
        let mut names =
            ["*.github.com", "api.github.com", "*.API.github.com", "*.com", "*.github.com:8080"];
        for _ in 0..names.len() {
            names.rotate_left(1);
            let limits = limits(Per::Host, &names).expect("names");
            for (host, listed) in [
                ("api.github.com", "api.github.com"),
                ("a.raw.github.com", "*.github.com"),
                ("v3.api.github.com", "*.API.github.com"),
                ("Raw.GitHub.com", "*.github.com"),
                // Not under itself, nor under a name that only ends like it.
                ("github.com", "*.com"),
                (".github.com", "*.com"),
                ("mygithub.com", "*.com"),
                ("raw.github.com:8080", "*.github.com:8080"),
                ("raw.github.com:9090", "default"),
                ("com", "default"),
            ] {
                assert_eq!(found(&limits, &names, host), listed, "{host} in {names:?}");
            }
        }
    }

    #[test]
    fn a_name_that_a_program_gives_has_no_star() {
        for (name, column) in [("*", 1), ("a*b*", 2)] {
            let error = limits(Per::Name, &[name]).expect_err(name);
            assert_eq!((error.column(), error.word()), (column, "*"));
            assert!(error.reason().contains("a * is for hosts"), "{error}");
        }
        // Spellings of one.
        let twice = limits(Per::Host, &["*.a.org", "*.A.org:443"]).expect_err("the same");
        assert_eq!(twice.reason(), "it is listed already, as \"*.a.org\"");
    }
}
