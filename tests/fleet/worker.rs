//! One process of the fleet: this program when it is given a [`Job`].

use std::future::Future;
use std::io::{self, BufRead, Write};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use futures::poll;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tollgate::redis::{
    Connection, Reconnecting, RedisGrant, RedisRateLimiter, Request, Scripted, StoreError,
};
use tollgate::{Error, Rate, Rated};

use crate::job::{Callers, Change, Job, Kind, To, micros, now};

/// The name of the variable that holds the job.
pub(crate) const JOB: &str = "TOLLGATE_FLEET_JOB";
/// The test that is run for it.
pub(crate) const NAME: &str = "worker::a_process_of_the_fleet";
const KEY: &str = "fleet";
/// Longer than a busy machine ever delays a request: no caller is to be served without Redis here.
const DEADLINE: Duration = Duration::from_secs(10);
/// A process ends after this time in any case.
const LONGEST: Duration = Duration::from_secs(60);

#[test]
#[ignore = "the other tests start it as a process of its own"]
fn a_process_of_the_fleet() {
    let Ok(job) = std::env::var(JOB) else { return };
    let job = Job::decode(&job);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match job.rule.kind {
            Kind::SmoothBursty => work(&job, job.rule.smooth_bursty(), Rated::with_rate).await,
            Kind::TokenBucket => work(&job, job.rule.token_bucket(), Rated::with_rate).await,
            Kind::FixedWindow => work(&job, job.rule.fixed_window(), |policy, _| policy).await,
            Kind::Log => work(&job, job.rule.log(), |policy, _| policy).await,
            Kind::Places => work(&job, job.rule.in_flight(), |policy, _| policy).await,
            Kind::LogAndPlaces => work(&job, job.rule.log_and_places(), |policy, _| policy).await,
        }
    });
}

/// Measures the duration of requests: a grant can be due this much later than by the server.
#[derive(Clone)]
struct Timed {
    connection: Reconnecting,
    longest: Arc<AtomicU64>,
}

impl Connection for Timed {
    async fn run(&self, request: &Request) -> Result<Vec<f64>, StoreError> {
        let start = Instant::now();
        let outcome = self.connection.run(request).await;
        self.longest.fetch_max(micros(start.elapsed()), Relaxed);
        outcome
    }
}

type Limiter<P> = RedisRateLimiter<P, Timed>;

/// The data that is reported.
#[derive(Default)]
struct Notes {
    lines: Vec<String>,
    left: u64,
    /// How long callers had their grants, in microseconds.
    held: u64,
}

type Shared = Arc<Mutex<Notes>>;

fn note(notes: &Shared, note: impl FnOnce(&mut Notes)) {
    note(&mut notes.lock().unwrap_or_else(PoisonError::into_inner));
}

async fn work<P: Scripted<Cost = u32>>(job: &Job, policy: P, with_rate: fn(P, Rate) -> P) {
    let connection = Reconnecting::open(&job.url).expect("the address of a server");
    let longest = Arc::new(AtomicU64::new(0));
    let timed = Timed { connection, longest: Arc::clone(&longest) };
    let limiter = RedisRateLimiter::builder(policy, timed, KEY).deadline(DEADLINE).build();
    // The first request, with the connection and the script, is not measured.
    limiter.at("warm").acquire(1).await.expect("Redis is there");
    longest.store(0, Relaxed);
    let held_up = Arc::new(AtomicU64::new(0));

    wait_for_start();
    let notes = Shared::default();
    for &change in &job.changes {
        tokio::spawn(make(limiter.clone(), change, with_rate, Arc::clone(&notes)));
    }
    let all = timeout(job.lasts, call(job, &limiter, &notes, &held_up)).await;
    all.expect_err("they call for ever");
    let (counters, stats) = (limiter.counters(), limiter.stats());
    let mut out = io::stdout().lock();
    note(&notes, |notes| {
        for line in &notes.lines {
            writeln!(out, "{line}").expect("the parent reads");
        }
        // One grant can be noted late by a request, and the next one early by a call that is held up.
        let trip = longest.load(Relaxed) + held_up.load(Relaxed);
        let (left, held) = (notes.left, notes.held);
        let (requests, given_up) = (counters.requests, stats.given_up);
        writeln!(out, "@end {trip} {left} {given_up} {requests} {held}").expect("the parent reads");
    });
    out.flush().expect("the parent reads");
}

/// Reports that all is ready, and ends this process when the parent is gone.
fn wait_for_start() {
    println!("\n@ready");
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    if read.is_ok_and(|bytes| bytes == 0) {
        process::exit(1);
    }
    thread::spawn(|| {
        let _ = io::stdin().lock().read_line(&mut String::new());
        process::exit(1);
    });
    thread::spawn(|| {
        thread::sleep(LONGEST);
        process::exit(1);
    });
}

async fn call<P: Scripted<Cost = u32>>(
    job: &Job,
    limiter: &Limiter<P>,
    notes: &Shared,
    held_up: &Arc<AtomicU64>,
) {
    match job.callers {
        Callers::Tasks(tasks) | Callers::Dropping(tasks) => {
            let drops = matches!(job.callers, Callers::Dropping(_));
            for task in 0..tasks {
                let (limiter, cost, notes) = (limiter.clone(), job.cost, Arc::clone(notes));
                let held_up = Arc::clone(held_up);
                let holds = job.holds;
                tokio::spawn(async move {
                    for call in u64::from(task).. {
                        let called = now();
                        let mut acquire = Box::pin(limiter.acquire(cost));
                        if drops && call.is_multiple_of(3) {
                            let patience = Duration::from_millis(call * 37 % 250);
                            call_once(acquire, patience, Arc::clone(&notes)).await;
                            continue;
                        }
                        // A wait begins between `called` and the end of this poll, and the process may be held up there.
                        let polled = poll!(acquire.as_mut());
                        held_up.fetch_max(now() - called, Relaxed);
                        let grant = match polled {
                            Poll::Ready(grant) => grant,
                            Poll::Pending => acquire.await,
                        };
                        let grant = grant.expect("granted");
                        granted(called, &grant, &notes);
                        if !holds.is_zero() {
                            let since = now();
                            sleep(holds).await;
                            note(&notes, |notes| notes.held += now() - since);
                        }
                    }
                });
            }
        }
        Callers::Leaving { every, patience } => {
            let mut interval = interval(every);
            interval.set_missed_tick_behavior(MissedTickBehavior::Burst);
            loop {
                interval.tick().await;
                let acquire = limiter.acquire(job.cost);
                tokio::spawn(call_once(acquire, patience, Arc::clone(notes)));
            }
        }
    }
    std::future::pending::<()>().await;
}

async fn call_once<P: Scripted<Cost = u32>>(
    acquire: impl Future<Output = Result<RedisGrant<P, Timed>, Error>>,
    patience: Duration,
    notes: Shared,
) {
    let called = now();
    match timeout(patience, acquire).await {
        Ok(grant) => granted(called, &grant.expect("granted"), &notes),
        Err(_) => note(&notes, |notes| notes.left += 1),
    }
}

fn granted<P: Scripted<Cost = u32>>(called: u64, grant: &RedisGrant<P, Timed>, notes: &Shared) {
    let seen = now();
    let due = called + micros(grant.waited());
    let waited = micros(grant.waited());
    note(notes, |notes| notes.lines.push(format!("@grant {seen} {due} {} {waited}", grant.cost())));
}

async fn make<P: Scripted<Cost = u32>>(
    limiter: Limiter<P>,
    change: Change,
    with_rate: fn(P, Rate) -> P,
    notes: Shared,
) {
    sleep(change.at).await;
    let called = now();
    let (waiting, outcome) = match change.to {
        To::Pause(duration) => (limiter.queue_len(), limiter.pause_for(duration).await),
        To::Rate(rate) => {
            let policy = with_rate(limiter.policy(), Rate::per_second(rate));
            (limiter.queue_len(), limiter.set_policy(policy).await)
        }
    };
    outcome.expect("Redis is there");
    let confirmed = now();
    note(&notes, |notes| {
        notes.lines.push(format!("@change {called} {confirmed} {waiting}"));
    });
}
