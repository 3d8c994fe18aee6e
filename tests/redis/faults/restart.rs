//! The server is killed and comes back: empty, with a snapshot, or only without the scripts.

use std::time::{Duration, Instant};

use tollgate::redis::{Connection, State, Unavailable};

use super::load::{Load, permits};
use super::report::{is_back, not_longer, not_over, not_under};
use super::{
    Events, HORIZON, KEY, Limiter, builder, bursty, denied, eventually, is, manager, ms,
    multiplexed, reconnecting, sequence, served, slow, store, stored, timed, warm,
};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;

const RATE: f64 = 200.0;
const CALLERS: usize = 100;
const DEADLINE: Duration = ms(500);

/// The server is gone for a while, and the proxy refuses connections until it is back, so that time
/// is known.
async fn killed<C: Connection>(server: &Server, proxy: &Proxy, connection: C) {
    let events = Events::default();
    let limiter =
        builder(bursty(RATE), connection).deadline(DEADLINE).on_event(events.listener()).build();
    let load = Load::start(&limiter, CALLERS);
    eventually("some are granted", || limiter.stats().granted >= 40).await;
    assert_eq!(limiter.state(), State::Up);
    server.kill();
    proxy.set(Mode::Refuse);
    let killed = Instant::now();
    is(&limiter, State::Down).await;
    let (answer, longest) = timed(limiter.try_acquire(1)).await;
    let error = store(answer);
    assert!(error.is_unavailable() && error.key() == KEY, "{error}");
    assert!(longest < ms(100), "later callers fail at once");
    // The state changes a moment before the event.
    eventually("the event arrives", || events.downs() > 0).await;
    assert_eq!((events.downs(), events.ups()), (1, 0));

    server.restart();
    let back = Instant::now();
    proxy.set(Mode::Pass);
    eventually("some are granted again", || limiter.stats().granted >= 100).await;
    let log = load.stop().await;
    assert_eq!((events.downs(), events.ups(), limiter.state()), (1, 1, State::Up));
    let counters = limiter.counters();
    assert!(counters.lost >= 1 && counters.without_redis > 0, "{counters:?}");
    // The bookings are forgotten, but still granted.
    let open = killed.duration_since(log.start) + log.end.duration_since(back);
    let over = log.excess(RATE, open);
    let booked = permits(RATE, HORIZON) + 1.0;
    not_over(over, booked);
    not_under(log.lost(RATE), booked);
    not_longer(log.longest_error(), DEADLINE + Duration::from_secs_f64(100.0 / RATE));
    is_back(log.first_grant_after(back));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_everything_is_found_again() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    killed(&server, &proxy, reconnecting(&proxy.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lost_everything_is_found_again_by_a_manager() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    killed(&server, &proxy, manager(&proxy.url()).await).await;
}

/// Every call fails, and quickly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_never_made_again_stays_down() {
    let server = Server::start();
    let connection = multiplexed(&server.url()).await;
    let limiter = builder(bursty(RATE), connection).deadline(DEADLINE).build();
    warm(&limiter, &Events::default()).await;
    server.restart();
    let (answer, first) = timed(limiter.acquire(1)).await;
    store(answer);
    is(&limiter, State::Down).await;
    // Long enough for several attempts.
    let start = Instant::now();
    let mut longest = first;
    while start.elapsed() < ms(700) {
        let (answer, took) = timed(limiter.acquire(1)).await;
        store(answer);
        longest = longest.max(took);
        tokio::time::sleep(ms(20)).await;
    }
    assert_eq!(limiter.state(), State::Down);
    assert!(stored(&server).is_none());
    let another = builder(bursty(RATE), multiplexed(&server.url()).await).build();
    another.acquire(1).await.expect("with a new connection");
    not_longer(longest, DEADLINE);
}

/// The debt in the snapshot is owed again, later grants are forgotten.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_keeps_the_debt() {
    let server = Server::start();
    let limiter = Limiter::new(slow(), reconnecting(&server.url()), KEY);
    limiter.acquire(1).await.expect("the first is prepaid");
    server.save_snapshot();
    let before = stored(&server).expect("the key is there");
    // Booked after the snapshot, and forgotten.
    let later = builder(slow(), reconnecting(&server.url())).horizon(ms(60_000)).build();
    let place = later.reserve(1).await.expect("a place");
    assert_eq!(sequence(&server), before.sequence.wrapping_add(1));
    server.restart();
    let back = Instant::now();
    assert_eq!(stored(&server), Some(before));
    let retry_after = loop {
        match limiter.try_acquire(1).await {
            Err(tollgate::Error::Store(_)) => {}
            answer => break denied(answer),
        }
    };
    let back = back.elapsed();
    assert!(retry_after > ms(5_000) && retry_after <= ms(10_000), "{retry_after:?}");
    drop(place);
    not_over(1.0, 1.0);
    is_back(back);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_were_flushed_are_sent_again() {
    let server = Server::start();
    let limiter = builder(bursty(RATE), reconnecting(&server.url())).build();
    let load = Load::start(&limiter, 20);
    for round in 1..=5 {
        eventually("some are granted", || limiter.stats().granted >= 20 * round).await;
        server.command(&["SCRIPT", "FLUSH"]);
    }
    let first = limiter.stats().granted;
    eventually("some are granted again", || limiter.stats().granted > first).await;
    let log = load.stop().await;
    assert_eq!(log.errors().count(), 0);
    assert_eq!((limiter.counters().lost, limiter.state()), (0, State::Up));
    assert!(server.commandstats("eval").0 >= 2, "the first, and again");
    not_over(log.excess(RATE, log.end - log.start), 0.0);
}

/// Threads, without any runtime.
#[test]
fn blocking_calls_recover_by_themselves() {
    let server = Server::start();
    let limiter = builder(bursty(RATE), reconnecting(&server.url()))
        .deadline(DEADLINE)
        .unavailable(Unavailable::Fail)
        .build();
    limiter.blocking_acquire(1).expect("granted");
    server.kill();
    let start = Instant::now();
    let error = store(limiter.blocking_acquire(1));
    assert!(error.is_unavailable(), "{error}");
    assert!(start.elapsed() < DEADLINE + super::SLACK);
    server.restart();
    let back = Instant::now();
    while limiter.blocking_acquire(1).is_err() {
        assert!(back.elapsed() < super::LIMIT, "never back");
        std::thread::sleep(ms(5));
    }
    assert!(back.elapsed() < Duration::from_secs(1), "{:?}", back.elapsed());
}

/// A server that reads a large snapshot refuses requests, uncharged, and is an outage until it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_still_loads() {
    const FILL: &str = "for i = 1, 3000 do redis.call('SET', i, string.rep('x', 1024)) end";
    // Half a millisecond for each key.
    let slowly = ["--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024"];
    let server = Server::with(&slowly);
    let events = Events::default();
    let limiter = builder(bursty(RATE), reconnecting(&server.url()))
        .deadline(DEADLINE)
        .on_event(events.listener())
        .build();
    warm(&limiter, &events).await;
    server.command(&["EVAL", FILL, "0"]);
    server.save_snapshot();
    server.restart();
    let is_loading = || server.info("persistence")["loading"] == "1";
    let (mut said, mut longest) = (0, Duration::ZERO);
    while is_loading() {
        let (answer, took) = timed(limiter.try_acquire(1)).await;
        if let Err(tollgate::Error::Store(error)) = answer {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            if source.is_some_and(|source| source.to_lowercase().contains("loading")) {
                assert!(!error.may_have_charged(), "{error}");
                said += 1;
            }
        }
        longest = longest.max(took);
        tokio::time::sleep(ms(10)).await;
    }
    assert!(said > 0, "it said that it loads");
    let back = is(&limiter, State::Up).await;
    served(&limiter).await;
    // The request on the connection that ended, at most.
    assert!(limiter.counters().lost <= 1);
    not_longer(longest, DEADLINE);
    is_back(back);
}

/// Without any call meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_up_again_without_a_call() {
    let server = Server::start();
    let events = Events::default();
    let limiter = builder(bursty(RATE), reconnecting(&server.url()))
        .deadline(DEADLINE)
        .on_event(events.listener())
        .build();
    warm(&limiter, &events).await;
    server.kill();
    store(limiter.acquire(1).await);
    is(&limiter, State::Down).await;
    server.restart();
    let took = is(&limiter, State::Up).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    // The state changes a moment before the event.
    eventually("the event arrives", || events.ups() == 1).await;
    assert_eq!(events.downs(), 1);
}
