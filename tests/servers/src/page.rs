//! `docs/servers.md`, from all results.

use std::fmt::Write as _;
use std::fs;

use crate::load::Sample;
use crate::{Outcome, outcome, right_percent, setup};

const PAGE: &str = "../../docs/servers.md";

/// The fields of an answer that have to do with limits.
fn fields(sample: &Sample) -> String {
    let says = |name: &str| {
        ["limit", "retry", "quota", "reset", "throttle", "grpc-"]
            .iter()
            .any(|part| name.contains(part))
    };
    let mut lines = sample.head.lines();
    let status = lines.next().unwrap_or_default();
    let fields = lines.filter(|line| says(line.split(':').next().unwrap_or_default()));
    let fields: Vec<_> = fields.map(|field| format!("`{}`", field.replace('|', "\\|"))).collect();
    if fields.is_empty() {
        format!("{status}, none")
    } else {
        format!("{status}, {}", fields.join(", "))
    }
}

fn cell(sample: Option<&Sample>) -> [String; 2] {
    sample.map_or(["-".to_owned(), "-".to_owned()], |sample| {
        [fields(sample), sample.read.replace('|', "\\|")]
    })
}

fn row(text: &mut String, setup: &setup::Setup, version: &str, outcome: &Outcome) {
    let Some(run) = &outcome.guess else { return };
    let [accept, accept_read] = cell(run.accept.as_ref());
    let [refusal, refusal_read] = cell(run.refusal.as_ref());
    let verdict = match (setup.target.bounds(), outcome.holds(setup.target)) {
        (Some((least, most)), Some(holds)) => {
            format!("{} (>= {least} %, <= {most} %)", if holds { "reached" } else { "**missed**" })
        }
        _ => "-".to_owned(),
    };
    let possible = outcome.possible.map_or("?".to_owned(), |possible| format!("{possible:.0}"));
    let percent =
        outcome.accepted_percent().map_or("?".to_owned(), |percent| format!("{percent:.0}"));
    let mut right = Vec::new();
    for pair in &outcome.right {
        right.push(format!(
            "`{}`: {:.0} %, {} refused",
            pair.0.limits,
            right_percent(pair),
            pair.0.refused
        ));
    }
    let right = if right.is_empty() { "-".to_owned() } else { right.join("; ") };
    writeln!(
        text,
        "| {version} | {} | {accept} | {refusal} | {accept_read}; {refusal_read} | {} of {possible}, {percent} % | {}, {:.1} % | {verdict} | {right} |",
        setup.title, run.accepted, run.refused, run.refused_percent(),
    )
    .expect("a string");
}

/// The processor, as Linux names it.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {cores} cores", name.unwrap_or("another processor"))
}

pub fn write() {
    let groups = setup::read();
    let found: Vec<_> = groups
        .iter()
        .flat_map(|(name, group)| group.setup.iter().map(move |setup| (name, setup)))
        .filter_map(|(name, setup)| {
            Some((name, setup, outcome(&format!("{name}/{}", setup.name))?))
        })
        .filter(|(_, _, outcome)| outcome.guess.is_some())
        .collect();
    let mut text = include_str!("page.md")
        .replace("{COUNT}", &found.len().to_string())
        .replace("{MACHINE}", &machine());
    for (name, setup, outcome) in &found {
        row(&mut text, setup, &format!("{name} {}", outcome.version), outcome);
    }
    let guesses: Vec<_> = found.iter().filter(|(_, setup, _)| setup.guess.is_some()).collect();
    if !guesses.is_empty() {
        text += "\n## Guesses\n\nWhat was expected of servers before the first run, beside what they send.\n\n";
        text += "| server | guess | first 200 | first refusal |\n|---|---|---|---|\n";
        for (name, setup, outcome) in guesses {
            let run = outcome.guess.as_ref().expect("a run");
            let [accept, _] = cell(run.accept.as_ref());
            let [mut refusal, _] = cell(run.refusal.as_ref());
            if let Some(sample) =
                run.refusal.as_ref().filter(|sample| !sample.body.trim().is_empty())
            {
                let body: String = sample.body.split_whitespace().collect::<Vec<_>>().join(" ");
                let body: String = body.chars().take(120).collect();
                write!(refusal, ", `{}`", body.replace('|', "\\|").replace('`', "'"))
                    .expect("a string");
            }
            let guess = setup.guess.as_deref().unwrap_or_default().replace('|', "\\|");
            writeln!(text, "| {name}, {} | {guess} | {accept} | {refusal} |", setup.title)
                .expect("a string");
        }
    }
    fs::write(PAGE, text).expect("docs/servers.md");
    println!("{} set-ups in docs/servers.md", found.len());
}
