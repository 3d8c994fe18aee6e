//! The code in the documentation is compiled and, if it can be, run: none is marked `ignore`, and each page with
//! code is part of the doctests, of this crate or of a package in `tests` that has the other crates it needs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|is| is == extension) {
            found.push(path);
        }
    }
}

pub(crate) fn read(files: &[PathBuf]) -> impl Iterator<Item = (&PathBuf, String)> {
    files.iter().map(|file| (file, fs::read_to_string(file).expect("text")))
}

#[test]
fn all_code_in_the_documentation_is_tested() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut sources, mut pages) = (Vec::new(), vec![root.join("README.md")]);
    files(&root.join("src"), "rs", &mut sources);
    files(&root.join("docs"), "md", &mut pages);
    for (file, text) in read(&sources).chain(read(&pages)) {
        for (line, text) in text.lines().enumerate() {
            let marks = text.split_once("```").map_or("", |(_, marks)| marks);
            assert!(!marks.contains("ignore"), "{}:{}: {text}", file.display(), line + 1);
        }
    }
    for (page, text) in read(&pages).filter(|(_, text)| text.contains("```rust")) {
        let page = page.strip_prefix(root).expect("below the root").display().to_string();
        assert!(is_compiled(root, &page), "{page}: {}", text.len());
    }
}

/// Whether the code of a page is compiled: a module of the guide has it, and doctests are not told to skip that module;
/// if they are, a package in `tests` has it.
fn is_compiled(root: &Path, page: &str) -> bool {
    let mut sources = Vec::new();
    files(&root.join("src"), "rs", &mut sources);
    let here: String = read(&sources).map(|(_, text)| text).collect();
    let include = format!("#[doc = include_str!(\"../{page}\")]");
    let Some((before, _)) = here.split_once(&include) else { return false };
    if !before.ends_with("#[cfg(not(doctest))]\n    ")
        && !before.ends_with("#[cfg(not(doctest))]\n")
    {
        return true;
    }
    let include = format!("#[cfg(doctest)]\n#[doc = include_str!(\"../../../{page}\")]");
    let packages = ["from"].map(|package| root.join("tests").join(package).join("src/lib.rs"));
    read(&packages).any(|(_, text)| text.contains(&include))
}

/// Registries show the README without the files beside it.
#[test]
fn links_in_the_readme_are_absolute() {
    let readme = include_str!("../../README.md");
    let targets: Vec<_> = readme.split("](").skip(1).collect();
    assert!(targets.len() > 15, "{} links", targets.len());
    for target in targets {
        assert!(target.starts_with("https://"), "{}", target.lines().next().unwrap_or_default());
    }
}

/// Who knows another rate limiter looks for its names.
#[test]
fn the_search_of_the_documentation_finds_the_names_of_others() {
    let mut sources = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "rs", &mut sources);
    let text: String = read(&sources).map(|(_, text)| text).collect();
    let attributes = text.split("#[doc(alias").skip(1).filter_map(|rest| rest.split(")]").next());
    let found: BTreeSet<_> =
        attributes.flat_map(|names| names.split('"').skip(1).step_by(2)).collect();
    for name in [
        "until_ready",
        "until_key_ready",
        "check",
        "check_key",
        "wait",
        "WaitN",
        "ReserveN",
        "AllowN",
        "tryConsume",
        "permits",
        "throttle",
        "semaphore",
        "bulkhead",
        "debounce",
    ] {
        assert!(found.contains(name), "{name}: {found:?}");
    }
}
