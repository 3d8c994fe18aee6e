//! The code in the documentation is compiled and, if it can be, run: none is marked `ignore`, and each page with
//! code is part of the doctests, of this crate or of a package in `tests` that has the other crates it needs.

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
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let (mut sources, mut pages) = (Vec::new(), vec![root.join("README.md")]);
    files(&root.join("src"), "rs", &mut sources);
    files(&root.join("docs"), "md", &mut pages);
    for (file, text) in read(&sources).chain(read(&pages)) {
        for (line, text) in text.lines().enumerate() {
            let marks = text.split_once("```").map_or("", |(_, marks)| marks);
            assert!(!marks.contains("ignore"), "{}:{}: {text}", file.display(), line + 1);
        }
    }
    let tested = include_str!("../pages.rs");
    for (page, _) in read(&pages).filter(|(_, text)| text.contains("```rust")) {
        let page = page.strip_prefix(root).expect("below the root").display().to_string();
        assert!(tested.contains(&format!(" \"{page}\"\n")), "tests/pages.rs lacks {page}");
    }
}

/// The label and the target of a link definition.
fn definition(line: &str) -> Option<(&str, &str)> {
    let (label, rest) = line.strip_prefix('[')?.split_once(']')?;
    let target = rest.strip_prefix(": ")?;
    (!target.contains(' ')).then_some((label, target))
}

/// Inline links and link definitions of a page, without those that leave the repository.
fn relative_links(text: &str) -> impl Iterator<Item = &str> {
    let inline = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    let definitions = text.lines().filter_map(|line| Some(definition(line)?.1));
    inline.chain(definitions).filter(|link| !link.contains(':'))
}

/// The anchor of a heading, as sites that show Markdown make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    kept.chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn each_relative_link_leads_to_a_file_and_a_heading() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut pages: Vec<_> = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "tests/README.md"]
        .map(|page| root.join(page))
        .into();
    files(&root.join("docs"), "md", &mut pages);
    let mut followed = 0;
    for (page, text) in read(&pages).filter(|(page, _)| !page.ends_with("urls.md")) {
        for link in relative_links(&text) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.parent().expect("a folder").join(path)
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let target = fs::read_to_string(&target).expect("text");
                let is_there =
                    target.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
                assert!(is_there, "{}: {link}", page.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 100, "{followed} links");
}

/// In rustdoc a page has no files beside it: each of its links to another page has a definition that leads to the module.
#[test]
fn pages_of_the_guide_link_to_modules() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let defined = include_str!("../../src/guide/links.md");
    let pictures = include_str!("../../docs/pictures/urls.md");
    let learned = include_str!("../../docs/pictures/learner/url.md");
    let mut pages = Vec::new();
    files(&root.join("docs"), "md", &mut pages);
    pages.retain(|page| {
        !page.ends_with("benchmarks.md") && !page.to_string_lossy().contains("pictures")
    });
    for (page, text) in read(&pages) {
        let text = text.replace("](#", "](:");
        let mut inline = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        let inline = inline.find(|link| !link.contains(':'));
        assert_eq!(inline, None, "{}: write it as a link definition", page.display());
        let labels = text.lines().filter_map(|line| Some(definition(line)?.0));
        for label in labels.filter(|label| !label.starts_with('^')) {
            let line = format!("[{label}]: ");
            let is_defined = [defined, pictures, learned]
                .iter()
                .any(|all| all.lines().any(|other| other.starts_with(&line)));
            assert!(is_defined, "{}: src/guide/links.md lacks [{label}]", page.display());
        }
    }
}
