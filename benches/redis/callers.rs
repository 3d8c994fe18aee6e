//! Many callers: of one limiter, of a fleet, and of a fleet that is refused.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use redis::Cmd;
use redis::aio::MultiplexedConnection;
use tokio::sync::{mpsc, oneshot};
use tollgate::redis::{Reconnecting, RedisRateLimiter};
use tollgate::{Rate, SmoothBursty};

use crate::{Bench, connect, median};

/// How many calls a second, how long one takes, and for each of them: requests, the time of the script, and all the
/// processor time of the server. Times are in microseconds.
struct Crowd {
    rate: f64,
    p50: f64,
    requests: f64,
    usec: f64,
    server_cpu: f64,
}

/// How a caller gets its permit.
#[derive(Clone, Copy)]
enum By {
    /// By a request of its own.
    Single,
    Limiter,
    /// By the request that [`share`] sends for all that wait.
    Hand,
}

/// Sends one request for all callers that wait, and answers them: the least that callers of one request take.
async fn share(
    mut callers: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
    command: Arc<Cmd>,
    mut connection: MultiplexedConnection,
) {
    let mut waiting = Vec::new();
    while callers.recv_many(&mut waiting, usize::MAX).await > 0 {
        let _: redis::Value = command.query_async(&mut connection).await.expect("an answer");
        waiting.drain(..).for_each(|caller| caller.send(()).expect("it waits"));
    }
}

impl Bench {
    /// Many callers of one limiter, against one request for each permit on the same connection, and against a request
    /// that is shared by hand.
    pub(crate) fn crowd(&self, callers: u32, mixed: bool) {
        let policy = SmoothBursty::new(Rate::per_second(1e9));
        let command = Arc::new(self.commands(&policy, 1).swap_remove(0));
        let connection = Reconnecting::open(&self.server.url()).expect("an address");
        let limiter = RedisRateLimiter::new(policy, connection, "crowd");
        let run = |by: By, callers: u32| {
            let done = Arc::new(AtomicU64::new(0));
            let waits = Arc::new(Mutex::new(Vec::new()));
            self.server.reset_stats();
            let cpu = self.server_cpu();
            let start = Instant::now();
            self.runtime.block_on(async {
                let (ask, asked) = mpsc::unbounded_channel();
                tokio::spawn(share(asked, Arc::clone(&command), self.connection.clone()));
                let tasks: Vec<_> = (0..callers)
                    .map(|caller| {
                        let (limiter, command) = (limiter.clone(), Arc::clone(&command));
                        let ask = ask.clone();
                        let mut connection = self.connection.clone();
                        let (done, waits) = (Arc::clone(&done), Arc::clone(&waits));
                        tokio::spawn(async move {
                            let mut own = Vec::new();
                            while start.elapsed() < Duration::from_millis(250) {
                                let asked = Instant::now();
                                match by {
                                    By::Single => {
                                        let _: redis::Value = command
                                            .query_async(&mut connection)
                                            .await
                                            .expect("an answer");
                                    }
                                    By::Limiter => {
                                        let n = if mixed { 1 + (caller % 7) } else { 1 };
                                        limiter.acquire(n).await.expect("granted");
                                    }
                                    By::Hand => {
                                        let (answer, answered) = oneshot::channel();
                                        ask.send(answer).expect("it is there");
                                        answered.await.expect("an answer");
                                    }
                                }
                                own.push(asked.elapsed().as_secs_f64() * 1e6);
                            }
                            done.fetch_add(own.len() as u64, Ordering::Relaxed);
                            waits.lock().expect("no panic").append(&mut own);
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.expect("no panic");
                }
            });
            let took = start.elapsed().as_secs_f64();
            let done = done.load(Ordering::Relaxed) as f64;
            let server_cpu = (self.server_cpu() - cpu) / done;
            let (requests, usec) = self.server.commandstats("evalsha");
            let p50 = median(std::mem::take(&mut *waits.lock().expect("no panic")));
            let (requests, usec) = (requests as f64 / done, usec as f64 / done);
            Crowd { rate: done / took, p50, requests, usec, server_cpu }
        };
        let round = |_| {
            let [raw, ours, by_hand] =
                [By::Single, By::Limiter, By::Hand].map(|by| run(by, callers));
            (raw, ours, by_hand, run(By::Single, 1))
        };
        let rounds: Vec<_> = (0..3).map(round).collect();
        let of = |pick: &dyn Fn(&Crowd, &Crowd) -> f64| {
            median(rounds.iter().map(|(raw, ours, ..)| pick(raw, ours)).collect())
        };
        let x_single = |pick: &dyn Fn(&Crowd, &Crowd) -> f64| {
            let rates =
                rounds.iter().map(|(raw, _, by_hand, alone)| pick(by_hand, alone) / raw.rate);
            median(rates.collect())
        };
        let costs = if mixed { "mixed costs" } else { "equal costs" };
        println!(
            "{costs}, {}/{callers:<5} permits_a_second={:.0} x_single={:.1} by_hand={:.1} at_most={:.1} p50_us={:.0} \
             single_p50_us={:.0} server_us={:.3} single_server_us={:.2} server_cpu_us={:.3} \
             single_server_cpu_us={:.2} permits_a_request={:.1}",
            self.name,
            of(&|_, ours| ours.rate),
            of(&|raw, ours| ours.rate / raw.rate),
            x_single(&|by_hand, _| by_hand.rate),
            x_single(&|_, alone| f64::from(callers) * alone.rate),
            of(&|_, ours| ours.p50),
            of(&|raw, _| raw.p50),
            of(&|_, ours| ours.usec),
            of(&|raw, _| raw.usec),
            of(&|_, ours| ours.server_cpu),
            of(&|raw, _| raw.server_cpu),
            of(&|_, ours| 1.0 / ours.requests),
        );
    }

    /// Limiters of one key, each with a connection of its own: what a request costs a server that never sleeps, and
    /// what a permit adds to it.
    pub(crate) fn fleet(&self, processes: u32, callers: u32) {
        let policy = SmoothBursty::new(Rate::per_second(1e9));
        let rounds = (0..3).map(|_| {
            let granted = Arc::new(AtomicU64::new(0));
            self.runtime.block_on(async {
                let mut limiters = Vec::new();
                for _ in 0..processes {
                    let connection = connect(&self.server).await;
                    limiters.push(RedisRateLimiter::new(policy.clone(), connection, "fleet"));
                }
                self.server.reset_stats();
                let (cpu, start) = (self.server_cpu(), Instant::now());
                let tasks = (0..processes * callers).map(|caller| {
                    let limiter = limiters[(caller % processes) as usize].clone();
                    let granted = Arc::clone(&granted);
                    tokio::spawn(async move {
                        while start.elapsed() < Duration::from_millis(250) {
                            limiter.acquire(1).await.expect("granted");
                            granted.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                });
                for task in tasks.collect::<Vec<_>>() {
                    task.await.expect("no panic");
                }
                let cpu = self.server_cpu() - cpu;
                let (requests, _) = self.server.commandstats("evalsha");
                let permits = granted.load(Ordering::Relaxed) as f64;
                (permits / start.elapsed().as_secs_f64(), permits, requests as f64, cpu)
            })
        });
        let rounds: Vec<(f64, f64, f64, f64)> = rounds.collect();
        let of = |pick: fn(&(f64, f64, f64, f64)) -> f64| median(rounds.iter().map(pick).collect());
        println!(
            "{processes} processes/{callers:<5} permits_a_second={:.0} permits_a_request={:.2} \
             server_cpu_us_a_request={:.2}",
            of(|round| round.0),
            of(|round| round.1 / round.2),
            of(|round| round.3 / round.2),
        );
    }

    /// Ten clients that ask a thousand times a second each for one of ten permits a second.
    pub(crate) fn attack(&self) {
        let policy =
            SmoothBursty::new(Rate::per_second(10.0)).max_burst(Duration::from_millis(100));
        self.server.reset_stats();
        let admitted = Arc::new(AtomicU64::new(0));
        let calls = Arc::new(AtomicU64::new(0));
        self.runtime.block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..10 {
                let limiter =
                    RedisRateLimiter::new(policy.clone(), connect(&self.server).await, "attacked");
                let (admitted, calls) = (Arc::clone(&admitted), Arc::clone(&calls));
                tasks.push(tokio::spawn(async move {
                    let mut every = tokio::time::interval(Duration::from_millis(1));
                    for _ in 0..5_000 {
                        every.tick().await;
                        calls.fetch_add(1, Ordering::Relaxed);
                        if limiter.try_acquire(1).await.is_ok() {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }));
            }
            for task in tasks {
                task.await.expect("no panic");
            }
        });
        let (requests, _) = self.server.commandstats("evalsha");
        let admitted = admitted.load(Ordering::Relaxed);
        println!(
            "\nattack, 10 clients asking 10,000 times a second for 10/s: calls={} admitted={admitted} \
             requests={requests} requests_each={:.1}",
            calls.load(Ordering::Relaxed),
            requests as f64 / admitted as f64,
        );
    }
}
