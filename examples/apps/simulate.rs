//! Shows what a limit does to a demand before you use it, and what a server behind it would refuse.
//!
//! A real limiter on a manual clock, so hours take no time and each run shows the same:
//!
//! ```text
//! cargo run -p examples --bin simulate -- "100/min burst 20, 10 in flight" --demand 5/s --for 5min
//! cargo run -p examples --bin simulate -- "100/min burst 20" --demand 5/s --for 5min \
//!     --against "90/min sliding window" --delay 0..80ms --svg target/simulated.svg
//! ```

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use clap::{Parser, value_parser};
use plotters::prelude::*;
use tollgate::{AllOf, Grant, ManualClock, Rate, RateLimiter, Reservation, block_on};

type Failure = Box<dyn Error + Send + Sync>;

/// Shows what a limit does to a demand, and what a server behind it would refuse, in no time.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Options {
    /// The limit, as in "100/min burst 20, 10 in flight"
    #[arg(value_name = "LIMIT")]
    pub(crate) limit: AllOf,

    /// How many calls come
    #[arg(long, value_name = "RATE")]
    pub(crate) demand: Rate,

    /// The calls that come at the same time
    #[arg(long, value_name = "CALLS", default_value = "1", value_parser = value_parser!(u32).range(1..=100_000))]
    pub(crate) together: u32,

    /// How long they come, at most a day
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    pub(crate) span: Duration,

    /// How long a call takes, with its ways there and back, if that is longer
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = parse_time)]
    pub(crate) call: Duration,

    /// The limit of the server, which refuses what exceeds it
    #[arg(long, value_name = "LIMIT")]
    pub(crate) against: Option<AllOf>,

    /// The way to the server, as in 20ms or, for any time between, 0..80ms
    #[arg(long, value_name = "TIMES", default_value = "0", value_parser = parse_times)]
    pub(crate) delay: (Duration, Duration),

    /// Draws it as well
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}

/// Calls in one run.
const MAX_CALLS: f64 = 1e6;

fn parse_time(text: &str) -> Result<Duration, Failure> {
    if text.trim().trim_matches('0').is_empty() {
        return Ok(Duration::ZERO);
    }
    // The text of a rate has a time behind its slash.
    let once = format!("1/{text}").parse::<Rate>();
    let once = once.map_err(|_| "expected a time up to a day, such as 80ms or 5min")?;
    Ok(Duration::from_nanos(u64::try_from(once.fraction().1)?))
}

fn parse_times(text: &str) -> Result<(Duration, Duration), Failure> {
    let (least, most) = text.split_once("..").unwrap_or((text, text));
    let (least, most) = (parse_time(least)?, parse_time(most)?);
    if least <= most { Ok((least, most)) } else { Err("the first time is longer".into()) }
}

/// What became of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) came: Duration,
    pub(crate) granted: Option<Duration>,
    /// When it came to the server, and whether it was served.
    pub(crate) at_server: Option<(Duration, bool)>,
}

enum Happens {
    /// The call with this number comes to the server.
    AtServer(usize),
    /// It is over.
    Over(usize),
}

/// What happens at which time, by number in the order in which it was planned.
#[derive(Default)]
struct Plan {
    times: BinaryHeap<Reverse<(Duration, usize)>>,
    all: Vec<Option<Happens>>,
}

impl Plan {
    fn add(&mut self, at: Duration, happens: Happens) {
        self.times.push(Reverse((at, self.all.len())));
        self.all.push(Some(happens));
    }

    fn next(&self) -> Option<Duration> {
        self.times.peek().map(|Reverse((at, _))| *at)
    }

    fn take(&mut self, now: Duration) -> Option<Happens> {
        let number = self.next().filter(|at| *at <= now).and_then(|_| self.times.pop())?.0.1;
        self.all[number].take()
    }
}

/// Numbers from zero to one that are the same in each run.
struct Dice(u64);

impl Dice {
    fn throw(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from(u32::try_from(self.0 >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }
}

/// When the calls come.
fn arrivals(options: &Options) -> Result<Vec<Duration>, Failure> {
    let calls = options.demand.as_per_second() * options.span.as_secs_f64();
    if calls > MAX_CALLS {
        return Err(format!("{calls:.0} calls are too many: at most {MAX_CALLS}").into());
    }
    let every = f64::from(options.together) / options.demand.as_per_second();
    let times = (0..).map(|n| Duration::from_secs_f64(f64::from(n) * every));
    let times = times.take_while(|time| *time < options.span);
    Ok(times.flat_map(|time| (0..options.together).map(move |_| time)).collect())
}

/// All calls, in the order in which they come, as they are at the end of the time.
pub(crate) fn simulate(options: &Options) -> Result<Vec<Call>, Failure> {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(options.limit.clone(), &clock);
    let server = options.against.clone().map(|limit| RateLimiter::with_clock(limit, &clock));
    let (least, most) = options.delay;
    let mut dice = Dice(1);
    let mut way = || least + (most - least).mul_f64(dice.throw());
    let mut arrivals = arrivals(options)?.into_iter().peekable();
    let mut calls: Vec<Call> = Vec::with_capacity(arrivals.len());
    let mut waiting: VecDeque<(usize, Reservation<_>)> = VecDeque::new();
    let mut plan = Plan::default();
    // The permits of a call here and there, until it is over.
    let mut held: Vec<Vec<Grant<'static, AllOf>>> = Vec::new();
    loop {
        let now = clock.elapsed();
        while let Some(happens) = plan.take(now) {
            match happens {
                Happens::AtServer(call) => {
                    let answer = server.as_ref().map(|server| server.try_acquire(1));
                    let is_served = !matches!(answer, Some(Err(_)));
                    held[call].extend(answer.and_then(Result::ok).map(Grant::into_owned));
                    calls[call].at_server = Some((now, is_served));
                }
                Happens::Over(call) => held[call].clear(),
            }
        }
        while let Some(came) = arrivals.next_if(|came| *came <= now) {
            waiting.push_back((calls.len(), limiter.reserve(1)?));
            calls.push(Call { came, granted: None, at_server: None });
            held.push(Vec::new());
        }
        while let Some((call, place)) = waiting.pop_front() {
            let mut acquire = place.wait();
            match Pin::new(&mut acquire).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(grant) => {
                    let grant = grant?;
                    let granted = calls[call].came + grant.waited();
                    calls[call].granted = Some(granted);
                    held[call].push(grant);
                    let at_server = (granted + way()).max(now);
                    plan.add(at_server, Happens::AtServer(call));
                    plan.add(at_server.max(granted + options.call), Happens::Over(call));
                }
                Poll::Pending => {
                    waiting.push_front((call, block_on(acquire.reserve())?));
                    break;
                }
            }
        }
        // The first one that waits is granted next. One whose time is unknown waits for a call to be over.
        let granted =
            waiting.front().map(|(_, place)| place.delay()).filter(|delay| !delay.is_zero());
        let times = [granted.map(|delay| now + delay), plan.next(), arrivals.peek().copied()];
        match times.into_iter().flatten().min() {
            Some(next) if next < options.span => clock.set(next),
            _ => return Ok(calls),
        }
    }
}

/// What is counted in each part of the time.
const COLUMNS: usize = 60;

/// Numbers of calls in each part of the time, and of callers that wait at its end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Column {
    came: usize,
    granted: usize,
    waiting: usize,
    refused: usize,
}

fn columns(calls: &[Call], span: Duration) -> Vec<Column> {
    let mut columns: Vec<_> = (0..COLUMNS).map(|_| Column::default()).collect();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // less than one
    let column =
        |at: Duration| ((at.div_duration_f64(span) * COLUMNS as f64) as usize).min(COLUMNS - 1);
    for call in calls {
        columns[column(call.came)].came += 1;
        if let Some(granted) = call.granted {
            columns[column(granted)].granted += 1;
        }
        if let Some((at, false)) = call.at_server {
            columns[column(at)].refused += 1;
        }
    }
    let mut waiting = 0;
    for column in &mut columns {
        waiting = waiting + column.came - column.granted;
        column.waiting = waiting;
    }
    columns
}

/// The most of these times in any `window`, wherever it begins.
fn fullest(mut times: Vec<Duration>, window: Duration) -> usize {
    times.sort_unstable();
    let mut first = 0;
    let counts = times.iter().enumerate().map(|(last, time)| {
        while *time >= times[first] + window {
            first += 1;
        }
        last + 1 - first
    });
    counts.max().unwrap_or_default()
}

fn bars(numbers: &[usize]) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = numbers.iter().copied().max().unwrap_or_default().max(1);
    // One is seen beside a thousand.
    numbers.iter().map(|number| BARS[(number * (BARS.len() - 1)).div_ceil(most)]).collect()
}

/// The picture and the numbers of a run.
pub(crate) fn report(options: &Options, calls: &[Call]) -> Result<String, Failure> {
    let columns = columns(calls, options.span);
    let mut text = String::new();
    let each = options.span / u32::try_from(COLUMNS)?;
    let mut row = |name: &str, of: fn(&Column) -> usize, unit: &str| {
        let numbers: Vec<_> = columns.iter().map(of).collect();
        let most = numbers.iter().max().copied().unwrap_or_default();
        writeln!(text, "{name:9} {} at most {most} {unit}", bars(&numbers))
    };
    row("demand", |column| column.came, &format!("in {each:?}"))?;
    row("grants", |column| column.granted, &format!("in {each:?}"))?;
    row("queue", |column| column.waiting, "callers")?;
    if options.against.is_some() {
        row("refusals", |column| column.refused, &format!("in {each:?}"))?;
    }
    let end = format!("{:?}", options.span);
    writeln!(text, "{:9} 0{end:>width$}", "", width = COLUMNS - 1)?;

    let granted: Vec<_> = calls.iter().filter_map(|call| call.granted).collect();
    let waits = calls.iter().filter_map(|call| Some(call.granted? - call.came));
    let longest = waits.max().unwrap_or_default();
    writeln!(
        text,
        "\n{} calls came by {}, {} were granted by {}",
        calls.len(),
        options.demand,
        granted.len(),
        options.limit
    )?;
    writeln!(
        text,
        "{} wait at the end; the longest wait was {longest:.1?}",
        calls.len() - granted.len()
    )?;
    for window in
        [1, 60].map(Duration::from_secs).into_iter().filter(|window| *window < options.span)
    {
        writeln!(
            text,
            "at most {} were granted in any {window:?}",
            fullest(granted.clone(), window)
        )?;
    }
    if let Some(limit) = &options.against {
        let at_server = calls.iter().filter_map(|call| call.at_server);
        let (served, refused): (Vec<_>, Vec<_>) = at_server.partition(|(_, is_served)| *is_served);
        let all = served.len() + refused.len();
        writeln!(text, "the server, with {limit}, refused {} of {all}", refused.len())?;
    }
    Ok(text)
}

/// The calls so far, those granted so far, and those that the server has refused.
fn draw(options: &Options, calls: &[Call], file: &Path) -> Result<(), Failure> {
    let root = SVGBackend::new(file, (800, 460)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&options.limit.to_string(), ("sans-serif", 18))?;
    let most = u32::try_from(calls.len().max(1)).map(f64::from)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .margin_right(16)
        .x_label_area_size(36)
        .y_label_area_size(54)
        .build_cartesian_2d(0.0..options.span.as_secs_f64(), 0.0..most)?;
    chart.configure_mesh().x_desc("seconds").y_desc("calls so far").draw()?;
    let came: Vec<_> = calls.iter().map(|call| call.came).collect();
    let granted: Vec<_> = calls.iter().filter_map(|call| call.granted).collect();
    let refused =
        calls.iter().filter_map(|call| call.at_server).filter(|(_, is_served)| !is_served);
    let refused: Vec<_> = refused.map(|(at, _)| at).collect();
    let lines = [
        ("demand", came, RGBColor(140, 140, 140)),
        ("grants", granted, RGBColor(20, 90, 190)),
        ("refusals of the server", refused, RGBColor(205, 30, 40)),
    ];
    for (name, mut times, color) in lines {
        if times.is_empty() {
            continue;
        }
        times.sort_unstable();
        // A step up at each time, but no more of them than can be seen.
        let numbered = times.iter().zip(1_u32..).map(|(at, n)| (at.as_secs_f64(), f64::from(n)));
        let steps = numbered.step_by(times.len().div_ceil(2_000));
        let steps = steps.flat_map(|(at, n)| [(at, n - 1.0), (at, n)]);
        chart
            .draw_series([PathElement::new(steps.collect::<Vec<_>>(), color.stroke_width(2))])?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(root.present()?)
}

fn main() -> Result<(), Failure> {
    let options = Options::parse();
    let calls = simulate(&options)?;
    print!("{}", report(&options, &calls)?);
    if let Some(file) = &options.svg {
        draw(&options, &calls, file)?;
        println!("drawn in {}", file.display());
    }
    Ok(())
}
