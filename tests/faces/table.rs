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

Every limiter is a [`Limiter`][../src/limiter.rs], with the same calls. This page is written by the tests that check each
cell of it: `ABILITIES=write cargo test -p tests --test redis_laws abilities`.
";

const LINKS: &str = "\n[../src/limiter.rs]: ../src/limiter.rs\n";

/// The columns; each other face is a wrapper with a line.
const LIMITERS: [&str; 3] = ["`RateLimiter`", "`AtKey`", "`RedisRateLimiter`"];

/// The footnote of a reason.
fn footnote(reasons: &mut Vec<&str>, reason: &'static str) -> String {
    let known = reasons.iter().position(|&is| is == reason);
    let number = known.unwrap_or_else(|| {
        reasons.push(reason);
        reasons.len() - 1
    });
    format!("[^{}]", number + 1)
}

fn render(columns: &[Column]) -> String {
    let (limiters, wrappers): (Vec<Column>, Vec<Column>) =
        columns.iter().partition(|column| LIMITERS.contains(&column.title));
    let mut page = String::from(HEAD);
    let mut reasons: Vec<&str> = Vec::new();
    let titles: Vec<&str> = limiters.iter().map(|column| column.title).collect();
    writeln!(page, "\n| | {} |\n|---|---|---|---|", titles.join(" | ")).expect("a string");
    for &(ability, title) in Ability::ALL {
        assert!(HAVE_LAWS.contains(&ability), "no law checks {title}");
        write!(page, "| {title} |").expect("a string");
        for column in &limiters {
            let cell = refusal(column.refusals, ability)
                .map_or("yes".to_owned(), |reason| format!("no{}", footnote(&mut reasons, reason)));
            write!(page, " {cell} |").expect("a string");
        }
        page.push('\n');
    }
    page.push_str(
        "\nThe same laws check these wrappers. Each can do what its limiter can, but for:\n\n",
    );
    for wrapper in &wrappers {
        // What it wraps can no more than that.
        let wrapped = limiters.iter().map(|limiter| limiter.refusals);
        let inherited = wrapped
            .filter(|of| of.iter().all(|refused| wrapper.refusals.contains(refused)))
            .max_by_key(|of| of.len())
            .unwrap_or_default();
        let own = wrapper.refusals.iter().filter(|refused| !inherited.contains(refused));
        let title =
            |of| Ability::ALL.iter().find(|(ability, _)| *ability == of).map(|(_, title)| title);
        let lines: Vec<String> = own
            .map(|&(ability, reason)| {
                format!("{}{}", title(ability).expect("a title"), footnote(&mut reasons, reason))
            })
            .collect();
        let lines = if lines.is_empty() { "nothing".to_owned() } else { lines.join("; ") };
        writeln!(page, "- {}: {lines}", wrapper.title).expect("a string");
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
