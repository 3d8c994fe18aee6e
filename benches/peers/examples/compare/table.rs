//! A row of the table, and how it is shown.

use std::fmt;

/// The columns, with the versions that `Cargo.toml` asks for.
const CRATES: [&str; 6] =
    ["tollgate", "governor 0.10", "leaky-bucket 1.1", "ratelimit 2", "tower 0.5", "throttle-net 2"];

pub type Cells = [Cell; CRATES.len()];

/// A fault, what was done to see it, and what each crate did.
#[derive(Clone)]
pub struct Row {
    pub fault: &'static str,
    pub done: &'static str,
    pub expected: Expected,
    /// In the order of [`CRATES`].
    pub cells: Cells,
}

#[derive(Clone, Copy)]
pub enum Expected {
    Is(f64),
    AtMost(f64),
    AtLeast(f64),
}

/// A figure, and what has to be said of it.
#[derive(Clone)]
pub struct Cell {
    pub figure: Figure,
    pub note: String,
}

#[derive(Clone, Copy)]
pub enum Figure {
    Of(f64),
    /// It had not happened after as long as the row says.
    Never,
    /// There is no such call.
    Absent,
}

impl Cell {
    pub fn absent() -> Self {
        Figure::Absent.into()
    }

    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

impl From<Figure> for Cell {
    fn from(figure: Figure) -> Self {
        Self { figure, note: String::new() }
    }
}

impl From<f64> for Cell {
    fn from(figure: f64) -> Self {
        Figure::Of(figure).into()
    }
}

impl From<u32> for Cell {
    fn from(figure: u32) -> Self {
        f64::from(figure).into()
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Of(figure) => {
                let digits = format!("{figure:.0}");
                // A comma before each three digits.
                for (index, digit) in digits.chars().enumerate() {
                    if index > 0 && (digits.len() - index).is_multiple_of(3) {
                        f.write_str(",")?;
                    }
                    write!(f, "{digit}")?;
                }
                Ok(())
            }
            Self::Never => f.write_str("never"),
            Self::Absent => f.write_str("-"),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, figure) = match *self {
            Self::Is(figure) => ("", figure),
            Self::AtMost(figure) => ("<= ", figure),
            Self::AtLeast(figure) => (">= ", figure),
        };
        write!(f, "{sign}{}", Figure::Of(figure))
    }
}

impl Expected {
    fn is_met(self, figure: Figure) -> bool {
        match (self, figure) {
            (_, Figure::Absent) => true,
            (_, Figure::Never) => false,
            (Self::Is(expected), Figure::Of(figure)) => figure.round() == expected,
            (Self::AtMost(most), Figure::Of(figure)) => figure.round() <= most,
            (Self::AtLeast(least), Figure::Of(figure)) => figure.round() >= least,
        }
    }
}

impl Row {
    /// Whether this crate does what is expected.
    pub fn is_met(&self) -> bool {
        self.expected.is_met(self.cells[0].figure)
    }

    /// As Markdown. A figure that is not as expected is bold.
    fn markdown(&self) -> String {
        let cells = self.cells.each_ref().map(|Cell { figure, note }| {
            let figure = match self.expected.is_met(*figure) {
                true => figure.to_string(),
                false => format!("**{figure}**"),
            };
            if note.is_empty() { figure } else { format!("{figure} ({note})") }
        });
        format!("| *{}*: {} | {} | {} |\n", self.fault, self.done, self.expected, cells.join(" | "))
    }
}

pub fn markdown(rows: &[Row]) -> String {
    let rule = "---|".repeat(CRATES.len());
    let head = format!("| | expected | {} |\n|---|---|{rule}\n", CRATES.join(" | "));
    rows.iter().map(Row::markdown).fold(head, |table, row| table + &row)
}
