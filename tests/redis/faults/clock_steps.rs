//! The server's clock is set, by half a minute or an hour, either way: really, so that keys end early or
//! late, too.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use tollgate::redis::{RedisGrant, RedisRateLimiter, Scripted};
use tollgate::{
    Error, FixedWindow, Gcra, InFlight, LeakyBucket, LockOut, Rate, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use super::load::{Load, permits};
use super::report::{not_longer, not_over};
use super::{
    BURST, HORIZON, KEY, Limiter, Reconnecting, SLACK, bursty, denied, eventually, ms,
    reconnecting, served, slow, stored, timed,
};
use crate::support::proxy::{Mode, Proxy};
use crate::support::server::Server;

const STEPS: [(&str, i64); 4] = [
    ("the server's clock steps by 30 s", 30),
    ("the server's clock steps by 1 h", 3600),
    ("the server's clock steps by -30 s", -30),
    ("the server's clock steps by -1 h", -3600),
];

/// One permit each ten seconds, which is as long as a test takes; at most five are stored.
fn five() -> SmoothBursty {
    slow().max_burst(Duration::from_secs(50))
}

/// A limiter without cached refusals.
fn fresh<P: Scripted>(server: &Server, policy: P) -> RedisRateLimiter<P, Reconnecting> {
    RedisRateLimiter::new(policy, reconnecting(&server.url()), KEY)
}

/// Where a lost key counts as one that was unused for long.
fn fresh_idle(server: &Server) -> Limiter {
    Limiter::builder(five(), reconnecting(&server.url()), "idle").absent_is_new(false).build()
}

/// All that are granted at once now.
async fn all_at_once<P: Scripted<Cost = u32>>(
    limiter: &RedisRateLimiter<P, Reconnecting>,
) -> Vec<RedisGrant<P, Reconnecting>> {
    let mut grants = Vec::new();
    loop {
        match limiter.try_acquire(1).await {
            Ok(grant) => grants.push(grant),
            Err(Error::Denied { .. }) => return grants,
            Err(error) => panic!("{error}"),
        }
    }
}

/// How many that is.
async fn at_once<P: Scripted<Cost = u32>>(limiter: &RedisRateLimiter<P, Reconnecting>) -> u32 {
    all_at_once(limiter).await.len().try_into().expect("a few")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_mints_at_most_a_burst_and_locks_no_caller_out() {
    for (name, seconds) in STEPS {
        let server = Server::with_clock();
        assert_eq!(at_once(&fresh(&server, five())).await, 1, "the first is prepaid");
        assert_eq!(at_once(&fresh_idle(&server)).await, 6, "a burst and the one that is prepaid");
        server.step_clock(seconds);
        // What is stored would be lost with it.
        assert!(stored(&server).is_some(), "the key has ended");
        let expected = match seconds {
            3600.. => [6, 6],
            // Thirty seconds yield three, less the one that is owed.
            0.. => [3, 3],
            _ => [0, 0],
        };
        let mut most = 0;
        for (limiter, expected) in
            [fresh(&server, five()), fresh_idle(&server)].iter().zip(expected)
        {
            let granted = at_once(limiter).await;
            let retry_after = denied(limiter.try_acquire(1).await);
            assert!(retry_after <= ms(10_000), "{name}: {retry_after:?}");
            assert_eq!(granted, expected, "{name}");
            most = most.max(granted);
        }
        not_over(f64::from(most), if seconds > 0 { 6.0 } else { 0.0 });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wait_is_longer_than_before() {
    for (name, seconds) in STEPS {
        let server = Server::with_clock();
        fresh(&server, five()).acquire(5).await.expect("the first is prepaid");
        server.step_clock(seconds);
        let answer = fresh(&server, five()).try_acquire(1).await;
        // Fifty seconds are owed, unless they have passed.
        if seconds == 3600 {
            answer.expect("nothing is owed");
        } else {
            let least = if seconds > 0 { ms(10_000) } else { ms(40_000) };
            let retry_after = denied(answer);
            let is_it = retry_after > least && retry_after <= least + ms(10_000);
            assert!(is_it, "{name}: {retry_after:?}");
        }
        // Set right again: a refusal has written nothing, unless the clock had gone back.
        server.step_clock(0);
        let limiter = fresh(&server, five());
        let (expected, most) = match seconds {
            30 => (0, ms(50_000)),
            -30 => (0, ms(20_000)),
            // What was stored by the later time, less the grant.
            3600 => (5, ms(10_000)),
            _ => (6, ms(10_000)),
        };
        assert_eq!(at_once(&limiter).await, expected, "{name}, and back");
        let retry_after = denied(limiter.try_acquire(1).await);
        assert!(retry_after <= most, "{name}, and back: {retry_after:?}");
    }
}

/// Five permits of a span are taken, then the clock steps. After a step ahead, no more than those
/// are available; after a step back, the next comes no later than without the step.
async fn five_in<P: Scripted<Cost = u32> + Debug>(
    server: &Server,
    clock: &mut i64,
    make: impl Fn(Duration) -> P,
) {
    for (name, seconds) in STEPS {
        server.command(&["DEL", KEY]);
        // Shorter than any step; long enough, where that counts, that none come of themselves.
        let span = if seconds > 0 { ms(20_000) } else { ms(500) };
        let policy = || make(span);
        let limiter = fresh(server, policy());
        let all = limiter.acquire(5).await.expect("the key is new");
        // A policy that locks does so now, unless the span has just ended.
        let one_more = limiter.try_acquire(1).await;
        *clock += seconds;
        server.step_clock(*clock);
        let limiter = fresh(server, policy());
        let what = format!("{:?}, {name}", policy());
        if seconds > 0 {
            let granted = at_once(&limiter).await;
            assert!((1..=6).contains(&granted), "{what}: {granted}");
        } else {
            let (answer, longest) = timed(limiter.acquire(1)).await;
            answer.expect("granted");
            assert!(longest <= span + SLACK, "{what}: {longest:?}");
        }
        drop((all, one_more));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_policy_mints_or_locks_out_by_a_step() {
    let server = Server::with_clock();
    let clock = &mut 0;
    let rate = |span: Duration| Rate::per_second(5.0 / span.as_secs_f64());
    let second = ms(1_000);
    five_in(&server, clock, |span| SmoothBursty::new(rate(span)).max_burst(span)).await;
    five_in(&server, clock, |span| SmoothWarmingUp::new(rate(span), span)).await;
    five_in(&server, clock, |span| TokenBucket::new(rate(span), 5)).await;
    five_in(&server, clock, |span| TokenBucket::new(rate(span), 5).refill_every(span)).await;
    five_in(&server, clock, |span| Gcra::new(4, 5, span)).await;
    five_in(&server, clock, |span| LeakyBucket::meter(rate(span), 5)).await;
    five_in(&server, clock, |span| FixedWindow::new(5, span)).await;
    five_in(&server, clock, |span| FixedWindow::new(5, span).aligned(second)).await;
    five_in(&server, clock, |span| SlidingWindowLog::new(5, span)).await;
    five_in(&server, clock, |span| SlidingWindowCounter::new(5, span, 5)).await;
    five_in(&server, clock, |span| LockOut::new(FixedWindow::new(5, span), span)).await;
}

/// A step ahead ends it earlier; after a step back it lasts no longer than it was to last in all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_is_not_longer_than_it_was_to_be() {
    for (name, seconds) in STEPS {
        let server = Server::with_clock();
        let limiter = fresh(&server, five());
        limiter.pause_for(ms(20_000)).await.expect("paused");
        server.step_clock(seconds);
        if seconds > 0 {
            let granted = at_once(&fresh(&server, five())).await;
            // The yield of ten seconds, or all that can be stored.
            assert_eq!(granted, if seconds == 30 { 2 } else { 6 }, "{name}");
            continue;
        }
        let retry_after = denied(fresh(&server, five()).try_acquire(1).await);
        assert!(retry_after > ms(10_000) && retry_after <= ms(20_000), "{name}: {retry_after:?}");
        // A short one does end.
        server.command(&["DEL", KEY]);
        let start = Instant::now();
        limiter.pause_for(ms(300)).await.expect("paused");
        server.step_clock(2 * seconds);
        let (answer, longest) = timed(fresh(&server, five()).acquire(1)).await;
        answer.expect("granted");
        // The step takes a part of it on a busy machine.
        let paused = start.elapsed();
        assert!(paused >= ms(300) && longest <= ms(300) + SLACK, "{name}: {paused:?} {longest:?}");
    }
}

const LEASE: Duration = ms(900);

fn places(url: &str) -> RedisRateLimiter<InFlight, Reconnecting> {
    RedisRateLimiter::builder(InFlight::new(5), reconnecting(url), KEY).lease(LEASE).build()
}

/// A step ahead ends all leases, until live processes renew theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_are_granted_twice_after_a_step_ahead_until_they_are_renewed() {
    for (name, seconds) in STEPS.into_iter().filter(|&(_, seconds)| seconds > 0) {
        let server = Server::with_clock();
        let (one, other) = (places(&server.url()), places(&server.url()));
        let held = one.acquire(5).await.expect("all places");
        server.step_clock(seconds);
        let twice = all_at_once(&other).await;
        let over = u32::try_from(twice.len()).expect("a few");
        tokio::time::sleep(LEASE / 2).await;
        drop(twice);
        // Renewed in the meantime, and ever after.
        let full = other.try_acquire_timeout(1, LEASE * 2).await;
        assert!(matches!(full, Err(Error::Denied { .. })), "{name}: {full:?}");
        drop(held);
        let again = other.acquire(5).await.expect("all places");
        assert_eq!(at_once(&one).await, 0, "{name}: five, and no more");
        drop(again);
        not_over(f64::from(over), 5.0);
    }
}

/// A step back ends no lease and lengthens none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_stay_taken_after_a_step_back_except_those_of_dead_processes() {
    for (name, seconds) in STEPS.into_iter().filter(|&(_, seconds)| seconds < 0) {
        let server = Server::with_clock();
        let proxy = Proxy::to(&server);
        let (one, other) = (places(&proxy.url()), places(&server.url()));
        let _held = one.acquire(5).await.expect("all places");
        server.step_clock(seconds);
        // Longer than a lease: it is renewed while it can be.
        let full = other.try_acquire_timeout(1, LEASE * 2).await;
        assert!(matches!(full, Err(Error::Denied { .. })), "{name}: {full:?}");
        proxy.set(Mode::SwallowRequests);
        server.step_clock(2 * seconds);
        let (answer, longest) = timed(other.acquire(5)).await;
        answer.expect("all places");
        assert!(longest >= LEASE / 2 && longest <= LEASE + SLACK, "{name}: {longest:?}");
    }
}

/// There and back again while callers are served. Each step ahead fills the store and forgets the
/// bookings; no caller waits for an hour.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_and_its_correction() {
    const RATE: f64 = 500.0;
    // A second is less than a key of this rate lives.
    for (seconds, ahead, name) in [
        (1, 4.0, "the server's clock steps by 1 s and back, four times"),
        (30, 4.0, "the server's clock steps by 30 s and back, four times"),
        (3600, 4.0, "the server's clock steps by 1 h and back, four times"),
        (-3600, 3.0, "the server's clock steps by -1 h and back, three times"),
    ] {
        for (callers, who) in [(4, "four callers"), (200, "a crowd")] {
            let server = Server::with_clock();
            let limiter = fresh(&server, bursty(RATE));
            served(&limiter).await;
            let load = Load::start(&limiter, callers);
            for step in 0..8 {
                server.step_clock(if step % 2 == 0 { 0 } else { seconds });
                let before = limiter.stats().granted;
                eventually("more are granted", || limiter.stats().granted >= before + 100).await;
            }
            let log = load.stop().await;
            assert_eq!(log.errors().count(), 0, "{name}, {who}");
            let turn = Duration::from_secs_f64(callers as f64 / RATE);
            let longest = log.granted().map(|call| call.end - call.start).max();
            // Of four callers, no more than four are booked.
            let booked = permits(RATE, HORIZON).min(callers as f64);
            not_over(
                log.excess(RATE, log.end - log.start),
                ahead * (booked + permits(RATE, BURST) + 1.0),
            );
            not_longer(longest.expect("some were granted"), turn + ms(100));
        }
    }
}
