//! Servers: how they limit, what they say of it, and what goes wrong with them. Times are in seconds.

use std::collections::VecDeque;
use std::time::{Duration, UNIX_EPOCH};

use crate::random::Random;

/// What a call asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Request {
    /// Which server.
    pub(crate) host: usize,
    pub(crate) route: &'static str,
    pub(crate) tokens: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl Answer {
    pub(crate) fn is_good(&self) -> bool {
        self.status == 200
    }

    /// Refused because there were too many calls.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.status, 403 | 429)
    }

    /// The time that it names, for clients that read one field only.
    pub(crate) fn retry_after(&self) -> Option<f64> {
        let (_, after) = self.fields.iter().find(|(name, _)| *name == "retry-after")?;
        after.parse().ok()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Rule {
    /// Permits a second, and how many it holds at most.
    Bucket(f64, f64),
    /// Permits a second, and how many at once: by the time of the next arrival.
    Gcra(f64, f64),
    /// Permits in each window that begins with the clock, and its length.
    Fixed(f64, f64),
    /// Permits in any span of this length.
    Sliding(f64, f64),
    /// Calls at a time, and how long each takes.
    Concurrent(f64, f64),
    /// Permits in each window that begins with its first call, and its length.
    Opened(f64, f64),
    /// Calls in this period, with the part of the last one's that is not over. Refused calls count.
    Averaged(f64, f64),
}

impl Rule {
    /// In permits a second.
    pub(crate) fn rate(self) -> f64 {
        match self {
            Self::Bucket(rate, _) | Self::Gcra(rate, _) => rate,
            Self::Fixed(n, span)
            | Self::Sliding(n, span)
            | Self::Concurrent(n, span)
            | Self::Opened(n, span)
            | Self::Averaged(n, span) => n / span,
        }
    }

    fn limit(self) -> f64 {
        match self {
            Self::Bucket(_, n)
            | Self::Gcra(_, n)
            | Self::Fixed(n, _)
            | Self::Sliding(n, _)
            | Self::Concurrent(n, _)
            | Self::Opened(n, _)
            | Self::Averaged(n, _) => n,
        }
    }

    /// How many calls it takes in this time from a client that knows when there is room.
    pub(crate) fn most(self, seconds: f64) -> f64 {
        if let Self::Concurrent(..) = self {
            return self.rate() * seconds;
        }
        let (mut quota, mut now, mut taken) = (Quota::new(self), 0.0, 0.0);
        loop {
            now += quota.wait(now, 1.0, 1.0);
            if now >= seconds {
                return taken;
            }
            if quota.wait(now, 1.0, 1.0) == 0.0 {
                quota.take(now, 1.0, 1.0);
                taken += 1.0;
            }
        }
    }
}

/// What a quota counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Counts {
    Requests,
    Tokens,
    /// The requests of this route.
    Route(&'static str),
}

/// A rule and its state.
#[derive(Clone, Debug)]
pub(crate) struct Quota {
    pub(crate) rule: Rule,
    pub(crate) counts: Counts,
    /// In the bucket; taken in the window; calls at a time.
    level: f64,
    /// The last look; of GCRA, the next arrival in theory; the begin of a window or period.
    at: f64,
    /// Taken in the period before.
    before: f64,
    log: VecDeque<(f64, f64)>,
}

/// Sums of floats are off by a little.
const TINY: f64 = 1e-6;

impl Quota {
    pub(crate) fn new(rule: Rule) -> Self {
        let level = if let Rule::Bucket(_, most) = rule { most } else { 0.0 };
        Self { rule, counts: Counts::Requests, level, at: 0.0, before: 0.0, log: VecDeque::new() }
    }

    pub(crate) fn of(self, counts: Counts) -> Self {
        Self { counts, ..self }
    }

    /// A bucket that holds nothing at first.
    pub(crate) fn empty(self) -> Self {
        Self { level: 0.0, ..self }
    }

    fn cost(&self, request: &Request) -> f64 {
        match self.counts {
            Counts::Requests => 1.0,
            Counts::Tokens => f64::from(request.tokens),
            Counts::Route(route) => f64::from(u8::from(route == request.route)),
        }
    }

    /// Lets time pass. `factor`: the part of the quota that is in force.
    fn pass(&mut self, now: f64, factor: f64) {
        match self.rule {
            Rule::Bucket(rate, most) => {
                self.level = (self.level + (now - self.at) * rate * factor).min(most);
                self.at = now;
            }
            Rule::Gcra(..) => self.at = self.at.max(now),
            Rule::Fixed(_, window) => {
                if ((now + TINY) / window).floor() > ((self.at + TINY) / window).floor() {
                    self.level = 0.0;
                }
                self.at = now;
            }
            Rule::Sliding(_, window) => {
                while self.log.front().is_some_and(|&(at, _)| at + window <= now + TINY) {
                    self.level -= self.log.pop_front().map_or(0.0, |(_, cost)| cost);
                }
                self.at = now;
            }
            Rule::Concurrent(..) => self.at = now,
            Rule::Opened(_, window) => {
                if now + TINY >= self.at + window {
                    self.level = 0.0;
                }
            }
            Rule::Averaged(_, period) => {
                let periods = ((now + TINY - self.at) / period).floor();
                if periods >= 1.0 {
                    self.before = if periods < 2.0 { self.level } else { 0.0 };
                    self.level = 0.0;
                    self.at += periods * period;
                }
            }
        }
    }

    /// How long until there is room for `cost`. Zero: there is.
    pub(crate) fn wait(&mut self, now: f64, cost: f64, factor: f64) -> f64 {
        self.pass(now, factor);
        if cost == 0.0 || cost <= self.remaining(now, factor) + TINY {
            return 0.0;
        }
        let wait = match self.rule {
            Rule::Bucket(rate, _) => (cost - self.level) / (rate * factor),
            Rule::Gcra(rate, _) => (cost - self.remaining(now, factor)) / (rate * factor),
            Rule::Fixed(..) => self.reset(now, factor),
            Rule::Sliding(n, window) => {
                let mut left = self.level + cost - n * factor;
                let mut log = self.log.iter();
                let last = log.find(|(_, cost)| {
                    left -= cost;
                    left <= TINY
                });
                last.map_or(window, |&(at, _)| at + window - now)
            }
            Rule::Concurrent(_, span) => span,
            Rule::Opened(..) => self.reset(now, factor),
            Rule::Averaged(n, period) => {
                let left = self.at + period - now;
                // Until enough of the period before is over, or this one is.
                let over = self.before - (n * factor - self.level - cost);
                let due = over / self.before * period - (now - self.at);
                if over <= self.before { due.min(left) } else { left }
            }
        };
        wait.max(TINY)
    }

    pub(crate) fn take(&mut self, now: f64, cost: f64, factor: f64) {
        match self.rule {
            Rule::Bucket(..) => self.level -= cost,
            Rule::Gcra(rate, _) => self.at = self.at.max(now) + cost / (rate * factor),
            Rule::Fixed(..) | Rule::Concurrent(..) | Rule::Averaged(..) => self.level += cost,
            Rule::Opened(..) => {
                if self.level == 0.0 {
                    self.at = now;
                }
                self.level += cost;
            }
            Rule::Sliding(..) if cost > 0.0 => {
                self.level += cost;
                self.log.push_back((now, cost));
            }
            Rule::Sliding(..) => {}
        }
    }

    fn give_back(&mut self, cost: f64) {
        if let Rule::Concurrent(..) = self.rule {
            self.level -= cost;
        }
    }

    fn remaining(&self, now: f64, factor: f64) -> f64 {
        match self.rule {
            Rule::Bucket(..) => self.level,
            Rule::Gcra(rate, burst) => burst - (self.at - now).max(0.0) * rate * factor,
            Rule::Fixed(n, _)
            | Rule::Sliding(n, _)
            | Rule::Concurrent(n, _)
            | Rule::Opened(n, _) => n * factor - self.level,
            Rule::Averaged(n, period) => {
                let left = 1.0 - (now - self.at) / period;
                n * factor - self.level - self.before * left
            }
        }
    }

    /// How long until all is back.
    fn reset(&self, now: f64, factor: f64) -> f64 {
        match self.rule {
            Rule::Bucket(rate, most) => (most - self.level) / (rate * factor),
            Rule::Gcra(..) => (self.at - now).max(0.0),
            Rule::Fixed(_, window) => (((now + TINY) / window).floor() + 1.0) * window - now,
            Rule::Sliding(_, window) => self.log.back().map_or(0.0, |&(at, _)| at + window - now),
            Rule::Concurrent(..) => 0.0,
            Rule::Opened(_, window) | Rule::Averaged(_, window) => self.at + window - now,
        }
    }
}

/// How a server rounds a time to whole seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Round {
    Up,
    Down,
    /// A second is added, and the sum is cut.
    Next,
    /// A second is added, and the sum has decimals.
    Late,
    Not,
}

impl Round {
    fn of(self, time: f64) -> String {
        match self {
            Self::Up => (time - TINY).ceil().to_string(),
            Self::Down => (time + TINY).floor().to_string(),
            Self::Next => (time + 1.0 - TINY).floor().to_string(),
            Self::Late => format!("{:.6}", time + 1.0),
            Self::Not => format!("{time:.6}"),
        }
    }
}

/// What a server says by its calendar.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Dated {
    pub(crate) reset: Round,
    /// `Retry-After` of an accepted call, and of a refused one.
    pub(crate) retry_after: [Option<Round>; 2],
    /// `Date` is made once a second, this long after a whole one.
    pub(crate) date_at: f64,
}

/// What a server says of its limits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fields {
    /// Its refusals are bare.
    None,
    /// A refusal says how many whole seconds to wait.
    RetryAfter,
    /// The same, rounded down.
    RetryAfterCut,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`: whole seconds until all is back.
    XRateLimit,
    /// Requests and tokens, `6m0s`; a refusal says how many milliseconds to wait.
    OpenAi,
    /// The numbers of the resource of this route, and a reset by the calendar.
    GitHub,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`, the last by the calendar.
    Dated(Dated),
    /// The same with the seconds of a timer that each first call after its end starts anew, whatever is back. A refusal
    /// only names the time for which all calls are refused from then on.
    Timer(f64),
}

/// What goes wrong.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    /// The share of calls that fail by themselves: a bare 503.
    pub(crate) bad: f64,
    /// The calls of this route all fail so.
    pub(crate) broken: Option<&'static str>,
    /// All calls do from the one time to the other.
    pub(crate) outage: Option<(f64, f64)>,
    /// From a time on, the part of the quota that is in force.
    pub(crate) scale: Vec<(f64, f64)>,
    /// The calls of the server are refused from the one time to the other, with this `Retry-After`.
    pub(crate) refuses: Option<(f64, f64, f64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Server {
    quotas: Vec<Quota>,
    fields: Fields,
    trouble: Trouble,
    /// Of its refusals, if it is not that of the fields; and how long it takes for one.
    refuses_with: (u16, f64),
    /// What its calendar shows beside whole seconds.
    fraction: f64,
    /// When its timer ends, and from when on it takes calls again.
    timer: f64,
    blocked: f64,
    random: Random,
    /// When calls arrived, and those that were answered well.
    pub(crate) asked: Vec<f64>,
    pub(crate) taken: Vec<(f64, Request)>,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
}

/// What the servers' calendars show when the clocks of the clients begin, which these do not know.
const CALENDAR: f64 = 1_668_499_951.0;

impl Server {
    pub(crate) fn new(rule: Rule, seed: u64) -> Self {
        Self::of(vec![Quota::new(rule)], seed)
    }

    /// A call needs room in all quotas that count it.
    pub(crate) fn of(quotas: Vec<Quota>, seed: u64) -> Self {
        Self {
            quotas,
            fields: Fields::None,
            trouble: Trouble::default(),
            refuses_with: (429, 0.0),
            fraction: Random::new(seed ^ 0xDA7E).share(),
            timer: 0.0,
            blocked: 0.0,
            random: Random::new(seed ^ 0x5E44),
            asked: Vec::new(),
            taken: Vec::new(),
            refused: 0,
            failed: 0,
        }
    }

    pub(crate) fn fields(self, fields: Fields) -> Self {
        Self { fields, ..self }
    }

    pub(crate) fn trouble(self, trouble: Trouble) -> Self {
        Self { trouble, ..self }
    }

    /// The status of a refusal, and how long it takes.
    pub(crate) fn refuses_with(self, status: u16, seconds: f64) -> Self {
        Self { refuses_with: (status, seconds), ..self }
    }

    fn factor(&self, now: f64) -> f64 {
        let begun = self.trouble.scale.iter().rev().find(|(from, _)| *from <= now);
        begun.map_or(1.0, |&(_, factor)| factor)
    }

    /// A call arrives. The answer, and how long the server takes for it.
    pub(crate) fn ask(&mut self, now: f64, request: &Request) -> (Answer, f64) {
        self.asked.push(now);
        let factor = self.factor(now);
        if self.trouble.outage.is_some_and(|(from, to)| from <= now && now < to) {
            return (self.fail(), 0.0);
        }
        if let Some((from, to, after)) = self.trouble.refuses
            && from <= now
            && now < to
        {
            self.refused += 1;
            return (Answer { status: 429, fields: vec![("retry-after", after.to_string())] }, 0.0);
        }
        let wait = self.quotas.iter_mut().map(|quota| {
            let cost = quota.cost(request);
            quota.wait(now, cost, factor)
        });
        let mut wait = wait.fold(0.0, f64::max).max(self.blocked - now);
        if let Fields::Timer(span) = self.fields {
            if self.timer <= now {
                self.timer = now + span;
            }
            if wait > 0.0 && self.blocked <= now {
                self.blocked = now + span;
                wait = span;
            }
        }
        if wait > 0.0 {
            self.refused += 1;
            for quota in &mut self.quotas {
                if let Rule::Averaged(..) = quota.rule {
                    quota.take(now, 1.0, factor);
                }
            }
            let (status, span) = self.refuses_with;
            let status = if self.fields == Fields::GitHub { 403 } else { status };
            return (Answer { status, fields: self.say(now, request, Some(wait)) }, span);
        }
        let mut span = 0.0;
        for quota in &mut self.quotas {
            let cost = quota.cost(request);
            quota.take(now, cost, factor);
            if let Rule::Concurrent(_, each) = quota.rule {
                span = each;
            }
        }
        let is_broken = self.trouble.broken.is_some_and(|route| route == request.route);
        if is_broken || self.trouble.bad > 0.0 && self.random.share() < self.trouble.bad {
            return (self.fail(), span);
        }
        self.taken.push((now, *request));
        (Answer { status: 200, fields: self.say(now, request, None) }, span)
    }

    /// A call that the server took is over.
    pub(crate) fn leave(&mut self, request: &Request) {
        for quota in &mut self.quotas {
            let cost = quota.cost(request);
            quota.give_back(cost);
        }
    }

    fn fail(&mut self) -> Answer {
        self.failed += 1;
        Answer { status: 503, fields: Vec::new() }
    }

    /// The fields of an answer. `wait`: until there is room, if the call is refused.
    fn say(&self, now: f64, request: &Request, wait: Option<f64>) -> Vec<(&'static str, String)> {
        let factor = self.factor(now);
        let number = |number: f64| (number + TINY).floor().max(0.0).to_string();
        let seconds = |time: f64| (time - TINY).ceil().max(0.0).to_string();
        let quota = self.quotas.iter().find(|quota| quota.cost(request) > 0.0);
        let quota = quota.unwrap_or(&self.quotas[0]);
        let limit = number(quota.rule.limit() * factor);
        let remaining = number(quota.remaining(now, factor));
        let reset = quota.reset(now, factor);
        let mut fields = match self.fields {
            Fields::None | Fields::RetryAfter | Fields::RetryAfterCut => Vec::new(),
            Fields::XRateLimit => vec![
                ("x-ratelimit-limit", limit),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", seconds(reset)),
            ],
            Fields::OpenAi => {
                let mut fields = Vec::new();
                for quota in &self.quotas {
                    let names = match quota.counts {
                        Counts::Tokens => [
                            "x-ratelimit-limit-tokens",
                            "x-ratelimit-remaining-tokens",
                            "x-ratelimit-reset-tokens",
                        ],
                        _ => [
                            "x-ratelimit-limit-requests",
                            "x-ratelimit-remaining-requests",
                            "x-ratelimit-reset-requests",
                        ],
                    };
                    let values = [
                        number(quota.rule.limit()),
                        number(quota.remaining(now, factor)),
                        in_units(quota.reset(now, factor)),
                    ];
                    fields.extend(names.into_iter().zip(values));
                }
                fields
            }
            Fields::GitHub => {
                let date = UNIX_EPOCH + Duration::from_secs_f64(CALENDAR + now);
                let resource = if let Counts::Route(route) = quota.counts { route } else { "core" };
                vec![
                    ("date", httpdate::fmt_http_date(date)),
                    ("x-ratelimit-limit", limit),
                    ("x-ratelimit-remaining", remaining),
                    ("x-ratelimit-reset", seconds(CALENDAR + now + reset)),
                    ("x-ratelimit-resource", resource.to_owned()),
                ]
            }
            Fields::Timer(_) => match wait {
                Some(wait) => vec![("retry-after", seconds(wait))],
                None => vec![
                    ("x-ratelimit-limit", limit),
                    ("x-ratelimit-remaining", remaining),
                    ("x-ratelimit-reset", seconds(self.timer - now)),
                ],
            },
            Fields::Dated(Dated { reset: round, retry_after, date_at }) => {
                let calendar = CALENDAR + self.fraction + now;
                let date =
                    UNIX_EPOCH + Duration::from_secs_f64((calendar - date_at).floor() + date_at);
                let mut fields = vec![
                    ("date", httpdate::fmt_http_date(date)),
                    ("x-ratelimit-limit", limit),
                    ("x-ratelimit-remaining", remaining),
                    ("x-ratelimit-reset", round.of(calendar + reset)),
                ];
                let after = retry_after[usize::from(wait.is_some())];
                fields.extend(after.map(|round| ("retry-after", round.of(reset))));
                fields
            }
        };
        match (self.fields, wait) {
            (Fields::RetryAfter, Some(wait)) => {
                fields.push(("retry-after", seconds(wait.max(0.5))));
            }
            (Fields::RetryAfterCut, Some(wait)) => {
                fields.push(("retry-after", wait.floor().to_string()));
            }
            (Fields::OpenAi, Some(wait)) => {
                fields.push(("retry-after-ms", ((wait * 1e3).ceil()).to_string()));
            }
            _ => {}
        }
        fields
    }
}

/// As `OpenAI` prints a time: `6m0s`, `1.2s`, `20ms`.
fn in_units(time: f64) -> String {
    let time = Duration::from_millis((time * 1e3 - TINY).ceil().max(0.0) as u64);
    let (minutes, seconds) = (time.as_secs() / 60, time.as_millis() as f64 / 1e3);
    match (minutes, time.as_secs()) {
        (0, 0) => format!("{}ms", time.as_millis()),
        (0, _) => format!("{seconds}s"),
        _ => format!("{minutes}m{}s", time.as_secs() % 60),
    }
}
