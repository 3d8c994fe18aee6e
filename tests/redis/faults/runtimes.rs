//! The runtime that sent a request ends while callers of another one wait in the same queue.

use std::time::{Duration, Instant};

use tokio::runtime::{Builder as RuntimeBuilder, Runtime};
use tollgate::Error;
use tollgate::redis::{Connection, State};

use super::report::fault;
use super::{Limiter, SLACK, builder, bursty, ms, reconnecting, sequence};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;
use crate::support::until;

const DEADLINE: Duration = ms(500);

fn runtime() -> Runtime {
    RuntimeBuilder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

#[test]
fn waiters_of_another_runtime_go_on() {
    let server = &Server::start();
    let proxy = Proxy::to(server);
    let limiter = builder(bursty(1000.0), reconnecting(&proxy.url())).deadline(DEADLINE).build();
    let (sender, survivor) = (runtime(), runtime());
    sender.block_on(limiter.acquire(1)).expect("granted");
    let before = sequence(server);
    proxy.set(Mode::DelayAnswers(ms(300)));
    // The first has its request sent by its own runtime.
    let lost = sender.spawn(limiter.acquire(1));
    until("it is charged", || sequence(server) != before);
    let start = Instant::now();
    let others: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            survivor.spawn(async move {
                let answer = limiter.acquire(1).await.map(drop);
                (answer, Instant::now())
            })
        })
        .collect();
    until("they wait", || limiter.queue_len() == 21);
    drop(lost);
    sender.shutdown_background();
    proxy.set(Mode::Pass);
    let mut refused = 0;
    let mut longest = Duration::ZERO;
    for other in others {
        let (answer, end) = survivor.block_on(other).expect("no panic");
        match answer {
            Ok(()) => {}
            Err(Error::Store(error)) => {
                assert!(error.is_unavailable(), "{error}");
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
        longest = longest.max(end - start);
    }
    assert!(longest < DEADLINE * 2 + SLACK, "{longest:?}");
    let back = Instant::now();
    until("a caller is granted again", || survivor.block_on(limiter.acquire(1)).is_ok());
    let back = back.elapsed();
    assert_eq!(limiter.state(), State::Up);
    until("the queue is empty", || limiter.queue_len() == 0);
    // Of the twenty, those whose request went by the connection that ended with the runtime.
    assert!(refused <= 20);
    assert!(limiter.counters().lost >= 1);
    fault("the runtime of a request ends", "Reconnecting")
        .answer("in that request: Store, may have charged; the others go on")
        .under(1.0, 1.0)
        .longest(longest, DEADLINE)
        .back(back)
        .done();
}

/// The connection is made again for each new runtime, and each call is answered.
#[test]
fn successive_runtimes() {
    fn rounds<C: Connection>(limiter: &Limiter<C>) -> usize {
        let mut failures = 0;
        for _ in 0..10 {
            let runtime = runtime();
            let start = Instant::now();
            while runtime.block_on(limiter.acquire(1)).is_err() {
                failures += 1;
                assert!(start.elapsed() < Duration::from_secs(1) + SLACK, "never back");
            }
        }
        failures
    }
    let server = Server::start();
    let limiter = builder(bursty(1000.0), reconnecting(&server.url())).build();
    // The connection ends with its runtime; that is known before anything is sent over it.
    assert_eq!(rounds(&limiter), 0);
    let limiter = builder(bursty(1000.0), super::blocking(&server.url())).build();
    assert_eq!(rounds(&limiter), 0);
}

/// Threads wait over an asynchronous connection when its runtime ends.
#[test]
fn threads_get_an_error_when_the_runtime_is_gone() {
    let server = Server::start();
    let runtime = runtime();
    let limiter = {
        let _inside = runtime.enter();
        builder(bursty(1000.0), reconnecting(&server.url())).deadline(DEADLINE).build()
    };
    limiter.blocking_acquire(1).expect("granted");
    server.stop_process();
    let waits = std::thread::spawn({
        let limiter = limiter.clone();
        move || limiter.blocking_acquire(1)
    });
    until("it waits", || limiter.queue_len() == 1);
    let start = Instant::now();
    runtime.shutdown_background();
    assert!(matches!(waits.join().expect("no panic"), Err(Error::Store(_))));
    assert!(start.elapsed() < DEADLINE + SLACK, "{:?}", start.elapsed());
    server.continue_process();
    // Without any runtime nothing can be sent: an error, and no hanging.
    let start = Instant::now();
    assert!(matches!(limiter.blocking_acquire(1), Err(Error::Store(_))));
    assert!(start.elapsed() < DEADLINE + SLACK, "{:?}", start.elapsed());
}

/// A runtime that is no longer driven does not keep the others from connecting.
#[test]
fn a_runtime_that_stands_still_while_it_connects() {
    let server = Server::start();
    let limiter = builder(bursty(1000.0), reconnecting(&server.url())).deadline(DEADLINE).build();
    let still = RuntimeBuilder::new_current_thread().enable_all().build().expect("a runtime");
    server.stop_process();
    still.block_on(async {
        let mut call = limiter.acquire(1);
        assert!(futures::poll!(&mut call).is_pending());
        tokio::time::sleep(ms(50)).await;
    });
    server.continue_process();
    let runtime = runtime();
    let start = Instant::now();
    while runtime.block_on(limiter.at("quota:another").acquire(1)).is_err() {
        assert!(start.elapsed() < DEADLINE * 2 + SLACK, "never connected");
        std::thread::sleep(ms(10));
    }
    drop(still);
}
