//! What the tests would miss: mutants of the sources and of the scripts, each run against the tests that reach it.
//!
//! The mutants of Rust are those of cargo-mutants. A build for each would take longer than its tests, so one copy
//! of the sources holds all that are asked for, and the environment says which is switched on. `README.md` says how to
//! run it.

mod lua;
mod run;
mod tree;
mod weave;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use run::{Outcome, Program};
use weave::Mutant;

fn main() -> ExitCode {
    // Where `run` starts it, as a build that was copied still names its old place.
    let root = std::env::current_dir().expect("the crate");
    let (mut programs, mut skip, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let (mut sample, mut only_list, mut build_each) = (usize::MAX, false, false);
    let mut most = Duration::MAX;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().expect("a value");
        match argument.as_str() {
            "--test" => programs.push(value()),
            "--list" => only_list = true,
            "--build-each" => build_each = true,
            "--skip" => skip.push(value()),
            "--seconds" => most = Duration::from_secs(value().parse().expect("a number")),
            "--sample" => sample = value().parse().expect("a number"),
            _ => names.push(argument),
        }
    }
    if programs.is_empty() {
        programs = ["lib", "laws", "in_process"].map(str::to_owned).to_vec();
    }
    let is_lua = |name: &String| name.contains("/lua");
    assert!(
        names.iter().all(is_lua) || !names.iter().any(is_lua),
        "mutants of scripts are a run of their own"
    );
    let of_scripts = !names.is_empty() && names.iter().all(is_lua);
    let all = tree::list(&root);
    let scripts = lua::mutants(&root, all.len());
    let known = survivors(&root);
    let named: BTreeSet<_> = all.iter().chain(&scripts).map(known_as).collect();
    let stale: Vec<_> = known.keys().filter(|name| !named.contains(*name)).collect();
    assert!(stale.is_empty(), "survivors.txt has what is no mutant: {stale:#?}");
    let mut mutants = if of_scripts { scripts } else { all.clone() };
    if !names.is_empty() {
        mutants.retain(|mutant| names.iter().any(|name| mutant.name.starts_with(name.as_str())));
    }
    // The same sample each time, spread over the files.
    mutants.sort_by_key(|mutant| hash(&mutant.name));
    mutants.truncate(sample);
    mutants.sort_by(|a, b| a.file.cmp(&b.file).then(a.start.cmp(&b.start)));
    if only_list {
        mutants.iter().for_each(|mutant| println!("{}", mutant.name));
        return ExitCode::SUCCESS;
    }

    let wanted = mutants.iter().map(|mutant| mutant.id).collect();
    let tree = tree::make(&root, all, &wanted, &programs);

    let programs: Vec<_> =
        tree.programs.iter().map(|path| Program::look_at(&tree.path, path, &skip)).collect();
    let mut outcomes = run::all(&tree, &programs, &mutants, most);
    if build_each {
        run::build_each(&root, &tree, &programs, &mutants, most, &mut outcomes);
    }
    report(&known, &mutants, &outcomes)
}

fn hash(name: &str) -> u64 {
    let hash = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    name.bytes().fold(0xcbf2_9ce4_8422_2325, hash)
}

/// The name without the line, which moves.
fn known_as(mutant: &Mutant) -> String {
    let place = format!(":{}:{}:", mutant.start.0, mutant.start.1);
    mutant.name.replacen(&place, ":", 1)
}

/// The mutants that may stay, each with its reason.
fn survivors(root: &Path) -> BTreeMap<String, String> {
    let path: PathBuf = root.join("tests/mutants/survivors.txt");
    let text = fs::read_to_string(path).expect("survivors.txt");
    let mut reasons = BTreeMap::new();
    let mut reason = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(text) = line.strip_prefix("# ") {
            reason = text.to_owned();
        } else {
            reasons.insert(line.to_owned(), reason.clone());
        }
    }
    reasons
}

fn report(known: &BTreeMap<String, String>, mutants: &[Mutant], outcomes: &[Outcome]) -> ExitCode {
    let mut rooms: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    let mut unexplained = 0;
    for (mutant, outcome) in mutants.iter().zip(outcomes) {
        let room = mutant.file.trim_start_matches("src/");
        let room = room.split_once('/').map_or(room, |(room, _)| room).trim_end_matches(".rs");
        let counts = rooms.entry(room).or_default();
        let is_known = known.contains_key(&known_as(mutant));
        match outcome {
            Outcome::Caught(_) => counts[0] += 1,
            Outcome::Missed | Outcome::Unreached if is_known => counts[1] += 1,
            Outcome::Missed | Outcome::Unreached => {
                counts[2] += 1;
                unexplained += 1;
                let how = if matches!(outcome, Outcome::Missed) { "missed" } else { "unreached" };
                println!("{how}: {}", mutant.name);
            }
            Outcome::Unviable => counts[3] += 1,
            Outcome::NotWoven => counts[4] += 1,
        }
    }
    println!(
        "{:14}{:>8}{:>12}{:>9}{:>13}{:>12}",
        "room", "caught", "explained", "missed", "no program", "not tried"
    );
    let mut all = [0; 5];
    for (room, counts) in &rooms {
        line(room, counts);
        all.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    line("all", &all);
    ExitCode::from(u8::from(unexplained > 0))
}

fn line(room: &str, [caught, explained, missed, unviable, not_woven]: &[usize; 5]) {
    println!("{room:14}{caught:>8}{explained:>12}{missed:>9}{unviable:>13}{not_woven:>12}");
}
