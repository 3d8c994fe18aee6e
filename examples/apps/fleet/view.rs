//! A view of the workers: bars on a terminal, a line each second elsewhere.

use std::cell::Cell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::workers::{Said, State, Workers};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) struct View {
    /// One for each worker; none where there is no terminal.
    bars: Vec<ProgressBar>,
    multi: MultiProgress,
    start: Instant,
    printed: Cell<Instant>,
}

/// The view of one worker.
struct Now {
    /// Granted in the last second.
    granted: usize,
    refused: usize,
    state: &'static str,
}

impl Now {
    fn of(said: &Said) -> Self {
        let now = Instant::now();
        let recent = |granted: Instant| now.saturating_duration_since(granted) <= SECOND;
        Self {
            granted: said.calls.iter().rev().take_while(|call| recent(call.granted)).count(),
            refused: said.calls.iter().filter(|call| call.refused).count(),
            state: match said.state {
                State::Shares => "shares the quota",
                State::Alone => "alone, its eighth",
                State::Killed => "killed",
            },
        }
    }
}

impl View {
    pub(crate) fn new(workers: u32, rate: u32) -> Self {
        let multi = MultiProgress::new();
        let style = ProgressStyle::with_template("  {prefix} {bar:40} {pos:>4}/s  {msg}");
        let mut bars = Vec::new();
        if let Ok(style) = style
            && std::io::stderr().is_terminal()
        {
            for number in 1..=workers {
                // Room for twice its share.
                let bar = ProgressBar::new(u64::from(2 * rate / workers));
                let bar = multi.add(bar.with_style(style.clone()));
                bar.set_prefix(format!("worker {number}"));
                bars.push(bar);
            }
        }
        let start = Instant::now();
        Self { bars, multi, start, printed: Cell::new(start) }
    }

    /// The current phase.
    pub(crate) fn say(&self, what: &str) {
        let line = format!("{:5.1} s  {what}", self.start.elapsed().as_secs_f64());
        if self.bars.is_empty() {
            println!("{line}");
        } else {
            // A terminal that has gone away is no reason to stop.
            let _ = self.multi.println(line);
        }
    }

    pub(crate) fn draw(&self, workers: &Workers) {
        if self.bars.is_empty() {
            return self.print(workers);
        }
        for (bar, said) in self.bars.iter().zip(workers.each()) {
            let now = Now::of(&said);
            bar.set_position(now.granted as u64);
            bar.set_message(format!("{} 429s, {}", now.refused, now.state));
        }
    }

    fn print(&self, workers: &Workers) {
        if self.printed.get().elapsed() < SECOND {
            return;
        }
        self.printed.set(Instant::now());
        let all: Vec<Now> = workers.each().map(|said| Now::of(&said)).collect();
        let each: Vec<String> = all
            .iter()
            .map(|now| match now.state {
                "killed" => "   -".to_owned(),
                _ => format!("{:>4}", now.granted),
            })
            .collect();
        let sum: usize = all.iter().map(|now| now.granted).sum();
        let refused: usize = all.iter().map(|now| now.refused).sum();
        let alone = all.iter().filter(|now| now.state.starts_with("alone")).count();
        let note = if alone > 0 { format!(", {alone} alone") } else { String::new() };
        println!("         granted/s {} = {sum:>4}, {refused} 429s{note}", each.concat());
    }

    pub(crate) fn end(&self) {
        for bar in &self.bars {
            bar.abandon();
        }
    }
}
