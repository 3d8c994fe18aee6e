//! A [`Feedback`] for each server and for each of its buckets, around one limiter.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use http::Uri;

use super::answer::Answer;
use super::builder::FeedbackBuilder;
use super::observer::Feedback;
use super::routes::{self, Route, Routes};
use crate::limiter::Limiter;
use crate::sync::Mutex;

/// One limit for calls to several servers: what is learned belongs to the server that said it.
///
/// [`at`](Self::at) returns a [`Feedback`] around the limiter for each call, by the server and the route that it goes
/// to. After a `Retry-After` of one server no call to another waits for it, and the calls to all of them together keep
/// the limit. A server may name its buckets, as GitHub does by `x-ratelimit-resource` and Discord by
/// `X-RateLimit-Bucket`: then each bucket is a quota of its own, and of Discord each channel, guild and webhook has one of
/// the bucket. Which routes belong to which is learned from the
/// answers. A route of which no answer has told is held back by nothing but the limit.
///
/// The limiter is never paused, as it is for all servers: each process learns by itself. For a fleet over Redis use a
/// [`Feedback`] with a limiter of its own for each bucket; that pauses it for all.
///
/// It is a handle: clones share what was learned. It keeps up to 65,536 servers in use, with 1,024 buckets and 1,024
/// prefixes of routes each. What holds nothing back is forgotten when there are many.
///
/// ```
/// use tollgate::feedback::Servers;
/// use tollgate::{InFlight, ManualClock, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let clock = ManualClock::auto_advance();
/// let servers = Servers::new(RateLimiter::with_clock(InFlight::new(10), &clock));
/// let mut call = servers.at("a.example", "GET /").acquire(1).await?;
/// call.observe(429u16, &[("retry-after", "5")]).await;
/// drop(call);
/// servers.at("b.example", "GET /").acquire(1).await?;
/// assert_eq!(clock.elapsed().as_secs(), 0);
/// servers.at("a.example", "GET /").acquire(1).await?;
/// assert_eq!(clock.elapsed().as_secs(), 5);
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Servers<L: Limiter + 'static> {
    limiter: L,
    /// Tells limits apart.
    key: String,
    table: Arc<Table<L>>,
}

impl<L: Limiter + 'static> Servers<L> {
    /// Calls that take permits of `limiter`. All known dialects are read.
    #[must_use]
    pub fn new(limiter: L) -> Self {
        Self::with(limiter, |builder| builder)
    }

    /// As [`new`](Self::new), with options for what is learned of each server.
    #[must_use]
    pub fn with(
        limiter: L,
        options: impl Fn(FeedbackBuilder<L>) -> FeedbackBuilder<L> + Send + Sync + 'static,
    ) -> Self {
        let kept = Mutex::new(Kept { servers: HashMap::new(), misses: 0, left: 0 });
        let table = Arc::new(Table { options: Box::new(options), kept });
        Self { limiter, key: String::new(), table }
    }

    /// The same servers behind another limiter, such as one of a customer: what they say is learned for each key. A limiter
    /// whose key is the name of its server serves that server alone, and is paused as in a [`Feedback`].
    ///
    /// ```
    /// use tollgate::feedback::Servers;
    /// use tollgate::{InFlight, KeyedRateLimiter, ManualClock};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let tenants = KeyedRateLimiter::<String, _>::with_clock(InFlight::new(9), ManualClock::new());
    /// let servers = Servers::new(tenants.at("any").into_owned());
    /// let of = |tenant| servers.behind(tenant, tenants.at(tenant).into_owned()).at("api.example", "");
    /// of("a").acquire(1).await?.observe(429u16, &[("retry-after", "5")]).await;
    /// assert!(of("a").try_acquire(1).await.is_err());
    /// assert!(of("b").try_acquire(1).await.is_ok());
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn behind(&self, key: impl Into<String>, limiter: L) -> Self {
        Self { limiter, key: key.into(), table: Arc::clone(&self.table) }
    }

    /// The limiter behind what `server` has said of the bucket of `route`, for one call: a caller that keeps it keeps
    /// the bucket.
    ///
    /// `server` is any name, such as the host. `route` is a method and a path, such as `"GET /search/issues"`, or a
    /// path, or empty: a segment with a digit is taken for an id, and the query is left out.
    ///
    /// ```
    /// use tollgate::feedback::Servers;
    /// use tollgate::{InFlight, ManualClock, RateLimiter};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let servers = Servers::new(RateLimiter::with_clock(InFlight::new(10), ManualClock::new()));
    /// let github = |route| servers.at("api.github.com", route);
    /// for (route, bucket, remaining) in [("/repos/rust-lang/rust", "core", "4999"), ("/search/issues", "search", "0")] {
    ///     let headers = [
    ///         ("x-ratelimit-resource", bucket),
    ///         ("x-ratelimit-remaining", remaining),
    ///         ("x-ratelimit-reset", "60"),
    ///     ];
    ///     github(route).acquire(1).await?.observe(200u16, &headers).await;
    /// }
    /// assert_eq!(github("/search/issues").server_state().meters[0].1.remaining, Some(0));
    /// assert!(github("/search/issues").try_acquire(1).await.is_err());
    /// assert!(github("/repos/tokio-rs/tokio").try_acquire(1).await.is_ok());
    /// # Ok::<(), tollgate::Error>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn at(&self, server: &str, route: &str) -> Feedback<L> {
        let names = format!("{}\0{server}", self.key);
        let (route, resource) = (routes::route(route), routes::resource(route));
        let mut kept = self.table.kept.lock();
        let bucket = if let Some(server) = kept.servers.get_mut(&names) {
            server.at(&route, resource.as_deref())
        } else {
            let mut builder = (self.table.options)(Feedback::builder(self.limiter.clone()));
            builder.options.is_alone = self.key == server && !server.is_empty();
            kept.add(&names, builder)
        };
        drop(kept);
        let table = Arc::clone(&self.table);
        let home = move |answer: &Answer| {
            let mut kept = table.kept.lock();
            kept.servers.get_mut(&names)?.named_by(answer, &route, resource.as_deref())
        };
        Feedback { home: Some(Arc::new(home)), ..bucket }
    }

    /// [`at`](Self::at) the host and the route of an HTTP request.
    ///
    /// ```
    /// use tollgate::feedback::Servers;
    /// use tollgate::{InFlight, RateLimiter};
    ///
    /// let servers = Servers::new(RateLimiter::new(InFlight::new(10)));
    /// let request = http::Request::get("https://API.example:443/users/7").body(()).unwrap();
    /// servers.of(&request.into_parts().0);
    /// assert_eq!(servers.learned()[0].server, "api.example");
    /// ```
    #[must_use]
    pub fn of(&self, request: &http::request::Parts) -> Feedback<L> {
        let uri = &request.uri;
        self.at(&server_name(uri), &format!("{} {}", request.method, uri.path()))
    }

    /// What was learned so far: to look at it, or to [end](Feedback::resume) a pause.
    #[must_use]
    pub fn learned(&self) -> Vec<Learned<L>> {
        let mut learned = Vec::new();
        for (names, server) in &self.table.kept.lock().servers {
            let (limit, name) = names.rsplit_once('\0').unwrap_or_default();
            learned.extend(server.buckets.iter().map(|(bucket, feedback)| Learned {
                limit: limit.to_owned(),
                server: name.to_owned(),
                bucket: bucket.to_string(),
                feedback: feedback.clone(),
            }));
        }
        learned
    }
}

impl<L: Limiter + 'static> fmt::Debug for Servers<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers")
            .field("limiter", &self.limiter)
            .field("learned", &self.learned())
            .finish()
    }
}

/// The host and port of a URI, one for all spellings: without a dot at its end and the ports of HTTP and HTTPS.
pub(crate) fn server_name(uri: &Uri) -> String {
    let host = uri.host().unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    match uri.port_u16() {
        None | Some(80 | 443) => host,
        Some(port) => format!("{host}:{port}"),
    }
}

/// What was learned of one bucket of a server; see [`Servers::learned`].
///
/// ```
/// use tollgate::feedback::Servers;
/// use tollgate::{InFlight, ManualClock, RateLimiter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let servers = Servers::new(RateLimiter::with_clock(InFlight::new(10), ManualClock::new()));
/// servers.at("api.example", "").acquire(1).await?.observe(503u16, &[("retry-after", "60")]).await;
/// for learned in servers.learned() {
///     assert_eq!((learned.server.as_str(), learned.feedback.server_state().pauses), ("api.example", 1));
///     learned.feedback.resume().await?;
/// }
/// assert!(servers.at("api.example", "").try_acquire(1).await.is_ok());
/// # Ok::<(), tollgate::Error>(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Learned<L: Limiter + 'static> {
    /// The key of the limit, where there are [several](Servers::behind).
    pub limit: String,
    /// The server.
    pub server: String,
    /// The bucket that the server names, and the channel, guild or webhook that has it for itself, as in
    /// `"abcd1234 channels/17"`; empty for what it says without a name.
    pub bucket: String,
    /// What was learned.
    pub feedback: Feedback<L>,
}

struct Table<L: Limiter + 'static> {
    options: Box<dyn Fn(FeedbackBuilder<L>) -> FeedbackBuilder<L> + Send + Sync>,
    kept: Mutex<Kept<L>>,
}

/// How many were added, or found no room, since all were looked at, and how many that left.
struct Kept<L: Limiter + 'static> {
    /// By the key of the limit and the name of the server, with a zero between them.
    servers: HashMap<String, Server<L>>,
    misses: usize,
    left: usize,
}

/// Each takes one or two kilobytes.
const MOST: usize = 1 << 16;
/// Up to this number of servers a look is not worth its time.
const FEW: usize = 64;
/// A server that names more is not told apart any further.
const BUCKETS: usize = 1024;

impl<L: Limiter + 'static> Kept<L> {
    fn add(&mut self, names: &str, builder: FeedbackBuilder<L>) -> Feedback<L> {
        self.misses += 1;
        if self.misses > self.left.max(FEW) {
            // Forget the servers that hold nothing back.
            self.servers.retain(|_, server| !server.buckets.values().all(Feedback::is_idle));
            (self.left, self.misses) = (self.servers.len(), 0);
        }
        let bucket = builder.clone().build();
        // Without room nothing is kept of it.
        if self.servers.len() < MOST {
            let buckets = HashMap::from([("".into(), bucket.clone())]);
            let server = Server { builder, buckets, is_parted: false, routes: Routes::default() };
            self.servers.insert(names.to_owned(), server);
        }
        bucket
    }
}

/// One server.
struct Server<L: Limiter + 'static> {
    builder: FeedbackBuilder<L>,
    /// The first is without a name until the server names one: then all calls that are under way are taken for its
    /// own. With a second, what is said without a name has one for itself.
    buckets: HashMap<Box<str>, Feedback<L>>,
    /// Each channel, guild or webhook has a bucket for itself, whose name is that of both.
    is_parted: bool,
    routes: Routes,
}

impl<L: Limiter + 'static> Server<L> {
    fn at(&mut self, route: &Route, resource: Option<&str>) -> Feedback<L> {
        let named = self.routes.bucket(route).and_then(|name| self.named(&name, resource));
        // Else the bucket without a name, or the only one.
        let any = || self.buckets.get("").or_else(|| self.buckets.values().next()).cloned();
        named.or_else(any).unwrap_or_else(|| self.builder.clone().build())
    }

    /// The bucket that the answer to a call names.
    fn named_by(
        &mut self,
        answer: &Answer,
        route: &Route,
        resource: Option<&str>,
    ) -> Option<Feedback<L>> {
        let name = answer.bucket.as_deref().filter(|name| !name.is_empty())?;
        let resource = resource.filter(|_| answer.is_per_resource);
        self.is_parted |= resource.is_some();
        self.routes.learn(route, name);
        self.named(name, resource)
    }

    /// The bucket of this name, or the part of it that this resource has for itself. `None`: there are too many.
    fn named(&mut self, name: &str, resource: Option<&str>) -> Option<Feedback<L>> {
        let name = match resource {
            Some(resource) if self.is_parted => Cow::from(format!("{name} {resource}")),
            _ => name.into(),
        };
        let buckets = &mut self.buckets;
        if let Some(bucket) = buckets.get(&*name) {
            return Some(bucket.clone());
        }
        if buckets.len() > BUCKETS {
            buckets.retain(|name, bucket| name.is_empty() || !bucket.is_idle());
            if buckets.len() > BUCKETS {
                return None;
            }
        }
        let is_first = buckets.len() == 1 && !self.is_parted;
        let new = || self.builder.clone().build();
        let bucket = match buckets.remove("") {
            Some(unnamed) if is_first => unnamed,
            unnamed => {
                buckets.insert("".into(), unnamed.unwrap_or_else(new));
                new()
            }
        };
        buckets.insert(name.into(), bucket.clone());
        Some(bucket)
    }
}

#[cfg(all(test, not(tollgate_loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{InFlight, KeyedRateLimiter, ManualClock, RateLimiter};

    const LEFT: [(&str, &str); 2] = [("x-ratelimit-remaining", "5"), ("x-ratelimit-reset", "60")];

    #[test]
    fn a_server_without_news_is_dropped_and_one_that_is_paused_or_in_use_stays() {
        let clock = ManualClock::new();
        let keyed = KeyedRateLimiter::<String, _>::with_clock(InFlight::new(10), &clock);
        let table = Servers::new(keyed.at("").into_owned());
        let at = |key: &str| {
            let servers = table.behind(key, keyed.at(key).into_owned());
            servers.at(key, "").blocking_acquire(1).expect("granted")
        };
        let mut call = at("paused");
        call.blocking_observe(429u16, &[("retry-after", "60")]);
        drop(call);
        let mut sent = at("in use");
        let servers = || table.learned().len();
        let has = |key: &str| table.learned().iter().any(|learned| learned.limit == key);
        for key in 0..10_000 {
            at(&format!("key {key}")).refund();
            assert!(servers() <= 2 * FEW + 8, "{} servers", servers());
        }
        assert!(has("paused") && has("in use"));
        sent.blocking_observe(200u16, &LEFT);
        drop(sent);
        clock.advance(Duration::from_secs(61));
        for key in 0..10 * FEW {
            at(&format!("key {key}")).refund();
        }
        assert!(!has("in use"));
    }

    #[test]
    fn servers_of_one_limit_are_dropped_as_well() {
        let servers = Servers::new(RateLimiter::with_clock(InFlight::new(10), ManualClock::new()));
        for server in ["paused", "paused as well"] {
            let mut call = servers.at(server, "").blocking_acquire(1).expect("granted");
            call.blocking_observe(429u16, &[("retry-after", "60")]);
        }
        for server in 0..10_000 {
            servers
                .at(&format!("server {server}"), "")
                .blocking_acquire(1)
                .expect("granted")
                .refund();
            assert!(servers.learned().len() <= 2 * FEW + 8);
        }
        assert!(servers.learned().iter().any(|learned| learned.server == "paused"));
    }

    /// What it names beyond that is learned where it was sent.
    #[test]
    fn a_server_that_names_a_bucket_for_each_call_takes_bounded_memory() {
        let clock = ManualClock::new();
        let servers = Servers::new(RateLimiter::with_clock(InFlight::new(10), &clock));
        for name in 0..2 * BUCKETS {
            let headers = [
                ("x-ratelimit-bucket", format!("b{name}")),
                ("x-ratelimit-remaining", "5".to_owned()),
                ("x-ratelimit-reset", "60".to_owned()),
            ];
            let at = servers.at("a", &format!("/{}", "x".repeat(name)));
            at.blocking_acquire(1).expect("granted").blocking_observe(200u16, &headers);
        }
        assert_eq!(servers.learned().len(), 1 + BUCKETS);
    }

    #[test]
    fn a_limiter_of_one_server_is_paused_and_one_of_several_is_not() {
        let limiter = RateLimiter::with_clock(InFlight::new(10), ManualClock::new());
        let servers = Servers::new(limiter.clone());
        for (key, is_paused) in [("", false), ("a", true)] {
            let servers = servers.behind(key, limiter.clone());
            let mut call = servers.at("a", "").blocking_acquire(1).expect("granted");
            call.blocking_observe(429u16, &[("retry-after", "60")]);
            drop(call);
            assert_eq!(limiter.try_acquire(1).is_err(), is_paused, "{key:?}");
            assert!(servers.at("a", "").try_acquire(1).blocking_wait().is_err());
        }
    }

    /// The call that told to which bucket a route belongs does not stay under way in another.
    #[test]
    fn a_call_that_was_sent_by_another_bucket_counts_in_its_own() {
        let clock = ManualClock::new();
        let servers = Servers::new(RateLimiter::with_clock(InFlight::new(10), &clock));
        let answer = |route, bucket, remaining| {
            let mut call =
                servers.at("github", route).try_acquire(1).blocking_wait().expect("free");
            call.blocking_observe(
                200u16,
                &[
                    ("x-ratelimit-resource", bucket),
                    ("x-ratelimit-remaining", remaining),
                    ("x-ratelimit-reset", "60"),
                ],
            );
        };
        answer("GET /repos/a/b", "core", "2");
        // Sent as one of core.
        answer("GET /search/code", "search", "0");
        let core: Vec<_> = (0..3)
            .map(|_| servers.at("github", "GET /repos/c/d").try_acquire(1).blocking_wait())
            .collect();
        assert_eq!(core.iter().filter(|call| call.is_ok()).count(), 2);
        assert!(servers.at("github", "GET /search/code").try_acquire(1).blocking_wait().is_err());
    }
}
