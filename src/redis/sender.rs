//! The thread that sends the requests of all limiters.
//!
//! It belongs to the crate, so that no request depends on a runtime that is parked, busy or gone: callers of any
//! runtime, or of none, only hand tasks over. It lives as long as the process, like the thread of the system's
//! clock: a connection that is made on it may outlive the limiter that first needed it.

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use tokio::runtime::{Builder, Handle};

use crate::sync::Mutex;

/// Runs a task on the thread, which starts with the first. Drops the task if there can be no thread.
pub(super) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    if let Some(handle) = handle() {
        // A panic in the task ends only that task.
        drop(handle.spawn(task));
    }
}

fn handle() -> Option<Handle> {
    static HANDLE: Mutex<Option<Handle>> = Mutex::new(None);
    let mut handle = HANDLE.lock();
    if handle.is_none() {
        // If there are too many threads now, the next task tries again.
        *handle = start().ok();
    }
    handle.clone()
}

fn start() -> io::Result<Handle> {
    let (started, handle) = channel();
    thread::Builder::new().name("tollgate-redis".to_owned()).spawn(move || run(&started))?;
    handle.recv().unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn run(started: &Sender<io::Result<Handle>>) {
    match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let _ = started.send(Ok(runtime.handle().clone()));
            runtime.block_on(std::future::pending::<()>());
        }
        Err(error) => drop(started.send(Err(error))),
    }
}
