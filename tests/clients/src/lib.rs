//! A server that enforces its quota and counts, and what each client has to reach against it.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use tokio::net::TcpListener;
use tollgate::{Rate, RateLimiter, SmoothBursty};

/// The quota that the server states: this number of calls in any [`WINDOW`].
pub const QUOTA: u32 = 1_000;
pub const WINDOW: Duration = Duration::from_secs(10);
/// Calls of each run, more than the quota.
pub const CALLS: u32 = 1_200;
/// Calls that are made at the same time.
const TASKS: u32 = 16;

/// The limiter of a client that knows the quota and leaves 2 % of it, as the calls do not arrive as they leave: 200 ms. A
/// busy machine that wakes it up to 40 ms late costs it nothing.
pub fn limiter() -> RateLimiter<SmoothBursty> {
    let rate = Rate::new(u64::from(QUOTA) * 98, WINDOW * 100);
    let policy = SmoothBursty::evenly_spaced(rate);
    RateLimiter::new(policy.with_catch_up(Duration::from_millis(40)))
}

/// The calls of one run, counted by the server.
#[derive(Clone, Default)]
pub struct Counts(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    recent: VecDeque<Instant>,
    first: Option<Instant>,
    last: Option<Instant>,
    accepted: u32,
    refused: u32,
}

impl Counts {
    /// Counts a call, and says whether the quota has room for it.
    pub fn accept(&self) -> bool {
        let now = Instant::now();
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while inner.recent.front().is_some_and(|&at| now - at >= WINDOW) {
            inner.recent.pop_front();
        }
        if inner.recent.len() >= QUOTA as usize {
            inner.refused += 1;
            return false;
        }
        inner.recent.push_back(now);
        inner.accepted += 1;
        inner.first.get_or_insert(now);
        inner.last = Some(now);
        true
    }

    pub fn accepted(&self) -> u32 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).accepted
    }

    /// That no call was refused, and that the quota was used.
    pub fn check(&self, client: &str) {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(first), Some(last)) = (inner.first, inner.last) else { panic!("no calls") };
        let calls_a_second = f64::from(inner.accepted - 1) / (last - first).as_secs_f64();
        let used = calls_a_second / (f64::from(QUOTA) / WINDOW.as_secs_f64());
        println!(
            "{client}: {} accepted, {} refused, {:.1} % used",
            inner.accepted,
            inner.refused,
            100.0 * used
        );
        assert_eq!(inner.refused, 0, "{client}");
        assert!(used >= 0.97, "{client}: {used}");
    }
}

/// Serves `answers` within the quota on a free port of the loopback, and otherwise 429. Returns its URL.
pub async fn serve(answers: Router) -> (String, Counts) {
    let counts = Counts::default();
    let app = answers.layer(from_fn_with_state(counts.clone(), refuse));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, app).await });
    (url, counts)
}

async fn refuse(State(counts): State<Counts>, request: Request, next: Next) -> Response {
    if counts.accept() {
        next.run(request).await
    } else {
        (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")], Body::empty()).into_response()
    }
}

/// Answers any request with `json`.
pub fn json(json: &'static str) -> Router {
    Router::new().fallback(async move || ([("content-type", "application/json")], json))
}

/// Makes all [`CALLS`], several at the same time.
pub async fn call_all<F: Future<Output = ()>>(call: impl Fn() -> F) {
    let task = async || {
        for _ in 0..CALLS / TASKS {
            call().await;
        }
    };
    join_all((0..TASKS).map(|_| task())).await;
}

/// [`call_all`] on threads.
pub fn call_all_on_threads(call: impl Fn() + Sync) {
    std::thread::scope(|threads| {
        for _ in 0..TASKS {
            threads.spawn(|| (0..CALLS / TASKS).for_each(|_| call()));
        }
    });
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// What a program writes to limit a client stands between these marks, without indentation in the guide.
    const MARKS: (&str, &str) = ("// The limit.\n", "// Until here.\n");

    #[test]
    fn the_glue_is_at_most_five_lines_and_stands_in_the_guide() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let guide = fs::read_to_string(root.join("../../docs/clients.md")).expect("the guide");
        let mut found = 0;
        for entry in fs::read_dir(root.join("tests")).expect("the programs") {
            let path = entry.expect("a program").path();
            let text = fs::read_to_string(&path).expect("text");
            for glue in text.split(MARKS.0).skip(1) {
                let (glue, _) = glue.split_once(MARKS.1).expect("an end");
                let indent = glue.len() - glue.trim_start().len();
                let lines: Vec<_> =
                    glue.trim_end().lines().filter_map(|line| line.get(indent..)).collect();
                assert!((1..=5).contains(&lines.len()), "{}: {lines:#?}", path.display());
                assert!(guide.contains(&lines.join("\n")), "{}: {lines:#?}", path.display());
                found += 1;
            }
        }
        assert!(found >= 5, "{found}");
    }
}
