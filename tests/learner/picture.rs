//! The picture: a learned rate over time, beside the quota that the client did not know.

use std::fs;
use std::path::{Path, PathBuf};

use plotters::prelude::*;

use crate::clients::Kind;
use crate::scenarios;
use crate::server::Rule;

pub(crate) const FILE: &str = "learned_rate.svg";

const SIZE: (u32, u32) = (800, 360);
const QUOTA: RGBColor = RGBColor(190, 100, 0);
const OURS: RGBColor = RGBColor(20, 90, 190);
const END: f64 = 300.0;

pub(crate) fn path(file: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/pictures/learner")).join(file)
}

/// Writes the picture, and a link definition with it: a page of rustdoc has no files beside it.
pub(crate) fn draw() {
    fs::create_dir_all(path("")).expect("a directory");
    let path = path(FILE);
    draw_to(&path).expect("drawn");
    let svg = fs::read_to_string(&path).expect("just written").replace('%', "%25");
    let svg = svg.replace('#', "%23").replace('<', "%3C").replace('>', "%3E");
    let url = format!(
        "[learned_rate]: <data:image/svg+xml,{}>\n",
        svg.replace(['\n', '\r'], " ").trim_end()
    );
    fs::write(self::path("url.md"), url).expect("written");
}

/// The last rate of each half second: more cannot be seen.
fn rates() -> Vec<(f64, f64)> {
    let mut rates = scenarios::changes(Kind::Ours, Rule::Bucket(100.0, 100.0), 1).rates;
    rates.reverse();
    rates.dedup_by_key(|(at, _)| (*at * 2.0).floor() as u64);
    rates.reverse();
    rates
}

fn draw_to(path: &PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d(0.0..END, 0.0..160.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format!("{y:.0}"))
        .x_desc("seconds")
        .y_desc("calls a second")
        .draw()?;
    let quota =
        [(0.0, 100.0), (60.0, 100.0), (60.0, 50.0), (180.0, 50.0), (180.0, 100.0), (END, 100.0)];
    chart.draw_series([PathElement::new(quota, QUOTA.stroke_width(2))])?;
    chart.draw_series([PathElement::new(rates(), OURS.stroke_width(2))])?;
    let texts = [
        (150.0, "the quota, which it does not know", QUOTA),
        (140.0, "the rate that it learns from bare 429s, from 2/s on", OURS),
    ];
    for (height, said, color) in texts {
        let style = ("sans-serif", 14).into_font().color(&color);
        chart.draw_series([Text::new(said, (20.0, height), style)])?;
    }
    Ok(root.present()?)
}
