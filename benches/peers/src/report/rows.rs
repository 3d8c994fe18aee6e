//! The figures that were asked for, each with what was measured.

use super::results::Results;

pub struct Row {
    work: &'static str,
    asked: String,
    measured: Option<f64>,
    reached: bool,
}

impl Row {
    fn at_most(work: &'static str, most: f64, measured: Option<f64>) -> Self {
        let reached = measured.is_some_and(|figure| figure <= most);
        Self { work, asked: format!("<= {most}"), measured, reached }
    }

    fn at_least(work: &'static str, least: f64, measured: Option<f64>) -> Self {
        let reached = measured.is_some_and(|figure| figure >= least);
        Self { work, asked: format!(">= {least}"), measured, reached }
    }

    pub fn markdown(&self) -> String {
        let (measured, reached) = match self.measured {
            Some(figure) => (short(figure), if self.reached { "yes" } else { "**no**" }),
            None => ("not measured".to_owned(), ""),
        };
        format!("| {} | {} | {measured} | {reached} |", self.work, self.asked)
    }
}

/// Three digits, or what is before the point.
pub fn short(figure: f64) -> String {
    if figure >= 1e4 {
        return format!("{:.1} k", figure / 1e3);
    }
    let digits = (2 - figure.abs().max(1e-9).log10().floor() as i32).clamp(0, 4) as usize;
    format!("{figure:.digits$}")
}

fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}

pub fn rows(results: &Results) -> Vec<Row> {
    let mut rows = crowd(results);
    rows.extend(pacing(results));
    rows.extend(in_hand(results));
    rows.extend(keys(results));
    rows.extend(log(results));
    rows.extend(fair(results));
    rows
}

fn crowd(results: &Results) -> Vec<Row> {
    let crowd = |words: &[&str], figure| results.find("crowd", words, figure);
    let one =
        |waiters: &'static str, figure| crowd(&[waiters, "limiters=1", "side=tollgate"], figure);
    let late = |waiters: &'static str| {
        let sleeps = crowd(&[waiters, "limiters=1", "side=sleeps"], "late_p99_ms");
        ratio(one(waiters, "late_p99_ms"), sleeps)
    };
    let heap = |waiters| crowd(&["memory", waiters, "side=tollgate"], "heap_bytes");
    let leaving = |waiters, side| crowd(&[waiters, "order=mixed", side], "nanos_each");
    let (few, many) = ("waiters=100000", "waiters=1000000");
    let million = "leaving=1000000";
    vec![
        Row::at_most(
            "100,000 waiters: CPU over that of sleeps",
            0.9,
            crowd(&[few, "limiters=1"], "cpu_ratio"),
        ),
        Row::at_most(
            "1,000,000 waiters: CPU over that of sleeps",
            0.9,
            crowd(&[many, "limiters=1"], "cpu_ratio"),
        ),
        Row::at_most("100,000 waiters: heap bytes each", 300.0, heap(few)),
        Row::at_most("1,000,000 waiters: heap bytes each", 300.0, heap(many)),
        Row::at_least("100,000 waiters: rate over the asked one", 0.999, one(few, "rate")),
        Row::at_least("1,000,000 waiters: rate over the asked one", 0.999, one(many, "rate")),
        Row::at_most("100,000 waiters: late p99 over that of sleeps", 1.0, late(few)),
        Row::at_most("1,000,000 waiters: late p99 over that of sleeps", 1.0, late(many)),
        Row::at_most(
            "10,000 limiters with ten waiters each: CPU over that of sleeps",
            1.0,
            crowd(&["limiters=10000"], "cpu_ratio"),
        ),
        Row::at_most(
            "a million waiters leave: time over that of sleeps",
            1.0,
            ratio(leaving(million, "side=tollgate"), leaving(million, "side=sleeps")),
        ),
        Row::at_most(
            "time of each of a million that leave, over one of ten thousand, against sleeps",
            1.2,
            {
                let grows = |side| ratio(leaving(million, side), leaving("leaving=10000", side));
                ratio(grows("side=tollgate"), grows("side=sleeps"))
            },
        ),
    ]
}

fn pacing(results: &Results) -> Vec<Row> {
    let of = |rate, side, figure| results.find("pacing", &[rate, side], figure);
    let off = |rate| Some(100.0 * (of(rate, "side=default", "rate")? - 1.0).abs());
    let late = |rate, side| of(rate, side, "late_p50_ms");
    vec![
        Row::at_most("one task at 10/s: % off the rate", 0.1, off("rate=10")),
        Row::at_most("one task at 100/s: % off the rate", 0.1, off("rate=100")),
        Row::at_most("one task at 1,000/s: % off the rate", 0.1, off("rate=1000")),
        Row::at_most("one task at 10,000/s: % off the rate", 0.1, off("rate=10000")),
        Row::at_most("one task at 100,000/s: % off the rate", 0.1, off("rate=100000")),
        Row::at_most("one task at 1,000,000/s: % off the rate", 0.1, off("rate=1000000")),
        Row::at_most("one task at 10/s: late p50, ms", 0.1, late("rate=10", "side=default")),
        Row::at_most("one task at 1,000/s: late p50, ms", 0.1, late("rate=1000", "side=default")),
        Row::at_most("one task at 10,000/s: late p50, ms", 0.1, late("rate=10000", "side=default")),
        Row::at_most(
            "one task at 10,000/s, precise clock: late p50, ms",
            0.1,
            late("rate=10000", "side=precise"),
        ),
    ]
}

fn in_hand(results: &Results) -> Vec<Row> {
    let calls = |of| results.get("peers threads", of, "million_a_second");
    vec![
        Row::at_most(
            "a permit in hand of the thread: x floor",
            0.25,
            results.get("cache", "CachedRateLimiter, granted", "x_floor"),
        ),
        Row::at_least(
            "permits in hand, 2 threads: over governor",
            8.0,
            ratio(calls("tollgate, in hand/2"), calls("governor, granted/2")),
        ),
        Row::at_least(
            "permits in hand, 2 threads: over 1 thread",
            1.0,
            ratio(calls("tollgate, in hand/2"), calls("tollgate, in hand/1")),
        ),
    ]
}

fn keys(results: &Results) -> Vec<Row> {
    let own = |of: String, figure| results.get("keys", &of, figure);
    let bytes = |policy| own(format!("memory, {policy}/1000000"), "bytes");
    let growth = |keys| {
        let of = |figure| own(format!("grow/{keys}"), figure);
        ratio(of("x_thousand"), of("array_x_thousand"))
    };
    let stall = |what| own(format!("stall, {what}/1000000"), "longest_ms");
    let against = |of| results.get("peers keys", of, "ours_over_it");
    vec![
        Row::at_least(
            "1 M u64 keys, 1 thread: over governor with the same hash",
            1.0,
            against("governor, our hash/u64/1/1000000"),
        ),
        Row::at_least(
            "1 M u64 keys, 1 thread: over governor with its own",
            1.6,
            against("governor, its hash/u64/1/1000000"),
        ),
        Row::at_least(
            "1 M u64 keys, 2 threads: over governor with the same hash",
            1.0,
            against("governor, our hash/u64/2/1000000"),
        ),
        Row::at_least(
            "1 M u64 keys, 2 threads: over governor with its own",
            1.6,
            against("governor, its hash/u64/2/1000000"),
        ),
        Row::at_least(
            "100,000 String keys, 1 thread: over governor with the same hash",
            1.0,
            against("governor, our hash/String/1/100000"),
        ),
        Row::at_least(
            "100,000 String keys, 1 thread: over governor with its own",
            1.6,
            against("governor, its hash/String/1/100000"),
        ),
        Row::at_least(
            "100,000 String keys, 2 threads: over governor with the same hash",
            1.0,
            against("governor, our hash/String/2/100000"),
        ),
        Row::at_least(
            "100,000 String keys, 2 threads: over governor with its own",
            1.6,
            against("governor, its hash/String/2/100000"),
        ),
        Row::at_most("bytes a u64 key, of a million, `TokenBucket`", 36.0, bytes("TokenBucket")),
        Row::at_most("bytes a u64 key, of a million, `SmoothBursty`", 36.0, bytes("SmoothBursty")),
        Row::at_most(
            "from 1,000 to 1 M keys: growth of a call's time over that of an array of atomics",
            1.0,
            growth("1000000"),
        ),
        Row::at_most("from 1,000 to 10 M keys: the same", 1.0, growth("10000000")),
        Row::at_most("a million keys come: longest call, ms", 0.2, stall("growth, u64")),
        Row::at_most("a million keys go: longest call, ms", 0.2, stall("all idle, then calls")),
        Row::at_most(
            "a million idle keys, no calls: the last is gone after, s",
            10.0,
            own("idle, no calls/1000000".to_owned(), "gone_after_s"),
        ),
        Row::at_most(
            "the same, calls at one key go on",
            10.0,
            own("idle, calls at one key/1000000".to_owned(), "gone_after_s"),
        ),
        Row::at_most(
            "`retain` keeps half of a million keys: `len()` after it, over a million",
            0.5,
            own("retain, half/1000000".to_owned(), "keys_left").map(|keys| keys / 1e6),
        ),
    ]
}

fn log(results: &Results) -> Vec<Row> {
    let over_100 =
        |work, case| Row::at_most(work, 1.3, results.find("log", &["limit=100000", case], "ratio"));
    vec![
        over_100("a sliding log of 100,000, granted: over one of 100", "case=granted"),
        over_100("the same, refused", "case=refused"),
        over_100("the same, a caller joins the queue and leaves", "case=joins_and_leaves"),
        over_100("the same, a caller that waits is granted", "case=waits_and_is_granted"),
        over_100("the same, settled", "case=settled"),
        over_100("the same, its timeout is too short", "case=timed_out"),
        over_100("the same, each time another caller has left", "case=timed_out_after_a_leave"),
    ]
}

/// From 100 to 100,000 tenants the logarithm grows 2.5 times.
fn fair(results: &Results) -> Vec<Row> {
    let grown = |case| results.find("fair", &["tenants=100000", case], "x_hundred");
    vec![
        Row::at_most(
            "a grant to one of 100,000 tenants: over one of 100",
            2.5,
            grown("case=grant"),
        ),
        Row::at_most("the same, its timeout is far too short", 2.5, grown("case=refused_short")),
        Row::at_most("the same, its timeout is half of the wait", 2.5, grown("case=refused_long")),
        Row::at_most(
            "one tenant of 100 floods: furthest from its share, %",
            1.0,
            results.find("fair", &["tenants=100"], "furthest_from_share_percent"),
        ),
    ]
}
