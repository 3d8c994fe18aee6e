//! Routes as templates: `GET api.example.org/users/{id}`.

use ::reqwest::{Method, Url};

use super::host;

/// The template of a route.
#[derive(Clone, Debug)]
pub(super) struct Template {
    path: Vec<Part>,
    host: Option<String>,
    method: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// The path ends here.
    End,
    Text(String),
    /// `{id}`, `{id}.json`: any text between these.
    Any(String, String),
    /// `{*rest}`: any segments, or none.
    Rest,
}

impl Template {
    /// `[METHOD ][host]/path/{any}/{*rest}`. Without a path: all paths of the host.
    pub(super) fn parse(text: &str) -> Self {
        let text = text.trim();
        let is_method =
            |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_uppercase());
        let (method, text) = match text.split_once(' ') {
            Some((word, rest)) if is_method(word) => (Some(word.to_owned()), rest.trim_start()),
            _ => (None, text),
        };
        let text = text.split_once("://").map_or(text, |(_, rest)| rest);
        let (name, path) = match text.find('/') {
            Some(at) => (&text[..at], Some(&text[at..])),
            None => (text, None),
        };
        let host = Some(host::canonical(name)).filter(|_| !name.is_empty());
        let mut parts = Vec::new();
        for segment in path.iter().copied().flat_map(segments) {
            match (segment.find('{'), segment.rfind('}')) {
                _ if segment.starts_with("{*") && segment.ends_with('}') => {
                    parts.push(Part::Rest);
                    break;
                }
                (Some(from), Some(to)) if from < to => {
                    parts.push(Part::Any(segment[..from].to_owned(), segment[to + 1..].to_owned()));
                }
                _ => parts.push(Part::Text(segment.to_owned())),
            }
        }
        if parts.last() != Some(&Part::Rest) {
            parts.push(if path.is_some() { Part::End } else { Part::Rest });
        }
        Self { path: parts, host, method }
    }

    /// The order in which templates are tried: the most specific first.
    pub(super) fn rank(&self) -> (Vec<u8>, bool, bool) {
        let rank = |part: &Part| match part {
            Part::End => 0,
            Part::Text(_) => 1,
            Part::Any(before, after) if before.len() + after.len() > 0 => 2,
            Part::Any(..) => 3,
            Part::Rest => 4,
        };
        (self.path.iter().map(rank).collect(), self.host.is_none(), self.method.is_none())
    }

    pub(super) fn matches(&self, method: &Method, url: &Url) -> bool {
        self.method.as_ref().is_none_or(|wanted| wanted == method.as_str())
            && self.host.as_ref().is_none_or(|wanted| *wanted == host::of(url))
            && self.matches_path(url.path())
    }

    fn matches_path(&self, path: &str) -> bool {
        let mut segments = segments(path);
        for part in &self.path {
            let is_match = match (part, segments.next()) {
                (Part::Rest, _) => return true,
                (Part::End, segment) => return segment.is_none(),
                (Part::Text(text), Some(segment)) => text == segment,
                (Part::Any(before, after), Some(segment)) => {
                    // Something must stand between them.
                    segment.len() > before.len() + after.len()
                        && segment.starts_with(before)
                        && segment.ends_with(after)
                }
                (_, None) => false,
            };
            if !is_match {
                return false;
            }
        }
        false
    }
}

/// Without a slash at the end.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    #[track_caller]
    fn matches(template: &str, request: &str) -> bool {
        let (method, url) = request.split_once(' ').expect("GET url");
        let url = Url::parse(url).expect("a URL");
        Template::parse(template).matches(&method.parse().expect("a method"), &url)
    }

    #[test]
    fn a_template_is_a_method_a_host_and_a_path_with_holes() {
        let issue = "POST https://api.example.org/repos/rust/cargo/issues?state=open";
        for template in [
            "/repos/{owner}/{repo}/issues",
            "POST /repos/{owner}/{repo}/issues",
            "POST api.example.org/repos/{owner}/{repo}/issues/",
            "https://API.example.org/repos/{*rest}",
            "api.example.org",
            "POST api.example.org",
            "/repos/rust/{*rest}",
            "/{a}/{b}/{c}/{d}",
            "/{*rest}",
            "/repos/rust/car{go}/issues",
        ] {
            assert!(matches(template, issue), "{template}");
        }
        for template in [
            "GET /repos/{owner}/{repo}/issues",
            "example.org/repos/{owner}/{repo}/issues",
            "/repos/{owner}/{repo}",
            "/repos/{owner}/{repo}/issues/{number}",
            "/Repos/{owner}/{repo}/issues",
            "/",
            "/repos/{owner}/{repo}/issues.json",
            "/repos/rust/cargo{go}/issues",
        ] {
            assert!(!matches(template, issue), "{template}");
        }
        assert!(matches("/", "GET http://a.org"));
        assert!(matches("/a/{*rest}", "GET http://a.org/a"));
        assert!(matches("a.org:8080/{id}.json", "GET http://a.org:8080/7.json"));
        assert!(!matches("a.org:8080/{id}.json", "GET http://a.org/7.json"));
    }

    #[test]
    fn the_most_specific_template_is_tried_first() {
        let mut sorted: Vec<_> = [
            "/{*rest}",
            "a.org",
            "/users/{id}",
            "/users/me",
            "/users/{*rest}",
            "/users/{id}.json",
            "/users",
            "GET /users/{id}",
            "a.org/users/{id}",
        ]
        .map(|text| (Template::parse(text), text))
        .to_vec();
        sorted.sort_by_key(|(template, _)| template.rank());
        let sorted: Vec<_> = sorted.iter().map(|(_, text)| *text).collect();
        assert_eq!(
            sorted,
            [
                "/users",
                "/users/me",
                "/users/{id}.json",
                "a.org/users/{id}",
                "GET /users/{id}",
                "/users/{id}",
                "/users/{*rest}",
                "a.org",
                "/{*rest}",
            ]
        );
    }
}
