//! The fault table: a row for each fault, which asserts its own bounds.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::SLACK;

pub(super) struct Fault {
    name: &'static str,
    connection: &'static str,
    answer: String,
    over: String,
    under: String,
    longest: Option<Duration>,
    back: String,
}

pub(super) fn fault(name: &'static str, connection: &'static str) -> Fault {
    let none = || "0 of 0".to_owned();
    let (over, under) = (none(), none());
    Fault {
        name,
        connection,
        answer: String::new(),
        over,
        under,
        longest: None,
        back: "at once".to_owned(),
    }
}

/// Asserts the bound, and formats the measured value with it.
#[track_caller]
fn within(what: &str, measured: f64, bound: f64) -> String {
    assert!(measured <= bound, "{what}: {measured:.1}, at most {bound:.1}");
    format!("{:.0} of {bound:.0}", measured.max(0.0))
}

impl Fault {
    /// The answer to callers.
    pub(super) fn answer(mut self, answer: &str) -> Self {
        self.answer = answer.to_owned();
        self
    }

    /// Permits granted beyond `rate x time + burst`.
    #[track_caller]
    pub(super) fn over(mut self, measured: f64, bound: f64) -> Self {
        self.over = within("granted too much", measured, bound);
        self
    }

    /// Permits charged and not granted.
    #[track_caller]
    pub(super) fn under(mut self, measured: f64, bound: f64) -> Self {
        self.under = within("granted too little", measured, bound);
        self
    }

    /// The longest wait for Redis, and the deadline.
    #[track_caller]
    pub(super) fn longest(mut self, measured: Duration, deadline: Duration) -> Self {
        assert!(measured <= deadline + SLACK, "blocked for {measured:?}, deadline {deadline:?}");
        self.longest = Some(measured);
        self
    }

    /// The time from the server's return to the first grant.
    #[track_caller]
    pub(super) fn back(mut self, measured: Duration) -> Self {
        assert!(measured <= Duration::from_secs(1), "back only after {measured:?}");
        self.back = format!("{} ms", measured.as_millis());
        self
    }

    pub(super) fn never_back(mut self) -> Self {
        self.back = "never".to_owned();
        self
    }

    /// Writes the row: fault, connection, answer, too much, too little, longest wait, time until
    /// back.
    pub(super) fn done(self) {
        let Self { name, connection, answer, over, under, longest, back } = self;
        let longest =
            longest.map_or("-".to_owned(), |longest| format!("{} ms", longest.as_millis()));
        let line = format!(
            "| {name} | {connection} | {answer} | {over} | {under} | {longest} | {back} |\n"
        );
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("fault_table");
        fs::create_dir_all(&directory).expect("the build directory can be written");
        let file = format!("{name}, {connection}.txt").replace([' ', '/'], "_");
        fs::write(directory.join(file), &line).expect("the build directory can be written");
        print!("fault {line}");
    }
}
