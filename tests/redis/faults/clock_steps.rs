//! The server's clock is set, by half a minute or an hour, either way.

use std::time::Instant;

use super::report::fault;
use super::wires::Shifted;
use super::{Limiter, builder, bursty, denied, ms, sequence, served, slow};
use crate::support::server::Server;

const STEPS: [(&str, i64); 4] = [
    ("the server's clock steps by 30 s", 30),
    ("the server's clock steps by 1 h", 3600),
    ("the server's clock steps by -30 s", -30),
    ("the server's clock steps by -1 h", -3600),
];

async fn limiter(server: &Server, policy: tollgate::SmoothBursty) -> (Shifted, Limiter<Shifted>) {
    let connection = Shifted::to(&server.url()).await;
    let limiter = builder(policy, connection.clone()).build();
    (connection, limiter)
}

/// How many are granted at once now.
async fn at_once(limiter: &Limiter<Shifted>) -> u32 {
    let mut granted = 0;
    while limiter.try_acquire(1).await.is_ok() {
        granted += 1;
    }
    granted
}

/// Forward, a burst is stored; back, nothing is, and the debt is no longer than it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_mints_no_more_than_a_burst_and_locks_nobody_out() {
    for (name, seconds) in STEPS {
        let server = Server::start();
        // Five permits are stored at most, and the next takes ten seconds.
        let policy = slow().max_burst(std::time::Duration::from_secs(50));
        let (connection, limiter) = limiter(&server, policy).await;
        assert_eq!(at_once(&limiter).await, 1, "the first is prepaid");
        connection.shift(seconds);
        let another = builder(slow().max_burst(std::time::Duration::from_secs(50)), connection);
        // One that does not know yet what was refused.
        let another = another.build();
        let granted = at_once(&another).await;
        let retry_after = denied(another.try_acquire(1).await);
        assert!(retry_after <= ms(10_000), "{retry_after:?}");
        let allowed = match seconds {
            3600.. => 6,
            // Thirty seconds yield three, less the one that is owed.
            0.. => 3,
            _ => 0,
        };
        assert_eq!(granted, allowed, "{name}");
        fault(name, "any")
            .answer("granted or denied as by the time that the server tells")
            .over(f64::from(granted), f64::from(allowed))
            .done();
    }
}

/// There and back again within a run: the rate holds, and nobody waits for an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_and_its_correction() {
    const RATE: f64 = 500.0;
    for hour in [3600, -3600] {
        let server = Server::start();
        let (connection, limiter) = limiter(&server, bursty(RATE)).await;
        served(&limiter).await;
        let before = sequence(&server);
        let start = Instant::now();
        let mut longest = ms(0);
        for step in 0..8 {
            connection.shift(if step % 2 == 0 { 0 } else { hour });
            for _ in 0..25 {
                let asked = Instant::now();
                limiter.acquire(1).await.expect("granted");
                longest = longest.max(asked.elapsed());
            }
        }
        let open = start.elapsed();
        let charges = sequence(&server).wrapping_sub(before);
        assert_eq!(charges, 200);
        // Each step forward fills the store: three or four of them, and one at the beginning.
        let bursts = 5.0 * RATE * super::BURST.as_secs_f64();
        let name = if hour > 0 { "1 h forward and back" } else { "1 h back and forward" };
        fault("the server's clock: steps of an hour, seven times", name)
            .answer("granted")
            .over(super::load::excess(200, RATE, open), bursts)
            .longest(longest, ms(100))
            .done();
    }
}
