//! Writes the page, its plots and the rows of the README from what the benches printed.

mod page;
mod plot;
mod results;

use std::error::Error;
use std::fs;
use std::path::Path;

use results::Results;

/// `report RESULTS DIRECTORY [README]`: the page and its plots into the directory, and the rows between the marks
/// of the README.
pub fn run() {
    let arguments: Vec<_> = std::env::args().skip(2).collect();
    let [results, directory, readme @ ..] = &arguments[..] else {
        eprintln!("report RESULTS DIRECTORY [README]");
        std::process::exit(2);
    };
    let readme = readme.first().map(Path::new);
    if let Err(error) = write(Path::new(results), Path::new(directory), readme) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn write(results: &Path, directory: &Path, readme: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let results = Results::parse(&fs::read_to_string(results)?);
    let pictures = directory.join("pictures/benchmarks");
    fs::create_dir_all(&pictures)?;
    page::draw(&results, &pictures)?;
    fs::write(directory.join("benchmarks.md"), page::page(&results))?;
    let rows = page::in_short(&results);
    println!("{rows}");
    if let Some(readme) = readme {
        let text = fs::read_to_string(readme)?;
        let (start, end) = ("<!-- ./benches/run writes this -->\n", "<!-- to here -->");
        let (before, rest) = text.split_once(start).ok_or("no mark in the README")?;
        let (_, after) = rest.split_once(end).ok_or("no second mark in the README")?;
        fs::write(readme, format!("{before}{start}{rows}{end}{after}"))?;
    }
    Ok(())
}
