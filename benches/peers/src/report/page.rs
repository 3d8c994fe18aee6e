//! The page, section by section, and its plots.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

use super::capacity::{self, Costs};
use super::plot::{self, Curve};
use super::results::Results;
use super::row::{Row, short};
use super::rows::rows;
use crate::crowd::NAMES as CROWDS;

const PEERS: [&str; 4] = ["tollgate", "governor", "leaky-bucket", "ratelimit"];
const PACERS: [&str; 7] =
    ["tollgate", "interval", "async-throttle", "governor", "ratelimit", "tower", "leaky-bucket"];
const MAPS: [&str; 6] = [
    "tollgate",
    "governor, our hash",
    "governor, its hash",
    "ratelimit in a DashMap",
    "leaky-bucket in a DashMap",
    "array of atomics",
];

pub fn draw(results: &Results, directory: &Path) -> Result<(), Box<dyn Error>> {
    let curve = |part, name: &str, of: String, figure| {
        (name.to_owned(), results.curve(part, &of, figure)) as Curve
    };
    let path = |name: &str| directory.join(name);

    let decisions = ["granted", "refused"].iter().flat_map(|kind| {
        PEERS.iter().chain(&["Semaphore"]).filter_map(move |peer| {
            let name = format!("{peer}, {kind}");
            let figure = results.get("peers decide", &name, "x_floor")?;
            Some((name, figure))
        })
    });
    plot::bars(
        &path("decide.svg"),
        "a decision that needs no wait, x floor",
        &decisions.collect::<Vec<_>>(),
    )?;

    let of = |name: &str| curve("peers threads", name, name.to_owned(), "million_a_second");
    let mut threads: Vec<_> = ["tollgate", "governor", "leaky-bucket", "ratelimit", "Semaphore"]
        .iter()
        .map(|peer| of(&format!("{peer}, granted")))
        .collect();
    threads.extend(["tollgate, refused", "governor, refused"].map(of));
    plot::curves(
        &path("threads.svg"),
        "threads on one limiter",
        "threads",
        "million calls a second",
        &threads,
    )?;

    let waiters = CROWDS.map(|name| curve("peers crowd", name, name.to_owned(), "cpu_us"));
    plot::curves(
        &path("waiters.svg"),
        "tasks that wait on one limiter",
        "tasks",
        "processor time a task, us",
        &waiters,
    )?;

    let keys =
        MAPS.map(|name| curve("peers keys", name, format!("{name}/u64/1"), "million_a_second"));
    plot::curves(
        &path("keys.svg"),
        "a decision at a random key, one thread",
        "keys",
        "million calls a second",
        &keys,
    )?;

    let redis =
        |name: &str, figure| curve("redis", name, "equal costs, threads".to_owned(), figure);
    let callers = [
        redis("shared requests", "permits_a_second"),
        ("a request a permit".to_owned(), single(results)),
    ];
    plot::curves(
        &path("redis.svg"),
        "callers of one limiter over Redis",
        "callers",
        "permits a second",
        &callers,
    )
}

/// Permits a second with one request for each.
fn single(results: &Results) -> Vec<(f64, f64)> {
    let of = |figure| results.curve("redis", "equal costs, threads", figure);
    let pairs = of("permits_a_second").into_iter().zip(of("x_single"));
    pairs.map(|((callers, rate), (_, times))| (callers, rate / times)).collect()
}

pub fn page(results: &Results) -> String {
    let mut page = String::from(INTRODUCTION);
    for (name, note) in results.notes() {
        _ = writeln!(page, "- {name}: {note}");
    }
    page += "\n## What was asked\n\n| work | asked | measured | reached |\n|---|---|---|---|\n";
    let rows = rows(results);
    rows.iter().for_each(|row| page += &(row.markdown() + "\n"));
    let missed: Vec<_> = rows.iter().filter_map(Row::how_near).collect();
    if !missed.is_empty() {
        _ = write!(
            page,
            "\n### How near, and why\n\nThe figures that are not reached:\n\n{}\n",
            missed.join("\n")
        );
    }
    page += "\n";
    page += &decisions(results);
    page += &exact(results);
    page += &crowd(results);
    page += &pacing(results);
    page += &keys(results);
    for (part, title, text) in OWN {
        let printed = results.text(part);
        let printed = if printed.is_empty() { "not measured".to_owned() } else { printed };
        _ = writeln!(page, "## {title}\n\n{text}\n\n```text\n{printed}\n```\n");
    }
    page += &redis(results);
    page + &capacity(results)
}

const INTRODUCTION: &str = "# Benchmarks

`./benches/run` measures all of this in a quarter of an hour and writes this page. Compare figures of one run only: most
of them are ratios of cases that took turns, so that what else the machine did met all of them alike, and each is the
median of several rounds. The versions of the other crates are in the list below; `benches/peers` has the code that calls
them, each as its own documentation does.

";

/// What the crate's own benches print, as they print it.
const OWN: [(&str, &str, &str); 6] = [
    ("decide", "Decisions of each policy", "`cargo bench --bench decide`: against the same floor."),
    (
        "crowd",
        "Many queues, memory, leaving",
        "`cargo bench --bench crowd`, against plain sleeps: three rounds in turns.",
    ),
    ("pacing", "Pacing by each clock", "`cargo bench --bench pacing`"),
    ("keys", "Keys: growth, memory, stalls", "`cargo bench --bench keys`"),
    (
        "fair",
        "Fair shares of one quota",
        "`cargo bench --bench fair`: 0 tenants are callers without one. `refused_short` asks for a nanosecond, `refused_long` \
         for half the time of the queue, and `refused_busy` too, with a grant before each. Up to 128 tenants each refusal \
         counts all of them; of more it keeps counts.",
    ),
    ("log", "A sliding log of 100,000", "`cargo bench --bench log`"),
];

/// A row for each name and a column for each figure; nothing where a figure is missing.
fn table(head: &[&str], rows: impl Iterator<Item = (String, Vec<Option<f64>>)>) -> String {
    let mut table = format!("| {} |\n|{}\n", head.join(" | "), "---|".repeat(head.len()));
    for (name, figures) in rows {
        let cell = |figure: Option<f64>| figure.map(short).unwrap_or_default();
        let cells: Vec<_> = figures.into_iter().map(cell).collect();
        _ = writeln!(table, "| {name} | {} |", cells.join(" | "));
    }
    table + "\n"
}

fn decisions(results: &Results) -> String {
    let mut text = String::from(
        "## A decision\n\nThe floor is one reading of the clock and one uncontended compare-exchange, what any exact \
         decision must at least do. tower's `RateLimit` cannot be shared without a `Buffer`, so it is not among those \
         that are.\n\n![bars](pictures/benchmarks/decide.svg)\n\n",
    );
    let of = |name: &str, figure| results.get("peers decide", name, figure);
    let names = PEERS.iter().chain(&["Semaphore"]);
    let row = |peer: &&str| {
        let at = |kind| of(&format!("{peer}, {kind}"), "x_floor");
        let awaited = of(&format!("await, {peer}"), "x_floor");
        ((*peer).to_owned(), vec![at("granted"), at("refused"), awaited])
    };
    text += &table(
        &["x floor", "granted", "refused", "`acquire(1).await`, ready"],
        names.clone().map(row),
    );
    text += "Threads on one limiter, millions of calls a second:\n\n![curves](pictures/benchmarks/threads.svg)\n\n";
    let rows = names.flat_map(|peer| ["granted", "refused"].map(|kind| format!("{peer}, {kind}")));
    let own = ["tollgate, warming up", "floor"].map(str::to_owned);
    let rows = rows.chain(own).filter_map(|name| {
        let curve = results.curve("peers threads", &name, "million_a_second");
        (!curve.is_empty()).then(|| (name, curve.into_iter().map(|(_, rate)| Some(rate)).collect()))
    });
    text + &table(&["threads", "1", "2", "4", "8"], rows)
}

fn exact(results: &Results) -> String {
    const ASKED: [&str; 6] = [
        "1,000/s",
        "400,000/s, asked each 2 us",
        "1,000,000/s",
        "1,000,000/s, two threads",
        "30,000,000/s",
        "300,000,000/s",
    ];
    let mut text = String::from(
        "## Does it hold its limit?\n\nAsked without a pause: what was granted over what the rate allows. It does not hold if \
         that is more than 1.001, and wastes its limit if it is less than 0.99.\n\n",
    );
    let head = [&["granted / allowed"][..], &ASKED, &["holds"]].concat();
    _ = writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for peer in PEERS {
        let share = |asked| results.get("peers exact", &format!("{peer}/{asked}"), "share");
        let shares: Vec<_> = ASKED.iter().map(share).collect();
        let cells =
            shares.iter().map(|share| share.map(|share| format!("{share:.3}")).unwrap_or_default());
        let (mut most, mut least) = (0.0, f64::INFINITY);
        shares
            .iter()
            .flatten()
            .for_each(|share| (most, least) = (share.max(most), share.min(least)));
        let holds = if shares.iter().all(Option::is_none) {
            ""
        } else if most > 1.001 {
            "**no**"
        } else if least < 0.99 {
            "wastes"
        } else {
            "yes"
        };
        _ = writeln!(text, "| {peer} | {} | {holds} |", cells.collect::<Vec<_>>().join(" | "));
    }
    text + "\n"
}

fn crowd(results: &Results) -> String {
    let mut text = String::from(
        "## A crowd that waits\n\nTasks on one limiter, beside as many plain tokio sleeps until the same times. Processor time is for each task \
         that was granted; a run ends after two and a half times the time that it should take. Where the rate is below \
         0.99, the limiter does not give what it may; it is that between the first tenth of the tasks and the last, so a \
         constant lateness is no part of it. `woken` are tasks that a bare thread wakes, each millisecond those that are \
         due: the least that waits take which end outside the runtime. leaky-bucket, tower and the `Semaphore` (by a task that adds permits) \
         refill each 10 ms.\n\n![curves](pictures/benchmarks/waiters.svg)\n\n",
    );
    for (tasks, title) in
        [(10_000, "10,000 tasks"), (100_000, "100,000 tasks"), (1_000_000, "1,000,000 tasks")]
    {
        let rows = CROWDS.iter().map(|name| {
            let of = |figure| results.get("peers crowd", &format!("{name}/{tasks}"), figure);
            ((*name).to_owned(), ["x_sleeps", "cpu_us", "rate", "late_p99_ms"].map(of).to_vec())
        });
        text +=
            &table(&[title, "CPU x sleeps", "CPU us a task", "rate / asked", "late p99, ms"], rows);
    }
    text
}

fn pacing(results: &Results) -> String {
    let rates = ["10", "100", "1000", "10000", "100000", "1000000"];
    let of = |figure| {
        PACERS.iter().map(move |name| {
            let at = |rate| results.get("peers pacing", &format!("{name}/{rate}"), figure);
            ((*name).to_owned(), rates.map(at).to_vec())
        })
    };
    let head = |first| {
        [&[first][..], &["10/s", "100/s", "1,000/s", "10,000/s", "100,000/s", "1,000,000/s"]]
            .concat()
    };
    String::from(
        "## One task in a loop\n\nEach may store the permits of ten milliseconds, at least one; leaky-bucket and tower refill it at once. `interval` is tokio's.\n\n",
    ) + &table(&head("rate / asked"), of("rate"))
        + &table(&head("late p50, ms"), of("late_p50_ms"))
        + &table(&head("CPU us a permit"), of("cpu_us"))
}

fn keys(results: &Results) -> String {
    let mut text = String::from(
        "## Many keys\n\nA decision at a random key that is there. `our hash` is the one that tollgate takes.\n\n\
         ![curves](pictures/benchmarks/keys.svg)\n\n",
    );
    let rows = MAPS.iter().map(|name| {
        let at = |population| {
            results.get("peers keys", &format!("{name}/{population}"), "million_a_second")
        };
        let mut cells = ["u64/1/1000000", "u64/2/1000000", "String/1/100000", "String/2/100000"]
            .map(at)
            .to_vec();
        cells.push(results.get("peers keys", &format!("{name}/u64"), "bytes"));
        ((*name).to_owned(), cells)
    });
    let head = [
        "million calls a second",
        "1 M u64, 1 thread",
        "2 threads",
        "100,000 String, 1 thread",
        "2 threads",
        "bytes a u64 key",
    ];
    text += &table(&head, rows);
    text
}

fn redis(results: &Results) -> String {
    let printed = results.text("redis");
    if printed.is_empty() {
        return "## Over Redis\n\n**Not measured: no redis-server was there.**\n\n".to_owned();
    }
    format!(
        "## Over Redis\n\n`cargo bench --features redis --bench redis`. Floor B is a script of `TIME`, `GET` and `SET`. \
         Times are in microseconds; `single` is one request for each permit on the same connection, and `by_hand` one for \
         all callers that wait, sent by a task that does nothing else. `at_most` is what the callers could do if no answer took \
         longer than a lone one.\n\n\
         ![curves](pictures/benchmarks/redis.svg)\n\n```text\n{printed}\n```\n\n"
    )
}

/// What a request and a permit cost, from the bench's fleets: two points of a line.
fn costs(results: &Results) -> Option<Costs> {
    let of =
        |callers: &str, figure| results.get("redis", &format!("64 processes/{callers}"), figure);
    let few = (of("1", "permits_a_request")?, of("1", "server_cpu_us_a_request")?);
    let many = (of("64", "permits_a_request")?, of("64", "server_cpu_us_a_request")?);
    let permit = (many.1 - few.1) / (many.0 - few.0);
    let request = few.1 - permit * few.0;
    let measured = permit > 0.0 && request > 0.0;
    // A network of a data centre, there and back.
    measured.then(|| Costs { request: request / 1e6, permit: permit / 1e6, network: 0.5e-3 })
}

fn capacity(results: &Results) -> String {
    let mut text = String::from("## Capacity on paper\n\n");
    let of = |part, name: &str, figure| results.get(part, name, figure);
    let threads = |name: &str| of("peers threads", name, "million_a_second");
    let key = of("peers keys", "tollgate/u64", "bytes");
    let at_keys = of("peers keys", "tollgate/u64/1/1000000", "million_a_second");
    let waiter = of("peers crowd", "tollgate/1000000", "cpu_us");
    text += "**One machine.** Calls on limiters of their own: `cores / decision`. Calls on one limiter do not grow with cores, \
             because its word moves from cache to cache. Keys: `memory / bytes`. Grants to waiters: `cores / CPU of a task`.\n\n";
    let rows = [
        ("million calls a second on one limiter, 1 thread", threads("tollgate, granted/1")),
        ("the same, 8 threads", threads("tollgate, granted/8")),
        ("million calls a second at 1 M random keys, a core", at_keys),
        ("million u64 keys in a GB", key.map(|bytes| 1e3 / bytes)),
        ("million grants to waiters a second, a core", waiter.map(|us| 1.0 / us)),
    ];
    text += &table(
        &["one machine", ""],
        rows.map(|(name, figure)| (name.to_owned(), vec![figure])).into_iter(),
    );
    let Some(costs) = costs(results) else { return text + "Redis: not measured.\n" };
    _ = writeln!(
        text,
        "**One Redis server.** A *line* is one key in one process, and has one request in flight at a time; what is asked \
         meanwhile goes with the next. A request costs the server `c0` = {:.1} us and each permit in it `c1` = {:.2} us \
         (`64 processes` above). `L` lines whose calls may take `T` send at most `L / T` requests a second, and the rest of \
         the server's time is for permits:\n\n```text\ncalls a second = (1 - L * c0 / T) / c1        at most L = T / c0 lines\n```\n",
        costs.request * 1e6,
        costs.permit * 1e6,
    );
    let rows = [1e2, 1e3, 1e4, 1e5].map(|lines| {
        let carries = |wait| Some(costs.carries(lines, wait) / 1e6);
        (format!("{lines} lines"), vec![carries(1e-3), carries(1e-2), carries(1e-1), carries(1.0)])
    });
    text +=
        &table(&["million calls a second", "T = 1 ms", "10 ms", "100 ms", "1 s"], rows.into_iter());
    text += "**A cluster of N** carries N times that, because each key lives on one server and servers do not know of each \
             other; one key alone, what one server carries.\n\n\
             **Simulated**, beyond what this machine shows: each line draws its calls at random (seed 1), a server works off its \
             requests in order, and the network takes `n` = 0.5 ms there and back. A line sends a request each \
             `n + e^(-calls * n) / calls`. While the server keeps up, that is how busy it is. When it does not, rounds grow to `T` = \
             `L * c0 / (1 - L * calls * c1)`, and with them the permits in a request; a call waits for the request in flight and then \
             for its own, so 1.5 `T`. No call is lost until `L * calls * c1` is 1.\n\n";
    text + &capacity::table(costs)
}

/// The rows of the README.
pub fn in_short(results: &Results) -> String {
    let decide = |name| results.get("peers decide", name, "x_floor");
    let threads = |name| results.get("peers threads", name, "million_a_second");
    let crowd = |name, figure| results.get("peers crowd", name, figure);
    let keys = |name| results.get("peers keys", name, "million_a_second");
    let redis = |figure| results.get("redis", "equal costs, threads/256", figure);
    let cell = |figure: Option<f64>| figure.map_or("-".to_owned(), short);
    let mut rows = String::from(
        "From one run of `./benches/run`, medians:\n\n| | tollgate | beside it |\n|---|---|---|\n",
    );
    let mut row = |work: &str, ours: String, theirs: String| {
        _ = writeln!(rows, "| {work} | {ours} | {theirs} |")
    };
    row(
        "a decision that needs no wait, x floor (one clock reading, one compare-exchange)",
        cell(decide("tollgate, granted")),
        format!(
            "governor {}, leaky-bucket {}",
            cell(decide("governor, granted")),
            cell(decide("leaky-bucket, granted"))
        ),
    );
    row(
        "two threads on one limiter, million calls a second",
        cell(threads("tollgate, granted/2")),
        format!("governor {}", cell(threads("governor, granted/2"))),
    );
    row(
        "100,000 tasks waiting on one limiter: CPU x plain tokio sleeps; rate",
        format!(
            "{}; {}",
            cell(crowd("tollgate/100000", "x_sleeps")),
            cell(crowd("tollgate/100000", "rate"))
        ),
        format!(
            "governor {}; {}",
            cell(crowd("governor/100000", "x_sleeps")),
            cell(crowd("governor/100000", "rate"))
        ),
    );
    row(
        "a decision at one of a million random keys, million a second",
        cell(keys("tollgate/u64/1/1000000")),
        format!("governor {}", cell(keys("governor, its hash/u64/1/1000000"))),
    );
    row(
        "256 callers of one limiter over Redis, permits a second",
        cell(redis("permits_a_second")),
        format!("{} times one request for each permit", cell(redis("x_single"))),
    );
    rows += "\n[All figures](https://docs.rs/crate/tollgate/latest/source/docs/benchmarks.md), with curves, and what one machine, \
             one Redis server and a cluster carry.\n";
    rows
}
