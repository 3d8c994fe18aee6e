//! A real pool: HAProxy sends 20 calls at once to a backend that takes 0.2 s, and queues the others; after a minute, 10. A
//! hundred callers in a loop, behind fixed places in flight, learned places, and throttle-net's. With
//! `POOL_SLOWER=2` all takes twice as long, for a machine that does other work.

use std::env;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use throttle_net::{AdaptiveLimiter, AdaptiveStrategy, Aimd, Outcome, Vegas};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::feedback::Feedback;
use tollgate::{InFlight, RateLimiter, Unlimited};

use crate::server::{self, Server};
use crate::{SLOW, load, setup};

const CALLERS: u32 = 100;
const START: u32 = 8;
const HALVED: f64 = 60.0;
/// What is measured of the whole pool and of its half: from, to, and the right number of places.
const SPANS: [(f64, f64, u32); 2] = [(20.0, 60.0, 20), (70.0, 100.0, 10)];
/// Of the right number's answers, and of its 99th percentile.
const WANTED: (f64, f64) = (0.95, 1.2);

struct Strategy(Box<dyn AdaptiveStrategy>);

impl AdaptiveStrategy for Strategy {
    fn adjust(&self, current: u32, in_flight: u32, outcome: Outcome) -> u32 {
        self.0.adjust(current, in_flight, outcome)
    }
}

enum Places {
    Fixed(RateLimiter<InFlight>),
    Learned(Feedback<RateLimiter<Unlimited>>),
    ThrottleNet(AdaptiveLimiter<Strategy>),
}

impl Places {
    fn all() -> Vec<(String, Self)> {
        let fixed = |n| (format!("InFlight({n})"), Self::Fixed(RateLimiter::new(InFlight::new(n))));
        let learned = Feedback::builder(RateLimiter::new(Unlimited)).learn_in_flight(START).build();
        let theirs = |name: &str, strategy: Box<dyn AdaptiveStrategy>| {
            let builder = AdaptiveLimiter::builder().initial(START).ceiling(CALLERS);
            (format!("throttle-net {name}"), Self::ThrottleNet(builder.build(Strategy(strategy))))
        };
        let mut all: Vec<_> = [5, 10, 20, 40, CALLERS].map(fixed).into();
        all.push(("learn_in_flight".to_owned(), Self::Learned(learned)));
        all.push(theirs("Vegas", Box::<Vegas>::default()));
        all.push(theirs("AIMD", Box::<Aimd>::default()));
        all
    }

    /// What `call` says, when it has had a place.
    async fn with_place<T>(&self, call: impl Future<Output = T>) -> T {
        match self {
            Self::Fixed(limiter) => {
                let _place = limiter.acquire(1).await.expect("a place");
                call.await
            }
            Self::Learned(limiter) => {
                let mut place = limiter.acquire(1).await.expect("a place");
                let said = call.await;
                place.accepted();
                said
            }
            Self::ThrottleNet(limiter) => {
                let place = limiter.acquire().await;
                let said = call.await;
                place.success();
                said
            }
        }
    }
}

/// Answers a second, and the 99th percentile of their times in milliseconds without the wait for a place, in each span.
async fn measure(
    index: usize,
    places: Places,
    backend: u16,
    slower: f64,
) -> (usize, [(f64, f64); 2]) {
    let mut group = setup::read().remove("haproxy").expect("a group");
    group.files = vec!["haproxy/pool.cfg".to_owned()];
    group.start = "exec haproxy -db -f $DIR/pool.cfg".to_owned();
    let run = format!("pool.{index}");
    let server = Server::start(&group, &group.setup[0].env, &run, backend).await.expect("HAProxy");
    let (client, url) = (load::plain(false), format!("http://127.0.0.1:{}/slow", server.port));
    let (places, start) = (Arc::new(places), Instant::now());
    let answers = Arc::new(Mutex::new(Vec::new()));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (client, url) = (client.clone(), url.clone());
        let (places, answers) = (Arc::clone(&places), Arc::clone(&answers));
        callers.spawn(async move {
            loop {
                let call = async {
                    let sent = Instant::now();
                    let answer = client.get(&url).send().await.expect("an answer");
                    answer.error_for_status().expect("a 200").bytes().await.expect("its body");
                    sent.elapsed().as_secs_f64()
                };
                let took = places.with_place(call).await;
                answers.lock().expect("no panic").push((start.elapsed().as_secs_f64(), took));
            }
        });
    }
    sleep(Duration::from_secs_f64(HALVED * slower)).await;
    let mut socket = UnixStream::connect(server.dir.join("socket")).expect("HAProxy's socket");
    socket.write_all(b"set maxconn server pool/one 10\n").expect("a command");
    socket.read_to_string(&mut String::new()).expect("its answer");
    let rest = Duration::from_secs_f64(SPANS[1].1 * slower).saturating_sub(start.elapsed());
    assert!(timeout(rest, callers.join_next()).await.is_err(), "no caller ends");
    callers.shutdown().await;
    let answers = answers.lock().expect("no panic");
    let figures = SPANS.map(|(from, to, _)| {
        let (from, to) = (from * slower, to * slower);
        let within = answers.iter().filter(|(at, _)| (from..to).contains(at));
        let mut times: Vec<f64> = within.map(|(_, took)| took * 1000.0).collect();
        times.sort_by(f64::total_cmp);
        (times.len() as f64 / (to - from), times[times.len() * 99 / 100])
    });
    (index, figures)
}

/// All at the same time, so that what else the machine does meets all of them alike.
pub async fn run() -> ExitCode {
    let slower = env::var("POOL_SLOWER").map_or(1.0, |slower| slower.parse().expect("a number"));
    let backend = server::backend(SLOW.mul_f64(slower)).await;
    let (names, places): (Vec<_>, Vec<_>) = Places::all().into_iter().unzip();
    let runs = places.into_iter().enumerate();
    let runs: JoinSet<_> =
        runs.map(|(index, places)| measure(index, places, backend, slower)).collect();
    let mut figures = runs.join_all().await;
    figures.sort_by_key(|(index, _)| *index);
    println!("| places | 20 calls at once | 10 s after 10 are left |\n|---|---|---|");
    for (index, [whole, half]) in &figures {
        let cell = |(rate, p99)| format!("{rate:.1}/s, {p99:.0} ms");
        println!("| `{}` | {} | {} |", names[*index], cell(*whole), cell(*half));
    }
    let of = |wanted: &str, span: usize| {
        figures[names.iter().position(|name| name == wanted).expect("a client")].1[span]
    };
    let mut all_hold = true;
    for (span, (_, _, right)) in SPANS.iter().enumerate() {
        let (learned, right) =
            (of("learn_in_flight", span), of(&format!("InFlight({right})"), span));
        let (answers, p99) = (learned.0 / right.0, learned.1 / right.1);
        let holds = answers >= WANTED.0 && p99 <= WANTED.1;
        all_hold &= holds;
        let verdict = if holds { "ok" } else { "MISSED" };
        println!(
            "learned: {answers:.3} of the right number's answers at {p99:.2} x its p99: {verdict}"
        );
    }
    if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
