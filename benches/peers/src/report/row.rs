//! A row of the table of what was asked, and how near a figure is that is not reached.

/// A figure that was asked for, and what was measured.
pub struct Row {
    work: &'static str,
    asked: Asked,
    measured: Option<f64>,
    why: Option<Why>,
}

#[derive(Clone, Copy)]
enum Asked {
    AtMost(f64),
    AtLeast(f64),
    /// No figure: it has to be on the page.
    Stated,
}

/// Why a figure may not be reached. Numbers come from the run, so there are none here.
#[derive(Clone, Copy)]
pub struct Why {
    pub reason: &'static str,
    /// A heading of docs/measurements.md or docs/design.md, below which the profile is.
    pub section: &'static str,
}

impl Row {
    fn new(work: &'static str, asked: Asked, measured: Option<f64>) -> Self {
        Self { work, asked, measured, why: None }
    }

    pub fn at_most(work: &'static str, most: f64, measured: Option<f64>) -> Self {
        Self::new(work, Asked::AtMost(most), measured)
    }

    pub fn at_least(work: &'static str, least: f64, measured: Option<f64>) -> Self {
        Self::new(work, Asked::AtLeast(least), measured)
    }

    pub fn stated(work: &'static str, measured: Option<f64>) -> Self {
        Self::new(work, Asked::Stated, measured)
    }

    pub fn because(mut self, why: Why) -> Self {
        _ = page(why.section);
        self.why = Some(why);
        self
    }

    fn is_reached(&self, figure: f64) -> bool {
        match self.asked {
            Asked::AtMost(most) => figure <= most,
            Asked::AtLeast(least) => figure >= least,
            Asked::Stated => true,
        }
    }

    pub fn markdown(&self) -> String {
        let asked = match self.asked {
            Asked::AtMost(most) => format!("<= {most}"),
            Asked::AtLeast(least) => format!(">= {least}"),
            Asked::Stated => "stated".to_owned(),
        };
        let (measured, reached) = match self.measured {
            Some(figure) => (short(figure), if self.is_reached(figure) { "yes" } else { "**no**" }),
            None => ("not measured".to_owned(), ""),
        };
        format!("| {} | {asked} | {measured} | {reached} |", self.work)
    }

    /// How near the figure is, and why no nearer; `None` if it is reached, or was not measured.
    pub fn how_near(&self) -> Option<String> {
        let figure = self.measured.filter(|&figure| !self.is_reached(figure))?;
        let (Asked::AtMost(asked) | Asked::AtLeast(asked)) = self.asked else { return None };
        let near = format!("{} for {asked}, {:.3} times as much", short(figure), figure / asked);
        let why = match self.why {
            Some(Why { reason, section }) => {
                format!("{reason} [Profile]({}#{})", page(section), anchor(section))
            }
            None => "There is no profile of it yet.".to_owned(),
        };
        Some(format!("- {}: {near}. {why}", self.work))
    }
}

const PAGES: [(&str, &str); 2] = [
    ("measurements.md", include_str!("../../../../docs/measurements.md")),
    ("design.md", include_str!("../../../../docs/design.md")),
];

/// The first page with this heading.
fn page(section: &str) -> &'static str {
    let heading = format!("\n## {section}\n");
    let page = PAGES.iter().find(|(_, text)| text.contains(&heading));
    page.unwrap_or_else(|| panic!("no section {section}")).0
}

/// The link to a heading, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Three digits, or what is before the point.
pub fn short(figure: f64) -> String {
    if figure >= 1e4 {
        return format!("{:.1} k", figure / 1e3);
    }
    let digits = (2 - figure.abs().max(1e-9).log10().floor() as i32).clamp(0, 4) as usize;
    format!("{figure:.digits$}")
}
