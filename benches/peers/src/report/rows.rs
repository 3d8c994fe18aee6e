//! The figures that were asked for, each with what was measured.

use super::results::Results;
use super::row::{Row, Why};

const CROWD: &str = "What does a crowd of waiters cost, and why are its rounds further apart?";
const WEIGHT: &str = "What does it cost to depend on this crate?";
const LEAVING: &str = "Why does leaving take no turn?";
const TABLE: &str = "Why do shards differ in size?";
const CLEAN_UP: &str = "Why does an alarm drop idle keys?";
const SHARED: &str = "Why do the callers of a reply wake each other?";
const TIMEOUT: &str = "How does a call know at once that its timeout is not enough?";

const HAND_OVER: Why = Why {
    reason: "A grant goes from the clock's thread to a worker of the runtime, and both have to wake up for it; a sleep \
             ends in the worker. The tasks that a bare thread wakes are the least of that kind.",
    section: CROWD,
};
const LATE: Why = Why {
    reason: "Most late waiters were woken in time, by a caller that joined and found many due. What is woken \
             beyond the 256 tasks of a worker's own queue goes behind all tasks that were spawned before.",
    section: CROWD,
};
const SCATTERED: Why = Why {
    reason: "The state of a limiter is in several places, and each grant brings it into the cache of the clock's thread \
             and then of a worker; a sleep is in its task.",
    section: CROWD,
};
const NEIGHBOURS: Why = Why {
    reason: "Each that leaves brings its future, its entry of the queue and a neighbour's entry into the cache, one after \
             the other. A sleep's entry is in its future. A bare list of entries behind a lock (the row below it) does \
             nothing else, so that the processor works on several at once.",
    section: LEAVING,
};
const SAME_TABLE: Why = Why {
    reason: "A decision mostly waits for the memory of a key, in a table of the same kind as governor's. The \
             processor decides: at a million keys it was 1.35 to 1.44 times as fast as governor with the same hash on a \
             Xeon, and 0.82 to 1.05 times on an EPYC.",
    section: TABLE,
};
const TWO_PLACES: Why = Why {
    reason: "A key is in two places of a hash table, which are read one after the other; an array has one.",
    section: TABLE,
};
const SPLIT: Why = Why {
    reason: "A call moves the keys of one table at most, some hundred, and it may be preempted, as is the loop that does \
             nothing beside it (`pause_of_the_machine_ms` below).",
    section: TABLE,
};
const SWEPT: Why = Why {
    reason: "A step of the clean-up holds a shard for much less. The longest calls did not sleep or park: they were \
             preempted, as is the loop that does nothing beside them (`pause_of_the_machine_ms` below).",
    section: CLEAN_UP,
};
const COPIED: Why = Why {
    reason: "A timeout is judged by a copy of the log's oldest entries, which grows with the queue and is made anew when \
             callers have left.",
    section: TIMEOUT,
};
const ASLEEP: Why =
    Why { reason: "A processor that slept for long needs time to wake up.", section: CROWD };

const ONE_WORD: Why = Why {
    reason: "Each call takes the word of the limiter to its processor, as the floor does, which is one reading of the clock \
             and one compare-exchange of a word for all threads: so most of the time is the same for both.",
    section: "Why is the lock the top bit of the word?",
};
const HANDS_OUT: Why = Why {
    reason: "A permit takes 5,100 instructions, and one that is shared by hand 1,140 (the row below it): the place of a \
             caller in the order, its deadline, its outcome, and what comes back if it leaves. The workers meet at the \
             lock of the key, which takes a quarter of their time. A list in front of the lock would save a third of a \
             round at most, which is less than needed.",
    section: SHARED,
};
const SCRIPT: Why = Why {
    reason: "A script that reads the time, the key and the request, and decides nothing, takes 1.08 to 1.10 of the floor, \
             which reads no request.",
    section: "Why does the script differ for one call and for many?",
};

const RECORDED: Why = Why {
    reason: "A call that takes much of a bucket, or comes long after another, records what it finds: a later correction of an \
             earlier grant may return no more. That is a lock beside the exchange, and the record. To count the grants that \
             can still be corrected would cost each grant two writes that all threads contend for.",
    section: "Why does a refund not always return everything?",
};
const COMPILED: Why = Why {
    reason: "More than half of it is this crate. What it can read from a text or a file is compiled whether a program uses \
             it or not, because a program that reads its limits should not have to ask for that. The compiler takes \
             as much processor time as for governor, but half of the time that this crate takes is on one processor.",
    section: WEIGHT,
};
const LINKED: Why = Why {
    reason: "The program has a queue, a thread that ends waits, their drops, and tables for unwinding. A waiter of \
             governor's sleeps by itself and asks again.",
    section: WEIGHT,
};

fn ratio(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    Some(one? / other?)
}

pub fn rows(results: &Results) -> Vec<Row> {
    let mut rows = crowd(results);
    rows.extend(pacing(results));
    rows.extend(threads(results));
    rows.extend(keys(results));
    rows.extend(log(results));
    rows.extend(fair(results));
    rows.extend(redis(results));
    rows.extend(weight(results));
    rows
}

fn crowd(results: &Results) -> Vec<Row> {
    let crowd = |words: &[&str], figure| results.find("crowd", words, figure);
    // The same figures as in the table of peers.
    let one = |of, figure| results.get("peers crowd", of, figure);
    let (few, many) = ("tollgate/100000", "tollgate/1000000");
    let late = |ours, sleeps| ratio(one(ours, "late_p99_ms"), one(sleeps, "late_p99_ms"));
    let heap = |waiters| crowd(&["memory", waiters, "side=tollgate"], "heap_bytes");
    let leaving = |waiters, side| crowd(&[waiters, "order=mixed", side], "nanos_each");
    let million = "leaving=1000000";
    vec![
        Row::at_most("100,000 waiters: CPU over the sleeps'", 0.9, one(few, "x_sleeps"))
            .because(HAND_OVER),
        Row::at_most("1,000,000 waiters: CPU over the sleeps'", 0.9, one(many, "x_sleeps"))
            .because(HAND_OVER),
        Row::stated(
            "100,000 tasks that a bare thread wakes: CPU over the sleeps'",
            one("woken/100000", "x_sleeps"),
        ),
        Row::stated(
            "1,000,000 tasks that a bare thread wakes: CPU over the sleeps'",
            one("woken/1000000", "x_sleeps"),
        ),
        Row::at_most("100,000 waiters: heap bytes each", 300.0, heap("waiters=100000")),
        Row::at_most("1,000,000 waiters: heap bytes each", 300.0, heap("waiters=1000000")),
        Row::at_least("100,000 waiters: rate over the asked one", 0.999, one(few, "rate"))
            .because(LATE),
        Row::at_least("1,000,000 waiters: rate over the asked one", 0.999, one(many, "rate"))
            .because(LATE),
        Row::at_most("100,000 waiters: late p99 over the sleeps'", 1.0, late(few, "sleeps/100000"))
            .because(LATE),
        Row::at_most(
            "1,000,000 waiters: late p99 over the sleeps'",
            1.0,
            late(many, "sleeps/1000000"),
        )
        .because(LATE),
        Row::stated(
            "1,000,000 tasks that a bare thread wakes: late p99 over the sleeps'",
            late("woken/1000000", "sleeps/1000000"),
        ),
        Row::at_most(
            "10,000 limiters with ten waiters each: CPU over the sleeps'",
            1.0,
            crowd(&["limiters=10000", "side=tollgate"], "cpu_ratio"),
        )
        .because(SCATTERED),
        Row::stated(
            "the same waits by a bare thread: CPU over the sleeps'",
            crowd(&["limiters=10000", "side=woken"], "cpu_ratio"),
        ),
        Row::at_most(
            "a million waiters leave: time over the sleeps'",
            1.0,
            ratio(leaving(million, "side=tollgate"), leaving(million, "side=sleeps")),
        )
        .because(NEIGHBOURS),
        Row::stated(
            "a million entries leave a bare list behind a lock: time over the sleeps'",
            ratio(leaving(million, "side=entries"), leaving(million, "side=sleeps")),
        ),
        Row::at_most(
            "time of each of a million that leave, over one of ten thousand, against sleeps",
            1.2,
            {
                let grows = |side| ratio(leaving(million, side), leaving("leaving=10000", side));
                ratio(grows("side=tollgate"), grows("side=sleeps"))
            },
        )
        .because(NEIGHBOURS),
    ]
}

fn pacing(results: &Results) -> Vec<Row> {
    let of = |rate, side, figure| results.find("pacing", &[rate, side], figure);
    let off = |rate| Some(100.0 * (of(rate, "side=default", "rate")? - 1.0).abs());
    let late = |rate, side| of(rate, side, "late_p50_ms");
    let cpu = |rate, side| of(rate, side, "cpu_us");
    vec![
        Row::at_most("one task at 10/s: % off the rate", 0.1, off("rate=10")),
        Row::at_most("one task at 100/s: % off the rate", 0.1, off("rate=100")),
        Row::at_most("one task at 1,000/s: % off the rate", 0.1, off("rate=1000")),
        Row::at_most("one task at 10,000/s: % off the rate", 0.1, off("rate=10000")),
        Row::at_most("one task at 100,000/s: % off the rate", 0.1, off("rate=100000")),
        Row::at_most("one task at 1,000,000/s: % off the rate", 0.1, off("rate=1000000")),
        Row::at_most(
            "one task at 10/s: late p50, less a thread's sleep and the wake-up of a task, ms",
            0.01,
            late("rate=10", "side=default")
                .zip(late("rate=10", "side=woken"))
                .map(|(here, woken)| here - woken),
        )
        .because(ASLEEP),
        Row::at_most("one task at 100/s: late p50, ms", 0.1, late("rate=100", "side=default"))
            .because(ASLEEP),
        Row::at_most("one task at 1,000/s: late p50, ms", 0.1, late("rate=1000", "side=default"))
            .because(ASLEEP),
        Row::at_most("one task at 10,000/s: late p50, ms", 0.1, late("rate=10000", "side=default")),
        Row::at_most(
            "one task at 10,000/s, precise clock: late p50, ms",
            0.1,
            late("rate=10000", "side=precise"),
        ),
        Row::stated("one task at 10/s: CPU us a permit", cpu("rate=10", "side=default")),
        Row::stated("one task at 100/s: CPU us a permit", cpu("rate=100", "side=default")),
        Row::stated("one task at 1,000/s: CPU us a permit", cpu("rate=1000", "side=default")),
        Row::stated("one task at 10,000/s: CPU us a permit", cpu("rate=10000", "side=default")),
        Row::stated("one task at 100,000/s: CPU us a permit", cpu("rate=100000", "side=default")),
        Row::stated(
            "one task at 1,000,000/s: CPU us a permit",
            cpu("rate=1000000", "side=default"),
        ),
        Row::stated(
            "one task at 10,000/s, precise clock: CPU us a permit",
            cpu("rate=10000", "side=precise"),
        ),
        Row::stated(
            "one task at 10,000/s, quiet clock: CPU us a permit",
            cpu("rate=10000", "side=quiet"),
        ),
        Row::stated(
            "one task at 10,000/s, quiet clock: late p50, ms",
            late("rate=10000", "side=quiet"),
        ),
    ]
}

fn threads(results: &Results) -> Vec<Row> {
    let calls = |of| results.get("peers threads", of, "million_a_second");
    let over_governor = |of| ratio(calls(of), calls("governor, granted/2"));
    vec![
        Row::at_least(
            "one limiter, 2 threads: over governor",
            1.2,
            over_governor("tollgate, granted/2"),
        )
        .because(ONE_WORD),
        Row::stated("the floor for 2 threads: over governor", over_governor("floor/2")),
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
        )
        .because(SAME_TABLE),
        Row::at_least(
            "1 M u64 keys, 1 thread: over governor with its own",
            1.6,
            against("governor, its hash/u64/1/1000000"),
        )
        .because(SAME_TABLE),
        Row::at_least(
            "1 M u64 keys, 2 threads: over governor with the same hash",
            1.0,
            against("governor, our hash/u64/2/1000000"),
        )
        .because(SAME_TABLE),
        Row::at_least(
            "1 M u64 keys, 2 threads: over governor with its own",
            1.6,
            against("governor, its hash/u64/2/1000000"),
        )
        .because(SAME_TABLE),
        Row::at_least(
            "100,000 String keys, 1 thread: over governor with the same hash",
            1.0,
            against("governor, our hash/String/1/100000"),
        )
        .because(SAME_TABLE),
        Row::at_least(
            "100,000 String keys, 1 thread: over governor with its own",
            1.6,
            against("governor, its hash/String/1/100000"),
        )
        .because(SAME_TABLE),
        Row::at_least(
            "100,000 String keys, 2 threads: over governor with the same hash",
            1.0,
            against("governor, our hash/String/2/100000"),
        )
        .because(SAME_TABLE),
        Row::at_least(
            "100,000 String keys, 2 threads: over governor with its own",
            1.6,
            against("governor, its hash/String/2/100000"),
        )
        .because(SAME_TABLE),
        Row::at_most("bytes a u64 key, of a million, `TokenBucket`", 36.0, bytes("TokenBucket")),
        Row::at_most("bytes a u64 key, of a million, `SmoothBursty`", 36.0, bytes("SmoothBursty")),
        Row::at_most("bytes a u64 key, of a million, `FixedWindow`", 96.0, bytes("FixedWindow")),
        Row::at_most(
            "bytes a u64 key with one grant, of a million, `SlidingWindowLog`",
            96.0,
            bytes("SlidingWindowLog"),
        ),
        Row::at_most(
            "bytes a u64 key with one grant, of a million, `SlidingWindowCounter`",
            96.0,
            bytes("SlidingWindowCounter"),
        ),
        Row::at_most(
            "from 1,000 to 1 M keys: growth of a call's time over an array of atomics",
            1.0,
            growth("1000000"),
        )
        .because(TWO_PLACES),
        Row::at_most(
            "from 1,000 to 10 M keys: growth over an array of atomics",
            1.0,
            growth("10000000"),
        )
        .because(TWO_PLACES),
        Row::at_most("a million keys come: longest call, ms", 0.2, stall("growth, u64"))
            .because(SPLIT),
        Row::at_most("a million keys go: longest call, ms", 0.2, stall("all idle, then calls"))
            .because(SWEPT),
        Row::at_most(
            "a million idle keys, no calls: the last is gone after, s",
            10.0,
            own("idle, no calls/1000000".to_owned(), "gone_after_s"),
        ),
        Row::at_most(
            "a million idle keys, calls at one key go on: the last is gone after, s",
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
        over_100("a sliding log of 100,000, refused: over one of 100", "case=refused"),
        over_100(
            "a sliding log of 100,000, a caller joins the queue and leaves: over one of 100",
            "case=joins_and_leaves",
        ),
        over_100(
            "a sliding log of 100,000, a caller that waits is granted: over one of 100",
            "case=waits_and_is_granted",
        ),
        over_100("a sliding log of 100,000, settled: over one of 100", "case=settled"),
        over_100(
            "a sliding log of 100,000, a timeout is too short: over one of 100",
            "case=timed_out",
        )
        .because(COPIED),
        over_100(
            "a sliding log of 100,000, the same each time another caller has left: over one of 100",
            "case=timed_out_after_a_leave",
        )
        .because(COPIED),
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
        Row::at_most(
            "a timeout that is far too short, 100,000 tenants: over 100",
            2.5,
            grown("case=refused_short"),
        ),
        Row::at_most(
            "a timeout of half of the wait, 100,000 tenants: over 100",
            2.5,
            grown("case=refused_long"),
        ),
        Row::at_most("the same, with a grant before each refusal", 2.5, grown("case=refused_busy")),
        Row::at_most(
            "one tenant of 100 floods: furthest from its share, %",
            1.0,
            results.find("fair", &["tenants=100"], "furthest_from_share_percent"),
        ),
    ]
}

fn redis(results: &Results) -> Vec<Row> {
    let callers = |figure| results.get("redis", "equal costs, threads/256", figure);
    let refused = results.get("redis", "SmoothBursty, refused", "x_floor");
    vec![
        Row::at_least(
            "Redis, 256 callers: permits over one request for each",
            7.0,
            callers("x_single"),
        )
        .because(HANDS_OUT),
        Row::stated("the same, by hand: a request for all that wait", callers("by_hand")),
        Row::at_most("Redis, a refusal: time of the server, x floor B", 1.1, refused)
            .because(SCRIPT),
    ]
}

/// What it costs to depend on the crate, and instructions that no other part measures.
fn weight(results: &Results) -> Vec<Row> {
    let of = |limiter, figure| results.get("weight", limiter, figure);
    let kilobytes = |limiter| of(limiter, "bytes_added").map(|bytes| bytes / 1e3);
    vec![
        Row::at_most(
            "a recorded call at a small bucket: instructions, x floor",
            2.0,
            results.get("instructions", "try_acquire, small bucket", "x_floor"),
        )
        .because(RECORDED),
        Row::at_most("crates, default features", 20.0, of("tollgate", "crates")),
        Row::at_most(
            "cold release build: over governor's",
            1.0,
            ratio(of("tollgate", "wall_s"), of("governor", "wall_s")),
        )
        .because(COMPILED),
        Row::at_most(
            "added to a binary by README's first program, KB",
            150.0,
            kilobytes("tollgate"),
        )
        .because(LINKED),
        Row::stated("the same of governor, KB", kilobytes("governor")),
        Row::stated("the same of leaky-bucket, KB", kilobytes("leaky_bucket")),
        Row::at_most(
            "check of the crate after a change in src/policy, s",
            2.0,
            results.get("weight", "check after a change in src/policy", "wall_s"),
        ),
    ]
}
