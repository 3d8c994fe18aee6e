//! Mutants of the scripts: an operator, a constant or a branch of each line.

use std::fs;
use std::path::Path;

use crate::weave::Mutant;

const DIRECTORY: &str = "src/redis/script/lua";

/// What stands for what.
const OTHERS: [(&str, &[&str]); 19] = [
    (" + ", &[" - "]),
    (" - ", &[" + "]),
    (" * ", &[" / "]),
    (" / ", &[" * "]),
    (" % ", &[" * "]),
    (" < ", &[" <= ", " > "]),
    (" > ", &[" >= ", " < "]),
    (" <= ", &[" < ", " > "]),
    (" >= ", &[" > ", " < "]),
    (" == ", &[" ~= "]),
    (" ~= ", &[" == "]),
    (" and ", &[" or "]),
    (" or ", &[" and "]),
    ("not ", &[""]),
    ("max(", &["min("]),
    ("min(", &["max("]),
    ("floor(", &["ceil("]),
    ("ceil(", &["floor("]),
    ("true", &["false"]),
];

/// The mutants of all scripts.
pub fn mutants(root: &Path, first_id: usize) -> Vec<Mutant> {
    let mut all = Vec::new();
    let mut files: Vec<_> =
        fs::read_dir(root.join(DIRECTORY)).expect("the scripts").flatten().collect();
    files.sort_by_key(fs::DirEntry::file_name);
    for entry in files {
        let file = format!("{DIRECTORY}/{}", entry.file_name().display());
        let text = fs::read_to_string(entry.path()).expect("a script");
        for (number, line) in text.lines().enumerate() {
            for (at, old, new) in of_line(line) {
                all.push(Mutant {
                    id: first_id + all.len(),
                    name: format!(
                        "{file}:{}:{}: replace {} with {} in {}",
                        number + 1,
                        at + 1,
                        old.trim(),
                        new.trim(),
                        line.trim(),
                    ),
                    file: file.clone(),
                    genre: "Lua".to_owned(),
                    // The scripts are ASCII, as their lengths show which of them a test assembles.
                    start: (number + 1, at + 1),
                    end: (number + 1, at + 1 + old.len()),
                    replacement: new,
                });
            }
        }
    }
    all
}

/// Where what may be replaced by what.
fn of_line(line: &str) -> Vec<(usize, String, String)> {
    let code = line.trim_start();
    // A line that the assembler switches on is code, one of its own is not.
    if code.starts_with("--")
        && !code
            .strip_prefix("--@")
            .is_some_and(|rest| !rest.starts_with(' ') && rest.trim().contains(' '))
    {
        return Vec::new();
    }
    let mut found = Vec::new();
    let is_text = texts(line);
    for (old, others) in OTHERS {
        for (at, _) in line.match_indices(old).filter(|&(at, _)| !is_text[at]) {
            let letter = |c: char| c.is_alphanumeric() || c == '_';
            let (before, after) = (&line[..at], &line[at + old.len()..]);
            let begins = !old.starts_with(letter) || !before.ends_with(letter);
            let ends = !old.ends_with(letter) || !after.starts_with(letter);
            if begins && ends {
                found.extend(others.iter().map(|&new| (at, old.to_owned(), new.to_owned())));
            }
        }
    }
    found.extend(numbers(line, &is_text));
    for (word, end) in [("if ", " then"), ("elseif ", " then"), ("while ", " do")] {
        let Some(at) = line.find(word).filter(|&at| !is_text[at]) else { continue };
        if line[..at].ends_with(|c: char| c.is_alphanumeric()) {
            continue;
        }
        let condition = at + word.len();
        if let Some(length) = line[condition..].find(end) {
            let old = line[condition..condition + length].to_owned();
            // A loop without an end says nothing.
            let values: &[&str] = if word == "while " { &["false"] } else { &["true", "false"] };
            found.extend(values.iter().map(|&value| (condition, old.clone(), value.to_owned())));
        }
    }
    // A line that assigns, or calls, left out.
    let assigns = code.contains(" = ") && !code.starts_with("local ") && !code.starts_with("for ");
    let one_line = !code.contains(" then") && !code.contains("function") && !code.starts_with("--");
    let is_whole = !code.trim_end().ends_with([',', '(', '{']) && !code.starts_with(['}', ')']);
    if assigns && one_line && is_whole && !code.starts_with('{') {
        found.push((line.len() - code.len(), code.trim_end().to_owned(), String::new()));
    }
    found
}

/// Each whole number, one greater, and zero for one.
fn numbers(line: &str, is_text: &[bool]) -> Vec<(usize, String, String)> {
    let mut found = Vec::new();
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        let inside = before.is_alphanumeric() || matches!(before, '_' | '.' | '$');
        before = c;
        if !c.is_ascii_digit() || inside || is_text[at] {
            continue;
        }
        let length = line[at..].find(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        let old = &line[at..at + length.unwrap_or(line.len() - at)];
        if let Ok(number) = old.parse::<u64>() {
            let other = if number == 1 { 0 } else { number + 1 };
            found.push((at, old.to_owned(), other.to_string()));
        }
    }
    found
}

/// Which bytes are in a text or a comment.
fn texts(line: &str) -> Vec<bool> {
    let mut inside = vec![false; line.len()];
    let (mut quote, mut comment) = (None, false);
    for (at, c) in line.char_indices() {
        comment |= quote.is_none() && line[at..].starts_with("-- ");
        match quote {
            Some(open) if open == c => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            _ => {}
        }
        inside[at] = comment || quote.is_some();
    }
    inside
}
