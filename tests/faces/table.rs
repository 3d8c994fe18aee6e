//! `docs/abilities.md`: which limiter can do what.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use super::{Ability, Face, each_law, refusal};

/// A face, as the table shows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    title: &'static str,
    refusals: &'static [(Ability, &'static str)],
}

impl Column {
    pub(crate) const fn of<F: Face>() -> Self {
        Self { title: F::TITLE, refusals: F::REFUSALS }
    }
}

macro_rules! abilities_of_laws {
    ($($ability:ident: $law:ident,)+) => {
        &[$(Ability::$ability),+]
    };
}

const HAVE_LAWS: &[Ability] = each_law!(abilities_of_laws!);

const HEAD: &str = "# Which limiter can do what

Every limiter is a [`Limiter`][../src/limiter.rs], with the same calls. This table is written by the tests that check each
cell of it: `ABILITIES=write cargo test -p tests --test redis_laws abilities`.
";

const LINKS: &str = "\n[../src/limiter.rs]: ../src/limiter.rs\n";

fn render(columns: &[Column]) -> String {
    let mut page = String::from(HEAD);
    let mut reasons: Vec<&str> = Vec::new();
    page.push_str("\n| |");
    for column in columns {
        write!(page, " {} |", column.title).expect("a string");
    }
    page.push_str("\n|---|");
    page.extend(columns.iter().map(|_| "---|"));
    page.push('\n');
    for &(ability, title) in Ability::ALL {
        assert!(HAVE_LAWS.contains(&ability), "no law checks {title}");
        write!(page, "| {title} |").expect("a string");
        for column in columns {
            let Some(reason) = refusal(column.refusals, ability) else {
                page.push_str(" yes |");
                continue;
            };
            let known = reasons.iter().position(|&is| is == reason);
            let number = known.unwrap_or_else(|| {
                reasons.push(reason);
                reasons.len() - 1
            });
            write!(page, " no[^{}] |", number + 1).expect("a string");
        }
        page.push('\n');
    }
    for (number, reason) in reasons.iter().enumerate() {
        write!(page, "\n[^{}]: {reason}\n", number + 1).expect("a string");
    }
    page + LINKS
}

/// The page says what the laws have found. With `ABILITIES=write` it is written.
pub(crate) fn check(columns: &[Column]) {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/abilities.md"));
    let page = render(columns);
    if env::var_os("ABILITIES").is_some_and(|what| what == "write") {
        fs::write(file, &page).expect("a folder of documentation");
    }
    let is = fs::read_to_string(file).unwrap_or_default();
    assert!(is == page, "docs/abilities.md is out of date: run this test with ABILITIES=write");
}
