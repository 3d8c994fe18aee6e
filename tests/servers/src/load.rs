//! 16 tasks share one client in a closed loop.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reqwest::header::HeaderMap;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::feedback::{Answer, Dialects, Unit};
use tollgate::{Limits, RateLimit, RateLimiters};

use crate::setup::Request;

const TASKS: u32 = 16;
/// So many calls at most look for a refusal where the load met none.
const PROBES: u32 = 400;

/// What was counted, and the first answers of each kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub limits: String,
    pub accepted: u32,
    pub refused: u32,
    pub failed: u32,
    /// When it began, since the epoch.
    pub start: f64,
    pub seconds: f64,
    /// How much longer nothing was accepted than between any other two accepted calls.
    pub longest_silence: f64,
    pub accept: Option<Sample>,
    pub refusal: Option<Sample>,
}

/// An answer, and what tollgate reads in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub head: String,
    pub body: String,
    pub read: String,
}

impl Run {
    pub fn refused_percent(&self) -> f64 {
        let sent = self.accepted + self.refused + self.failed;
        100.0 * f64::from(self.refused) / f64::from(sent.max(1))
    }
}

struct Seen {
    run: Run,
    last: Instant,
}

pub fn client(limits: &str, learns: bool, http2: bool) -> ClientWithMiddleware {
    let limits = Limits::per_host(limits).expect("a limit");
    let limiters = RateLimiters::new(limits);
    let middleware = match learns {
        true => RateLimit::limits(limiters),
        false => RateLimit::by(move |request| limiters.at(&limiters.name_of(request))),
    };
    ClientBuilder::new(plain(http2)).with(middleware).build()
}

pub fn plain(http2: bool) -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy();
    let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
    builder.build().expect("a client")
}

/// One call. Whether it was refused, and the answer.
async fn call(
    client: &ClientWithMiddleware,
    port: u16,
    request: &Request,
) -> Option<(bool, Sample)> {
    let url = format!("http://127.0.0.1:{port}/{}", request.path.trim_start_matches('/'));
    let mut builder = match &request.body {
        Some(body) => client.post(url).body(body.clone()),
        None => client.get(url),
    };
    for (name, value) in &request.headers {
        builder = builder.header(name, value);
    }
    let response = builder.send().await.ok()?;
    let (status, headers) = (response.status(), response.headers().clone());
    let body = response.text().await.unwrap_or_default();
    let mut head = status.as_u16().to_string();
    for (name, value) in &headers {
        head += &format!("\n{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    let refused_if = request.refused_if.as_ref();
    let is_refused = !status.is_success()
        || refused_if.is_some_and(|text| body.contains(text) || head.contains(text));
    let read = read(status.as_u16(), &headers);
    Some((is_refused, Sample { head, body: body.chars().take(300).collect(), read }))
}

/// The reading of an answer, in a line.
fn read(status: u16, headers: &HeaderMap) -> String {
    let answer: Answer = Dialects::default().read(status, headers);
    let mut text = format!("{:?}", answer.verdict).to_lowercase();
    if let Some(meter) = answer.meter(Unit::Requests) {
        let number =
            |number: Option<u64>| number.map_or("?".to_owned(), |number| number.to_string());
        text += &format!(", {} of {} left", number(meter.remaining), number(meter.limit));
        if let Some(reset) = meter.reset {
            text += &format!(", reset {reset:?}");
        }
    }
    if let Some(bucket) = &answer.bucket {
        text += &format!(", bucket {bucket:?}");
    }
    if let Some(wait) = answer.wait {
        text += &format!(", wait {wait:?}");
    }
    if answer.malformed > 0 {
        text += &format!(", {} malformed", answer.malformed);
    }
    text
}

async fn task(
    client: ClientWithMiddleware,
    port: u16,
    request: Request,
    end: Instant,
    seen: &'static Mutex<Seen>,
) {
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let Ok(answer) = timeout(left, call(&client, port, &request)).await else { break };
        let is_failure = answer.is_none();
        {
            let mut seen = seen.lock().expect("no panic");
            match answer {
                Some((false, sample)) => {
                    let silence = seen.last.elapsed().as_secs_f64();
                    seen.last = Instant::now();
                    seen.run.longest_silence = seen.run.longest_silence.max(silence);
                    seen.run.accepted += 1;
                    seen.run.accept.get_or_insert(sample);
                }
                Some((true, sample)) => {
                    seen.run.refused += 1;
                    seen.run.refusal.get_or_insert(sample);
                }
                None => seen.run.failed += 1,
            }
        }
        if is_failure {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Calls for `seconds`, as often as `limits` allow.
pub async fn load(port: u16, request: &Request, limits: &str, learns: bool, seconds: u64) -> Run {
    let client = client(limits, learns, request.http2);
    let run = Run {
        limits: limits.to_owned(),
        start: SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after it").as_secs_f64(),
        seconds: seconds as f64,
        ..Run::default()
    };
    // A run a server: it may leak.
    let seen: &'static _ = Box::leak(Box::new(Mutex::new(Seen { run, last: Instant::now() })));
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        tasks.spawn(task(client.clone(), port, request.clone(), end, seen));
    }
    tasks.join_all().await;
    let mut run = {
        let seen = seen.lock().expect("no panic");
        let mut run = seen.run.clone();
        run.longest_silence = run.longest_silence.max(seen.last.elapsed().as_secs_f64());
        run
    };
    if run.refusal.is_none() && learns {
        run.refusal = probe(port, request).await;
    }
    run
}

/// What a refusal looks like, if the load met none.
async fn probe(port: u16, request: &Request) -> Option<Sample> {
    let client = ClientBuilder::new(plain(request.http2)).build();
    for _ in 0..PROBES / TASKS {
        let mut calls = JoinSet::new();
        for _ in 0..TASKS {
            let (client, request) = (client.clone(), request.clone());
            calls.spawn(async move {
                timeout(Duration::from_secs(15), call(&client, port, &request)).await
            });
        }
        let answers = calls.join_all().await;
        let refusal = answers.into_iter().flatten().flatten().find(|(is_refused, _)| *is_refused);
        if let Some((_, sample)) = refusal {
            return Some(sample);
        }
    }
    None
}
