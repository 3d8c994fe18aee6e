//! The table of servers: `*/setups.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Programs of one kind: what they need, and how each of them starts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// What `run` installs first: `npm`, `pip`, `cargo`, or `apt` and packages.
    pub install: Vec<String>,
    /// A shell command that prints the version.
    pub version: String,
    /// A shell command, with `$PORT`, `$PORT2`, `$BACKEND` (a port), `$DIR` and the set-up's `env`.
    pub start: String,
    /// A path that answers with 200 once the server is ready. Default: when its port is open.
    pub ready: Option<String>,
    /// Templates that are copied to `$DIR`: `${NAME}` is replaced.
    #[serde(default)]
    pub files: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub setup: Vec<Setup>,
}

/// A server as its README sets it up, and what a client must reach there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    pub name: String,
    /// What the page says of it.
    pub title: String,
    /// What we expected, written before the first run.
    pub guess: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub target: Target,
    pub possible: Possible,
    /// Default: the target's.
    pub seconds: Option<u64>,
    /// The client's limit. Default: a guess far above the quota.
    #[serde(default = "guess")]
    pub limits: String,
    /// Right limits of the user's own. Default: the quota, evenly spaced.
    pub right: Option<Vec<String>>,
    #[serde(default)]
    pub request: Request,
}

fn guess() -> String {
    "200/s".to_owned()
}

/// What is sent, and how an answer with status 200 is told from a refusal.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    pub path: String,
    pub body: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// A 200 with this in its body, or in a field of its head, is a refusal.
    pub refused_if: Option<String>,
    /// HTTP/2 without TLS, as gRPC speaks it.
    pub http2: bool,
}

/// What the server gives a perfect client.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, untagged)]
pub enum Possible {
    Window {
        limit: u64,
        window: u64,
        /// By the wall clock, instead of from the first call on.
        #[serde(default)]
        aligned: bool,
    },
    Rate {
        rate: f64,
        #[serde(default)]
        burst: f64,
    },
    Unknown {},
}

impl Possible {
    /// The calls that can be accepted from `start`, a time since the epoch in seconds, on.
    pub fn calls(self, start: f64, seconds: f64) -> Option<f64> {
        match self {
            Self::Window { limit, window, aligned } => {
                let window = window as f64;
                // The first call of a window comes a little late.
                let late = if aligned { 0.0 } else { 0.02 };
                let first = if aligned { (start / window).floor() } else { 0.0 };
                let end = if aligned { start + seconds } else { seconds - 0.01 };
                Some(((end / (window + late)).floor() - first + 1.0) * limit as f64)
            }
            Self::Rate { rate, burst } => Some(rate * seconds + burst),
            Self::Unknown {} => None,
        }
    }

    /// The quota as a limit, evenly spaced.
    pub fn limit(self) -> Option<String> {
        match self {
            Self::Window { limit, window, .. } => Some(format!("{limit}/{window}s")),
            Self::Rate { rate, .. } if rate >= 1.0 => Some(format!("{rate}/s")),
            Self::Rate { rate, .. } => Some(format!("{}/min", rate * 60.0)),
            Self::Unknown {} => None,
        }
    }
}

/// What a client with a wrong guess must reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A 429 without a time.
    Bare429,
    /// The same from a window of ten seconds.
    Bare429Window,
    /// The same where refused calls count too.
    Bare429Counted,
    /// A 503 without a time.
    Bare503,
    /// A reset that is a time of the calendar.
    Dates,
    /// Fields with names of their own, or of the closest policy only.
    Named,
    /// Fields that say all.
    Fields,
    /// What it says does not suffice, or is not true.
    #[default]
    None,
}

impl Target {
    /// The least percentage accepted of what is possible, and the largest refused of what is sent.
    pub fn bounds(self) -> Option<(f64, f64)> {
        Some(match self {
            Self::Bare429 => (90.0, 8.0),
            Self::Bare429Window => (80.0, 12.0),
            Self::Bare429Counted => (80.0, 20.0),
            Self::Bare503 => (90.0, 15.0),
            Self::Dates => (95.0, 3.0),
            Self::Named => (90.0, 5.0),
            Self::Fields => (100.0, 0.0),
            Self::None => return None,
        })
    }

    pub fn seconds(self) -> u64 {
        match self {
            Self::Bare429Window | Self::Bare429Counted => 120,
            // Long enough for a seventh window of ten seconds, if each is taken in time.
            _ => 62,
        }
    }
}

/// All groups by name, of all folders.
pub fn read() -> BTreeMap<String, Group> {
    let mut groups = BTreeMap::new();
    let mut folders: Vec<_> =
        fs::read_dir(".").expect("this folder").map(|f| f.expect("a file").path()).collect();
    folders.sort();
    for table in
        folders.iter().map(|folder| folder.join("setups.toml")).filter(|path| path.exists())
    {
        groups.append(&mut read_table(&table));
    }
    groups
}

fn read_table(path: &Path) -> BTreeMap<String, Group> {
    let text = fs::read_to_string(path).expect("a table");
    toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
