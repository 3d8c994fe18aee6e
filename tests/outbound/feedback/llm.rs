//! An LLM API: requests and tokens in a bucket each, which fill steadily, taught by `OpenAI`'s headers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tollgate::feedback::Feedback;
use tollgate::{
    Clock, InFlight, Limiter, Rate, RateLimiter, SlidingWindowLog, SmoothBursty, TokenBucket,
};

type Llm = (SlidingWindowLog, TokenBucket, InFlight);

const MINUTE: Duration = Duration::from_secs(60);

/// A bucket that is full at first. Permits are counted in nanoseconds of its refill.
struct Bucket {
    a_minute: u64,
    level: u64,
    at: Instant,
}

impl Bucket {
    fn new(a_minute: u64) -> Self {
        Self { a_minute, level: 60_000_000_000, at: Instant::now() }
    }

    fn empty(a_minute: u64) -> Self {
        Self { level: 0, ..Self::new(a_minute) }
    }

    fn price(&self, permits: u64) -> u64 {
        permits * 60_000_000_000 / self.a_minute
    }

    fn fill(&mut self) {
        let nanos = u64::try_from(self.at.elapsed().as_nanos()).expect("short");
        self.level = (self.level + nanos).min(60_000_000_000);
        self.at = Instant::now();
    }

    fn remaining(&self) -> u64 {
        self.level * self.a_minute / 60_000_000_000
    }

    /// How long until it holds `nanos` worth.
    fn until(&self, nanos: u64) -> Duration {
        Duration::from_nanos(nanos.saturating_sub(self.level))
    }
}

/// As the API prints it: `6m0s`, `1.2s`, `20ms`.
fn printed(time: Duration) -> String {
    match time.as_millis() {
        millis @ 0..1_000 => format!("{millis}ms"),
        millis @ 1_000..60_000 => format!("{}.{:03}s", millis / 1_000, millis % 1_000),
        millis => format!("{}m{}s", millis / 60_000, millis / 1_000 % 60),
    }
}

struct Server {
    /// Requests and tokens.
    buckets: Mutex<[Bucket; 2]>,
}

impl Server {
    fn new(requests: u64, tokens: u64) -> Self {
        Self { buckets: Mutex::new([Bucket::new(requests), Bucket::new(tokens)]) }
    }

    /// A call arrives.
    fn call(&self, tokens: u64) -> (u16, Vec<(String, String)>) {
        let mut buckets = self.buckets.lock().expect("no panic");
        let cost = [1, tokens];
        buckets.iter_mut().for_each(Bucket::fill);
        let is_taken = buckets.iter().zip(cost).all(|(bucket, n)| bucket.price(n) <= bucket.level);
        let mut headers = Vec::new();
        if is_taken {
            for (bucket, n) in buckets.iter_mut().zip(cost) {
                bucket.level -= bucket.price(n);
            }
        } else {
            let wait = buckets.iter().zip(cost).map(|(bucket, n)| bucket.until(bucket.price(n)));
            let wait = wait.max().expect("two").as_millis() + 1;
            headers.push(("retry-after-ms".to_owned(), wait.to_string()));
        }
        for (bucket, name) in buckets.iter().zip(["requests", "tokens"]) {
            let reset = printed(bucket.until(60_000_000_000));
            headers.push((format!("x-ratelimit-limit-{name}"), bucket.a_minute.to_string()));
            headers.push((format!("x-ratelimit-remaining-{name}"), bucket.remaining().to_string()));
            headers.push((format!("x-ratelimit-reset-{name}"), reset));
        }
        (if is_taken { 200 } else { 429 }, headers)
    }
}

#[derive(Debug, Default)]
struct Tally {
    /// Requests and tokens that were taken from the fifth minute on.
    taken: [AtomicU64; 2],
    refused: AtomicU64,
    /// Of these, those that were sent after the client should have learned.
    late: AtomicU64,
}

fn within(seed: &mut u64, from: u64, to: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    from + (*seed >> 33) % (to - from + 1)
}

/// Whether the head of an answer comes at once and the rest is streamed, or all of it comes at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answers {
    Streamed,
    Whole,
}

/// What came of a run.
#[derive(Debug)]
struct Outcome {
    /// The shares of requests and tokens that were used, in percent.
    requests: u64,
    tokens: u64,
    refused: u64,
    late: u64,
}

/// 40 workers of one or two processes for 15 minutes, of which the last ten count.
async fn run(
    processes: u64,
    (requests, tokens): (u64, u64),
    (least, most): (u64, u64),
    answers: Answers,
) -> Outcome {
    let server = Arc::new(Server::new(requests, tokens));
    // What its user believes: a limit that is far above that of the server.
    let feedback = |process| {
        let policy: Llm = (
            SlidingWindowLog::new(5_000, MINUTE),
            TokenBucket::new(Rate::per_minute(2_000_000.0), 2_000_000),
            InFlight::new(20),
        );
        let limiter = RateLimiter::with_clock(policy, Clock::tokio());
        Feedback::builder(limiter).seed(process + 1).build()
    };
    let feedbacks: Vec<_> = (0..processes).map(feedback).collect();
    let tally = Arc::new(Tally::default());
    let start = Instant::now();
    let workers: Vec<_> = (0..40)
        .zip(feedbacks.iter().cycle())
        .map(|(mut seed, feedback)| {
            let (server, tally, feedback) = (server.clone(), tally.clone(), feedback.clone());
            tokio::spawn(async move {
                while start.elapsed() < 15 * MINUTE {
                    let tokens = within(&mut seed, least, most);
                    let cost = (1, u32::try_from(tokens).expect("small"), 1);
                    let mut call = feedback.acquire(cost).await.expect("granted");
                    let sent = start.elapsed();
                    sleep(Duration::from_millis(within(&mut seed, 10, 50))).await;
                    let (status, headers) = server.call(tokens);
                    let rest = Duration::from_millis(within(&mut seed, 2_000, 15_000));
                    if answers == Answers::Whole && status == 200 {
                        sleep(rest).await;
                    }
                    sleep(Duration::from_millis(within(&mut seed, 10, 50))).await;
                    call.observe(status, &headers).await;
                    if status != 200 {
                        tally.refused.fetch_add(1, Ordering::Relaxed);
                        tally.late.fetch_add(u64::from(sent > MINUTE), Ordering::Relaxed);
                        continue;
                    }
                    if answers == Answers::Streamed {
                        sleep(rest).await;
                    }
                    if sent >= 5 * MINUTE && sent < 15 * MINUTE {
                        tally.taken[0].fetch_add(1, Ordering::Relaxed);
                        tally.taken[1].fetch_add(tokens, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("no panic");
    }
    let [a, b] = &tally.taken;
    let share = |taken: &AtomicU64, a_minute| 10 * taken.load(Ordering::Relaxed) / a_minute;
    let [refused, late] = [&tally.refused, &tally.late].map(|count| count.load(Ordering::Relaxed));
    let outcome = Outcome { requests: share(a, requests), tokens: share(b, tokens), refused, late };
    println!("{processes} {answers:?}: {outcome:?}");
    outcome
}

#[tokio::test(start_paused = true)]
async fn requests_and_tokens_that_come_back_steadily_are_used_and_none_refused() {
    for answers in [Answers::Streamed, Answers::Whole] {
        // Few calls of many tokens: the tokens are the limit. Many calls of few: the requests are.
        let run_of = |requests, tokens| run(1, (requests, 90_000), tokens, answers);
        let Outcome { tokens, refused, late, .. } = run_of(500, (500, 5_500)).await;
        assert!(tokens >= 97 && refused <= 20 && late == 0, "{tokens} % {refused} {late}");
        let Outcome { requests, refused, late, .. } = run_of(60, (50, 550)).await;
        assert!(requests >= 97 && refused <= 20 && late == 0, "{requests} % {refused} {late}");
    }
}

/// Neither process knows of the calls of the other that are under way.
#[tokio::test(start_paused = true)]
async fn two_processes_of_one_key_use_what_comes_back_steadily() {
    for answers in [Answers::Streamed, Answers::Whole] {
        let Outcome { tokens, late, .. } = run(2, (500, 90_000), (500, 5_500), answers).await;
        assert!(tokens >= 93 && late <= 20, "{tokens} % {late}");
        // One call a second for both: of 900 in all.
        let Outcome { requests, late, .. } = run(2, (60, 90_000), (50, 550), answers).await;
        assert!(requests >= 93 && late <= 20, "{requests} % {late}");
    }
}

/// What a server with an empty bucket of requests says, and when it names a time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    /// `retry-after-ms`, and a reset of milliseconds.
    OpenAi,
    /// Seconds, as the others.
    Anthropic,
    Ietf,
    XRateLimit,
}

impl Says {
    fn call(self, bucket: &Mutex<Bucket>, start: Instant) -> (u16, Vec<(&'static str, String)>) {
        let mut bucket = bucket.lock().expect("no panic");
        bucket.fill();
        let (price, limit) = (bucket.price(1), bucket.a_minute);
        let is_taken = price <= bucket.level;
        bucket.level -= if is_taken { price } else { 0 };
        let remaining = bucket.remaining().to_string();
        let (wait, reset) = (bucket.until(price), bucket.until(60_000_000_000));
        let seconds = |time: Duration| time.as_millis().div_ceil(1_000).to_string();
        let mut headers = match self {
            Self::OpenAi => vec![
                ("x-ratelimit-limit-requests", limit.to_string()),
                ("x-ratelimit-remaining-requests", remaining),
                ("x-ratelimit-reset-requests", printed(reset)),
            ],
            Self::Anthropic => {
                // In one minute of 2025, and then the next ones.
                let at = |time: Duration| {
                    let seconds = time.as_secs();
                    format!("2025-01-01T00:{:02}:{:02}Z", seconds / 60, seconds % 60)
                };
                let now = start.elapsed();
                let date = format!("Wed, 01 Jan 2025 {}", &at(now)[11..19]) + " GMT";
                vec![
                    ("date", date),
                    ("anthropic-ratelimit-requests-limit", limit.to_string()),
                    ("anthropic-ratelimit-requests-remaining", remaining),
                    ("anthropic-ratelimit-requests-reset", at(now + reset)),
                ]
            }
            Self::Ietf => vec![
                ("ratelimit-policy", format!("\"default\";q={limit};w=60")),
                ("ratelimit", format!("\"default\";r={remaining};t={}", seconds(reset))),
            ],
            Self::XRateLimit => vec![
                ("x-ratelimit-limit", limit.to_string()),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", seconds(reset)),
            ],
        };
        match self {
            _ if is_taken => {}
            Self::OpenAi => headers.push(("retry-after-ms", (wait.as_millis() + 1).to_string())),
            _ => headers.push(("retry-after", seconds(wait))),
        }
        (if is_taken { 200 } else { 429 }, headers)
    }
}

/// 20 workers of a limiter that allows ten times as much as the server, whose bucket is empty at first, and once more
/// after half of `span`. Returns the
/// share of the quota that was used in `span`, in percent, and what was refused.
async fn far_too_high<L: Limiter<Cost = u32> + 'static>(
    says: Says,
    limiter: L,
    span: Duration,
) -> (u64, u64) {
    let feedback = Feedback::builder(limiter).seed(7).build();
    let bucket = Arc::new(Mutex::new(Bucket::empty(1_200)));
    let start = Instant::now();
    let tally = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let workers: Vec<_> = (0..20)
        .map(|mut seed| {
            let (bucket, tally, feedback) = (bucket.clone(), tally.clone(), feedback.clone());
            tokio::spawn(async move {
                loop {
                    let mut call = feedback.acquire(1).await.expect("granted");
                    sleep(Duration::from_millis(within(&mut seed, 10, 30))).await;
                    if start.elapsed() > span {
                        break;
                    }
                    let (status, headers) = says.call(&bucket, start);
                    tally[usize::from(status != 200)].fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_millis(within(&mut seed, 10, 30))).await;
                    call.observe(status, &headers).await;
                }
            })
        })
        .collect();
    // Another program takes what is there.
    sleep(span / 2).await;
    bucket.lock().expect("no panic").level = 0;
    sleep(span / 2).await;
    workers.iter().for_each(JoinHandle::abort);
    let [taken, refused] = [&tally[0], &tally[1]].map(|count| count.load(Ordering::Relaxed));
    let share = 100 * taken / (20 * span.as_secs());
    println!("{says:?}: {share} % in {span:?}, {refused} refused, {:?}", feedback.server_state());
    (share, refused)
}

/// A refusal says that nothing remains, that all is back in a minute, and the next permit in 45 ms or a second.
#[tokio::test(start_paused = true)]
async fn the_time_that_a_refusal_names_counts_and_not_when_all_is_back() {
    let smooth = || SmoothBursty::new(Rate::per_second(200.0));
    for says in [Says::OpenAi, Says::Anthropic, Says::Ietf, Says::XRateLimit] {
        for span in [10, 120].map(Duration::from_secs) {
            let limiter = RateLimiter::with_clock(smooth(), Clock::tokio());
            let (share, refused) = far_too_high(says, limiter, span).await;
            // The first permits, and those after the other program, come within a second or so.
            let least = if span.as_secs() == 10 { 90 } else { 97 };
            assert!(
                share >= least && refused <= 25,
                "{says:?} {span:?}: {share} %, {refused} refused"
            );
        }
    }
    // Whatever the limiter is.
    let span = Duration::from_secs(60);
    let bucket = TokenBucket::new(Rate::per_second(200.0), 12_000);
    let (share, _) =
        far_too_high(Says::OpenAi, RateLimiter::with_clock(bucket, Clock::tokio()), span).await;
    assert!(share >= 97, "token bucket: {share} %");
    let log = SlidingWindowLog::new(12_000, MINUTE);
    let (share, _) =
        far_too_high(Says::OpenAi, RateLimiter::with_clock(log, Clock::tokio()), span).await;
    assert!(share >= 97, "log: {share} %");
}
