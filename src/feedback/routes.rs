//! Which route of a server belongs to which of its buckets, as far as answers have shown.
//!
//! A route is a method and a path. Where all answers below a prefix named one bucket, the prefix stands for it: the
//! first segments tell GitHub's `search` from the rest. A segment with a digit is taken for an id.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

/// Hashes of the prefixes of a route, from the shortest on.
pub(super) type Route = SmallVec<[u64; 6]>;

/// The most segments by which routes are told apart.
const DEPTH: usize = 8;
/// No more prefixes are known of a server, some 100 bytes each. Then all are learned again.
const MOST: usize = 1024;

/// The resources of Discord that share no quota.
const RESOURCES: [&str; 3] = ["channels", "guilds", "webhooks"];

/// The method, and the segments of the path.
fn parts(text: &str) -> (&str, impl Iterator<Item = &str>) {
    let (method, path) = text.split_once(' ').unwrap_or(("", text));
    let path = path.split(['?', '#']).next().unwrap_or_default();
    (method, path.split('/').filter(|segment| !segment.is_empty()))
}

/// The channel, guild or webhook that a route begins with: `channels/17`.
pub(super) fn resource(text: &str) -> Option<Box<str>> {
    let (_, mut segments) = parts(text);
    let kind = segments.find(|segment| RESOURCES.contains(segment))?;
    Some(format!("{kind}/{}", segments.next()?).into())
}

/// `"GET /search/issues"`, or a path alone.
pub(super) fn route(text: &str) -> Route {
    let (method, segments) = parts(text);
    let mut hasher = DefaultHasher::new();
    let mut prefix = |part: &str| {
        let is_id = part.bytes().any(|byte| byte.is_ascii_digit());
        if is_id { "{}" } else { part }.hash(&mut hasher);
        hasher.finish()
    };
    let mut route = Route::new();
    route.push(prefix(""));
    route.push(prefix(method));
    route.extend(segments.map(prefix).take(DEPTH - 2));
    route
}

/// The bucket of all known routes below a prefix. `None`: they have several.
#[derive(Debug, Default)]
pub(super) struct Routes(HashMap<u64, Option<Arc<str>>>);

impl Routes {
    /// The bucket of a route, by the longest prefix that is known. `None`: no answer has told.
    pub(super) fn bucket(&self, route: &Route) -> Option<Arc<str>> {
        route.iter().rev().find_map(|prefix| self.0.get(prefix))?.clone()
    }

    /// An answer to a call of this route has named a bucket.
    pub(super) fn learn(&mut self, route: &Route, bucket: &str) {
        if self.bucket(route).as_deref() == Some(bucket) {
            return;
        }
        if self.0.len() >= MOST {
            self.0.clear();
        }
        let bucket = Arc::<str>::from(bucket);
        for prefix in route {
            let known = self.0.entry(*prefix).or_insert_with(|| Some(Arc::clone(&bucket)));
            known.take_if(|known| *known != bucket);
        }
        // Of the whole route the last answer counts.
        self.0.extend(route.last().map(|whole| (*whole, Some(bucket))));
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use super::*;

    const CORE: &str = "core";
    const SEARCH: &str = "search";
    const CODE: &str = "code";

    fn routes(learned: &[(&str, &str)]) -> Routes {
        let mut routes = Routes::default();
        learned.iter().for_each(|(text, bucket)| routes.learn(&route(text), bucket));
        routes
    }

    #[test]
    fn one_bucket_is_that_of_all_routes() {
        assert_eq!(routes(&[]).bucket(&route("GET /")), None);
        let routes = routes(&[("GET /repos/rust-lang/rust/issues/17", CORE)]);
        assert_eq!(routes.bucket(&route("POST /user")).as_deref(), Some(CORE));
        let again = [("GET /repos/a", CORE), ("GET /repos/a/b", CORE), ("GET /user", CORE)];
        assert_eq!(self::routes(&again).0.len(), 4);
    }

    #[test]
    fn a_route_of_more_segments_is_told_by_the_first() {
        let deep = |last: &str| route(&format!("GET /a/b/c/d/e/f/{last}"));
        assert_eq!((deep("x").len(), deep("x") == deep("y")), (DEPTH, true));
        assert_ne!(route("GET /a/b/c/d/e/x"), route("GET /a/b/c/d/e/y"));
    }

    #[test]
    fn a_route_that_others_continue_can_have_its_own_bucket() {
        let routes = routes(&[("GET /a/b", CORE), ("GET /a/c", SEARCH), ("GET /a", CODE)]);
        assert_eq!(routes.bucket(&route("GET /a")).as_deref(), Some(CODE));
        assert_eq!(routes.bucket(&route("GET /a/b")).as_deref(), Some(CORE));
    }

    #[test]
    fn a_prefix_with_several_buckets_is_split() {
        let routes = routes(&[
            ("GET /repos/rust-lang/rust", CORE),
            ("GET /search/issues?q=panic", SEARCH),
            ("GET /search/code", CODE),
        ]);
        let bucket = |text| routes.bucket(&route(text));
        assert_eq!(bucket("GET /repos/tokio-rs/tokio/issues").as_deref(), Some(CORE));
        assert_eq!(bucket("GET /search/issues?q=other").as_deref(), Some(SEARCH));
        assert_eq!(bucket("GET /search/code").as_deref(), Some(CODE));
        assert_eq!(bucket("GET /search/users"), None);
        assert_eq!(bucket("GET /user"), None);
        assert_eq!(bucket("POST /repos/a/b"), None);
    }

    #[test]
    fn ids_are_one_segment_and_a_method_can_tell() {
        let routes = routes(&[
            ("GET /api/v10/channels/17/messages", CORE),
            ("POST /api/v10/channels/17/messages", SEARCH),
            ("POST /api/v10/channels/17/typing", CODE),
        ]);
        let bucket = |text| routes.bucket(&route(text));
        assert_eq!(bucket("GET /api/v10/channels/99/messages").as_deref(), Some(CORE));
        assert_eq!(bucket("POST /api/v9/channels/99/messages").as_deref(), Some(SEARCH));
        assert_eq!(bucket("POST /api/v10/channels/99/typing").as_deref(), Some(CODE));
    }

    /// Where the path does not tell, as of GraphQL.
    #[test]
    fn of_one_route_the_last_answer_counts() {
        let routes = routes(&[("POST /graphql", CORE), ("POST /graphql", SEARCH)]);
        assert_eq!(routes.bucket(&route("POST /graphql")).as_deref(), Some(SEARCH));
    }

    #[test]
    fn a_server_that_names_a_bucket_for_each_route_takes_bounded_memory() {
        let mut routes = Routes::default();
        let name = |index: usize| format!("GET /{}", "x".repeat(index));
        for index in 1..3 * MOST {
            routes.learn(&route(&name(index)), &name(index));
            assert!(routes.0.len() <= MOST + DEPTH, "{}", routes.0.len());
            assert_eq!(routes.bucket(&route(&name(index))).as_deref(), Some(&*name(index)));
        }
    }
}
