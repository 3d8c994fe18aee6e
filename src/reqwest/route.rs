//! Which requests a route matches: `GET api.example.org/users/{id}`.

use ::reqwest::{Method, Url};

use super::host;
use crate::config::names::{Part, Template};
use crate::config::pattern;

/// The template of a listed name.
pub(super) fn template(name: &str) -> Option<Template> {
    let template = Template::parse(name).ok()?;
    let host = template.host.as_deref().map(host::canonical);
    Some(Template { host, ..template })
}

/// The order in which templates are tried: the most specific first.
pub(super) fn rank(template: &Template) -> impl Ord + use<> {
    let rank = |part: &Part| match part {
        Part::End => 0,
        Part::Text(_) => 1,
        Part::Any(before, after) if before.len() + after.len() > 0 => 2,
        Part::Any(..) => 3,
        Part::Rest => 4,
    };
    let path: Vec<_> = template.path.iter().map(rank).collect();
    let host = template.host.as_deref().map(pattern::rank);
    (path, template.host.is_none(), host, template.method.is_none())
}

pub(super) fn matches(template: &Template, method: &Method, url: &Url) -> bool {
    template.method.as_ref().is_none_or(|wanted| wanted == method.as_str())
        && template.host.as_ref().is_none_or(|wanted| pattern::matches(wanted, &host::of(url)))
        && matches_path(&template.path, url.path())
}

fn matches_path(parts: &[Part], path: &str) -> bool {
    let mut segments = segments(path);
    for part in parts {
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
        super::matches(
            &super::template(template).expect("a route"),
            &method.parse().expect("a method"),
            &url,
        )
    }

    #[test]
    fn a_template_is_a_method_a_host_and_a_path_with_holes() {
        let issue = "POST https://api.example.org/repos/rust/cargo/issues?state=open";
        for template in [
            "/repos/{owner}/{repo}/issues",
            "POST /repos/{owner}/{repo}/issues",
            "POST api.example.org/repos/{owner}/{repo}/issues/",
            "API.example.org/repos/{*rest}",
            "api.example.org",
            "POST api.example.org",
            "/repos/rust/{*rest}",
            "/{a}/{b}/{c}/{d}",
            "/{*rest}",
            "/repos/rust/car{go}/issues",
            "*.example.org",
            "POST *.org/repos/{*rest}",
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
            "*.api.example.org",
            "*.example.org:8080",
        ] {
            assert!(!matches(template, issue), "{template}");
        }
        assert!(matches("/", "GET http://a.org"));
        assert!(matches("/a/{*rest}", "GET http://a.org/a"));
        assert!(matches("PURGE-ALL /a", "PURGE-ALL http://a.org/a"));
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
            "*.a.org",
            "*.org",
            "*.a.org/users/{id}",
        ]
        .map(|text| (template(text).expect("a route"), text))
        .to_vec();
        sorted.sort_by_key(|(template, _)| rank(template));
        let sorted: Vec<_> = sorted.iter().map(|(_, text)| *text).collect();
        assert_eq!(
            sorted,
            [
                "/users",
                "/users/me",
                "/users/{id}.json",
                "a.org/users/{id}",
                "*.a.org/users/{id}",
                "GET /users/{id}",
                "/users/{id}",
                "/users/{*rest}",
                "a.org",
                "*.a.org",
                "*.org",
                "/{*rest}",
            ]
        );
    }
}
