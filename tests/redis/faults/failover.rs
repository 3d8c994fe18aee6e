//! Another server takes over: a replica that lags, or a new primary to which connections must move.

use std::time::{Duration, Instant};

use tollgate::redis::{Connection, State};

use super::load::{Load, permits};
use super::report::{is_back, not_longer, not_over, not_under};
use super::{
    Events, HORIZON, KEY, builder, bursty, eventually, is, manager, ms, reconnecting, sequence,
    store, timed, warm,
};
use crate::support::proxy::{Mode, Proxy};
use crate::support::replica::{Replica, demote};
use crate::support::server::Server;

const RATE: f64 = 200.0;
const CALLERS: usize = 50;
const DEADLINE: Duration = ms(500);

/// The replica has not received the last grants of the primary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lags_costs_no_more_than_its_lag() {
    const LAG: Duration = ms(300);
    let primary = Server::start();
    let replica = Replica::of(&primary);
    let proxy = Proxy::to(&primary);
    let limiter = builder(bursty(RATE), reconnecting(&proxy.url())).deadline(DEADLINE).build();
    let load = Load::start(&limiter, CALLERS);
    eventually("some are granted", || limiter.stats().granted >= 40).await;
    // From here on nothing reaches it.
    replica.wait_synced(&primary);
    replica.promote();
    let lags = Instant::now();
    let known = sequence(&replica);
    eventually("the lag is over", || lags.elapsed() >= LAG).await;
    assert_ne!(sequence(&primary), known, "there is something to lose");
    let killed = Instant::now();
    primary.kill();
    proxy.set(Mode::Refuse);
    is(&limiter, State::Down).await;
    proxy.retarget(&replica);
    let back = Instant::now();
    proxy.set(Mode::Pass);
    let granted = limiter.stats().granted;
    eventually("some are granted again", || limiter.stats().granted >= granted + 40).await;
    let log = load.stop().await;
    let lag = killed.duration_since(lags);
    let open = killed.duration_since(log.start) + log.end.duration_since(back);
    // The debt of that time is forgotten, and no time has passed for the replica that it can credit.
    not_over(log.excess(RATE, open), permits(RATE, lag + HORIZON) + 1.0);
    not_under(log.lost(RATE), permits(RATE, HORIZON) + 1.0);
    not_longer(log.longest_error(), DEADLINE + ms(250));
    is_back(log.first_grant_after(back));
}

/// The connection stays open, but its server is a replica now.
async fn demoted<C: Connection>(connection: impl AsyncFn(&str) -> C) {
    let primary = Server::start();
    let replica = Replica::of(&primary);
    let proxy = Proxy::to(&primary);
    let events = Events::default();
    // The key does not expire meanwhile.
    let policy = bursty(RATE).max_burst(Duration::from_secs(60));
    let limiter = builder(policy, connection(&proxy.url()).await)
        .deadline(DEADLINE)
        .on_event(events.listener())
        .build();
    warm(&limiter, &events).await;
    replica.wait_synced(&primary);
    replica.promote();
    let swapped = Instant::now();
    demote(&primary, &replica);
    let before = sequence(&replica);
    let (answer, first) = timed(limiter.acquire(1)).await;
    let error = store(answer);
    assert!(error.is_unavailable() && !error.may_have_charged(), "{error}");
    assert!(error.to_string().contains(KEY), "{error}");
    is(&limiter, State::Down).await;
    assert_eq!(sequence(&replica), before, "nothing was charged anywhere");
    // A probe must not count a replica as a usable server.
    let (mut longest, start) = (first, Instant::now());
    while start.elapsed() < ms(700) {
        let (answer, took) = timed(limiter.acquire(1)).await;
        store(answer);
        assert!(took < ms(100), "later callers fail at once: {took:?}");
        longest = longest.max(took);
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!((events.downs(), events.ups()), (1, 0));
    proxy.retarget(&replica);
    let back = is(&limiter, State::Up).await;
    limiter.acquire(1).await.expect("granted by the new primary");
    assert_eq!(sequence(&replica), before.wrapping_add(1));
    assert!(swapped.elapsed() < Duration::from_secs(5));
    not_longer(longest, DEADLINE);
    is_back(back);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demoted_primary_is_left() {
    demoted(async |url| reconnecting(url)).await;
}

/// It does not know that the primary has moved, and fails until the connection is cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_stays_with_a_demoted_primary_until_the_connection_ends() {
    let primary = Server::start();
    let replica = Replica::of(&primary);
    let proxy = Proxy::to(&primary);
    let limiter = builder(bursty(RATE), manager(&proxy.url()).await).deadline(DEADLINE).build();
    warm(&limiter, &Events::default()).await;
    replica.wait_synced(&primary);
    replica.promote();
    demote(&primary, &replica);
    proxy.retarget(&replica);
    let (answer, longest) = timed(limiter.acquire(1)).await;
    let error = store(answer);
    assert!(error.is_unavailable() && !error.may_have_charged(), "{error}");
    proxy.cut();
    let start = Instant::now();
    eventually("it is connected again", || limiter.state() == State::Up).await;
    limiter.acquire(1).await.expect("granted by the new primary");
    not_longer(longest, DEADLINE);
    is_back(start.elapsed());
}
