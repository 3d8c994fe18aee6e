//! A small HTTP API with a quota, to call from the examples: above `quota` requests in any sliding
//! second it answers `429 Too Many Requests` with `Retry-After`, as public APIs do.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const SECOND: Duration = Duration::from_secs(1);
/// The time in which a stopping server lets requests in flight finish.
const GRACE: Duration = Duration::from_secs(5);

/// A running server. It listens on the loopback address alone, on a port the system picks.
pub(crate) struct DemoServer {
    address: SocketAddr,
    counts: Arc<Mutex<Counts>>,
    task: JoinHandle<io::Result<()>>,
    stop: oneshot::Sender<()>,
}

impl DemoServer {
    /// Starts a server that accepts at most `quota` requests in any sliding second.
    pub(crate) async fn start(quota: u32) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Mutex::new(Counts::new(quota)));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, Arc::clone(&counts), stopped));
        Ok(Self { address, counts, task, stop })
    }

    /// Where it listens.
    #[allow(dead_code)] // One example has no use for it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where to call it.
    #[allow(dead_code)]
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Lets requests in flight finish, stops, and returns the number of requests, accepted or not,
    /// in the fullest sliding second.
    pub(crate) async fn stop(self) -> io::Result<usize> {
        drop(self.stop);
        // Three ways to fail: too slow, panicked, or an error of the server itself.
        timeout(GRACE, self.task).await???;
        Ok(lock(&self.counts).fullest)
    }
}

/// The requests of the last second, oldest first.
struct Counts {
    quota: usize,
    /// Only these use up the quota.
    accepted: VecDeque<Instant>,
    /// The accepted and the refused.
    arrived: VecDeque<Instant>,
    /// The most `arrived` ever held.
    fullest: usize,
}

impl Counts {
    fn new(quota: u32) -> Self {
        Self {
            quota: quota as usize,
            accepted: VecDeque::new(),
            arrived: VecDeque::new(),
            fullest: 0,
        }
    }

    /// Counts a request that arrives now. Is it within the quota?
    fn admit(&mut self) -> bool {
        let now = Instant::now();
        for window in [&mut self.accepted, &mut self.arrived] {
            while window.front().is_some_and(|at| now - *at >= SECOND) {
                window.pop_front();
            }
        }
        self.arrived.push_back(now);
        self.fullest = self.fullest.max(self.arrived.len());
        let within = self.accepted.len() < self.quota;
        if within {
            self.accepted.push_back(now);
        }
        within
    }
}

/// Accepts connections until the owner has stopped or dropped the server.
async fn serve(
    listener: TcpListener,
    counts: Arc<Mutex<Counts>>,
    mut stopped: oneshot::Receiver<()>,
) -> io::Result<()> {
    let connections = GracefulShutdown::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            _ = &mut stopped => break,
        };
        let counts = Arc::clone(&counts);
        let service = service_fn(move |_: Request<Incoming>| {
            let response = answer(&counts);
            async { Ok::<_, Infallible>(response) }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        // An error means that the client has left.
        tokio::spawn(connections.watch(connection));
    }
    connections.shutdown().await;
    Ok(())
}

fn answer(counts: &Mutex<Counts>) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    if !lock(counts).admit() {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        // The oldest accepted request leaves the window within a second: in whole seconds, one.
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Plain counts stay usable even if a holder of the lock panicked.
fn lock(counts: &Mutex<Counts>) -> MutexGuard<'_, Counts> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}
