//! 64 clients of one server, on paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate::feedback::Feedback;
use tollgate::{
    AnyRateLimiter, Clock, KeyedRateLimiter, Limiter, Rate, RateLimiter, SlidingWindowLog,
    SmoothBursty,
};

use super::server::{Reset, Server, Style};

const CLIENTS: u64 = 64;

/// What came of a run.
#[derive(Debug, Default)]
struct Tally {
    taken: AtomicU64,
    refused: AtomicU64,
    /// Of these, those that were sent after the client should have learned.
    late: AtomicU64,
}

impl Tally {
    fn count(&self, status: u16, is_late: bool) {
        let add = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        if status == 200 {
            add(&self.taken);
        } else {
            add(&self.refused);
            if is_late {
                add(&self.late);
            }
        }
    }

    fn read(&self) -> (u64, u64, u64) {
        let [taken, refused, late] =
            [&self.taken, &self.refused, &self.late].map(|counter| counter.load(Ordering::Relaxed));
        (taken, refused, late)
    }
}

/// 10 to 50 ms, each way.
fn delay(seed: &mut u64) -> Duration {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    Duration::from_micros(10_000 + (*seed >> 33) % 40_000)
}

/// A limit that is far above that of the server.
fn loose() -> RateLimiter<SmoothBursty> {
    RateLimiter::with_clock(SmoothBursty::new(Rate::per_second(300.0)), Clock::tokio())
}

/// Around that limit.
fn learning(seed: u64) -> Feedback<RateLimiter<SmoothBursty>> {
    Feedback::builder(loose()).seed(seed).build()
}

/// Starts clients that call for `span`. Returns a handle to wait for.
fn start<L: Limiter<Cost = u32> + 'static>(
    server: &Arc<Server>,
    feedback: &Feedback<L>,
    clients: u64,
    (span, learned): (Duration, Duration),
) -> impl Future<Output = (u64, u64, u64)> + use<L> {
    let tally = Arc::new(Tally::default());
    let start = Instant::now();
    let clients: Vec<_> = (0..clients)
        .map(|client| {
            let (server, tally) = (Arc::clone(server), Arc::clone(&tally));
            let feedback = feedback.clone();
            tokio::spawn(async move {
                let mut seed = client;
                while start.elapsed() < span {
                    let mut call = feedback.acquire(1).await.expect("granted");
                    let is_late = start.elapsed() >= learned;
                    sleep(delay(&mut seed)).await;
                    let (status, headers) = server.call(1);
                    sleep(delay(&mut seed)).await;
                    call.observe(status, &headers).await;
                    tally.count(status, is_late);
                }
            })
        })
        .collect();
    async move {
        for client in clients {
            client.await.expect("no panic");
        }
        tally.read()
    }
}

/// The same by the limiter alone.
async fn without_feedback(server: &Arc<Server>, span: Duration) -> (u64, u64) {
    let (limiter, tally) = (loose(), Arc::new(Tally::default()));
    let start = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|mut seed| {
            let (server, tally) = (Arc::clone(server), Arc::clone(&tally));
            let limiter = limiter.clone();
            tokio::spawn(async move {
                while start.elapsed() < span {
                    limiter.acquire(1).await.expect("granted");
                    sleep(delay(&mut seed)).await;
                    tally.count(server.call(1).0, true);
                    sleep(delay(&mut seed)).await;
                }
            })
        })
        .collect();
    for client in clients {
        client.await.expect("no panic");
    }
    let (taken, refused, _) = tally.read();
    (taken, refused)
}

const SPAN: Duration = Duration::from_secs(60);
/// A second after the first calls.
const LEARNED: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(10);

/// 50 calls in any ten seconds: 300 in a minute, and 50 for the window in which it ends.
async fn teaches(style: Style, reset: Reset) {
    let server = || Arc::new(Server::new(style, reset, 50, WINDOW));
    let (_, refused) = without_feedback(&server(), SPAN).await;
    assert!(refused > 10_000, "{style:?}: {refused} refused without feedback");
    let feedback = learning(1);
    let (taken, refused, late) = start(&server(), &feedback, CLIENTS, (SPAN, LEARNED)).await;
    println!(
        "{style:?} {reset:?}: {taken} taken, {refused} refused, {:?}",
        feedback.server_state()
    );
    assert_eq!(late, 0, "{style:?} {reset:?}");
    // Four calls go before the first answer.
    assert!(refused <= 1, "{style:?} {reset:?}: {refused} refused");
    assert!(taken >= 300, "{style:?} {reset:?}: {taken} taken");
}

macro_rules! teaches {
    ($($name:ident: $style:ident, $reset:ident;)+) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                teaches(Style::$style, Reset::$reset).await;
            }
        )+
    };
}

teaches! {
    github_says_when_all_are_back: GitHub, All;
    github_says_when_the_first_is_back: GitHub, First;
    openai_says_when_all_are_back: OpenAi, All;
    openai_says_when_the_first_is_back: OpenAi, First;
    discord_says_when_all_are_back: Discord, All;
    discord_says_when_the_first_is_back: Discord, First;
}

/// Any limiter of the crate: a log, a key, and one without a type.
#[tokio::test(start_paused = true)]
async fn a_log_at_a_key_and_a_limiter_without_a_type_learn_as_well() {
    let log = SlidingWindowLog::new(5000, Duration::from_secs(3600));
    let keys = KeyedRateLimiter::with_clock(log.clone(), Clock::tokio());
    let key = keys.at("api.example.com").into_owned();
    let any: AnyRateLimiter = AnyRateLimiter::new(RateLimiter::with_clock(log, Clock::tokio()));
    let server = || Arc::new(Server::new(Style::Discord, Reset::All, 50, WINDOW));
    for (taken, refused, late) in [
        start(&server(), &Feedback::builder(key).seed(1).build(), CLIENTS, (SPAN, LEARNED)).await,
        start(&server(), &Feedback::builder(any).seed(1).build(), CLIENTS, (SPAN, LEARNED)).await,
    ] {
        println!("{taken} {refused} {late}");
        assert!(taken >= 300 && refused == 0 && late == 0, "{taken} {refused} {late}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_lowered_in_the_middle_costs_no_more_than_one_window() {
    let server = Arc::new(Server::new(Style::GitHub, Reset::All, 50, WINDOW));
    let feedback = learning(1);
    let run = start(&server, &feedback, CLIENTS, (SPAN * 2, LEARNED));
    sleep(SPAN).await;
    server.quota.lock().expect("no panic").limit = 10;
    let (taken, _, late) = run.await;
    println!("{taken} taken, {late} refused when it was lowered");
    // 300 before it was lowered, and 60 after.
    assert!(taken >= 350, "{taken}");
    assert!(late <= 50, "{late} refused when the quota was lowered");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_lies_is_not_hammered() {
    let server = Arc::new(Server::new(Style::Liar, Reset::All, 50, WINDOW));
    let feedback = learning(1);
    let (taken, refused, late) = start(&server, &feedback, CLIENTS, (SPAN, LEARNED)).await;
    println!("liar: {taken} taken, {refused} refused, {late} late, {:?}", feedback.server_state());
    assert!(taken >= 250, "{taken}");
    assert!(late * 5 <= taken, "{late} refused of {taken}");
}
