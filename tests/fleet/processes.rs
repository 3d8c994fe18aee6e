//! Starts the processes and collects their reports.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::history::{Changed, Grant, History};
use crate::job::{Job, now};
use crate::worker::{JOB, NAME};

/// Fleets under heavy load disturb each other's times.
static ALONE: RwLock<()> = RwLock::new(());
/// The rate, in permits a second, up to which a fleet's load is light.
const LITTLE: f64 = 100.0;

/// A process that ends with this one: its input does.
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(job: &Job) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program has a name"))
            .args([NAME, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(JOB, job.encode())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line that is for us.
    fn line(&mut self) -> Vec<String> {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).expect("its output is text");
            assert!(read > 0, "a process of the fleet ended before its time");
            if let Some(report) = line.strip_prefix('@') {
                return report.split_whitespace().map(str::to_owned).collect();
            }
        }
    }

    fn go(&self) {
        let mut input = self.child.stdin.as_ref().expect("piped");
        input.write_all(b"go\n").expect("it listens");
    }

    fn report(&mut self, process: usize, history: &mut History) {
        loop {
            let words = self.line();
            let number = |index: usize| words[index].parse().expect("a number");
            match words[0].as_str() {
                "grant" => history.grants.push(Grant {
                    seen: number(1),
                    due: number(2),
                    permits: number(3),
                    waited: number(4),
                    process,
                }),
                "change" => history.changes.push(Changed {
                    called: number(1),
                    confirmed: number(2),
                    waiting: number(3),
                }),
                "end" => {
                    history.trip = history.trip.max(number(1));
                    history.trips.push(number(1));
                    history.left += number(2);
                    history.given_up += number(3);
                    history.requests += number(4);
                    history.held += number(5);
                    return;
                }
                other => panic!("a process of the fleet says {other:?}"),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number of retries of a run in which the machine was too busy to measure.
const ATTEMPTS: u32 = 3;

/// Runs a process for each job, all at the same time. Retries if the machine delayed them for
/// longer than the limiter is meant to bear, because the loss then says nothing about the limiter.
/// Law 1 must still hold.
pub(crate) fn run<T>(jobs: &[Job], law_1: impl Fn(&History) -> T) -> (History, T) {
    let _turn = turn(jobs);
    for attempt in 1.. {
        let history = run_once(jobs, |_| ());
        let kept = law_1(&history);
        if attempt == ATTEMPTS || !history.was_held_up() {
            return (history, kept);
        }
        println!("held up: {}", history.row(&jobs[0].rule, "once more"));
        // Places of the processes that have ended count until their leases end.
        let client = redis::Client::open(&*jobs[0].url).expect("the address of a server");
        let flushed =
            client.get_connection().and_then(|mut link| redis::cmd("FLUSHALL").exec(&mut link));
        flushed.expect("the server is there");
    }
    unreachable!("the last attempt counts")
}

/// The same once, and `meanwhile` when all have begun.
pub(crate) fn run_while(jobs: &[Job], meanwhile: impl FnOnce(&[Process])) -> History {
    let _turn = turn(jobs);
    run_once(jobs, meanwhile)
}

type Turn = (Option<RwLockReadGuard<'static, ()>>, Option<RwLockWriteGuard<'static, ()>>);

fn turn(jobs: &[Job]) -> Turn {
    if jobs[0].rule.rate <= LITTLE {
        (Some(ALONE.read().unwrap_or_else(PoisonError::into_inner)), None)
    } else {
        (None, Some(ALONE.write().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn run_once(jobs: &[Job], meanwhile: impl FnOnce(&[Process])) -> History {
    let mut processes: Vec<_> = jobs.iter().map(Process::start).collect();
    for process in &mut processes {
        assert_eq!(process.line(), ["ready"]);
    }
    let mut history = History { start: now(), ..History::default() };
    processes.iter().for_each(Process::go);
    meanwhile(&processes);
    for (index, process) in processes.iter_mut().enumerate() {
        process.report(index, &mut history);
    }
    history.grants.sort_by_key(|grant| grant.due);
    history
}
