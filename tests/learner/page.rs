//! The section of `docs/benchmarks.md`: all scenarios with all kinds of clients.
//!
//! ```text
//! LEARNER=write cargo test --release -p tests --test learner -- --ignored page
//! ```

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use crate::clients::{Kind, Knows};
use crate::picture;
use crate::scenarios::{self, Changed, Crowd, Outage, Shared, Used};
use crate::server::{Fields, Rule};

const BEGIN: &str = "<!-- learner: written by tests/learner -->";
const END: &str = "<!-- learner: end -->";
const SEEDS: [u64; 4] = [1, 2, 3, 4];

/// A scenario, what is wanted of this crate, and the figures of a kind of client.
struct Row {
    title: String,
    wanted: &'static str,
    figures: Box<dyn Fn(Kind) -> String>,
}

fn row(title: &str, wanted: &'static str, figures: impl Fn(Kind) -> String + 'static) -> Row {
    Row { title: title.to_owned(), wanted, figures: Box::new(figures) }
}

/// The mean over the seeds of each figure.
fn means<const N: usize>(measure: impl Fn(u64) -> [f64; N]) -> [f64; N] {
    let runs = SEEDS.map(measure);
    std::array::from_fn(|index| runs.iter().map(|run| run[index]).sum::<f64>() / SEEDS.len() as f64)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn used(measure: impl Fn(u64) -> Used) -> String {
    let [used, refused] = means(|seed| {
        let Used { used, refused } = measure(seed);
        [used, refused]
    });
    format!("{} / {}", percent(used), percent(refused))
}

fn changes(rule: Rule) -> impl Fn(Kind) -> String {
    move |kind| {
        let [halved, doubled, refused] = means(|seed| {
            let Changed { used: [halved, doubled], refused, .. } =
                scenarios::changes(kind, rule, seed);
            [halved, doubled, refused]
        });
        format!("{} / {} / {}", percent(halved), percent(doubled), percent(refused))
    }
}

fn right_limit(window: (u32, f64), share: f64) -> impl Fn(Kind) -> String {
    move |kind| used(|seed| scenarios::right_limit(kind, window, true, share, seed))
}

fn crowd(knows: Knows) -> impl Fn(Kind) -> String {
    move |kind| {
        if kind != Kind::Ours && matches!(knows, Knows::Burst(..)) {
            return "as above".to_owned();
        }
        // One seed: it is most of the time that the page takes.
        let Crowd { most: [first, down, after], used } = scenarios::crowd(kind, knows, 1000, 1);
        format!("{first:.0} / {down:.0} / {after:.0} / {}", percent(used))
    }
}

fn rows() -> Vec<Row> {
    let changed = |title, rule| row(title, ">= 90 % / 90 % / <= 3 %", changes(rule));
    vec![
        row("limit 100/s, one call in five a bare 503, a minute: good calls", ">= 4,000", |kind| {
            format!("{:.0}", means(|seed| [scenarios::some_fail(kind, false, seed).good as f64])[0])
        }),
        row(
            "40 minutes of bare 503s: seconds to the first good call / calls spent / seconds to the full rate",
            "<= 30 / 3,000 / 10",
            |kind| {
                let [first, spent, full] = means(|seed| {
                    let Outage { first_good, spent, full_after } =
                        scenarios::outage(kind, 60.0, seed);
                    [first_good, spent, full_after]
                });
                let seconds = |time: f64| {
                    if time.is_finite() { format!("{time:.1}") } else { "> 100".to_owned() }
                };
                format!("{} / {spent:.0} / {}", seconds(first), seconds(full))
            },
        ),
        row(
            "1,000 clients, 100/s, ten minutes down: most arrivals in a second in the first minute / later / after \
             it / used after it",
            "- / <= 220 / <= 220",
            crowd(Knows::Start(2.0)),
        ),
        row(
            "the same behind a limit of 100/s each",
            "- / <= 220 / <= 220",
            crowd(Knows::Burst(100.0, 10)),
        ),
        row("1000/s found from 50/s, 1 % fail: used / refused", ">= 95 %", |kind| {
            used(|seed| scenarios::found(kind, seed))
        }),
        row("two good calls an hour for a day: calls a second, 5 before", "5.00", |kind| {
            let rate = scenarios::seldom(kind, 1);
            if rate.is_nan() { "-".to_owned() } else { format!("{rate:.2}") }
        }),
        changed(
            "quota halves / doubles, bucket 100/s of 10: used / used / refused",
            Rule::Bucket(100.0, 10.0),
        ),
        changed("the same, GCRA 50/s, 10 at once", Rule::Gcra(50.0, 10.0)),
        changed("the same, 100 in a sliding second", Rule::Sliding(100.0, 1.0)),
        changed("the same, 100 in a fixed second", Rule::Fixed(100.0, 1.0)),
        row(
            "the same, bucket 10/s of 10",
            ">= 90 % / 90 % / <= 5 %",
            changes(Rule::Bucket(10.0, 10.0)),
        ),
        row(
            "98 % of 20/s, even, a sliding window that says what remains: used / refused",
            ">= 95 % / <= 2 %",
            right_limit((20, 1.0), 0.98),
        ),
        row(
            "OpenAI's fields, requests bind, a limit of 2 x: used / refused",
            ">= 97 % / <= 0.5 %",
            |kind| used(|seed| scenarios::llm(kind, false, 2, seed)),
        ),
        row("the same, tokens bind", ">= 97 % / <= 0.5 %", |kind| {
            used(|seed| scenarios::llm(kind, true, 2, seed))
        }),
        row("GitHub, search 60/min and core 5000/h: used / used", ">= 97 % / 97 %", |kind| {
            let [search, core] = scenarios::resources(kind, 1);
            format!("{} / {}", percent(search), percent(core))
        }),
        row(
            "one of two hosts refuses for 5 s: longest wait of the other's calls, s",
            "0",
            |kind| format!("{:.2}", scenarios::two_hosts(kind, 1)),
        ),
    ]
}

/// Clients that know nothing of each other: refused, mean and p99 time, the last call, the fullest second.
fn strangers(clients: usize, load: f64) -> Row {
    let server = (Rule::Bucket(10.0, 10.0), Fields::None);
    let figures = move |kind| {
        let [refused, mean, p99, last, most] = means(|seed| {
            let knows = Knows::Start(2.0);
            let shared = scenarios::strangers(kind, server, knows, clients, load, seed);
            let Shared { refused, mean, p99, last, most } = shared;
            [refused, mean, p99, last, most]
        });
        format!("{refused:.0} / {mean:.2} / {p99:.1} / {last:.2} / {most:.0}")
    };
    row(&format!("{clients} at {load}"), "", figures)
}

fn sizes() -> Vec<Row> {
    let loads = |clients| [1.2, 2.0].map(|load| strangers(clients, load));
    [1, 10, 100].into_iter().flat_map(loads).collect()
}

fn table(heading: &str, rows: &[Row], has_bounds: bool) -> String {
    let wanted = if has_bounds { " wanted |" } else { "" };
    let mut page = format!("| {heading} |{wanted}");
    for kind in Kind::ALL {
        write!(page, " {} |", kind.name()).expect("to a string");
    }
    page += "\n|---|";
    page += &"---|".repeat(Kind::ALL.len() + usize::from(has_bounds));
    for Row { title, wanted, figures } in rows {
        write!(page, "\n| {title} |").expect("to a string");
        if has_bounds {
            write!(page, " {wanted} |").expect("to a string");
        }
        for kind in Kind::ALL {
            eprintln!("{title}: {}", kind.name());
            write!(page, " {} |", figures(kind)).expect("to a string");
        }
    }
    page
}

fn section() -> String {
    let limits = table("scenario", &rows(), true);
    let sizes = table("clients at load", &sizes(), false);
    format!(
        "{BEGIN}
## Learned limits

Simulated, on a manual clock (`LEARNER=write cargo test --release -p tests --test learner -- --ignored page`). Figures are means
of {} seeds. Back-off waits up to 1, 2, 4 .. 64 s at random before it tries a call again; the obeying one adds the time that a
refusal names. AWS's adaptive mode is a token bucket in the client, whose rate CUBIC sets. These three are not told the limit that
a row names.

![a learned rate beside the quota](pictures/learner/{})

{limits}

**Clients that know nothing of each other**, of a server of 10/s that holds ten permits and says nothing: 3,000 calls.
Refused / mean s / p99 s / last call over that of an oracle / most arrivals in a second:

{sizes}

Wanted at load 1.2 are at most 2, 5 and 20 % of back-off's refusals for 1, 10 and 100 clients. As a mean of eight seeds a hundred
clients have 20.8 %, and at load 2 their last call is 1.126 times an oracle's, where 1.12 is wanted
(`cargo test --release -p tests --test learner -- --include-ignored --nocapture strangers`).
{END}
",
        SEEDS.len(),
        picture::RATE,
    )
}

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/benchmarks.md"))
}

/// Writes the section in the place of the old one, or at the end.
#[test]
#[ignore = "writes docs/benchmarks.md"]
fn page() {
    let section = section();
    println!("{section}");
    if env::var_os("LEARNER").is_none_or(|value| value != "write") {
        return;
    }
    let page = fs::read_to_string(path()).expect("the page");
    let (before, after) = match (page.find(BEGIN), page.find(END)) {
        (Some(begin), Some(end)) => {
            (page[..begin].to_owned(), page[end + END.len() + 1..].to_owned())
        }
        _ => (page.trim_end().to_owned() + "\n\n", String::new()),
    };
    fs::write(path(), before + &section + &after).expect("written");
    picture::draw();
}

#[test]
fn the_page_has_all_scenarios() {
    let page = fs::read_to_string(path()).expect("the page");
    let begin = page.find(BEGIN).expect("the section begins");
    let section = &page[begin..page.find(END).expect("the section ends")];
    for Row { title, wanted, .. } in rows().into_iter().chain(sizes()) {
        let line = if wanted.is_empty() {
            format!("| {title} |")
        } else {
            format!("| {title} | {wanted} |")
        };
        assert!(section.contains(&line), "write the page again: it lacks {line:?}");
    }
    for file in [picture::RATE, picture::REFUSED] {
        assert!(picture::path(file).exists(), "{file}");
    }
}
