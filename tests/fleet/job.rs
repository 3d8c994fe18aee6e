//! The job of a process of the fleet, encoded for an environment variable.

use std::str::SplitWhitespace;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tollgate::{FixedWindow, InFlight, Rate, Same, SlidingWindowLog, SmoothBursty, TokenBucket};

/// How many processes a fleet has, and how many tasks each of them.
pub(crate) const PROCESSES: u32 = 8;
pub(crate) const TASKS: u32 = 50;

/// How far ahead tickets are booked.
pub(crate) const HORIZON: Duration = ms(250);

/// Microseconds of the time that all processes share.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later than 1970");
    micros(since)
}

pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("less than 500,000 years")
}

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    SmoothBursty,
    TokenBucket,
    FixedWindow,
    Log,
    Places,
    LogAndPlaces,
}

const KINDS: [Kind; 6] = [
    Kind::SmoothBursty,
    Kind::TokenBucket,
    Kind::FixedWindow,
    Kind::Log,
    Kind::Places,
    Kind::LogAndPlaces,
];

/// The rule that the fleet shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) kind: Kind,
    pub(crate) rate: f64,
    /// The capacity, as the time in which it refills; of a window, its length.
    pub(crate) burst: Duration,
    pub(crate) places: u32,
}

impl Rule {
    pub(crate) fn bursty(rate: f64) -> Self {
        Self { kind: Kind::SmoothBursty, rate, burst: ms(100), places: 0 }
    }

    /// `limit` permits per window.
    pub(crate) fn window(kind: Kind, limit: u32, window: Duration) -> Self {
        Self { kind, rate: f64::from(limit) / window.as_secs_f64(), burst: window, places: 0 }
    }

    /// `places` permits in flight. Each is held for `holds`, and that makes the rate.
    pub(crate) fn places(places: u32, holds: Duration) -> Self {
        let rate = f64::from(places) / holds.as_secs_f64();
        Self { kind: Kind::Places, rate, burst: Duration::ZERO, places }
    }

    pub(crate) fn bucket(rate: f64) -> Self {
        Self { kind: Kind::TokenBucket, ..Self::bursty(rate) }
    }

    pub(crate) fn smooth_bursty(&self) -> SmoothBursty {
        SmoothBursty::new(Rate::per_second(self.rate)).max_burst(self.burst)
    }

    pub(crate) fn token_bucket(&self) -> TokenBucket {
        TokenBucket::new(Rate::per_second(self.rate), self.capacity())
    }

    pub(crate) fn fixed_window(&self) -> FixedWindow {
        FixedWindow::new(self.capacity(), self.burst)
    }

    pub(crate) fn log(&self) -> SlidingWindowLog {
        SlidingWindowLog::new(self.capacity(), self.burst)
    }

    pub(crate) fn in_flight(&self) -> InFlight {
        InFlight::new(self.places)
    }

    pub(crate) fn log_and_places(&self) -> Same<(SlidingWindowLog, InFlight)> {
        Same((self.log(), self.in_flight()))
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small and positive
    fn capacity(&self) -> u32 {
        (self.rate * self.burst.as_secs_f64()).round().max(1.0) as u32
    }

    /// The most permits at once after a long idle time: the store, and a request of `cost` if the
    /// next caller pays for it.
    pub(crate) fn most_at_once(&self, cost: u32) -> f64 {
        match self.kind {
            Kind::SmoothBursty => self.rate * self.burst.as_secs_f64() + f64::from(cost),
            // At the end of one window, and again in the next.
            Kind::FixedWindow => f64::from(2 * self.capacity()),
            _ => self.capacity().into(),
        }
    }
}

/// The pattern of arrivals.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Callers {
    /// A number of tasks, each of which asks again as soon as it is granted.
    Tasks(u32),
    /// One caller per interval, however many wait. Each leaves when its patience ends.
    Leaving { every: Duration, patience: Duration },
}

/// A change by a process to the shared limiter, at a time after the start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) at: Duration,
    pub(crate) to: To,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum To {
    Pause(Duration),
    Rate(f64),
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) url: String,
    pub(crate) rule: Rule,
    pub(crate) lasts: Duration,
    pub(crate) callers: Callers,
    pub(crate) cost: u32,
    /// How long a caller keeps its grant.
    pub(crate) holds: Duration,
    pub(crate) changes: Vec<Change>,
}

impl Job {
    /// Fifty tasks that ask for a permit at a time.
    pub(crate) fn new(url: String, rule: Rule, lasts: Duration) -> Self {
        let (callers, holds) = (Callers::Tasks(TASKS), Duration::ZERO);
        Self { url, rule, lasts, callers, cost: 1, holds, changes: Vec::new() }
    }

    pub(crate) fn encode(&self) -> String {
        let Self { url, rule, lasts, callers, cost, holds, changes } = self;
        let kind = KINDS.iter().position(|&kind| kind == rule.kind).expect("one of them");
        let mut text = format!("{url} {kind} {} {} {}", rule.rate, micros(rule.burst), rule.places);
        text += &format!(" {} {cost} {}", micros(*lasts), micros(*holds));
        text += &match *callers {
            Callers::Tasks(tasks) => format!(" tasks {tasks}"),
            Callers::Leaving { every, patience } => {
                format!(" leaving {} {}", micros(every), micros(patience))
            }
        };
        for &Change { at, to } in changes {
            text += &match to {
                To::Pause(duration) => format!(" pause {} {}", micros(at), micros(duration)),
                To::Rate(rate) => format!(" rate {} {rate}", micros(at)),
            };
        }
        text
    }

    pub(crate) fn decode(text: &str) -> Self {
        let mut words = Words(text.split_whitespace());
        let url = words.next();
        let kind = KINDS[usize::try_from(words.whole()).expect("small")];
        let (rate, burst, places) = (words.number(), words.duration(), words.whole());
        let rule = Rule { kind, rate, burst, places };
        let (lasts, cost, holds) = (words.duration(), words.whole(), words.duration());
        let callers = match &*words.next() {
            "tasks" => Callers::Tasks(words.whole()),
            _ => Callers::Leaving { every: words.duration(), patience: words.duration() },
        };
        let mut changes = Vec::new();
        while let Some(what) = words.0.next() {
            let at = words.duration();
            let to = match what {
                "pause" => To::Pause(words.duration()),
                _ => To::Rate(words.number()),
            };
            changes.push(Change { at, to });
        }
        Self { url, rule, lasts, callers, cost, holds, changes }
    }
}

struct Words<'a>(SplitWhitespace<'a>);

impl Words<'_> {
    fn next(&mut self) -> String {
        self.0.next().expect("one more word").to_owned()
    }

    fn number(&mut self) -> f64 {
        self.next().parse().expect("a number")
    }

    fn whole(&mut self) -> u32 {
        self.next().parse().expect("a whole number")
    }

    fn duration(&mut self) -> Duration {
        Duration::from_micros(self.next().parse().expect("microseconds"))
    }
}
