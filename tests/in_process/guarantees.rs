//! Each test that `docs/guarantees.md` names exists.

use std::fs;
use std::path::Path;

use crate::snippets::{files, read};

#[test]
fn each_promise_names_a_test_that_exists() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let page = fs::read_to_string(root.join("docs/guarantees.md")).expect("a page");
    let mut sources = Vec::new();
    files(&root.join("tests"), "rs", &mut sources);
    let tests: String = read(&sources).map(|(_, text)| text).collect();
    let mut promises = 0;
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.contains("held by")) {
        let held_by = line.split(" | ").nth(2).expect("a column");
        let names: Vec<_> = held_by
            .split('`')
            .skip(1)
            .step_by(2)
            .filter_map(|name| name.split_once("::"))
            .collect();
        assert!(!names.is_empty(), "no test: {line}");
        for (program, name) in names {
            assert!(root.join("tests").join(program).join("main.rs").exists(), "{program}");
            // A function, or a law that a macro makes a test of.
            let exists = [format!("fn {name}("), format!("fn {name}<"), format!(" {name}:")];
            assert!(exists.iter().any(|form| tests.contains(form)), "{program}::{name}: {line}");
        }
        promises += 1;
    }
    assert!(promises > 30, "{promises} promises");
}
