//! The worker processes, and their output.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::Failure;

/// One call to the API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) granted: Instant,
    pub(crate) by_redis: bool,
    pub(crate) refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Shares the common quota.
    Shares,
    /// Redis does not answer: an eighth of the quota by itself.
    Alone,
    Killed,
}

/// The output of a worker so far.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) calls: Vec<Call>,
    pub(crate) state: State,
}

struct Worker {
    process: Child,
    reader: Option<JoinHandle<()>>,
    said: Arc<Mutex<Said>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

pub(crate) struct Workers(Vec<Worker>);

impl Workers {
    pub(crate) fn start(count: u32, api: &str, redis: &str, rate: u32) -> Result<Self, Failure> {
        let program = std::env::current_exe()?;
        // Two fleets with one Redis do not meet.
        let key = std::process::id().to_string();
        let clock = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH)?);
        let mut workers = Vec::new();
        for _ in 0..count {
            let mut process = Command::new(&program)
                .args(["--worker", &key, api, redis, &rate.to_string()])
                // Ours until we end; then theirs ends too.
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()?;
            let said = Arc::new(Mutex::new(Said { calls: Vec::new(), state: State::Shares }));
            let output = process.stdout.take().ok_or("its output is piped")?;
            let reader = thread::spawn({
                let said = Arc::clone(&said);
                move || {
                    for line in BufReader::new(output).lines().map_while(Result::ok) {
                        heard(&said, &line, clock);
                    }
                }
            });
            workers.push(Worker { process, reader: Some(reader), said });
        }
        Ok(Self(workers))
    }

    /// Waits until each has made a call.
    pub(crate) fn wait_for_all(&self, limit: Duration) -> Result<(), Failure> {
        let start = Instant::now();
        while self.each().any(|said| said.calls.is_empty()) {
            if start.elapsed() > limit {
                return Err("a worker does not call".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// SIGKILL: it hands nothing back.
    pub(crate) fn kill(&mut self, index: usize) {
        let worker = &mut self.0[index];
        let _ = worker.process.kill();
        let _ = worker.process.wait();
        lock(&worker.said).state = State::Killed;
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, Said>> {
        self.0.iter().map(|worker| lock(&worker.said))
    }

    pub(crate) fn alive(&self) -> u32 {
        self.each().map(|said| u32::from(said.state != State::Killed)).sum()
    }

    /// Ends all workers, and returns their calls in order.
    pub(crate) fn stop(self) -> Vec<Call> {
        let mut all = Vec::new();
        for worker in self.0 {
            let said = Arc::clone(&worker.said);
            drop(worker);
            all.append(&mut lock(&said).calls);
        }
        all.sort_by_key(|call| call.granted);
        all
    }
}

fn heard(said: &Mutex<Said>, line: &str, (origin, since_epoch): (Instant, Duration)) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut said = lock(said);
    match words[..] {
        ["up"] => said.state = State::Shares,
        ["down"] => said.state = State::Alone,
        ["call", granted, by, status] => {
            // A line cut off by a kill.
            let Ok(granted) = granted.parse() else { return };
            let after = Duration::from_micros(granted).saturating_sub(since_epoch);
            let call =
                Call { granted: origin + after, by_redis: by == "redis", refused: status == "429" };
            said.calls.push(call);
        }
        _ => {}
    }
}

fn lock(said: &Mutex<Said>) -> MutexGuard<'_, Said> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}
