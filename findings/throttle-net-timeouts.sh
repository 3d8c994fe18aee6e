#!/usr/bin/env bash
# throttle-net 2.0.0 with better-bucket 1.1.0 (crates.io): ten a second, one at once. Twice as many callers come, a caller each
# 50 ms, and each gives up after a second by tokio's `timeout`, which the documentation of `acquire` calls safe.
#
# Guess: one goes on at a time, 100 ms apart, since "over any window the units granted never exceed the capacity plus what the
# rate accrues".
# Seen: 20 of 205 at once. A caller that leaves gives its time back, but no waiter moves forward: the next caller that comes
# gets a time as late as the last waiter's. While as many come as leave, all of them get the same time.
source "$(dirname "$0")/common.bash"

cargo init --quiet --name seen --vcs none .
cargo add --quiet "throttle-net@=2.0.0" "better-bucket@=1.1.0"
cargo add --quiet "tokio@=1.54.1" --features macros,rt,test-util,time
cat > src/main.rs <<'END'
use std::{sync::Arc, time::Duration};
use throttle_net::{Throttle, TokioClock};
use tokio::time::{Instant, sleep, timeout};

/// How many go on in 20 s, and the most within 90 ms.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let limit = Throttle::smooth(10, Duration::from_secs(1)).with_clock(TokioClock::new());
    let (limit, start) = (Arc::new(limit), Instant::now());
    let mut callers = Vec::new();
    for _ in 0..400 {
        let limit = limit.clone();
        callers.push(tokio::spawn(async move {
            let granted = timeout(Duration::from_secs(1), limit.acquire()).await;
            granted.ok().map(|granted| { granted.unwrap(); start.elapsed().as_millis() })
        }));
        sleep(Duration::from_millis(50)).await;
    }
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await.unwrap());
    }
    let within = |from: u128| times.iter().filter(|&&at| at >= from && at < from + 90).count();
    println!("{} {}", times.len(), times.iter().map(|&at| within(at)).max().unwrap());
}
END
expect "callers that go on, and the most of them within 90 ms" "$(cargo run --quiet)" "205 20"
