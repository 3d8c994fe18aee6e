//! The recorded scenarios as plain data. `README.md` beside this file describes the format.

use std::{fs, path::Path};

use serde_json::Value;

/// The steps of one scenario on one limiter.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) id: u32,
    pub(crate) tags: Vec<String>,
    pub(crate) limiter: Limiter,
    pub(crate) initial_rate: RateSet,
    pub(crate) initial: State,
    pub(crate) steps: Vec<Step>,
}

/// How the limiter was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limiter {
    pub(crate) permits_per_second: f64,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Bursty { max_burst_seconds: f64 },
    WarmingUp { warm_up_micros: i64, cold_factor: f64 },
}

/// One step, and the state after it.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    pub(crate) after: State,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Advance { micros: i64 },
    Acquire { permits: u32, slept_micros: i64 },
    TryAcquire { permits: u32, timeout_micros: i64, granted: bool, slept_micros: i64 },
    SetRate { permits_per_second: f64, answer: RateSet },
}

/// The state that the limiter reports after its rate was set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateSet {
    pub(crate) rate_read_back: f64,
    pub(crate) max_permits: f64,
}

/// The limiter's fields as they stand (idle time not yet credited), and the clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) stored_permits: f64,
    pub(crate) next_free_micros: i64,
    pub(crate) now_micros: i64,
}

impl Scenario {
    /// All rates the scenario asks for, the first one included.
    pub(crate) fn rates(&self) -> impl Iterator<Item = f64> {
        let later = self.steps.iter().filter_map(|step| match step.op {
            Op::SetRate { permits_per_second, .. } => Some(permits_per_second),
            _ => None,
        });
        std::iter::once(self.limiter.permits_per_second).chain(later)
    }
}

/// The 200 scenarios of `bursty.jsonl`.
pub(crate) fn bursty() -> Vec<Scenario> {
    read("bursty.jsonl")
}

/// The 200 scenarios of `warming_up.jsonl`.
pub(crate) fn warming_up() -> Vec<Scenario> {
    read("warming_up.jsonl")
}

/// Read at run time, not included at compile time: the published package leaves these megabytes out
/// and still compiles.
fn read(name: &str) -> Vec<Scenario> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("guava/traces").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error} (the traces are in the repository only)", path.display())
    });
    text.lines()
        .map(|line| scenario(&serde_json::from_str(line).expect("a line is one JSON object")))
        .collect()
}

fn scenario(json: &Value) -> Scenario {
    let initial = field(json, "initial");
    Scenario {
        id: u32::try_from(long(json, "id")).expect("an id is small"),
        tags: list(json, "tags")
            .iter()
            .map(|tag| tag.as_str().expect("a tag is a string").to_owned())
            .collect(),
        limiter: limiter(field(json, "limiter")),
        initial_rate: rate_set(initial),
        initial: state(initial),
        steps: list(json, "steps").iter().map(step).collect(),
    }
}

fn limiter(json: &Value) -> Limiter {
    let kind = match text(json, "kind") {
        "bursty" => Kind::Bursty { max_burst_seconds: double(json, "max_burst_seconds") },
        "warming_up" => Kind::WarmingUp {
            warm_up_micros: long(json, "warmup_micros"),
            cold_factor: double(json, "cold_factor"),
        },
        other => panic!("unknown kind of limiter: {other}"),
    };
    Limiter { permits_per_second: double(json, "permits_per_second"), kind }
}

fn step(json: &Value) -> Step {
    let op = match text(json, "op") {
        "advance" => Op::Advance { micros: long(json, "micros") },
        "acquire" => {
            Op::Acquire { permits: permits(json), slept_micros: long(json, "slept_micros") }
        }
        "try_acquire" => Op::TryAcquire {
            permits: permits(json),
            timeout_micros: long(json, "timeout_micros"),
            granted: field(json, "granted").as_bool().expect("granted is a bool"),
            slept_micros: long(json, "slept_micros"),
        },
        "set_rate" => Op::SetRate {
            permits_per_second: double(json, "permits_per_second"),
            answer: rate_set(json),
        },
        other => panic!("unknown step: {other}"),
    };
    Step { op, after: state(json) }
}

fn rate_set(json: &Value) -> RateSet {
    RateSet {
        rate_read_back: double(json, "rate_read_back"),
        max_permits: double(json, "max_permits"),
    }
}

fn state(json: &Value) -> State {
    State {
        stored_permits: double(json, "stored_permits"),
        next_free_micros: long(json, "next_free_micros"),
        now_micros: long(json, "now_micros"),
    }
}

fn permits(json: &Value) -> u32 {
    u32::try_from(long(json, "permits")).expect("permits are 1 to 2^31 - 1")
}

/// A 64-bit integer. `as_i64` refuses a number with a point, so none goes through a double, which
/// holds 53 bits only.
fn long(json: &Value, name: &str) -> i64 {
    field(json, name).as_i64().unwrap_or_else(|| panic!("{name} is not a 64-bit integer"))
}

/// A double, with the very bits that were written: `serde_json` needs its feature `float_roundtrip`
/// for that. JSON has no word for the numbers that are not finite, so those are strings.
fn double(json: &Value, name: &str) -> f64 {
    match field(json, name) {
        Value::String(word) if word == "Infinity" => f64::INFINITY,
        Value::String(word) if word == "NaN" => f64::NAN,
        number => number.as_f64().unwrap_or_else(|| panic!("{name} is not a double")),
    }
}

fn text<'a>(json: &'a Value, name: &str) -> &'a str {
    field(json, name).as_str().unwrap_or_else(|| panic!("{name} is not a string"))
}

fn list<'a>(json: &'a Value, name: &str) -> &'a [Value] {
    field(json, name).as_array().unwrap_or_else(|| panic!("{name} is not a list"))
}

fn field<'a>(json: &'a Value, name: &str) -> &'a Value {
    json.get(name).unwrap_or_else(|| panic!("{name} is missing"))
}
