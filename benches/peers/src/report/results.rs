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

    /// A figure of all lines that have it, by the words at their beginning.
    pub fn figures(&self, part: &str, figure: &str) -> Vec<(&str, f64)> {
        let mut figures: Vec<(&str, f64)> = Vec::new();
        for of in self.part(part).map(Line::of) {
            let Some(value) = self.get(part, of, figure) else { continue };
            if !figures.iter().any(|other| other.0 == of) {
                figures.push((of, value));
            }
        }
        figures
    }

    /// The same of lines `name/case`, with the name and the case.
    pub fn cells(&self, part: &str, figure: &str) -> Vec<(String, String, f64)> {
        let cell = |(of, value): (&str, f64)| {
            let (name, case) = of.split_once('/')?;
            Some((name.to_owned(), case.to_owned(), value))
        };
        self.figures(part, figure).into_iter().filter_map(cell).collect()
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

    /// What `../run` says of the machine.
    pub fn notes(&self) -> impl Iterator<Item = (&str, &str)> {
        self.notes.iter().map(|(name, note)| (&**name, &**note))
    }
}
