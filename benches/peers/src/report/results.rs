//! What the benches printed: lines with `name=value`, under the headings that `../run` puts between them.
//!
//! ```text
//! == peers crowd
//! tollgate/100000      x_sleeps=0.82 rate=0.9997
//! == crowd
//! crowd waiters=100000 limiters=1 side=tollgate cpu_s=0.41 rate=0.9997
//! ```
//!
//! A figure that was printed several times is the median of them.

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
    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split_whitespace().map(|word| word.trim_end_matches([',', ';']))
    }

    /// The words before the first figure.
    fn of(&self) -> &str {
        let first = self.text.split_whitespace().find(|word| word.contains('='));
        let end = first.and_then(|word| self.text.find(word)).unwrap_or(self.text.len());
        self.text[..end].trim()
    }

    /// The last of this name, as the words before the figures may have it too: the rate that was asked for.
    fn figure(&self, name: &str) -> Option<f64> {
        let value = |word: &str| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        self.words().filter_map(value).last()
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
        some_median(lines.filter_map(|line| line.figure(figure)))
    }

    /// A figure of the lines that have all these words somewhere.
    pub fn find(&self, part: &str, words: &[&str], figure: &str) -> Option<f64> {
        let has = |line: &Line| words.iter().all(|word| line.words().any(|own| own == *word));
        some_median(self.part(part).filter(|line| has(line)).filter_map(|line| line.figure(figure)))
    }

    /// The figure for all lines `of/x`, by `x`.
    pub fn curve(&self, part: &str, of: &str, figure: &str) -> Vec<(f64, f64)> {
        let points = self.part(part).filter_map(|line| {
            let (name, x) = line.of().rsplit_once('/')?;
            (name == of).then_some((x.parse().ok()?, self.get(part, line.of(), figure)?))
        });
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup();
        points
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

fn some_median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<_> = values.collect();
    (!values.is_empty()).then(|| median(values))
}
