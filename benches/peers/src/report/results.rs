//! What the benches printed: lines with `name=value`, under the headings that `../run` puts between them.
//!
//! ```text
//! == peers crowd
//! tollgate/100000      x_sleeps=0.82 rate=0.9997
//! == keys
//! TokenBucket/1000000 bytes=30
//! ```
//!
//! A figure that was printed several times is the median of them.

use super::plot::Curve;
use crate::measure::median;

#[derive(Default)]
pub struct Results {
    lines: Vec<Line>,
    notes: Vec<(String, String)>,
}

struct Line {
    part: String,
    text: String,
}

impl Line {
    /// The words before the first figure.
    fn of(&self) -> &str {
        let first = self.text.split_whitespace().find(|word| word.contains('='));
        let end = first.and_then(|word| self.text.find(word)).unwrap_or(self.text.len());
        self.text[..end].trim()
    }

    fn figure(&self, name: &str) -> Option<f64> {
        let mut words = self.text.split_whitespace();
        words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
    }
}

impl Results {
    pub fn parse(text: &str) -> Self {
        let mut results = Self::default();
        let mut part = "";
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("== ") {
                part = name.trim();
            } else if part == "machine" {
                let (name, note) = line.split_once(": ").unwrap_or((line, ""));
                results.notes.push((name.to_owned(), note.to_owned()));
            } else {
                results.lines.push(Line { part: part.to_owned(), text: line.to_owned() });
            }
        }
        results
    }

    fn part(&self, part: &str) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(move |line| line.part == part)
    }

    /// A figure of the lines that begin with exactly these words.
    pub fn get(&self, part: &str, of: &str, figure: &str) -> Option<f64> {
        let lines = self.part(part).filter(|line| line.of() == of);
        let values: Vec<_> = lines.filter_map(|line| line.figure(figure)).collect();
        (!values.is_empty()).then(|| median(values))
    }

    /// The figure of all lines `name/case`, with the name and the case.
    pub fn cells(&self, part: &str, figure: &str) -> Vec<(String, String, f64)> {
        let mut cells: Vec<(String, String, f64)> = Vec::new();
        for line in self.part(part) {
            let Some((name, case)) = line.of().split_once('/') else { continue };
            let Some(value) = self.get(part, line.of(), figure) else { continue };
            if !cells.iter().any(|cell| cell.0 == name && cell.1 == case) {
                cells.push((name.to_owned(), case.to_owned(), value));
            }
        }
        cells
    }

    /// The same as a curve for each name, whose cases are numbers.
    pub fn curves(&self, part: &str, figure: &str) -> Vec<Curve> {
        let mut curves: Vec<Curve> = Vec::new();
        for (name, case, value) in self.cells(part, figure) {
            let Ok(x) = case.parse() else { continue };
            match curves.iter_mut().find(|curve| curve.0 == name) {
                Some((_, points)) => points.push((x, value)),
                None => curves.push((name, vec![(x, value)])),
            }
        }
        curves
    }

    /// What a part printed.
    pub fn text(&self, part: &str) -> String {
        let lines: Vec<_> = self.part(part).map(|line| line.text.trim_end()).collect();
        lines.join("\n").trim().to_owned()
    }

    /// What `../run` says of the machine.
    pub fn notes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.notes.iter().map(|(name, note)| (&**name, &**note))
    }
}
