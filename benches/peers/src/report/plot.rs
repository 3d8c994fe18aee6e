//! Plots as SVG: curves.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::prelude::*;

type Failure = Box<dyn Error>;

const COLORS: [RGBColor; 8] = [
    RGBColor(20, 90, 190),
    RGBColor(205, 30, 40),
    RGBColor(20, 125, 50),
    RGBColor(190, 100, 0),
    RGBColor(120, 60, 160),
    RGBColor(0, 140, 150),
    RGBColor(140, 140, 140),
    RGBColor(90, 60, 30),
];

/// A name and its points.
pub type Curve = (String, Vec<(f64, f64)>);

/// Under a title and the names of the axes, both of which are logarithmic.
pub fn curves(path: &Path, [title, x, y]: [&str; 3], curves: &[Curve]) -> Result<(), Failure> {
    let root = SVGBackend::new(path, (760, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 17))?;
    let points = || curves.iter().flat_map(|(_, points)| points).filter(|(_, y)| *y > 0.0);
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .margin_right(200)
        .x_label_area_size(38)
        .y_label_area_size(64)
        .build_cartesian_2d(
            around(points().map(|(x, _)| *x)).log_scale(),
            around(points().map(|(_, y)| *y)).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(BLACK.mix(0.05))
        .bold_line_style(BLACK.mix(0.15))
        .x_label_formatter(&|x| short(*x))
        .y_label_formatter(&|y| short(*y))
        .x_desc(x)
        .y_desc(y)
        .label_style(("sans-serif", 13))
        .draw()?;
    for (index, (name, points)) in curves.iter().enumerate() {
        let color = COLORS[index % COLORS.len()];
        let points: Vec<_> = points.iter().copied().filter(|(_, y)| *y > 0.0).collect();
        let dots = points.iter().map(|point| Circle::new(*point, 3, color.filled()));
        chart.draw_series(dots)?;
        chart.draw_series([PathElement::new(points, color.stroke_width(2))])?;
        let top = 30 + 20 * i32::try_from(index)?;
        root.draw(&PathElement::new(vec![(572, top), (592, top)], color.stroke_width(3)))?;
        root.draw_text(name, &("sans-serif", 13).into_font().color(&BLACK), (598, top - 7))?;
    }
    Ok(root.present()?)
}

fn around(values: impl Iterator<Item = f64>) -> Range<f64> {
    let (low, high) = values
        .fold((f64::MAX, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
    if low > high { 1.0..10.0 } else { low * 0.8..high * 1.25 }
}

/// `10k`, `1M`.
fn short(value: f64) -> String {
    let (value, unit) = match value {
        1e6.. => (value / 1e6, "M"),
        1e3.. => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}
