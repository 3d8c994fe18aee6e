//! Tasks that a bare thread wakes, each millisecond those that are due: the least that waits take which end outside
//! the runtime.

use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// What each of `tasks` awaits until it is due, counted from now.
pub(crate) fn woken(tasks: u32, due: impl Fn(u32) -> Duration) -> Vec<oneshot::Receiver<()>> {
    let (wakers, woken): (Vec<_>, Vec<_>) = (0..tasks).map(|_| oneshot::channel()).unzip();
    let mut wakers: Vec<_> = (0..tasks).map(due).zip(wakers).collect();
    wakers.sort_by_key(|&(due, _)| due);
    let start = Instant::now();
    thread::spawn(move || {
        let mut wakers = wakers.into_iter().peekable();
        while wakers.peek().is_some() {
            thread::sleep(Duration::from_millis(1));
            let now = start.elapsed();
            while let Some((_, waker)) = wakers.next_if(|&(due, _)| due <= now) {
                // The task may have ended at the limit of the run.
                let _ = waker.send(());
            }
        }
    });
    woken
}
