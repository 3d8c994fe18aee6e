//! Draws the picture of the README, and those of `docs/choosing.md`: the same calls through each policy.
//!
//! ```text
//! cargo run -p examples --bin pictures    # writes docs/pictures/*.svg
//! ```
//!
//! Real limiters on a manual clock, so that each run writes the same bytes. It also prints the size
//! of each policy's state, and the numbers behind the pictures.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::iter::repeat_n;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use tollgate::{
    FixedWindow, InFlight, LeakyBucket, LockOut, ManualClock, Nanos, Policy, Rate, RateLimiter,
    Ready, SlidingWindowCounter, SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

type Failure = Box<dyn Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The rate of all policies, in permits a second.
const RATE: f64 = 10.0;
/// How long a picture shows, and the steps in which its clock moves.
const SPAN: Duration = Duration::from_secs(11);
const STEP: Duration = Duration::from_millis(5);
/// The duration of a call, during which its permits are in flight.
const CALL: Duration = Duration::from_millis(400);

/// The picture of the README.
const CROWD: &str = "crowd.svg";

const SIZE: (u32, u32) = (800, 460);
const ARRIVAL: RGBColor = RGBColor(140, 140, 140);
const LIMIT: RGBColor = RGBColor(190, 100, 0);
const WAITED: RGBColor = RGBColor(20, 90, 190);
const AT_ONCE: RGBColor = RGBColor(20, 125, 50);
const REFUSED: RGBColor = RGBColor(205, 30, 40);

fn main() -> Result<(), Failure> {
    let second = Duration::from_secs(1);
    let half_second = second / 2;
    let rate = Rate::per_second(RATE);

    /// One picture, with the very expression that makes the rule as its title.
    macro_rules! rule {
        ($file:literal, $cost:expr, $policy:expr) => {
            draw_rule($file, stringify!($policy), &$policy, $cost)?
        };
    }
    fs::create_dir_all(path(""))?;
    println!("{:24} {:>6}  {:>23}", "", "state", "fullest second");
    println!("{:24} {:>6}  {:>11} {:>11}", "", "bytes", "acquire", "try_acquire");
    rule!("smooth_bursty", 1, SmoothBursty::new(rate));
    rule!("smooth_warming_up", 1, SmoothWarmingUp::new(rate, 2 * second));
    rule!("token_bucket", 1, TokenBucket::new(rate, 10));
    rule!("refill_every", 1, TokenBucket::new(rate, 10).refill_every(half_second));
    rule!("leaky_bucket", 1, LeakyBucket::new(rate, 15));
    rule!("fixed_window", 1, FixedWindow::new(10, second).aligned(Duration::ZERO));
    rule!("sliding_window_log", 1, SlidingWindowLog::new(10, second));
    rule!("sliding_window_counter", 1, SlidingWindowCounter::new(10, second, 5));
    rule!("in_flight", 1, InFlight::new(4));
    rule!("lock_out", 1, LockOut::new(TokenBucket::new(rate, 10), 3 * second));
    rule!("tuple", (1, 1), (TokenBucket::new(rate, 10), InFlight::new(8)));
    draw_trapezoid()?;
    draw_ramp()?;
    write_urls()?;
    draw_crowd()
}

/// The pictures once more as link definitions, for `tollgate::guide::choosing`: a page of rustdoc has no files
/// beside it.
fn write_urls() -> Result<(), Failure> {
    let mut pictures = fs::read_dir(path(""))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>, std::io::Error>>()?;
    pictures.retain(|picture| picture.extension().is_some_and(|extension| extension == "svg"));
    pictures.retain(|picture| !picture.ends_with(CROWD));
    pictures.sort();
    let mut urls = String::new();
    for picture in pictures {
        let name = picture.file_stem().ok_or("no name")?.to_string_lossy().into_owned();
        let svg = fs::read_to_string(&picture)?.replace('%', "%25").replace('#', "%23");
        let svg = svg.replace('<', "%3C").replace('>', "%3E").replace(['\n', '\r'], " ");
        writeln!(urls, "[{name}]: <data:image/svg+xml,{}>", svg.trim_end())?;
    }
    Ok(fs::write(path("urls.md"), urls)?)
}

fn path(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures")).join(file)
}

/// Thirty at once, eight a second for three seconds, and after two seconds of nothing twenty at once.
fn arrivals() -> impl Iterator<Item = Duration> {
    let steady = (0..24).map(|n| Duration::from_secs(3) + n * Duration::from_millis(125));
    repeat_n(Duration::from_millis(900), 30)
        .chain(steady)
        .chain(repeat_n(Duration::from_millis(7900), 20))
}

/// The outcome of a call.
#[derive(Clone, Copy)]
struct Call {
    arrived: Duration,
    /// `None`: refused.
    granted: Option<Duration>,
}

/// The outcomes of all calls, in the order of their arrival. Each waits for at most this time: zero
/// is `try_acquire`, for ever is `acquire`.
fn run<P: Policy>(policy: P, cost: P::Cost, patience: Duration) -> Vec<Call> {
    let clock = ManualClock::new();
    let limiter = RateLimiter::with_clock(policy, &clock);
    let mut arrivals = arrivals().peekable();
    let (mut calls, mut waiting, mut held) = (Vec::new(), VecDeque::new(), Vec::new());
    while clock.elapsed() < SPAN {
        let now = clock.elapsed();
        held.retain(|(end, _grant)| *end > now);
        while let Some(arrived) = arrivals.next_if(|time| *time <= now) {
            waiting.push_back((calls.len(), limiter.try_acquire_timeout(cost, patience)));
            calls.push(Call { arrived, granted: None });
        }
        waiting.retain_mut(|(call, acquire)| {
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(outcome) = Pin::new(acquire).poll(&mut context) else { return true };
            if let Ok(grant) = outcome {
                let Call { arrived, granted } = &mut calls[*call];
                *granted = Some(*arrived + grant.waited());
                held.push((now + CALL, grant));
            }
            false
        });
        clock.advance(STEP);
    }
    assert!(waiting.is_empty(), "the picture must show what becomes of all calls");
    calls
}

fn grants(calls: &[Call]) -> impl Iterator<Item = Duration> {
    calls.iter().filter_map(|call| call.granted)
}

/// The most grants in any second, wherever it starts.
fn fullest_second(calls: &[Call]) -> usize {
    let second = Duration::from_secs(1);
    let within = |start| grants(calls).filter(move |time| (start..start + second).contains(time));
    grants(calls).map(|start| within(start).count()).max().unwrap_or_default()
}

fn draw_rule<P: Policy>(file: &str, rule: &str, policy: &P, cost: P::Cost) -> Result<(), Failure> {
    let waiting = run(policy.clone(), cost, Duration::MAX);
    let at_once = run(policy.clone(), cost, Duration::ZERO);
    let fullest = [fullest_second(&waiting), fullest_second(&at_once)];
    let state = size_of::<P::State>();
    println!("{file:24} {state:>6}  {:>11} {:>11}", fullest[0], fullest[1]);

    let path = path(&format!("{file}.svg"));
    let root = start(&path, rule)?;
    let (upper, lower) = root.split_vertically(265);
    draw_waiting(&upper, &waiting, fullest[0])?;
    draw_at_once(&lower, &at_once, fullest[1])?;
    Ok(root.present()?)
}

/// All calls and all grants up to each moment, of callers that wait.
fn draw_waiting(area: &Area, calls: &[Call], fullest: usize) -> Result<(), Failure> {
    let mut chart = chart(area, SPAN.as_secs_f64(), 80.0, "", "calls so far")?;

    let mut arrived = vec![(0.0, 0.0)];
    for (n, time) in (0..).zip(arrivals()) {
        arrived
            .extend([(time.as_secs_f64(), f64::from(n)), (time.as_secs_f64(), f64::from(n + 1))]);
    }
    let all = f64::from(u32::try_from(calls.len())?);
    arrived.push((SPAN.as_secs_f64(), all));
    line(&mut chart, arrived, ARRIVAL.stroke_width(2))?;
    line(&mut chart, vec![(0.9, 0.0), (0.9 + 80.0 / RATE, 80.0)], LIMIT.stroke_width(1))?;

    let mut granted: Vec<f64> = grants(calls).map(|time| time.as_secs_f64()).collect();
    granted.sort_by(f64::total_cmp);
    let nth = (1..).map(f64::from);
    let dots = granted.into_iter().zip(nth).map(|at| Circle::new(at, 2, WAITED.filled()));
    chart.draw_series(dots)?;
    // The refused calls, at their places among all calls.
    let nth = (1..).map(f64::from);
    let refused = calls.iter().zip(nth).filter(|(call, _)| call.granted.is_none());
    let crosses = refused.map(|(call, n)| (call.arrived.as_secs_f64(), n));
    chart.draw_series(crosses.map(|at| Cross::new(at, 2, REFUSED)))?;

    let longest = calls.iter().filter_map(|call| Some(call.granted? - call.arrived)).max();
    let longest = longest.unwrap_or_default().as_secs_f64();
    let said = format!("acquire: fullest second {fullest}, longest wait {longest:.1} s");
    text(&mut chart, (0.15, 78.0), &said, 15, &BLACK)?;
    text(&mut chart, (8.1, 31.0), "calls that came", 13, &ARRIVAL)?;
    text(&mut chart, (8.1, 24.0), "grants", 13, &WAITED)?;
    text(&mut chart, (8.1, 17.0), "10 a second", 13, &LIMIT)?;
    if calls.iter().any(|call| call.granted.is_none()) {
        text(&mut chart, (8.1, 10.0), "line full", 13, &REFUSED)?;
    }
    Ok(())
}

/// How many of the calls of each moment were granted, of callers that do not wait.
fn draw_at_once(area: &Area, calls: &[Call], fullest: usize) -> Result<(), Failure> {
    let mut chart = chart(area, SPAN.as_secs_f64(), 34.0, "seconds", "at once")?;
    let mut height = 0.0;
    let mut before = None;
    for call in calls {
        height = if before == Some(call.arrived) { height + 1.0 } else { 1.0 };
        before = Some(call.arrived);
        let at = (call.arrived.as_secs_f64(), height);
        if call.granted.is_some() {
            chart.draw_series([Circle::new(at, 2, AT_ONCE.filled())])?;
        } else {
            chart.draw_series([Cross::new(at, 2, REFUSED)])?;
        }
    }
    let refused = calls.iter().filter(|call| call.granted.is_none()).count();
    let said = format!("try_acquire: fullest second {fullest}, refused {refused}");
    text(&mut chart, (1.6, 32.5), &said, 15, &BLACK)?;
    text(&mut chart, (1.6, 23.0), "granted", 13, &AT_ONCE)?;
    text(&mut chart, (2.7, 23.0), "refused", 13, &REFUSED)
}

/// The cost of each permit of a cold [`SmoothWarmingUp`]: measured, on the expected line.
fn draw_trapezoid() -> Result<(), Failure> {
    let (stable, warm_up) = (1.0 / RATE, 2.0);
    let policy = SmoothWarmingUp::new(Rate::per_second(RATE), Duration::from_secs_f64(warm_up));
    let cold = 3.0 * stable;
    let threshold = warm_up / 2.0 / stable;
    let most = threshold + 2.0 * warm_up / (stable + cold);

    let path = path("trapezoid.svg");
    let root = start(&path, "SmoothWarmingUp::new(rate, 2 * second): what a permit costs")?;
    let mut chart = chart(&root, most + 2.0, 0.35, "stored permits", "seconds for one permit")?;
    let curve = vec![(0.0, stable), (threshold, stable), (most, cold)];
    let fill = [(most, 0.0), (0.0, 0.0)].into_iter().chain(curve.clone()).collect::<Vec<_>>();
    chart.draw_series([Polygon::new(fill, WAITED.mix(0.12))])?;
    line(&mut chart, curve, WAITED.stroke_width(2))?;
    line(&mut chart, vec![(threshold, 0.0), (threshold, stable)], ARRIVAL.stroke_width(1))?;
    line(&mut chart, vec![(most, 0.0), (most, cold)], ARRIVAL.stroke_width(1))?;

    let mut state = policy.start(Nanos::ZERO);
    let mut ticket = Nanos::ZERO;
    let mut stored = most;
    while stored > 0.5 {
        policy.charge(&mut state, ticket, 1);
        let Ready::At(next) = policy.ready_at(&state, ticket, 1)? else { unreachable!() };
        let middle = (stored - 0.5, next.since(ticket).as_secs_f64());
        chart.draw_series([Circle::new(middle, 3, AT_ONCE.filled())])?;
        (stored, ticket) = (stored - 1.0, next);
    }
    text(&mut chart, (12.0, 0.05), "area: the warm-up, 2 s", 15, &BLACK)?;
    text(&mut chart, (3.2, 0.05), "area: half of it, 1 s", 15, &BLACK)?;
    text(&mut chart, (threshold - 1.2, 0.13), "threshold", 15, &BLACK)?;
    text(&mut chart, (14.6, 0.32), "cold: three times as long", 15, &BLACK)?;
    text(&mut chart, (0.2, 0.13), "warm: 1 / rate", 15, &BLACK)?;
    text(&mut chart, (0.2, 0.32), "dots: measured, permit by permit", 15, &AT_ONCE)?;
    Ok(root.present()?)
}

/// Grants per second of a cold [`SmoothWarmingUp`] under constant demand.
fn draw_ramp() -> Result<(), Failure> {
    let path = path("ramp.svg");
    let root =
        start(&path, "SmoothWarmingUp::new(Rate::per_second(100.0), 10 * second): the ramp")?;
    let mut chart = chart(&root, 12.0, 120.0, "seconds after a cold start", "grants per second")?;
    let end = Duration::from_secs(12);
    line(&mut chart, vec![(0.0, 100.0), (12.0, 100.0)], LIMIT.stroke_width(1))?;
    for (cold_factor, color) in [(3.0, WAITED), (10.0, AT_ONCE)] {
        let policy = SmoothWarmingUp::new(Rate::per_second(100.0), Duration::from_secs(10));
        let clock = ManualClock::auto_advance();
        let limiter = RateLimiter::with_clock(policy.cold_factor(cold_factor), &clock);
        let mut curve = Vec::new();
        limiter.blocking_acquire(1)?;
        while clock.elapsed() < end {
            let interval = limiter.blocking_acquire(1)?.waited().as_secs_f64();
            curve.push((clock.elapsed().as_secs_f64() - interval / 2.0, 1.0 / interval));
        }
        line(&mut chart, curve, color.stroke_width(3))?;
    }
    text(&mut chart, (0.3, 115.0), "the rate: 100", 15, &LIMIT)?;
    text(&mut chart, (2.3, 66.0), "cold factor 3, the default", 15, &WAITED)?;
    text(&mut chart, (5.2, 35.0), "cold_factor(10.0)", 15, &AT_ONCE)?;
    Ok(root.present()?)
}

/// 200 tasks call a server that accepts 50 calls in any second: without a limiter, where each refused task calls again after
/// `Retry-After: 1`, and through one limiter.
fn draw_crowd() -> Result<(), Failure> {
    const TASKS: u32 = 200;
    const QUOTA: u32 = 50;
    let mut without = Vec::new();
    for (second, left) in (0..).zip((1..=TASKS / QUOTA).rev()) {
        let at = f64::from(second) + 0.05;
        without.push((at, QUOTA, QUOTA * (left - 1)));
    }
    let clock = ManualClock::auto_advance();
    let policy = SmoothBursty::evenly_spaced(Rate::per_second(f64::from(QUOTA)));
    let limiter = RateLimiter::with_clock(policy, &clock);
    let mut with = Vec::new();
    for _ in 0..TASKS {
        limiter.blocking_acquire(1)?;
        let slice = (clock.elapsed().as_secs_f64() * 10.0).floor() / 10.0 + 0.05;
        match with.last_mut() {
            Some((at, accepted, _)) if *at == slice => *accepted += 1,
            _ => with.push((slice, 1, 0)),
        }
    }

    let path = path(CROWD);
    let root = start(&path, "200 tasks call an API that accepts 50 calls a second")?;
    let (upper, lower) = root.split_vertically(205);
    let titles = ["each on its own", "through one RateLimiter"];
    for ((area, bars), title) in [upper, lower].iter().zip([without, with]).zip(titles) {
        let x_name = if title == titles[1] { "seconds" } else { "" };
        let mut chart = chart(area, 5.0, 200.0, x_name, "calls")?;
        let refused: u32 = bars.iter().map(|(_, _, refused)| refused).sum();
        for (at, accepted, refused) in bars {
            let (left, right) = (at - 0.04, at + 0.04);
            let (low, high) = (f64::from(accepted), f64::from(accepted + refused));
            let bar = |from, to, color: RGBColor| {
                Rectangle::new([(left, from), (right, to)], color.filled())
            };
            chart.draw_series([bar(0.0, low, AT_ONCE), bar(low, high, REFUSED)])?;
        }
        text(&mut chart, (1.4, 190.0), title, 15, &BLACK)?;
        text(&mut chart, (1.4, 165.0), "200 accepted", 14, &AT_ONCE)?;
        text(&mut chart, (1.4, 140.0), &format!("{refused} refused with 429"), 14, &REFUSED)?;
    }
    Ok(root.present()?)
}

/// A white sheet with a title.
fn start<'a>(path: &'a PathBuf, title: &str) -> Result<Area<'a>, Failure> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    Ok(root.titled(title, ("sans-serif", 18).into_font().color(&BLACK))?)
}

/// Axes from zero.
fn chart<'a, 'b>(
    area: &'a Area<'b>,
    width: f64,
    height: f64,
    x_name: &str,
    y_name: &str,
) -> Result<Chart<'a, 'b>, Failure> {
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(16)
        .x_label_area_size(if x_name.is_empty() { 20 } else { 36 })
        .y_label_area_size(54)
        .build_cartesian_2d(0.0..width, 0.0..height)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.1))
        .x_labels(12)
        .x_label_formatter(&|x| x.to_string())
        .y_label_formatter(&|y| ((y * 10.0).round() / 10.0).to_string())
        .y_labels(5)
        .x_desc(x_name)
        .y_desc(y_name)
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    Ok(chart)
}

fn line(chart: &mut Chart, points: Vec<(f64, f64)>, style: ShapeStyle) -> Result<(), Failure> {
    chart.draw_series([PathElement::new(points, style)])?;
    Ok(())
}

fn text(
    chart: &mut Chart,
    at: (f64, f64),
    said: &str,
    size: u32,
    color: &RGBColor,
) -> Result<(), Failure> {
    let style = ("sans-serif", size).into_font().color(color);
    chart.draw_series([Text::new(said.to_owned(), at, style)])?;
    Ok(())
}
