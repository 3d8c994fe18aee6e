//! How hosts and routes are written as names of [`Limits`](super::limits::Limits).
//!
//! A name that could match nothing is an error when it is listed, and so is a second spelling of a name.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::error::InvalidLimit;
use super::pattern;
use crate::units::text::Fault;

/// What the names of [`Limits`](super::limits::Limits) stand for: the part of a request by which middleware finds
/// its limit.
///
/// ```
/// use tollgate::{Limits, Per};
///
/// assert_eq!(Limits::per_route("10/s")?.per(), Per::Route);
/// assert_eq!(Per::default(), Per::Name);
/// # Ok::<(), tollgate::InvalidLimit>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Per {
    /// The program says which limit a call takes.
    #[default]
    Name,
    /// The host that is called.
    Host,
    /// The route that is called, if it is listed; else the host.
    Route,
    /// The API key of the request.
    ApiKey,
    /// Nothing: all calls that are not listed by name share the default limit.
    All,
}

/// A host, or the template of a route: `GET api.example.org/users/{id}`. Spellings of one name are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Template {
    pub(crate) path: Vec<Part>,
    /// A pattern, if it begins with `*.`.
    pub(crate) host: Option<String>,
    pub(crate) method: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The path ends here.
    End,
    Text(String),
    /// `{id}`, `{id}.json`: any text between these.
    Any(String, String),
    /// `{*rest}`: any segments, or none.
    Rest,
}

/// Checks a name. What is known of it, for names that have spellings.
pub(super) fn check(per: Per, name: &str) -> Result<Option<Template>, InvalidLimit> {
    let template = match per {
        _ if name.is_empty() => Err(Fault::new(0..0, "a name must not be empty")),
        Per::Host => Host::read(name, 0..name.len()).map(|host| Some(host.everywhere())),
        Per::Route => Template::parse(name).map(Some),
        Per::Name | Per::All => pattern::check(name).map(|()| None),
        Per::ApiKey => Ok(None),
    };
    template.map_err(|fault| InvalidLimit::of_name(name, fault))
}

/// A second spelling of a name that is listed.
pub(super) fn twice(name: &str, listed: &str) -> InvalidLimit {
    let fault = Fault::new(0..name.len(), format!("it is listed already, as {listed:?}"));
    InvalidLimit::of_name(name, fault)
}

const IS_NO_PATTERN: &str = "all hosts under one are written \"*.example.org\"; the limit of all others is \
    the default";

/// The name of a host, lower case, without the ports of HTTP and HTTPS.
struct Host(String);

impl Host {
    fn everywhere(self) -> Template {
        Template { path: vec![Part::Rest], host: Some(self.0), method: None }
    }

    /// All hosts under the one in this part of a name.
    fn under(parent: &str, at: Range<usize>, name: &str) -> Result<Self, Fault> {
        let Self(host) = Self::read(name, at.clone())?;
        let (name, _) = host.split_once(':').unwrap_or((&host, ""));
        if host.starts_with('[') || is_address(name) {
            return Err(Fault::new(at, "there are no hosts under an address"));
        }
        if !parent.is_ascii() {
            let reason = "after a * it is written as in a URL, such as \"*.xn--bcher-kva.example\"";
            return Err(Fault::new(at, reason));
        }
        Ok(Self(format!("*.{host}")))
    }

    /// The host in this part of a name.
    fn read(name: &str, at: Range<usize>) -> Result<Self, Fault> {
        let text = &name[at.clone()];
        let fault = |from: usize, to: usize, reason: &str| {
            let reason = format!("{reason}, such as \"api.example.org\" or \"localhost:3000\"");
            Err(Fault::new(at.start + from..at.start + to, reason))
        };
        if let Some(end) = text.find("://") {
            return fault(0, end + 3, "a host is written without a scheme");
        }
        if let Some(from) = text.find(['/', '?', '#']) {
            return fault(from, text.len(), "a host is written without a path");
        }
        if let Some(last) = text.rfind('*') {
            return match text.strip_prefix("*.") {
                Some(parent) if last == 0 => Self::under(parent, at.start + 2..at.end, name),
                _ => Err(Fault::new(at.start + last..at.start + last + 1, IS_NO_PATTERN)),
            };
        }
        let (host, port) = match (text.rfind(']'), text.rfind(':')) {
            (Some(bracket), Some(colon)) if colon < bracket => (text, None),
            (_, Some(colon)) => (&text[..colon], Some(&text[colon + 1..])),
            (_, None) => (text, None),
        };
        let number = port.map(str::parse::<u16>);
        let is_number = port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
        if matches!(number, Some(Err(_))) || !is_number {
            return fault(host.len() + 1, text.len(), "a port is a number up to 65535");
        }
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => match address.parse::<Ipv6Addr>() {
                Ok(address) => format!("[{address}]"),
                Err(_) => return fault(0, text.len(), "that is no IPv6 address"),
            },
            None if host.contains(':') => {
                return fault(0, text.len(), "an IPv6 address is written in brackets, [::1]");
            }
            None => {
                let is_of_a_name =
                    |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.') || !c.is_ascii();
                if let Some((from, c)) =
                    host.char_indices().find(|&(_, c)| !is_of_a_name(c) || c.is_whitespace())
                {
                    return fault(from, from + c.len_utf8(), "that is no part of a host");
                }
                let host = host.strip_suffix('.').unwrap_or(host);
                if host.split('.').any(str::is_empty) {
                    return fault(0, text.len(), "a host is a name or an address");
                }
                if is_address(host) && host.parse::<Ipv4Addr>().is_err() {
                    return fault(0, text.len(), "an IPv4 address has four numbers up to 255");
                }
                host.to_lowercase()
            }
        };
        Ok(Self(match number {
            Some(Ok(port)) if port != 80 && port != 443 => format!("{host}:{port}"),
            _ => host,
        }))
    }
}

/// Whether a host without brackets is an address: in a URL one that ends with a number is.
fn is_address(host: &str) -> bool {
    let last = host.rsplit('.').next();
    last.is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a word is a method of HTTP: in capitals, as methods are.
fn is_method(word: &str) -> bool {
    let is_capital = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
    !word.is_empty() && word.bytes().all(is_capital)
}

impl Template {
    /// `[METHOD ][host]/path/{any}/{*rest}`. Without a path: all paths of the host.
    pub(crate) fn parse(name: &str) -> Result<Self, Fault> {
        let start = name.len() - name.trim_start().len();
        let text = name.trim();
        let (method, from) = match text.split_once(char::is_whitespace) {
            Some((word, rest)) if !word.contains('/') => {
                let at = start..start + word.len();
                if !is_method(word) {
                    return Err(Fault::new(
                        at,
                        "expected a method in capitals, such as GET, or no space",
                    ));
                }
                (Some(word.to_owned()), start + text.len() - rest.trim_start().len())
            }
            _ => (None, start),
        };
        let end = start + text.len();
        let target = &name[from..end];
        // Else it would be read as the end of a path or as a port.
        if let Some(at) = target.find("://") {
            let reason =
                "a route is written without a scheme, such as \"api.example.org/users/{id}\"";
            return Err(Fault::new(from..from + at + 3, reason));
        }
        let path = target.find('/').map_or(end, |at| from + at);
        let host = &name[from..path];
        if is_method(host) {
            let reason =
                format!("a method is followed by a space, and a host or a path: \"{host} /users\"");
            return Err(Fault::new(from..path, reason));
        }
        let has_no_path = path == end;
        let host = match (host.is_empty(), has_no_path) {
            (true, true) => return Err(Fault::new(from..end, "expected a host or a path")),
            (true, false) => None,
            (false, _) => Some(Host::read(name, from..path)?.0),
        };
        let mut parts = Vec::new();
        let mut at = path;
        for segment in name[path..end].split('/') {
            if parts.last() == Some(&Part::Rest) && !segment.is_empty() {
                return Err(Fault::new(at..end, "nothing can follow {*rest}"));
            }
            if !segment.is_empty() {
                parts.push(Part::read(segment, at)?);
            }
            at += segment.len() + 1;
        }
        if parts.last() != Some(&Part::Rest) {
            parts.push(if has_no_path { Part::Rest } else { Part::End });
        }
        Ok(Self { path: parts, host, method })
    }
}

impl Part {
    /// The segment of a path that begins at `from`.
    fn read(segment: &str, from: usize) -> Result<Self, Fault> {
        let whole = from..from + segment.len();
        let fault = |reason: &str| Err(Fault::new(whole.clone(), reason));
        if segment.starts_with("{*") && segment.ends_with('}') {
            return Ok(Self::Rest);
        }
        let (before, after, has_hole) = match (segment.find('{'), segment.rfind('}')) {
            (Some(open), Some(close)) if open < close => {
                (&segment[..open], &segment[close + 1..], true)
            }
            (None, None) => (segment, "", false),
            _ => return fault("a part that may be any text is written {id}"),
        };
        if segment.contains("{*") {
            return fault("{*rest} is a whole part of a path, and the last one");
        }
        if segment.starts_with(':') || matches!(segment, "*" | "**") || segment.contains(['<', '>'])
        {
            return fault(
                "a part that may be any text is written {id}, and all that follows {*rest}",
            );
        }
        if segment.contains(['?', '#']) {
            return fault("a route is a path, without a query or a fragment");
        }
        if matches!(segment, "." | "..") {
            return fault("a path has no such part in a request");
        }
        let is_in_urls = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '`' | '\\');
        if !before.chars().chain(after.chars()).all(is_in_urls) {
            return fault("a path is written as in a URL, a space as %20");
        }
        Ok(match has_hole {
            true => Self::Any(before.to_owned(), after.to_owned()),
            false => Self::Text(segment.to_owned()),
        })
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;
    use crate::Limits;

    /// What is wrong with a name, and where.
    #[track_caller]
    fn fault(per: Per, name: &str) -> String {
        let error = Limits::new(per).named(name, "1/s").expect_err(name);
        assert_eq!(error.text(), name);
        error.to_string()
    }

    #[test]
    fn a_name_that_can_match_nothing_is_an_error_that_says_how_it_is_written() {
        for per in [Per::Name, Per::Host, Per::Route, Per::ApiKey, Per::All] {
            assert_eq!(fault(per, ""), "in the name \"\", at its end: a name must not be empty");
        }
        let such = "such as \"api.example.org\" or \"localhost:3000\"";
        for (name, place, reason) in [
            (
                "https://api.github.com",
                "column 1, \"https://\"",
                "a host is written without a scheme",
            ),
            ("api.github.com/", "column 15, \"/\"", "a host is written without a path"),
            ("api.github.com?q", "column 15, \"?q\"", "a host is written without a path"),
            ("api github.com", "column 4, \" \"", "that is no part of a host"),
            ("me@github.com", "column 3, \"@\"", "that is no part of a host"),
            ("github.com:http", "column 12, \"http\"", "a port is a number up to 65535"),
            ("github.com:", "at its end", "a port is a number up to 65535"),
            ("github.com:+80", "column 12, \"+80\"", "a port is a number up to 65535"),
            ("a..b", "column 1, \"a..b\"", "a host is a name or an address"),
            ("::1", "column 1, \"::1\"", "an IPv6 address is written in brackets, [::1]"),
            ("[::g]", "column 1, \"[::g]\"", "that is no IPv6 address"),
            (
                "10.0.0.256:80",
                "column 1, \"10.0.0.256:80\"",
                "an IPv4 address has four numbers up to 255",
            ),
            ("v.1", "column 1, \"v.1\"", "an IPv4 address has four numbers up to 255"),
        ] {
            assert_eq!(
                fault(Per::Host, name),
                format!("in the name {name:?}, {place}: {reason}, {such}")
            );
        }
        let any = "a part that may be any text is written {id}, and all that follows {*rest}";
        for (name, place, reason) in [
            (
                "GET/x",
                "column 1, \"GET\"",
                "a method is followed by a space, and a host or a path: \"GET /users\"",
            ),
            ("/users/:id", "column 8, \":id\"", any),
            ("GET /users/<id>", "column 12, \"<id>\"", any),
            ("/users/*", "column 8, \"*\"", any),
            (
                "users/{id} /x",
                "column 7, \"{id} \"",
                "a path is written as in a URL, a space as %20",
            ),
            ("/users/}id{", "column 8, \"}id{\"", "a part that may be any text is written {id}"),
            (
                "Get a/x",
                "column 1, \"Get\"",
                "expected a method in capitals, such as GET, or no space",
            ),
            (
                "get /x",
                "column 1, \"get\"",
                "expected a method in capitals, such as GET, or no space",
            ),
            ("/a?b=1", "column 2, \"a?b=1\"", "a route is a path, without a query or a fragment"),
            ("/users/{id", "column 8, \"{id\"", "a part that may be any text is written {id}"),
            ("/a/{*rest}/b", "column 12, \"b\"", "nothing can follow {*rest}"),
            (
                "/a/x{*rest}",
                "column 4, \"x{*rest}\"",
                "{*rest} is a whole part of a path, and the last one",
            ),
            ("/b\u{e4}", "column 2, \"b\u{e4}\"", "a path is written as in a URL, a space as %20"),
            ("/a/../b", "column 4, \"..\"", "a path has no such part in a request"),
            (
                "GET https://a.org/x",
                "column 5, \"https://\"",
                "a route is written without a scheme, such as \"api.example.org/users/{id}\"",
            ),
        ] {
            assert_eq!(fault(Per::Route, name), format!("in the name {name:?}, {place}: {reason}"));
        }
        assert!(fault(Per::Route, "api.*.com/x").contains("column 5, \"*\": all hosts under one"));
        assert!(fault(Per::Route, " ").contains("expected a host or a path"));
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
                &["GET a.org/users/{id}", "GET A.org/users/{name}/", " GET  a.org:80/users/{id}"],
            ),
            (Per::Route, &["a.org", "a.org/{*rest}", "A.org./{*all}"]),
        ] {
            for (first, second) in spellings
                .iter()
                .flat_map(|&first| spellings.iter().map(move |&second| (first, second)))
            {
                let limits = Limits::new(per).named(first, "1/s").expect(first);
                let both = limits.named(second, "2/s");
                if first == second {
                    // The later one counts.
                    assert_eq!(both, Limits::new(per).named(first, "2/s"));
                    continue;
                }
                let error = both.expect_err(second);
                assert_eq!(error.reason(), format!("it is listed already, as {first:?}"));
            }
        }
        let others = Limits::new(Per::Host)
            .named("a.org", "1/s")
            .and_then(|limits| limits.named("a.org:8080", "1/s"));
        assert_eq!(others.expect("two hosts").names().count(), 2);
    }
}
