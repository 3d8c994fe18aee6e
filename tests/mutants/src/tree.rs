//! The copy of the crate that holds the mutants, and the test programs built from it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::weave::{Mutant, Woven, weave};

/// What the copy asks at each mutant.
const SWITCH: &str = r#"
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

// Until the environment is read, and while a test shows what it reaches.
const UNKNOWN: usize = usize::MAX;
const NONE: usize = usize::MAX - 1;
// An atomic, as this is asked everywhere, without optimization.
static ON: AtomicUsize = AtomicUsize::new(UNKNOWN);
static REACHED: LazyLock<Option<(File, Vec<AtomicBool>)>> = LazyLock::new(|| {
    let path = std::env::var_os("MUTANTS_REACHED")?;
    let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    Some((file, (0..COUNT).map(|_| AtomicBool::new(false)).collect()))
});

#[inline(never)]
pub(crate) fn on(id: usize) -> bool {
    let on = ON.load(Ordering::Relaxed);
    if on == UNKNOWN { note(id) } else { on == id }
}

fn note(id: usize) -> bool {
    let Some((file, reached)) = &*REACHED else {
        ON.store(std::env::var("MUTANT").map_or(NONE, |id| id.parse().unwrap()), Ordering::Relaxed);
        return on(id);
    };
    if !reached[id].swap(true, Ordering::Relaxed) {
        (&*file).write_all(format!("{id}\n").as_bytes()).unwrap();
    }
    false
}

pub(crate) enum Either<A, B> {
    Left(A),
    Right(B),
}

impl<A: Iterator<Item = B::Item>, B: Iterator> Iterator for Either<A, B> {
    type Item = B::Item;

    fn next(&mut self) -> Option<B::Item> {
        match self {
            Self::Left(a) => a.next(),
            Self::Right(b) => b.next(),
        }
    }
}

static SCRIPT: LazyLock<Option<[&'static str; 2]>> = LazyLock::new(|| {
    let read = |name| {
        let path = std::env::var_os(name)?;
        Some(&*Box::leak(std::fs::read_to_string(path).unwrap().into_boxed_str()))
    };
    Some([read("MUTANT_OF")?, read("MUTANT_IS")?])
});

pub(crate) fn lua(text: &str) -> &str {
    if let Some((file, _)) = &*REACHED {
        (&*file).write_all(format!("lua {}\n", text.len()).as_bytes()).unwrap();
    }
    match *SCRIPT {
        Some([of, is]) if of == text => is,
        _ => text,
    }
}
"#;

/// What else is in the copy: in which file, before which code, which text, and how much of that code it surrounds.
const INSERTS: [(&str, &str, &str, usize); 4] = [
    ("src/lib.rs", "//!", "#![allow(warnings, arithmetic_overflow, unconditional_panic)] ", 0),
    ("src/lib.rs", "mod clock;", "mod mutants; ", 0),
    // Where a script's text is used.
    ("src/redis/script/assemble.rs", "chunk.lines()", "crate::mutants::lua(", "chunk".len()),
    ("src/redis/script/assemble.rs", "template.lines()", "crate::mutants::lua(", "template".len()),
];

pub struct Tree {
    pub path: PathBuf,
    /// The mutants that the copy holds. No branch at run time can change what the compiler computes.
    pub woven: BTreeSet<usize>,
    /// Mutants that do not compile.
    pub unviable: BTreeSet<usize>,
    pub programs: Vec<PathBuf>,
    /// What builds the programs.
    arguments: Vec<String>,
}

impl Tree {
    /// Builds the programs with one mutant that a branch cannot make. False if that does not compile.
    pub fn build_with(&self, root: &Path, mutant: &Mutant) -> bool {
        let source = fs::read_to_string(root.join(&mutant.file)).expect("a source file");
        let file = self.path.join(&mutant.file);
        let woven = fs::read_to_string(&file).expect("a source file");
        write(&file, &woven_file(&mutant.file, &mutant.applied_to(&source), &[]).text);
        let errors = cargo(&self.path, &self.arguments).1;
        write(&file, &woven);
        errors.is_empty()
    }
}

/// Makes the copy with the wanted ones of all mutants, and builds the test programs of these names; `lib` is the unit
/// tests.
pub fn make(
    root: &Path,
    mutants: Vec<Mutant>,
    wanted: &BTreeSet<usize>,
    programs: &[String],
) -> Tree {
    let path = root.join("target/mutants/tree");
    fs::create_dir_all(&path).expect("a directory");
    let mut woven_files: BTreeSet<PathBuf> =
        mutants.iter().map(|mutant| root.join(&mutant.file)).collect();
    woven_files.insert(root.join("src/lib.rs"));
    for entry in [
        "Cargo.toml",
        "Cargo.lock",
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "src",
        "tests",
        "docs",
        "examples",
        "benches",
    ] {
        copy(&root.join(entry), &path.join(entry), &woven_files);
    }
    let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in &mutants {
        files.entry(&mutant.file).or_default().push(mutant);
    }
    files.entry("src/lib.rs").or_default();
    write(
        &path.join("src/mutants.rs"),
        &format!("const COUNT: usize = {};\n{SWITCH}", mutants.len()),
    );
    let unviable = fs::read_to_string(root.join("target/mutants/unviable")).unwrap_or_default();
    let unviable: BTreeSet<_> = unviable.lines().collect();
    let of_name = mutants.iter().filter(|mutant| unviable.contains(mutant.name.as_str()));
    let mut dropped: BTreeSet<usize> = of_name.map(|mutant| mutant.id).collect();
    let mut stale: BTreeSet<&str> = files.keys().copied().collect();
    let mut woven: BTreeMap<&str, Woven> = BTreeMap::new();
    loop {
        for &file in &stale {
            let kept: Vec<_> = files[file]
                .iter()
                .copied()
                .filter(|mutant| wanted.contains(&mutant.id) && !dropped.contains(&mutant.id))
                .collect();
            let source = fs::read_to_string(root.join(file)).expect("a source file");
            let new = woven_file(file, &source, &kept);
            write(&path.join(file), &new.text);
            woven.insert(file, new);
        }
        stale.clear();
        let before = dropped.len();
        let mut errors = 0;
        let check = ["check", "--lib", "--all-features"].map(str::to_owned);
        for message in cargo(&path, &check).1 {
            errors += 1;
            // The first place where mutants are.
            let blamed = spans(&message["message"]).into_iter().find_map(|(file, at)| {
                let (&file, woven) = woven.get_key_value(file.as_str())?;
                Some((file, woven.blame(at))).filter(|(_, ids)| !ids.is_empty())
            });
            if let Some((file, ids)) = blamed {
                dropped.extend(ids);
                stale.insert(file);
            }
        }
        eprintln!("{errors} errors, {} mutants that do not compile", dropped.len());
        let names: Vec<_> = dropped.iter().map(|&id| mutants[id].name.as_str()).collect();
        write(&root.join("target/mutants/unviable"), &names.join("\n"));
        if errors == 0 {
            break;
        }
        assert!(dropped.len() > before, "errors that no mutant makes");
    }
    let mut arguments = vec!["test".to_owned(), "--no-run".into(), "--all-features".into()];
    arguments.extend(programs.iter().map(|name| match name.as_str() {
        "lib" => "--lib".to_owned(),
        name => format!("--test={name}"),
    }));
    let (programs, errors) = cargo(&path, &arguments);
    assert!(errors.is_empty(), "{errors:#?}");
    dropped.extend(woven.values().flat_map(|woven| woven.unviable.iter().copied()));
    let woven = woven.values().flat_map(|woven| woven.ids.iter().copied()).collect();
    Tree { path, woven, unviable: dropped, programs, arguments }
}

/// The file with its mutants, and what else it needs.
fn woven_file(file: &str, source: &str, mutants: &[&Mutant]) -> Woven {
    let inserts = INSERTS.iter().filter(|insert| insert.0 == file);
    let inserts = inserts.flat_map(|&(_, code, text, around)| {
        let at = source.find(code).unwrap_or_else(|| panic!("no {code} in {file}"));
        [(at, text), (at + around, if around > 0 { ")" } else { "" })]
    });
    weave(source, mutants, inserts)
}

/// The mutants of all files, by cargo-mutants. The models for loom are tests, so their mutants are left out.
pub fn list(root: &Path) -> Vec<Mutant> {
    let output = Command::new("cargo")
        .args(["mutants", "--list", "--json", "--all-features"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo");
    assert!(output.status.success(), "cargo install cargo-mutants --locked");
    let list: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let number = |value: &Value| usize::try_from(value.as_u64().expect("a number")).expect("small");
    let place = |value: &Value| (number(&value["line"]), number(&value["column"]));
    list.iter()
        .filter(|mutant| !text(&mutant["file"]).contains("/loom"))
        .enumerate()
        .map(|(id, mutant)| Mutant {
            id,
            file: text(&mutant["file"]),
            name: text(&mutant["name"]),
            genre: text(&mutant["genre"]),
            replacement: text(&mutant["replacement"]),
            start: place(&mutant["span"]["start"]),
            end: place(&mutant["span"]["end"]),
        })
        .collect()
}

/// The test programs that cargo built, and its errors.
fn cargo(tree: &Path, arguments: &[String]) -> (Vec<PathBuf>, Vec<Value>) {
    let (subcommand, others) = arguments.split_first().expect("a subcommand");
    let output = Command::new("cargo")
        .arg(subcommand)
        .arg("--message-format=json")
        // Other settings than the crate itself has, or cargo would take one for the other.
        .args(["--config", "profile.dev.package.tollgate.debug=false"])
        .args(others)
        .current_dir(tree)
        // The dependencies are built already.
        .env("CARGO_TARGET_DIR", tree.join("../.."))
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo");
    let text = String::from_utf8(output.stdout).expect("text");
    let messages: Vec<Value> =
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let programs = messages.iter().filter(|message| message["profile"]["test"] == true);
    let programs = programs.filter_map(|message| message["executable"].as_str()).map(PathBuf::from);
    let errors = messages.iter().filter(|message| message["message"]["level"] == "error");
    (programs.collect(), errors.cloned().collect())
}

/// The places that an error names: where it is, then what it speaks of.
fn spans(message: &Value) -> Vec<(String, std::ops::Range<usize>)> {
    let mut spans: Vec<_> = message["spans"].as_array().into_iter().flatten().collect();
    spans.sort_by_key(|span| span["is_primary"] != true);
    spans
        .iter()
        .filter_map(|span| {
            let byte = |name| span[name].as_u64().and_then(|at| usize::try_from(at).ok());
            Some((span["file_name"].as_str()?.to_owned(), byte("byte_start")?..byte("byte_end")?))
        })
        .collect()
}

/// Writes the file if that changes it, so that cargo sees only changes.
fn write(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(path, text).expect("a file");
}

/// Copies all but these files, where that changes anything.
fn copy(from: &Path, to: &Path, but: &BTreeSet<PathBuf>) {
    if from.is_dir() {
        fs::create_dir_all(to).expect("a directory");
        for entry in fs::read_dir(from).expect("a directory").flatten() {
            if entry.file_name() != "target" {
                copy(&entry.path(), &to.join(entry.file_name()), but);
            }
        }
    } else if from.exists() && !but.contains(from) && fs::read(from).ok() != fs::read(to).ok() {
        fs::copy(from, to).expect("a copy");
    }
}
