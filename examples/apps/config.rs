//! Limits from a file, and another file while callers wait.
//!
//! ```sh
//! cargo run -p examples --bin config
//! ```
//!
//! Eight tasks call each of four APIs as often as `examples/config/limits.toml` lets them, and each call takes
//! 100 ms. After three seconds comes a broken file, which changes nothing, and then `changed.toml`.

use std::error::Error;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, io};

use tollgate::{Limits, RateLimiters};

const APIS: [&str; 4] = ["search", "upload", "report", "mail"];
const PHASE: Duration = Duration::from_secs(3);
const CALL: Duration = Duration::from_millis(100);

/// What happened to the calls of one API in one phase.
#[derive(Clone, Copy, Default)]
struct Tally {
    calls: u32,
    longest_wait: Duration,
}

type Tallies = [[Tally; 2]; APIS.len()];

fn read(file: &str) -> Result<Limits, Box<dyn Error>> {
    let path = format!("{}/config/{file}", env!("CARGO_MANIFEST_DIR"));
    Ok(toml::from_str(&fs::read_to_string(path)?)?)
}

async fn call_without_end(
    limiters: &RateLimiters,
    api: usize,
    start: Instant,
    tallies: &Mutex<Tallies>,
) {
    let count = |count: &dyn Fn(&mut Tally)| {
        let phase = usize::from(start.elapsed() >= PHASE);
        count(&mut tallies.lock().expect("no panic")[api][phase]);
    };
    loop {
        let limiter = limiters.at(APIS[api]);
        let grant = limiter.acquire(1).await.expect("it is open");
        count(&|tally| {
            tally.calls += 1;
            tally.longest_wait = tally.longest_wait.max(grant.waited());
        });
        tokio::time::sleep(CALL).await; // the call; until then it is in flight
    }
}

async fn change_the_file(limiters: &RateLimiters) -> Result<(), Box<dyn Error>> {
    tokio::time::sleep(PHASE).await;
    match read("broken.toml") {
        Ok(_) => return Err("the broken file was read".into()),
        Err(error) => println!("broken.toml changes nothing:\n{error}"),
    }
    limiters.reload(read("changed.toml")?);
    tokio::time::sleep(PHASE).await;
    Ok(())
}

fn print(limits: &[Limits; 2], tallies: &Tallies) -> Result<(), Box<dyn Error>> {
    println!("{:8}  {:>28}  {:>6}  {:>7}  {:>12}", "API", "limit", "calls", "/s", "longest wait");
    for (api, tallies) in APIS.iter().zip(tallies) {
        for (limits, tally) in limits.iter().zip(tallies) {
            let limit = limits.get(api).to_string();
            let per_second = f64::from(tally.calls) / PHASE.as_secs_f64();
            let Tally { calls, longest_wait } = tally;
            println!(
                "{api:8}  {limit:>28}  {calls:>6}  {per_second:>7.1}  {:>9} ms",
                longest_wait.as_millis()
            );
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limits = [read("limits.toml")?, read("changed.toml")?];
    let limiters = RateLimiters::new(limits[0].clone());
    let (start, tallies) = (Instant::now(), Mutex::new(Tallies::default()));
    let calls = (0..APIS.len()).flat_map(|api| (0..8).map(move |_| api));
    let calls = calls.map(|api| call_without_end(&limiters, api, start, &tallies));
    tokio::select! {
        changed = change_the_file(&limiters) => changed?,
        _ = futures::future::join_all(calls) => return Err(io::Error::other("calls without end").into()),
    }
    let tallies = *tallies.lock().expect("no panic");
    print(&limits, &tallies)?;
    // The second file was felt by those who waited: search got far more than at ten a second.
    let [before, after] = tallies[0];
    if before.calls <= 36 && (100..=126).contains(&after.calls) {
        Ok(())
    } else {
        Err("search left its limit".into())
    }
}
