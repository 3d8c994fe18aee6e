//! The page: a table of what must hold, then what each part measured, in tables, plots and lists.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use super::plot;
use super::results::Results;

const INTRODUCTION: &str = "# Benchmarks

`./benches/run` measures all of this and writes this page. Compare figures of one run only: most of them are ratios of
cases that took turns, and each is the median of several rounds. `benches/peers` has the code that calls the other
crates, each as its own documentation does.

";

const DECISION: &str = "A decision without a wait, over the floor: one reading of the clock and one uncontended \
    compare-exchange, what any exact decision must at least do. `awaited` is an `acquire(1).await` that is ready, \
    and `two limits` one decision of two buckets.";
const THREADS: &str = "Threads on one limiter:";
const CROWD: &str = "Tasks that wait on one limiter, by their number: processor time over that of as many plain tokio \
    sleeps until the same times / processor time of a task, us / achieved rate over the asked one / how late one task in a \
    hundred is, ms. leaky-bucket, tower and the `Semaphore` (by a task that adds permits) refill each 10 ms.";
const KEYS: &str = "A decision at a random key that is there, million calls a second, by kind of key, threads, and \
    keys. `our hash` is the one that tollgate takes.";

/// A heading or none, a text, a plot or none, and the part and the figures of the table below it, if it has one.
const TABLES: [(&str, &str, &str, &str, &[&str]); 4] = [
    ("A decision", DECISION, "", "peers decide", &["x_floor"]),
    ("", THREADS, "threads", "", &[]),
    (
        "A crowd that waits",
        CROWD,
        "waiters",
        "peers crowd",
        &["x_sleeps", "cpu_us", "rate", "late_p99_ms"],
    ),
    ("Many keys", KEYS, "", "peers keys", &["million_a_second"]),
];

/// What the crate's own benches measure: a text, the part, and the figure.
const LISTS: [(&str, &str, &str); 4] = [
    ("Each rule, over the floor (`cargo bench --bench decide`)", "decide", "x_floor"),
    ("Bytes of a key (`cargo bench --bench keys`)", "keys", "bytes"),
    (
        "Redis, server time over floor B, a script of `TIME`, `GET` and `SET` (`cargo bench --features redis --bench redis`)",
        "redis",
        "x_floor",
    ),
    ("Redis, bytes of a key with its name and expiry", "redis", "key_bytes"),
];

pub fn draw(results: &Results, directory: &Path) -> Result<(), Box<dyn Error>> {
    let path = |name: &str| directory.join(name);
    plot::curves(
        &path("threads.svg"),
        ["threads on one limiter", "threads", "million calls a second"],
        &results.curves("peers threads", "million_a_second"),
    )?;
    plot::curves(
        &path("waiters.svg"),
        ["tasks that wait on one limiter", "tasks", "processor time a task, us"],
        &results.curves("peers crowd", "cpu_us"),
    )?;
    let mut callers = results.curves("redis", "permits_a_second");
    // The same with one request for each permit.
    let single = callers.first().map(|(_, points)| {
        let of = |&(callers, rate): &(f64, f64)| {
            Some((callers, rate / results.get("redis", &format!("callers/{callers}"), "x_single")?))
        };
        ("a request a permit".to_owned(), points.iter().filter_map(of).collect())
    });
    callers.iter_mut().for_each(|curve| curve.0 = "shared requests".to_owned());
    callers.extend(single);
    plot::curves(
        &path("redis.svg"),
        ["callers of one limiter over Redis", "callers", "permits a second"],
        &callers,
    )
}

pub fn page(results: &Results) -> String {
    let mut page = String::from(INTRODUCTION);
    let notes: Vec<_> = results.notes().map(|(name, note)| format!("{name}: {note}")).collect();
    page += &wrapped(&notes.join("; "));
    page += "\n\n## What must hold\n\n| | bound | measured | holds |\n|---|---|---|---|\n";
    for (what, least, bound, measured) in speed(results) {
        let sign = if least { ">=" } else { "<=" };
        let (figure, holds) = match measured {
            Some(figure) if figure == bound || (figure > bound) == least => (short(figure), "yes"),
            Some(figure) => (short(figure), "**no**"),
            None => ("not measured".to_owned(), ""),
        };
        _ = writeln!(page, "| {what} | {sign} {bound} | {figure} | {holds} |");
    }
    for (title, text, plot, part, figures) in TABLES {
        if !title.is_empty() {
            _ = write!(page, "\n## {title}\n");
        }
        _ = write!(page, "\n{}\n", wrapped(text));
        if !plot.is_empty() {
            _ = write!(page, "\n![plot](pictures/benchmarks/{plot}.svg)\n");
        }
        page += &table(figures.iter().map(|figure| results.cells(part, figure)).collect());
    }
    page += "\n## By itself\n\n";
    for (text, part, figure) in LISTS {
        let list = results.figures(part, figure);
        let list: Vec<_> =
            list.iter().map(|(of, figure)| format!("{of} {}", short(*figure))).collect();
        _ = writeln!(page, "{}\n", wrapped(&format!("{text}: {}.", list.join("; "))));
    }
    page + "![curves](pictures/benchmarks/redis.svg)\n"
}

/// In lines of at most 125 characters.
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("one");
        match line.len() {
            0 => *line += word,
            length if length + word.len() < 125 => *line += &format!(" {word}"),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// What must hold: whether the bound is the least, the bound, and what was measured.
fn speed(results: &Results) -> Vec<(String, bool, f64, Option<f64>)> {
    const OTHERS: [&str; 7] = [
        "SmoothWarmingUp/granted",
        "FixedWindow/granted",
        "SlidingWindowCounter/granted",
        "SlidingWindowLog/granted",
        "InFlight, and back/granted",
        "(SmoothBursty, TokenBucket)/granted",
        "three rules, and back/granted",
    ];
    let get = |part, of: &str, figure| results.get(part, of, figure);
    let ratio = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let decide = |of: &str| get("decide", of, "x_floor");
    let keys = |threads| {
        get("peers keys", &format!("governor, our hash/u64/{threads}/1000000"), "ours_over_it")
    };
    let longest = |of| get("keys", of, "longest_call_ms");
    let seconds = |of| get("weight", of, "cpu_s");
    let dearest = OTHERS.into_iter().filter_map(decide).reduce(f64::max);
    let two_threads = get("peers threads", "governor, granted/2", "ours_over_it");
    let added = get("weight", "tollgate", "bytes_added").map(|bytes| bytes / 1e3);
    let at_most = |what: &str, bound, measured| (what.to_owned(), false, bound, measured);
    let at_least = |what: &str, bound, measured| (what.to_owned(), true, bound, measured);
    let fast = [
        "SmoothBursty/acquire",
        "SmoothBursty/granted",
        "TokenBucket/granted",
        "Gcra/granted",
        "SmoothBursty/refused",
        "TokenBucket/refused",
    ];
    let fast = fast
        .map(|of| at_most(&format!("{}: over the floor", of.replace('/', ", ")), 1.2, decide(of)));
    let of_redis = |call| get("redis", &format!("SmoothBursty, {call}"), "x_floor");
    let others = [
        at_most("the dearest of the other rules, granted: over the floor", 3.0, dearest),
        at_least("two threads on one limiter: calls over governor's", 1.0, two_threads),
        at_most(
            "100,000 waiters: processor time over the sleeps'",
            1.2,
            get("peers crowd", "tollgate/100000", "x_sleeps"),
        ),
        at_least(
            "100,000 waiters: rate over the asked one",
            0.999,
            get("peers crowd", "tollgate/100000", "rate"),
        ),
        at_most(
            "100,000 waiters: heap bytes each",
            360.0,
            get("crowd", "tollgate/100000", "heap_bytes"),
        ),
        at_least("1 M keys: calls over governor's with the same hash", 1.0, keys(1)),
        at_least("the same of two threads", 1.0, keys(2)),
        at_most("bytes a key, of 1 M", 80.0, get("keys", "TokenBucket/1000000", "bytes")),
        at_most("1 M keys come: longest call, ms", 1.0, longest("keys come/1000000")),
        at_most("1 M keys go: longest call, ms", 1.0, longest("keys go/1000000")),
        at_most("Redis, `SmoothBursty`: server time over floor B", 1.6, of_redis("granted")),
        at_most("the same of a refusal", 1.2, of_redis("refused")),
        at_least(
            "Redis, 256 callers: permits over one request for each",
            4.0,
            get("redis", "callers/256", "x_single"),
        ),
        at_most("added to a binary by README's first program, KB", 90.0, added),
        at_most(
            "cold release build: processor time over governor's",
            0.6,
            ratio(seconds("tollgate"), seconds("governor")),
        ),
    ];
    fast.into_iter().chain(others).collect()
}

/// A row for each name and a column for each case, with all figures in a cell; nothing where one is missing.
fn table(figures: Vec<Vec<(String, String, f64)>>) -> String {
    let Some(cells) = figures.first() else { return String::new() };
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    for (row, column, _) in cells {
        if !rows.contains(row) {
            rows.push(row.clone());
        }
        if !columns.contains(column) {
            columns.push(column.clone());
        }
    }
    let mut table =
        format!("\n| | {} |\n|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    for row in rows {
        let cell = |column: &String| {
            let is_here = |cell: &&(String, String, f64)| cell.0 == row && cell.1 == *column;
            let cells = figures.iter().filter_map(|cells| cells.iter().find(is_here));
            cells.map(|cell| short(cell.2)).collect::<Vec<_>>().join(" / ")
        };
        _ = writeln!(
            table,
            "| {row} | {} |",
            columns.iter().map(cell).collect::<Vec<_>>().join(" | ")
        );
    }
    table
}

/// Three digits, or what is before the point.
fn short(figure: f64) -> String {
    if figure >= 1e4 {
        return format!("{:.1} k", figure / 1e3);
    }
    let digits = (2 - figure.abs().max(1e-9).log10().floor() as i32).clamp(0, 4) as usize;
    format!("{figure:.digits$}")
}

/// The rows of the README.
pub fn in_short(results: &Results) -> String {
    let cell = |part, of: &str, figure| results.get(part, of, figure).map_or("-".to_owned(), short);
    let decide = |who| cell("peers decide", &format!("{who}/granted"), "x_floor");
    let threads = |who| cell("peers threads", &format!("{who}, granted/2"), "million_a_second");
    let crowd = |who| {
        let of = |figure| cell("peers crowd", &format!("{who}/100000"), figure);
        format!("{}; {}", of("x_sleeps"), of("rate"))
    };
    let keys = |who| cell("peers keys", &format!("{who}/u64/1/1000000"), "million_a_second");
    let redis = |figure| cell("redis", "callers/256", figure);
    format!(
        "From one run of `./benches/run`, medians:\n\n\
         | | tollgate | beside it |\n|---|---|---|\n\
         | a decision that needs no wait, x floor (one clock reading, one compare-exchange) | {} | governor {}, leaky-bucket {} |\n\
         | two threads on one limiter, million calls a second | {} | governor {} |\n\
         | 100,000 tasks waiting on one limiter: CPU x plain tokio sleeps; rate | {} | governor {} |\n\
         | a decision at one of a million random keys, million a second | {} | governor {} |\n\
         | 256 callers of one limiter over Redis, permits a second | {} | {} times one request for each permit |\n\n\
         [All figures](docs/benchmarks.md), with curves.\n",
        decide("tollgate"),
        decide("governor"),
        decide("leaky-bucket"),
        threads("tollgate"),
        threads("governor"),
        crowd("tollgate"),
        crowd("governor"),
        keys("tollgate"),
        keys("governor, its hash"),
        redis("permits_a_second"),
        redis("x_single"),
    )
}
