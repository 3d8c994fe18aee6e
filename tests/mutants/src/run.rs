//! Which tests reach a mutant, and which of them fails with it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::tree::Tree;
use crate::weave::Mutant;

pub enum Outcome {
    Caught(String),
    Missed,
    Unreached,
    Unviable,
    /// In code that the compiler runs: needs a build of its own.
    NotWoven,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(test) => write!(f, "caught by {test}"),
            Self::Missed => f.write_str("missed"),
            Self::Unreached => f.write_str("unreached"),
            Self::Unviable => f.write_str("does not compile"),
            Self::NotWoven => f.write_str("not tried"),
        }
    }
}

/// A test program and its tests.
pub struct Program {
    path: PathBuf,
    tests: Vec<Test>,
}

struct Test {
    name: String,
    takes: Duration,
    /// The numbers of the mutants that it reaches, and the lengths of the scripts that it assembles.
    reaches: BTreeSet<usize>,
    scripts: BTreeSet<usize>,
}

/// No test may use more memory: a mutant may allocate forever.
const MEMORY_KB: &str = "6000000";

/// No test may take longer, or each mutant that it reaches would.
const LONGEST: Duration = Duration::from_secs(30);

/// How many test programs run at once.
const AT_ONCE: usize = 2;

impl Program {
    /// Runs each test by itself, to see what it reaches. A test that fails without a mutant, or takes too long, is
    /// left out, and so are those whose names begin with one of `skip`.
    pub fn look_at(tree: &Path, path: &Path, skip: &[String]) -> Self {
        let modified = fs::metadata(path).and_then(|data| data.modified()).expect("a program");
        let built = modified.duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
        let name = path.file_name().expect("a name").display();
        // What is known stays if this ends early.
        let known = tree.join(format!("../reached-{name}-{built}"));
        look(tree, path, &known, skip);
        let text = fs::read_to_string(&known).expect("a file");
        let tests = text.lines().map(|line| {
            let mut words = line.split(' ');
            let name = words.next().expect("a name").to_owned();
            let takes = words.next().and_then(|word| word.parse().ok()).expect("milliseconds");
            let numbers =
                |text: &str| text.split(',').filter_map(|word| word.parse().ok()).collect();
            let mut sets = words.map(numbers);
            let (reaches, scripts) = (sets.next().expect("mutants"), sets.next().expect("scripts"));
            Test { name, takes: Duration::from_millis(takes), reaches, scripts }
        });
        let is_kept = |test: &Test| !skip.iter().any(|start| test.name.starts_with(start.as_str()));
        Self { path: path.to_owned(), tests: tests.filter(is_kept).collect() }
    }
}

fn look(tree: &Path, path: &Path, known: &Path, skip: &[String]) {
    let list = Command::new(path).arg("--list").current_dir(tree).output().expect("a program");
    let list = String::from_utf8(list.stdout).expect("text");
    let before = fs::read_to_string(known).unwrap_or_default();
    let before: BTreeSet<_> = before.lines().filter_map(|line| line.split(' ').next()).collect();
    let names: Vec<_> = list
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .filter(|name| !before.contains(name))
        .filter(|name| !skip.iter().any(|start| name.starts_with(start.as_str())))
        .collect();
    eprintln!("{}: what do {} tests reach?", path.display(), names.len());
    let file = OpenOptions::new().create(true).append(true).open(known).expect("a file");
    at_once(names.len(), |index, worker| {
        let reached = tree.join(format!("../reached.{worker}"));
        let _ = fs::remove_file(&reached);
        let mut command = test_command(tree, path, &names[index..=index]);
        command.env("MUTANTS_REACHED", &reached);
        let start = Instant::now();
        let failure = failure(command, LONGEST);
        let takes = start.elapsed().as_millis();
        if let Some(failure) = failure {
            eprintln!("fails without a mutant: {failure}");
            return;
        }
        let reached = fs::read_to_string(&reached).unwrap_or_default();
        let (scripts, mutants): (BTreeSet<_>, BTreeSet<_>) =
            reached.lines().partition(|line| line.starts_with("lua "));
        let mutants: Vec<_> = mutants.into_iter().collect();
        let scripts: Vec<_> = scripts.iter().map(|line| &line[4..]).collect();
        let line =
            format!("{} {takes} {} {}\n", names[index], mutants.join(","), scripts.join(","));
        (&file).write_all(line.as_bytes()).expect("a file");
    });
}

/// Runs each mutant against the tests that reach it, the fastest first, until one fails, or until they have taken `most`.
pub fn all(tree: &Tree, programs: &[Program], mutants: &[Mutant], most: Duration) -> Vec<Outcome> {
    let outcomes: Vec<_> = mutants.iter().map(|_| Mutex::new(Outcome::Unreached)).collect();
    let done = AtomicUsize::new(0);
    at_once(mutants.len(), |index, worker| {
        let mutant = &mutants[index];
        let outcome = if mutant.genre != "Lua" && tree.unviable.contains(&mutant.id) {
            Outcome::Unviable
        } else if mutant.genre != "Lua" && !tree.woven.contains(&mutant.id) {
            Outcome::NotWoven
        } else {
            try_one(tree, programs, mutant, most, worker)
        };
        let count = 1 + done.fetch_add(1, Ordering::Relaxed);
        eprintln!("{count}/{} {}: {outcome}", mutants.len(), mutant.name);
        *outcomes[index].lock().expect("no panic") = outcome;
    });
    outcomes.into_iter().map(|outcome| outcome.into_inner().expect("no panic")).collect()
}

/// Builds the programs with each mutant that a branch cannot make, and runs all their tests.
pub fn build_each(
    root: &Path,
    tree: &Tree,
    programs: &[Program],
    mutants: &[Mutant],
    most: Duration,
    outcomes: &mut [Outcome],
) {
    for (mutant, outcome) in mutants.iter().zip(outcomes) {
        if matches!(outcome, Outcome::NotWoven) {
            *outcome = if tree.build_with(root, mutant) {
                try_one(tree, programs, mutant, most, 0)
            } else {
                Outcome::Unviable
            };
            eprintln!("{}: {outcome}", mutant.name);
        }
    }
}

fn try_one(
    tree: &Tree,
    programs: &[Program],
    mutant: &Mutant,
    most: Duration,
    worker: usize,
) -> Outcome {
    let script = tree.path.join(&mutant.file);
    let mutated = tree.path.join(format!("../script.{worker}"));
    let is_lua = mutant.genre == "Lua";
    let length = if is_lua {
        let text = fs::read_to_string(&script).expect("a script");
        fs::write(&mutated, mutant.applied_to(&text)).expect("a file");
        text.len()
    } else {
        0
    };
    let mut tests: Vec<(&Program, &Test)> = programs
        .iter()
        .flat_map(|program| program.tests.iter().map(move |test| (program, test)))
        .filter(|(_, test)| {
            if is_lua {
                test.scripts.contains(&length)
            } else {
                test.reaches.contains(&mutant.id) || !tree.woven.contains(&mutant.id)
            }
        })
        .collect();
    if tests.is_empty() {
        return Outcome::Unreached;
    }
    tests.sort_by_key(|(_, test)| test.takes);
    let mut sum = Duration::ZERO;
    let within = tests.iter().take_while(|(_, test)| {
        sum += test.takes;
        sum <= most
    });
    let count = within.count().max(1);
    tests.truncate(count);
    // A few fast tests catch most mutants; the others run only if these do not.
    let mut round_takes = Duration::from_millis(300);
    let mut rest = tests.as_slice();
    while !rest.is_empty() {
        let mut sum = Duration::ZERO;
        let count = rest.iter().take_while(|(_, test)| {
            sum += test.takes;
            sum <= round_takes
        });
        let (round, later) = rest.split_at(count.count().max(1));
        rest = later;
        round_takes *= 8;
        let mut by_program: BTreeMap<&Path, Vec<&Test>> = BTreeMap::new();
        for (program, test) in round {
            by_program.entry(&program.path).or_default().push(test);
        }
        for (program, tests) in by_program {
            let names: Vec<_> = tests.iter().map(|test| test.name.as_str()).collect();
            let takes: Duration = tests.iter().map(|test| test.takes).sum();
            let mut command = test_command(&tree.path, program, &names);
            if is_lua {
                command.env("MUTANT_OF", &script).env("MUTANT_IS", &mutated);
            } else {
                command.env("MUTANT", mutant.id.to_string());
            }
            if let Some(failure) = failure(command, takes * 5 + Duration::from_secs(10)) {
                return Outcome::Caught(failure);
            }
        }
    }
    Outcome::Missed
}

fn test_command(tree: &Path, program: &Path, names: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY_KB}; exec \"$@\""), "sh"]);
    command.arg(program).arg("--exact").args(names);
    command.current_dir(tree).env("CARGO_MANIFEST_DIR", tree);
    command
}

/// The first test that fails, or `None` if none does. A program that ends early, or takes too long, fails.
fn failure(mut command: Command, most: Duration) -> Option<String> {
    let until = Instant::now() + most;
    // A group of its own, with the servers that tests start.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("a program");
    let output = BufReader::new(child.stdout.take().expect("an output"));
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut last = "the first test".to_owned();
    let failed = loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(test) =
                    line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"))
                {
                    break Some(test.to_owned());
                }
                if line.starts_with("test result: ok") {
                    break None;
                }
                last = line;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                break Some("a test that takes too long".to_owned());
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                break Some(format!("the end after {last}"));
            }
        }
    };
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
    let _ = child.wait();
    drop(lines);
    let _ = reader.join();
    failed
}

/// Calls the function for each index, with the number of the worker.
fn at_once(count: usize, run: impl Fn(usize, usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for worker in 0..AT_ONCE {
            let (next, run) = (&next, &run);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    run(index, worker);
                }
            });
        }
    });
}
