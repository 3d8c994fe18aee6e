//! A server with a hidden quota, enforced by a sliding log, that answers as an API documents.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

/// How it says what remains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Style {
    GitHub,
    OpenAi,
    Discord,
    /// It says that a hundred remain, whatever is true.
    Liar,
}

/// What it calls the reset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Reset {
    /// When the first permit is there again.
    First,
    /// When all are.
    All,
}

pub(crate) struct Server {
    style: Style,
    reset: Reset,
    start: Instant,
    /// Its calendar when it started: three hours and more from that of the client.
    calendar: Duration,
    pub(crate) quota: Mutex<Quota>,
    log: Mutex<VecDeque<(Instant, u64)>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    pub(crate) limit: u64,
    pub(crate) window: Duration,
}

pub(crate) type Response = (u16, Vec<(&'static str, String)>);

impl Server {
    pub(crate) fn new(style: Style, reset: Reset, limit: u64, window: Duration) -> Self {
        Self {
            style,
            reset,
            start: Instant::now(),
            calendar: Duration::from_secs(1_668_499_951),
            quota: Mutex::new(Quota { limit, window }),
            log: Mutex::default(),
        }
    }

    /// A call arrives.
    pub(crate) fn call(&self, cost: u64) -> Response {
        let now = Instant::now();
        let Quota { limit, window } = *self.quota.lock().expect("no panic");
        let mut log = self.log.lock().expect("no panic");
        while log.front().is_some_and(|&(at, _)| at + window <= now) {
            log.pop_front();
        }
        let used: u64 = log.iter().map(|&(_, cost)| cost).sum();
        let is_taken = used + cost <= limit;
        if is_taken {
            log.push_back((now, cost));
        }
        let remaining = limit.saturating_sub(used + if is_taken { cost } else { 0 });
        let wait = |entry: Option<&(Instant, u64)>| {
            entry.map_or(Duration::ZERO, |&(at, _)| (at + window).saturating_duration_since(now))
        };
        // Until there is room for one more.
        let first = wait(log.front());
        let reset = if self.reset == Reset::First { first } else { wait(log.back()) };
        (if is_taken { 200 } else { 429 }, self.headers(limit, remaining, reset, first, is_taken))
    }

    fn headers(
        &self,
        limit: u64,
        remaining: u64,
        reset: Duration,
        first: Duration,
        is_taken: bool,
    ) -> Vec<(&'static str, String)> {
        let calendar = self.calendar + self.start.elapsed();
        let date = httpdate(calendar);
        let ceil = |time: Duration| time.as_millis().div_ceil(1000);
        let mut headers = match self.style {
            Style::GitHub => vec![
                ("date", date),
                ("x-ratelimit-limit", limit.to_string()),
                ("x-ratelimit-remaining", remaining.to_string()),
                ("x-ratelimit-used", (limit - remaining).to_string()),
                ("x-ratelimit-resource", "core".to_owned()),
                ("x-ratelimit-reset", ceil(calendar + reset).to_string()),
            ],
            Style::OpenAi => vec![
                ("x-ratelimit-limit-requests", limit.to_string()),
                ("x-ratelimit-remaining-requests", remaining.to_string()),
                ("x-ratelimit-reset-requests", format!("{}ms", reset.as_micros().div_ceil(1000))),
            ],
            Style::Discord => vec![
                ("x-ratelimit-limit", limit.to_string()),
                ("x-ratelimit-remaining", remaining.to_string()),
                ("x-ratelimit-reset-after", format!("{:.3}", reset.as_secs_f64() + 0.0005)),
                ("x-ratelimit-reset", format!("{:.3}", (calendar + reset).as_secs_f64())),
                ("x-ratelimit-bucket", "abcd1234".to_owned()),
            ],
            Style::Liar => vec![
                ("x-ratelimit-limit", "100".to_owned()),
                ("x-ratelimit-remaining", "100".to_owned()),
                ("x-ratelimit-reset", "1".to_owned()),
            ],
        };
        if !is_taken && self.style != Style::OpenAi {
            headers.push(("retry-after", ceil(first).max(1).to_string()));
        }
        headers
    }
}

/// `Tue, 15 Nov 2022 08:12:31 GMT`, for a time of that week.
fn httpdate(calendar: Duration) -> String {
    let seconds = calendar.as_secs() - 1_668_470_400; // midnight
    let (day, seconds) = (15 + seconds / 86_400, seconds % 86_400);
    let name = ["Tue", "Wed", "Thu", "Fri"][usize::try_from(day - 15).expect("a day")];
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{name}, {day} Nov 2022 {hour:02}:{minute:02}:{second:02} GMT")
}
