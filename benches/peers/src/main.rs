//! What other crates do at the same work as tollgate, and the page of all figures.
//!
//! One file a question; `../run` runs them all. By hand, from the root of the repository:
//!
//! ```sh
//! cargo run --release -p peers -- decide
//! ```

mod crowd;
mod decide;
mod keys;
mod limiters;
mod measure;
mod report;
mod threads;

fn main() {
    let questions: &[(&str, fn())] = &[
        ("decide", decide::run),
        ("threads", threads::run),
        ("crowd", crowd::run),
        ("keys", keys::run),
        ("report", report::run),
    ];
    let asked = std::env::args().nth(1).unwrap_or_default();
    match questions.iter().find(|(name, _)| *name == asked) {
        Some((_, run)) => run(),
        None => {
            let names: Vec<_> = questions.iter().map(|(name, _)| *name).collect();
            eprintln!("one of: {}", names.join(", "));
            std::process::exit(2);
        }
    }
}
