//! Starts rate limiters that others wrote, calls each from a client behind a limit, and writes `docs/servers.md`.
//!
//! `servers install NAME..` prints what has to be installed; `servers run NAME..` runs them; `servers page` writes the
//! page from all results so far; `servers pool` compares places in flight; `servers stores` tries servers that speak Redis'
//! protocol. A name is a group (`nginx`) or a set-up
//! (`nginx/burst-0-429`); none means all.

mod load;
mod page;
mod pool;
mod server;
mod setup;
mod stores;

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use load::Run;
use server::Server;
use setup::{Group, Setup, Target};

/// What a call of the backend takes that is slow.
const SLOW: Duration = Duration::from_millis(200);
/// For how long a right limit is tried.
const RIGHT_SECONDS: u64 = 62;
/// What of the calls of the same limit without feedback it must reach, in percent.
const RIGHT_LEAST: f64 = 97.0;

/// All runs of a set-up.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    pub version: String,
    pub error: Option<String>,
    pub guess: Option<Run>,
    pub possible: Option<f64>,
    /// With feedback, and without it.
    pub right: Vec<(Run, Run)>,
}

impl Outcome {
    pub fn accepted_percent(&self) -> Option<f64> {
        let run = self.guess.as_ref()?;
        Some(100.0 * f64::from(run.accepted) / self.possible?)
    }

    /// Whether it reaches its target. `None`: it has none.
    pub fn holds(&self, target: Target) -> Option<bool> {
        let (least, most) = target.bounds()?;
        let Some((percent, run)) = self.accepted_percent().zip(self.guess.as_ref()) else {
            return Some(false);
        };
        Some(percent >= least && run.refused_percent() <= most)
    }
}

pub fn right_percent((with, without): &(Run, Run)) -> f64 {
    100.0 * f64::from(with.accepted) / f64::from(without.accepted.max(1))
}

fn results(name: &str) -> PathBuf {
    server::work().join("results").join(format!("{}.toml", name.replace('/', ".")))
}

pub fn outcome(name: &str) -> Option<Outcome> {
    toml::from_str(&fs::read_to_string(results(name)).ok()?).ok()
}

/// The set-ups of these names, by `group/setup`.
fn chosen(groups: &BTreeMap<String, Group>, names: &[String]) -> Vec<(String, Group, Setup)> {
    let mut chosen = Vec::new();
    for (name, group) in groups {
        for setup in &group.setup {
            let full = format!("{name}/{}", setup.name);
            if names.is_empty() || names.iter().any(|wanted| wanted == name || *wanted == full) {
                chosen.push((full, group.clone(), setup.clone()));
            }
        }
    }
    chosen
}

/// What is run at once, and how much of it.
struct Plan {
    places: Arc<Semaphore>,
    backend: u16,
    tries_right: bool,
}

impl Plan {
    async fn run_one(
        &self,
        group: &Group,
        setup: &Setup,
        job: &str,
        limits: &str,
        learns: bool,
        seconds: u64,
    ) -> Result<Run, String> {
        let _place = self.places.acquire().await.expect("an open semaphore");
        let server = Server::start(group, &setup.env, job, self.backend).await?;
        Ok(load::load(server.port, &setup.request, limits, learns, seconds).await)
    }

    async fn run(&self, name: &str, group: &Group, setup: &Setup) -> Outcome {
        let job = |kind: &str| format!("{}.{kind}", name.replace('/', "."));
        let seconds = setup.seconds.unwrap_or(setup.target.seconds());
        let mut outcome = Outcome { version: version(group), ..Outcome::default() };
        match self.run_one(group, setup, &job("guess"), &setup.limits, true, seconds).await {
            Ok(run) => {
                outcome.possible = setup.possible.calls(run.start, run.seconds);
                outcome.guess = Some(run);
            }
            Err(error) => {
                outcome.error = Some(error);
                return outcome;
            }
        }
        let limits = setup.right.clone().unwrap_or(setup.possible.limit().into_iter().collect());
        for (index, limits) in limits.iter().enumerate().filter(|_| self.tries_right) {
            let jobs = [job(&format!("right{index}")), job(&format!("without{index}"))];
            let (with, without) = tokio::join!(
                self.run_one(group, setup, &jobs[0], limits, true, RIGHT_SECONDS),
                self.run_one(group, setup, &jobs[1], limits, false, RIGHT_SECONDS),
            );
            match with.and_then(|with| Ok((with, without?))) {
                Ok(right) => outcome.right.push(right),
                Err(error) => outcome.error = Some(error),
            }
        }
        outcome
    }
}

pub fn version(group: &Group) -> String {
    let here = env::current_dir().expect("a folder");
    let mut command = Command::new("bash");
    command.args(["-c", &group.version]).env("HERE", here).current_dir(server::work());
    let output = command.output();
    String::from_utf8_lossy(&output.expect("bash").stdout).trim().replace('\n', ", ")
}

/// A line of a set-up's runs.
fn line(name: &str, setup: &Setup, outcome: &Outcome) -> String {
    let Some(run) = &outcome.guess else {
        return format!("{name}: NOT RUN\n{}", outcome.error.as_deref().unwrap_or_default());
    };
    let verdict = match outcome.holds(setup.target) {
        Some(true) => "ok",
        Some(false) => "MISSED",
        None => "no target",
    };
    let possible = outcome.possible.map_or("?".to_owned(), |possible| format!("{possible:.0}"));
    let percent =
        outcome.accepted_percent().map_or("?".to_owned(), |percent| format!("{percent:.0}"));
    let mut line = format!(
        "{name}: {} of {possible} accepted, {percent} %; {} refused, {:.1} %; silent for {:.1} s; {verdict}",
        run.accepted,
        run.refused,
        run.refused_percent(),
        run.longest_silence
    );
    if run.failed > 0 {
        line += &format!("; {} failed", run.failed);
    }
    for right in &outcome.right {
        let percent = right_percent(right);
        let verdict = if percent >= RIGHT_LEAST { "ok" } else { "MISSED" };
        line += &format!(
            "; right {:?} {}/{}, without feedback {}/{}, {percent:.0} % {verdict}",
            right.0.limits, right.0.accepted, right.0.refused, right.1.accepted, right.1.refused
        );
    }
    if let Some(error) = &outcome.error {
        line += &format!("; error: {error}");
    }
    line
}

/// `SERVERS_AT_ONCE` run at the same time; with `SERVERS_RIGHT=no` only the guess is tried.
async fn run_all(names: &[String]) -> ExitCode {
    let at_once = env::var("SERVERS_AT_ONCE").ok().and_then(|n| n.parse().ok()).unwrap_or(6);
    let tries_right = env::var("SERVERS_RIGHT").as_deref() != Ok("no");
    let backend = server::backend(SLOW).await;
    let plan = Arc::new(Plan { places: Arc::new(Semaphore::new(at_once)), backend, tries_right });
    fs::create_dir_all(server::work().join("results")).expect("a folder");
    let mut jobs = JoinSet::new();
    for (name, group, setup) in chosen(&setup::read(), names) {
        let plan = plan.clone();
        jobs.spawn(async move {
            let outcome = plan.run(&name, &group, &setup).await;
            println!("{}", line(&name, &setup, &outcome));
            fs::write(results(&name), toml::to_string(&outcome).expect("a table")).expect("a file");
            outcome.error.is_none()
                && outcome.holds(setup.target) != Some(false)
                && outcome.right.iter().all(|right| right_percent(right) >= RIGHT_LEAST)
        });
    }
    let held = jobs.join_all().await;
    let missed = held.iter().filter(|held| !**held).count();
    println!("{} servers, {missed} miss a target", held.len());
    if held.is_empty() || missed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    let (command, names) = args.split_first().expect("a command");
    match command.as_str() {
        "install" => {
            let chosen = chosen(&setup::read(), names);
            let needs: BTreeSet<_> =
                chosen.iter().flat_map(|(_, group, _)| &group.install).collect();
            needs.iter().for_each(|need| println!("{need}"));
        }
        "list" => chosen(&setup::read(), names).iter().for_each(|(name, ..)| println!("{name}")),
        "run" => return run_all(names).await,
        "page" => page::write(),
        "pool" => return pool::run().await,
        "install-stores" => stores::needs().iter().for_each(|need| println!("{need}")),
        "stores" => return stores::run(names).await,
        "share" => stores::share(names).await,
        _ => panic!("install, list, run, page, pool or stores"),
    }
    ExitCode::SUCCESS
}
