//! A limit that two processes share, over servers and proxies that speak Redis' protocol: `stores/stores.toml`. The table is that
//! of `docs/redis.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::error::Error;
use std::fs;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tollgate::redis::{Reconnecting, RedisRateLimiter};
use tollgate::{Rate, TokenBucket};

use crate::server::Server;
use crate::setup::Group;

const RATE: f64 = 50.0;
const BURST: u32 = 10;
const SECONDS: u64 = 5;
/// Servers and proxies close what is idle for a second.
const IDLE: Duration = Duration::from_secs(3);
/// Longer than anything takes here.
const LATEST: Duration = Duration::from_secs(10);

/// A server, or a proxy before one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Store {
    source: String,
    install: String,
    /// A command that takes a server's arguments.
    server: Option<String>,
    proxy: Option<String>,
    file: Option<String>,
    version: Option<String>,
}

impl Store {
    fn server(&self) -> Group {
        let server = self.server.as_deref().unwrap_or("exec redis-server");
        // `Redis server v=7.0.15 sha=..`
        let name = "sed -n 's/^\\([A-Z][a-z]*\\) server v=\\([0-9.]*\\).*/\\1 \\2/p'";
        Group {
            version: format!("({server} --version) | {name}"),
            start: format!(
                "{server} --bind 127.0.0.1 --port $PORT --save '' --dir $DIR --timeout 1"
            ),
            ..Group::default()
        }
    }

    fn proxy(&self) -> Option<Group> {
        let version = self.version.as_deref().unwrap_or_default();
        Some(Group {
            version: format!("echo \"{}\"", version.replace('`', "\\`")),
            start: self.proxy.clone()?,
            files: self.file.iter().cloned().collect(),
            ..Group::default()
        })
    }
}

fn read() -> Vec<Store> {
    let text = fs::read_to_string("stores/stores.toml").expect("a table");
    let mut table: BTreeMap<String, Vec<Store>> = toml::from_str(&text).expect("stores");
    table.remove("store").expect("stores")
}

/// What has to be installed.
pub fn needs() -> BTreeSet<String> {
    read().into_iter().map(|store| store.install).chain(["apt redis-server".to_owned()]).collect()
}

type Limiter = RedisRateLimiter<TokenBucket, Reconnecting>;

fn limiter(port: u16, key: &str) -> Limiter {
    let connection = Reconnecting::open(&format!("redis://127.0.0.1:{port}/")).expect("a URL");
    RedisRateLimiter::builder(TokenBucket::new(Rate::per_second(RATE), BURST), connection, key)
        .build()
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970")
}

/// One of the processes that share: prints the permits that it got from `start` on, a time in milliseconds.
pub async fn share(args: &[String]) {
    let port = args[0].parse().expect("a port");
    let start = Duration::from_millis(args[1].parse().expect("a time"));
    let limiter = limiter(port, "shared");
    if let Err(error) = limiter.ping().await {
        return eprintln!("{}", text(&error));
    }
    sleep(start.saturating_sub(now())).await;
    let mut callers = JoinSet::new();
    for _ in 0..4 {
        let limiter = limiter.clone();
        callers.spawn(async move {
            let mut granted = 0;
            loop {
                let left = (start + Duration::from_secs(SECONDS)).saturating_sub(now());
                let Ok(grant) = timeout(left, limiter.acquire(1)).await else { return granted };
                grant.expect("a permit");
                granted += 1;
            }
        });
    }
    println!("{}", callers.join_all().await.iter().sum::<u32>());
}

/// The permits that two processes get in some seconds.
async fn granted_by_two(port: u16) -> Result<u32, Box<dyn Error>> {
    let start = (now() + Duration::from_secs(1)).as_millis().to_string();
    let mut command = Command::new(env::current_exe()?);
    command.args(["share", &port.to_string(), &start]).stdout(Stdio::piped()).kill_on_drop(true);
    let (one, other) = (command.spawn()?, command.spawn()?);
    let (one, other) = tokio::try_join!(one.wait_with_output(), other.wait_with_output())?;
    let granted = |output: std::process::Output| {
        String::from_utf8(output.stdout)?.trim().parse::<u32>().map_err(Box::<dyn Error>::from)
    };
    Ok(granted(one)? + granted(other)?)
}

/// An error and its causes.
fn text(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// A call after each of two times without calls, in which connections were closed.
async fn after_idle(limiter: &Limiter) -> Result<(), String> {
    for _ in 0..3 {
        limiter.acquire(1).await.map_err(|error| text(&error))?;
        sleep(IDLE).await;
    }
    Ok(())
}

/// How long after the start of the server a caller is granted that tries without end.
async fn back_after_kill(
    server: &mut Server,
    group: &Group,
    limiter: &Limiter,
) -> Result<Duration, String> {
    server.restart(group).await?;
    let ready = Instant::now();
    loop {
        match limiter.acquire(1).await {
            Ok(_) => return Ok(ready.elapsed()),
            Err(error) if ready.elapsed() > LATEST => return Err(text(&error)),
            Err(_) => sleep(Duration::from_millis(1)).await,
        }
    }
}

/// What a call says at a key that is a list: whether it names the key and the server's error.
async fn at_a_list(server: u16, port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", server)).await.expect("a server");
    stream.write_all(b"RPUSH list 1\r\n").await.expect("a command");
    assert!(stream.read(&mut [0; 64]).await.is_ok_and(|len| len > 0), "an answer");
    match limiter(port, "list").acquire(1).await {
        Ok(_) => "granted".to_owned(),
        Err(error) => {
            let text = text(&error);
            let is_named = text.contains("\"list\"") && text.contains("WRONGTYPE");
            if is_named { "named".to_owned() } else { text }
        }
    }
}

async fn try_one(index: usize, store: Store) -> Result<[String; 6], Box<dyn Error>> {
    let (group, none) = (store.server(), BTreeMap::new());
    let mut server = Server::start(&group, &none, &format!("store.{index}"), 0).await?;
    let proxy = match store.proxy() {
        Some(proxy) => {
            let run = format!("proxy.{index}");
            let version = crate::version(&proxy);
            Some((Server::start(&proxy, &none, &run, server.port).await?, version))
        }
        None => None,
    };
    let (port, version) = match &proxy {
        Some((proxy, version)) => (proxy.port, version.clone()),
        None => (server.port, crate::version(&group)),
    };
    let granted = granted_by_two(port).await?;
    let limiter = limiter(port, "one");
    let idle = after_idle(&limiter).await.map_or_else(|error| error, |()| "granted".to_owned());
    let back = back_after_kill(&mut server, &group, &limiter).await?;
    let list = at_a_list(server.port, port).await;
    Ok([version, store.source, granted.to_string(), idle, format!("{} ms", back.as_millis()), list])
}

/// One after the other, and the table of `docs/redis.md`.
pub async fn run(names: &[String]) -> ExitCode {
    let allowed = RATE as u64 * SECONDS + u64::from(BURST);
    let mut all_hold = true;
    println!(
        "| server or proxy | from | granted of {allowed} | after 3 s without calls | back after `kill -9` | at a list |\n|---|---|---|---|---|---|"
    );
    for (index, store) in read().into_iter().enumerate() {
        let text = format!("{store:?}");
        if !names.is_empty() && !names.iter().any(|name| text.contains(name.as_str())) {
            continue;
        }
        let source = store.source.clone();
        match try_one(index, store).await {
            Ok(cells) => {
                let granted = cells[2].parse::<u64>().expect("a number");
                all_hold &= (allowed * 97 / 100..=allowed).contains(&granted)
                    && cells[3] == "granted"
                    && cells[5] == "named";
                println!("| {} |", cells.join(" | "));
            }
            Err(error) => {
                all_hold = false;
                println!("| NOT RUN | {source} | {error} | | | |");
            }
        }
    }
    if all_hold { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
