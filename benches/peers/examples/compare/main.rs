//! Known faults of limiters: what each crate does where they would show, side by side.
//!
//! From the root of the repository, in 20 s:
//!
//! ```text
//! cargo run --release -p peers --example compare
//! ```
//!
//! It fails if a figure of this crate is not as expected. `-- paused` leaves out what takes real time, and `-- write`
//! also writes the tables into `docs/comparison.md`.

mod counts;
mod crates;
mod real;
mod services;
mod table;
mod waits;

use std::error::Error;
use std::fs;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/comparison.md");

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let Some(other) = arguments.iter().find(|word| !["paused", "write"].contains(&word.as_str()))
    {
        return Err(format!("{other}: neither paused nor write").into());
    }
    let is_asked = |word: &str| arguments.iter().any(|argument| argument == word);

    let mut tables = vec![("paused", [counts::rows(), waits::rows(), services::rows()].concat())];
    if !is_asked("paused") {
        tables.push(("real", real::rows()));
    }
    for (_, rows) in &tables {
        println!("{}", table::markdown(rows));
    }
    let rows = tables.iter().flat_map(|(_, rows)| rows);
    let faults: Vec<_> = rows.filter(|row| !row.is_met()).map(|row| row.fault).collect();
    if !faults.is_empty() {
        return Err(format!("not as expected of this crate: {}", faults.join("; ")).into());
    }
    if is_asked("write") {
        for (name, rows) in &tables {
            write(name, &table::markdown(rows))?;
        }
    }
    Ok(())
}

/// Between the marks of this table.
fn write(name: &str, table: &str) -> Result<(), Box<dyn Error>> {
    let start = format!("<!-- {name}: written by benches/peers/examples/compare -->\n");
    let end = format!("<!-- {name}: to here -->");
    let page = fs::read_to_string(PAGE)?;
    let (before, rest) = page.split_once(&start).ok_or("no mark in the page")?;
    let (_, after) = rest.split_once(&end).ok_or("no second mark in the page")?;
    Ok(fs::write(PAGE, format!("{before}{start}\n{table}\n{end}{after}"))?)
}
