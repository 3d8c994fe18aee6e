//! Replies of a Redis server, or of what stands where it should.
//!
//! The first line says which policy is asked, and by how many callers. What follows is what the connection receives, in
//! Redis's protocol; a number `0` at the begin of a reply stands for that of the request. Where it ends, or is no reply,
//! the connection is cut.

use std::io::Cursor;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, Parser, RedisError, Value};
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tollgate::redis::{Connection, RedisRateLimiter, Request, Scripted, StoreError};
use tollgate::{Clock, Cost, InFlight, LockOut, Rate, SlidingWindowLog, SmoothBursty, TokenBucket};

/// How long callers wait, and how long a request may take.
const PATIENCE: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_millis(500);

/// Callers ask a limiter whose server replies this.
pub(crate) fn judge(input: &[u8]) {
    let line = input.iter().position(|&byte| byte == b'\n').unwrap_or(input.len());
    let (first, rest) = input.split_at(line);
    let received = rest.get(1..).unwrap_or_default().to_vec();
    let kind = first.first().map_or(0, |kind| kind % 5);
    let callers = first.get(1).map_or(1, |callers| callers % 8);
    let rate = Rate::per_second(5.0);
    let (bucket, window) = (TokenBucket::new(rate, 3), SlidingWindowLog::new(3, PATIENCE / 5));
    match kind {
        0 => ask(SmoothBursty::new(rate), received, callers),
        1 => ask(bucket, received, callers),
        2 => ask((bucket, InFlight::new(2)), received, callers),
        3 => ask(LockOut::new(window, PATIENCE), received, callers),
        _ => ask((SmoothBursty::new(rate), window, InFlight::new(2)), received, callers),
    }
}

/// What is received is read as by a connection: up to what is no reply.
#[derive(Clone)]
struct Wire {
    received: Arc<Mutex<Received>>,
    /// The replies that belong to their request.
    replies: Arc<AtomicUsize>,
    tasks: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

struct Received {
    parser: Parser,
    bytes: Cursor<Vec<u8>>,
    is_cut: bool,
}

impl Received {
    fn next(&mut self) -> Result<Value, RedisError> {
        if self.is_cut {
            return Err((ErrorKind::Io, "the connection is cut").into());
        }
        let value = self.parser.parse_value(&mut self.bytes);
        self.is_cut = value.is_err();
        value?.extract_error()
    }
}

impl Connection for Wire {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        // On its way.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let value = self.received.lock().unwrap_or_else(PoisonError::into_inner).next();
        let reply = request.reply(numbered(value?, request))?;
        self.replies.fetch_add(1, Ordering::Relaxed);
        Ok(reply)
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        // The alarm of a key may ring when the runtime is gone.
        if let Ok(runtime) = Handle::try_current() {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            tasks.push(runtime.spawn(task));
        }
    }
}

/// With the number of the request in the place of four zero bytes.
fn numbered(mut value: Value, request: &Request) -> Value {
    if let Value::BulkString(bytes) = &mut value
        && bytes.starts_with(&[0; 4])
    {
        bytes.splice(..4, request.argument[..8].iter().copied());
    }
    value
}

fn ask<P: Scripted>(policy: P, bytes: Vec<u8>, callers: u8) {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let received = Received { parser: Parser::new(), bytes: Cursor::new(bytes), is_cut: false };
        let wire = Wire {
            received: Arc::new(Mutex::new(received)),
            replies: Arc::default(),
            tasks: Arc::default(),
        };
        let limiter = RedisRateLimiter::builder(policy, wire.clone(), "key");
        let limiter = limiter.deadline(DEADLINE).clock(Clock::tokio()).build();
        let begin = Instant::now();
        let calls: Vec<_> = (0..callers)
            .map(|n| {
                let n = P::Cost::from_numbers(|_| 1 + u32::from(n) / 4);
                tokio::spawn(limiter.try_acquire_timeout(n, PATIENCE))
            })
            .collect();
        let (mut granted, mut grants) = (0, Vec::new());
        for call in calls {
            let answer = timeout(2 * PATIENCE, call).await.expect("an answer in time");
            if let Ok(grant) = answer.expect("no panic") {
                assert!(grant.waited() <= PATIENCE, "granted after {:?}", grant.waited());
                granted += 1;
                grants.push(grant);
            }
        }
        let asked = begin.elapsed();
        assert!(asked <= PATIENCE + 2 * DEADLINE, "the last answer comes after {asked:?}");
        // Some give back what they took, and others hold it a while.
        for (index, mut grant) in grants.into_iter().enumerate() {
            match index % 3 {
                0 => grant.refund(),
                1 => {
                    let settled = timeout(PATIENCE, grant.settle(P::Cost::default())).await;
                    // Any answer.
                    let _ = settled.expect("an answer in time");
                }
                _ => drop(grant),
            }
        }
        let quota = timeout(PATIENCE, limiter.quota()).await;
        let _ = quota.expect("an answer in time");
        let replies = wire.replies.load(Ordering::Relaxed);
        assert!(replies > 0 || granted == 0, "{granted} granted without a reply");
        let stats = limiter.stats();
        assert_eq!(stats.granted, granted, "{stats:?}");
        assert!(stats.granted + stats.refused <= u64::from(callers), "{stats:?}");
        drop(limiter);
        // A task that panicked would end alone.
        let tasks = std::mem::take(&mut *wire.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks.into_iter().filter(JoinHandle::is_finished) {
            task.await.expect("no panic");
        }
    });
}
