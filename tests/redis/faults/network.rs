//! The way to the server: cut, mute, or slow.

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::redis::{Connection, State};

use super::load::Load;
use super::report::{is_back, not_longer, not_over, not_under};
use super::{
    BURST, Events, Limiter, builder, bursty, denied, eventually, is, manager, ms, multiplexed,
    reconnecting, sequence, served, slow, store, timed, warm,
};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;

const DEADLINE: Duration = ms(400);

/// A limiter whose connection has been made.
async fn ready<C: Connection>(connection: C, server: &Server, events: &Events) -> Limiter<C> {
    // The key does not expire meanwhile.
    let policy = slow().max_burst(Duration::from_secs(60));
    let limiter =
        builder(policy, connection).deadline(DEADLINE).on_event(events.listener()).build();
    // The server gets to know the script; the key itself is written, and nothing is taken.
    warm(&limiter.at("another"), events).await;
    limiter.pause_for(Duration::from_micros(1)).await.expect("the server is there");
    sequence(server);
    limiter
}

/// One request is cut off. The client cannot know whether it was executed, so it counts as
/// executed.
async fn cut<C: Connection>(server: &Server, proxy: &Proxy, connection: C) {
    let events = Events::default();
    let limiter = ready(connection, server, &events).await;
    let before = sequence(server);
    let before_lost = limiter.counters().lost;
    for (mode, charged) in [(Mode::CutBeforeRequest, 0), (Mode::CutBeforeAnswer, 1)] {
        proxy.set_once(mode);
        let (answer, took) = timed(limiter.try_acquire(1)).await;
        let error = store(answer);
        assert!(error.may_have_charged() && error.is_unavailable(), "{error}");
        let back = is(&limiter, State::Up).await;
        let charges = sequence(server).wrapping_sub(before);
        assert_eq!(charges, charged, "never twice");
        not_under(f64::from(charges), f64::from(charged));
        not_longer(took, DEADLINE);
        is_back(back);
    }
    assert_eq!(limiter.counters().lost, before_lost + 2);
    // Only the charged permits are owed.
    let retry_after = denied(limiter.try_acquire(1).await);
    assert!(retry_after > ms(5_000) && retry_after <= ms(10_000), "{retry_after:?}");
    assert_eq!(events.downs(), events.ups());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_cut_off_is_not_sent_again() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    cut(&server, &proxy, reconnecting(&proxy.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_was_cut_off_is_not_sent_again_by_a_manager() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    cut(&server, &proxy, manager(&proxy.url()).await).await;
}

/// Such an error does not say that nothing was executed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_a_proxy_answers_after_executing_is_not_sent_again() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let events = Events::default();
    // The key does not expire meanwhile.
    let policy = bursty(1_000.0).max_burst(Duration::from_secs(60));
    let limiter = builder(policy, reconnecting(&proxy.url())).deadline(DEADLINE).build();
    warm(&limiter, &events).await;
    for error in ["ERR timed out", "upstream failure", "ERR Connection timed out"] {
        let before = sequence(&server);
        let lost = limiter.counters().lost;
        proxy.set_once(Mode::Answer(error));
        let answer = store(limiter.acquire(1).await);
        assert!(answer.may_have_charged() && answer.is_unavailable(), "{answer}");
        let back = is(&limiter, State::Up).await;
        assert_eq!(sequence(&server).wrapping_sub(before), 1, "{error}: charged once");
        assert_eq!(limiter.counters().lost, lost + 1);
        not_under(1.0, 1.0);
        is_back(back);
    }
}

/// Connections are accepted and never answered.
async fn mute<C: Connection>(server: &Server, connection: C) {
    let events = Events::default();
    let limiter = ready(connection, server, &events).await;
    let before = sequence(server);
    server.stop_process();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { timed(limiter.acquire(1)).await })
        })
        .collect();
    let mut longest = Duration::ZERO;
    for call in calls {
        let (answer, took) = call.await.expect("no panic");
        assert!(store(answer).is_unavailable());
        longest = longest.max(took);
    }
    assert_eq!((limiter.state(), events.downs()), (State::Down, 1));
    // The probes delay no caller.
    let until = Instant::now() + DEADLINE * 4;
    while Instant::now() < until {
        let (answer, took) = timed(limiter.acquire(1)).await;
        assert!(!store(answer).may_have_charged(), "nothing was sent for later callers");
        assert!(took < DEADLINE, "later callers fail at once: {took:?}");
        tokio::time::sleep(ms(5)).await;
    }
    server.continue_process();
    let back = is(&limiter, State::Up).await;
    // The state changes a moment before the event.
    eventually("the event arrives", || events.ups() == 1).await;
    // The server has read the request, though no caller waits for it.
    let charges = sequence(server).wrapping_sub(before);
    not_under(f64::from(charges), 20.0);
    not_longer(longest, DEADLINE);
    is_back(back);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_waits_for_a_mute_server() {
    let server = Server::start();
    mute(&server, reconnecting(&server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_waits_for_a_mute_server_over_a_manager() {
    let server = Server::start();
    mute(&server, manager(&server.url()).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_caller_waits_for_a_mute_server_over_a_plain_connection() {
    let server = Server::start();
    mute(&server, multiplexed(&server.url()).await).await;
}

/// The server was mute before the first connection, so nothing can have been charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_mute_from_the_beginning_has_charged_nothing() {
    let server = Server::start();
    server.stop_process();
    let limiter = builder(slow(), reconnecting(&server.url())).deadline(DEADLINE).build();
    let (answer, took) = timed(limiter.acquire(1)).await;
    let error = store(answer);
    assert!(error.is_unavailable() && !error.may_have_charged(), "{error}");
    assert!(took < DEADLINE * 2 + super::SLACK, "{took:?}");
    server.continue_process();
}

/// Later than the deadline: all charged permits are lost, and no grant exceeds the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_always_too_late() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let events = Events::default();
    let limiter = builder(bursty(100.0), reconnecting(&proxy.url()))
        .deadline(ms(100))
        .on_event(events.listener())
        .build();
    served(&limiter).await;
    let before = sequence(&server);
    proxy.set(Mode::DelayAnswers(ms(300)));
    let load = Load::start(&limiter, 10);
    let requests = limiter.counters().requests;
    eventually("it was tried again", || limiter.counters().requests >= requests + 4).await;
    assert_eq!(limiter.state(), State::Down);
    proxy.set(Mode::Pass);
    let start = Instant::now();
    let back = is(&limiter, State::Up).await;
    eventually("a caller is granted", || limiter.stats().granted > 1).await;
    let log = load.stop().await;
    assert!(log.granted().all(|call| call.end > start), "nothing before");
    assert_eq!((events.downs(), events.ups()), (1, 1));
    // One request was made for ten callers; the others were probes.
    let charges = sequence(&server).wrapping_sub(before);
    let granted = u32::try_from(log.grants()).expect("few");
    not_over(log.excess(100.0, log.end - log.start), 0.0);
    not_under(f64::from(charges.saturating_sub(granted)), 10.0);
    not_longer(log.longest_error(), ms(100));
    is_back(back);
}

/// Slow, but in time: nothing is lost, and the horizon covers the latency.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_are_late_but_in_time() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let limiter = builder(bursty(100.0), reconnecting(&proxy.url()))
        .deadline(ms(2_000))
        .horizon(ms(1_000))
        .build();
    served(&limiter).await;
    proxy.set(Mode::DelayAnswers(ms(300)));
    let before = sequence(&server);
    let load = Load::start(&limiter, 60);
    eventually("a hundred are granted", || limiter.stats().granted > 100).await;
    let log = load.stop().await;
    let charges = f64::from(sequence(&server).wrapping_sub(before));
    let grants = f64::from(u32::try_from(log.grants()).expect("few"));
    let unused = -log.excess(100.0, log.end - log.start);
    assert_eq!((log.errors().count(), limiter.counters().lost), (0, 0));
    // The first reply is late, and so are two more once the queue runs dry.
    assert!(unused < 120.0, "{unused} of {grants} were not used");
    not_over(log.excess(100.0, log.end - log.start), 0.0);
    not_under(charges - grants, 0.0);
}

/// A script that the server does not know has to be sent twice, and the deadline is for both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_is_for_all_that_a_request_takes() {
    const DEADLINE: Duration = ms(1_000);
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let limiter = builder(slow(), reconnecting(&proxy.url())).deadline(DEADLINE).build();
    warm(&limiter.at("another"), &Events::default()).await;
    server.command(&["SCRIPT", "FLUSH"]);
    proxy.set(Mode::DelayAnswers(DEADLINE * 9 / 10));
    let (answer, took) = timed(limiter.acquire(1)).await;
    assert!(store(answer).may_have_charged());
    assert!(took < DEADLINE * 3 / 2, "{took:?}");
    proxy.set(Mode::Pass);
}

/// One key tries to reconnect, and does not delay the deadline of another's request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_is_kept_while_another_key_connects() {
    const DEADLINE: Duration = ms(1_000);
    let server = Server::start();
    let limiter = builder(bursty(1_000.0), reconnecting(&server.url())).deadline(DEADLINE).build();
    let other = limiter.at("another");
    served(&limiter).await;
    served(&other).await;
    server.stop_process();
    let first = tokio::spawn(async move { store(limiter.acquire(1).await) });
    tokio::time::sleep(DEADLINE / 4).await;
    let (answer, took) = timed(other.acquire(1)).await;
    assert!(store(answer).is_unavailable());
    assert!(took < DEADLINE * 3 / 2, "{took:?}");
    first.await.expect("no panic");
}

/// A proxy has lost one reply and passes those that follow. Without numbers each of them would be taken for the reply
/// to the request before its own, for ever.
async fn lost<C: Connection>(name: &'static str, proxy: &Proxy, connection: C) {
    const RATES: [f64; 2] = [10.0, 2_000.0];
    let limiter = |rate: f64, key: &str| {
        Limiter::builder(bursty(rate), connection.clone(), key).deadline(DEADLINE).build()
    };
    let limiters = [limiter(RATES[0], "slow"), limiter(RATES[1], "fast")];
    for limiter in &limiters {
        warm(limiter, &Events::default()).await;
    }
    let loads = [Load::start(&limiters[0], 4), Load::start(&limiters[1], 64)];
    tokio::time::sleep(ms(300)).await;
    proxy.set_once(Mode::LoseAnswers);
    let start = Instant::now();
    eventually("a reply is lost", || proxy.mode() == Mode::Pass).await;
    tokio::time::sleep(ms(1_500)).await;
    let settled = Instant::now();
    tokio::time::sleep(ms(1_500)).await;
    let (mut back, mut over) = (Duration::ZERO, f64::MIN);
    for ((load, rate), limiter) in loads.into_iter().zip(RATES).zip(&limiters) {
        let log = load.stop().await;
        let span = log.end.duration_since(log.start).as_secs_f64();
        #[allow(clippy::cast_precision_loss)] // a few thousand
        let (granted, later) = (log.grants() as f64, log.grants_in(settled, log.end) as f64);
        over = over.max(granted - rate * (span + BURST.as_secs_f64()));
        let since = log.end.duration_since(settled).as_secs_f64();
        assert!(later >= rate * since / 2.0, "{name}: {later} at {rate} a second in {since} s");
        assert!(limiter.counters().failed < 200, "{name}: {:?}", limiter.counters());
        back = back.max(log.first_grant_after(start));
    }
    let lost: u64 = limiters.iter().map(|limiter| limiter.counters().lost).sum();
    assert!(lost > 0 && proxy.accepted() >= 2, "{lost} lost, {} connections", proxy.accepted());
    not_over(over, 2.0);
    not_longer(back, DEADLINE);

    // No other request is under way that could get the wrong reply.
    let [limiter, _] = limiters;
    let before = proxy.accepted();
    for _ in 0..3 {
        served(&limiter).await;
    }
    proxy.set_once(Mode::LoseAnswers);
    let (answer, _) = timed(limiter.acquire(1)).await;
    assert!(store(answer).may_have_charged());
    served(&limiter).await;
    assert!(proxy.accepted() > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_lost_shifts_no_other() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    lost("Reconnecting", &proxy, reconnecting(&proxy.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_is_lost_shifts_no_other_over_a_manager() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    lost("ConnectionManager", &proxy, manager(&proxy.url()).await).await;
}

/// twemproxy closes a connection that sends `CLIENT SETINFO`.
#[test]
fn a_new_connection_sends_a_script_first() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let connection = reconnecting(&format!("redis://127.0.0.1:{port}/"));
    let limiter = builder(bursty(1.0), connection).deadline(ms(200)).build();
    let caller = thread::spawn(move || limiter.blocking_acquire(1).map(drop));
    let mut bytes = [0; 4096];
    let (mut stream, _) = listener.accept().expect("a connection");
    let count = stream.read(&mut bytes).expect("a request");
    assert!(
        String::from_utf8_lossy(&bytes[..count]).contains("\r\nEVAL\r\n"),
        "{:?}",
        &bytes[..count]
    );
    store(caller.join().expect("no panic"));
}
