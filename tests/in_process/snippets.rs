//! The code in the documentation is compiled and, if it can be, run: none is marked `ignore`, and each page with
//! code is part of the doctests.

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
    let included: String = read(&sources).map(|(_, text)| text).collect();
    for (page, text) in read(&pages).filter(|(_, text)| text.contains("```rust")) {
        let page = page.strip_prefix(root).expect("below the root").display();
        assert!(
            included.contains(&format!("include_str!(\"../{page}\")")),
            "{page}: {}",
            text.len()
        );
    }
}
