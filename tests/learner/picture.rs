//! The pictures: a learned rate over time, beside the quota that the client did not know, and what a server takes and
//! refuses after a first bare refusal.

use std::fs;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::clients::Kind;
use crate::server::Rule;
use crate::{real, scenarios};

pub(crate) const RATE: &str = "learned_rate.svg";
pub(crate) const REFUSED: &str = "bare_refusals.svg";

const SIZE: (u32, u32) = (800, 360);
const ORANGE: RGBColor = RGBColor(190, 100, 0);
const BLUE: RGBColor = RGBColor(20, 90, 190);
const RED: RGBColor = RGBColor(190, 30, 30);

/// A line with its text and color.
type Line = (Vec<(f64, f64)>, &'static str, RGBColor);

pub(crate) fn path(file: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/pictures/learner")).join(file)
}

/// Writes the pictures, and a link definition with each: a page of rustdoc has no files beside it.
pub(crate) fn draw() {
    fs::create_dir_all(path("")).expect("a directory");
    draw_to(&path(RATE), (300.0, 160.0), &rate()).expect("drawn");
    draw_to(&path(REFUSED), (40.0, 24.0), &refusals()).expect("drawn");
    let urls = [RATE, REFUSED].map(url).concat();
    fs::write(path("url.md"), urls).expect("written");
}

fn url(file: &str) -> String {
    let svg = fs::read_to_string(path(file)).expect("just written").replace('%', "%25");
    let svg = svg.replace('#', "%23").replace('<', "%3C").replace('>', "%3E");
    let svg = svg.replace(['\n', '\r'], " ");
    format!("[{}]: <data:image/svg+xml,{}>\n", file.trim_end_matches(".svg"), svg.trim_end())
}

fn rate() -> [Line; 2] {
    let quota =
        [(0.0, 100.0), (60.0, 100.0), (60.0, 50.0), (180.0, 50.0), (180.0, 100.0), (300.0, 100.0)];
    // The last rate of each half second: more cannot be seen.
    let mut rates = scenarios::changes(Kind::Ours, Rule::Bucket(100.0, 100.0), 1).rates;
    rates.reverse();
    rates.dedup_by_key(|(at, _)| (*at * 2.0).floor() as u64);
    rates.reverse();
    [
        (quota.into(), "the quota, which it does not know", ORANGE),
        (rates, "the rate that it learns from bare 429s, from 2/s on", BLUE),
    ]
}

/// Calls in each second at nginx with 10 r/s.
fn refusals() -> [Line; 3] {
    let run = real::outcome(&real::bare(real::NGINX, 503), 1);
    let each = |of: fn((f64, f64)) -> f64| {
        let seconds = (0..40u32).map(f64::from);
        seconds.flat_map(|at| [at, at + 1.0].map(|x| (x, of(run.second(at))))).collect()
    };
    [
        (
            vec![(0.0, 10.0), (40.0, 10.0)],
            "the limit of the server, 10/s, which the client does not know",
            ORANGE,
        ),
        (each(|(taken, _)| taken), "calls that it took", BLUE),
        (each(|(_, refused)| refused), "calls that it refused, each with a bare 503", RED),
    ]
}

fn draw_to(
    path: &PathBuf,
    (end, top): (f64, f64),
    lines: &[Line],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_desc("seconds")
        .y_desc("calls a second")
        .draw()?;
    for (number, (line, said, color)) in lines.iter().enumerate() {
        chart.draw_series([PathElement::new(line.clone(), color.stroke_width(2))])?;
        let style = ("sans-serif", 14).into_font().color(color);
        let height = top * (15.0 - number as f64) / 16.0;
        chart.draw_series([Text::new(*said, (end / 15.0, height), style)])?;
    }
    Ok(root.present()?)
}
