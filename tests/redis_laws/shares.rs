//! Processes with many callers each on one key: their shares, the waits of their callers, and what is used. All of
//! them decide and wait by one manual clock, so a run of a minute takes seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use tollgate::redis::{RedisGrant, RedisRateLimiter, Scripted};
use tollgate::{
    Acquire, Clock, FixedWindow, InFlight, ManualClock, Rate, Same, SlidingWindowLog, SmoothBursty,
};

use crate::manual::{Manual, new_key};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

struct Process<P: Scripted> {
    /// Of each call.
    cost: u32,
    limiter: RedisRateLimiter<P, Manual>,
    calls: FuturesUnordered<Acquire<RedisRateLimiter<P, Manual>>>,
    granted: u32,
    stands_still: bool,
}

impl<P: Scripted<Cost = u32>> Process<P> {
    fn start(limiter: RedisRateLimiter<P, Manual>, tasks: u32) -> Self {
        let calls = (0..tasks).map(|_| limiter.acquire(1)).collect();
        Self { cost: 1, limiter, calls, granted: 0, stands_still: false }
    }
}

struct Fleet<P: Scripted> {
    clock: ManualClock,
    processes: Vec<Process<P>>,
    /// How long a caller holds its grant.
    holds: Duration,
    held: BTreeMap<(Duration, usize, u32), RedisGrant<P, Manual>>,
    /// When callers were granted.
    seen: Vec<Duration>,
    longest: Duration,
}

impl<P: Scripted<Cost = u32>> Fleet<P> {
    fn new(policy: &P, holds: Duration, tasks: &[u32]) -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(3_600));
        let (key, connection) = (new_key(), Manual::new(&clock));
        let process = |&tasks| {
            let builder = RedisRateLimiter::builder(policy.clone(), connection.clone(), &*key);
            Process::start(builder.clock(&clock).build(), tasks)
        };
        let processes = tasks.iter().map(process).collect();
        let (held, seen) = (BTreeMap::new(), Vec::new());
        Self { clock, processes, holds, held, seen, longest: Duration::ZERO }
    }

    /// The calls of the first process cost this much.
    fn costs(&mut self, cost: u32) {
        let Process { limiter, calls, cost: of_each, .. } = &mut self.processes[0];
        *of_each = cost;
        *calls = (0..calls.len()).map(|_| limiter.acquire(cost)).collect();
    }

    /// One more process, with a clock of its own.
    fn join(&mut self, clock: Clock, tasks: u32) {
        let limiter = &self.processes[0].limiter;
        let (policy, connection) = (limiter.policy(), Manual::new(&self.clock));
        let builder = RedisRateLimiter::builder(policy, connection, limiter.key()).clock(clock);
        self.processes.push(Process::start(builder.build(), tasks));
    }

    /// Callers that have been granted hold their grants, and ask again.
    fn settle(&mut self) {
        let now = self.clock.elapsed();
        let rest = self.held.split_off(&(now + Duration::from_nanos(1), 0, 0));
        for ((_, process, _), grant) in std::mem::replace(&mut self.held, rest) {
            let Process { limiter, calls, cost, .. } = &mut self.processes[process];
            drop(grant);
            calls.push(limiter.acquire(*cost));
        }
        let processes = self.processes.iter_mut().enumerate();
        for (index, process) in processes.filter(|(_, process)| !process.stands_still) {
            while let Some(Some(grant)) = process.calls.next().now_or_never() {
                let grant = grant.expect("granted");
                self.longest = self.longest.max(grant.waited());
                process.granted += 1;
                self.seen.push(now);
                if self.holds.is_zero() {
                    process.calls.push(process.limiter.acquire(process.cost));
                } else {
                    self.held.insert((now + self.holds, index, process.granted), grant);
                }
            }
        }
    }

    fn run(&mut self, lasts: Duration) {
        let end = self.clock.elapsed() + lasts;
        while self.clock.elapsed() < end {
            self.settle();
            self.clock.advance(ms(1));
        }
        self.settle();
    }

    fn granted(&self) -> u32 {
        self.processes.iter().map(|process| process.granted).sum()
    }

    /// What each process gets of the whole in a time, after a second in which they begin.
    fn shares(&mut self, lasts: Duration) -> (Vec<f64>, u32) {
        self.run(ms(1_000));
        self.longest = Duration::ZERO;
        self.processes.iter_mut().for_each(|process| process.granted = 0);
        self.run(lasts);
        let all = self.granted();
        let shares = self.processes.iter().map(|p| f64::from(p.granted) / f64::from(all)).collect();
        println!("{all} granted, shares {shares:.3?}, longest wait {:?}", self.longest);
        (shares, all)
    }

    /// The least share is at least this part of the greatest.
    #[track_caller]
    fn is_fair(&mut self, lasts: Duration, least: f64) -> u32 {
        let (shares, all) = self.shares(lasts);
        let most = shares.iter().copied().fold(0.0, f64::max);
        assert!(shares.iter().all(|&share| share >= least * most), "{shares:.3?}");
        all
    }
}

/// A process that releases and takes in one request left no place to others.
#[test]
fn places_of_a_busy_process_go_round() {
    for processes in [2, 3, 8] {
        let mut fleet = Fleet::new(&InFlight::new(5), ms(10), &vec![50; processes]);
        let all = fleet.is_fair(ms(4_000), 0.8);
        assert!(all >= 1_800, "{all} of 2,000 used by {processes}");
    }
}

#[test]
fn places_that_a_process_does_not_need_go_to_others() {
    let mut fleet = Fleet::new(&InFlight::new(5), ms(10), &[50, 1]);
    let (shares, all) = fleet.shares(ms(5_000));
    assert!(all >= 2_250, "{all} of 2,500");
    // It is never refused for long.
    assert!(shares[1] >= 0.15, "{shares:?}");
    // A process that has ended its calls does not count, and that soon.
    fleet.processes[1].calls.clear();
    fleet.held.clear();
    let (shares, all) = fleet.shares(ms(1_000));
    assert!(all >= 450 && shares[1] < 0.01, "{all} of 500, {shares:?}");
}

/// Processes share by requests: one whose calls are large gets most of the permits. Of a rate each of the others gets
/// its part of the requests; of places in flight one of them may get nothing for long, beside calls for most of them.
#[test]
fn processes_with_large_calls_get_more_permits() {
    fn run(policy: &impl Scripted<Cost = u32>, holds: Duration, cost: u32) -> Vec<u32> {
        let mut fleet = Fleet::new(policy, holds, &[50; 4]);
        fleet.costs(cost);
        fleet.run(ms(20_000));
        let granted = fleet.processes.iter().map(|process| process.granted * process.cost);
        let granted: Vec<_> = granted.collect();
        println!("permits {granted:?}, longest wait {:?}", fleet.longest);
        granted
    }
    let places = run(&InFlight::new(10), ms(10), 8);
    let bucket = run(&SmoothBursty::new(Rate::per_second(300.0)), ms(0), 100);
    assert!(bucket.iter().all(|&permits| permits >= 40), "{bucket:?}");
    assert!(places[1..].iter().sum::<u32>() >= 100, "{places:?}");
}

/// Tickets booked ahead held places before their callers could run.
#[test]
fn a_log_with_places() {
    let policy = Same((SlidingWindowLog::new(200, ms(100)), InFlight::new(50)));
    for processes in [2, 4] {
        let mut fleet = Fleet::new(&policy, ms(10), &vec![50; processes]);
        let all = fleet.is_fair(ms(3_000), 0.7);
        assert!(all >= 5_700, "{all} of 6,000");
    }
}

/// The process that came first at the edge of a window took most of it, and the next time again.
#[test]
fn windows_are_shared() {
    fn run(policy: &impl Scripted<Cost = u32>) {
        let mut fleet = Fleet::new(policy, ms(0), &[50; 8]);
        let (shares, _) = fleet.shares(ms(40_000));
        assert!(shares.iter().all(|share| 8.0 * share >= 0.8), "{shares:.3?}");
        assert!(fleet.longest <= ms(8_000), "{:?}, 4 s is fair", fleet.longest);
    }
    run(&FixedWindow::new(100, ms(1_000)));
    run(&SlidingWindowLog::new(100, ms(1_000)));
}

/// The most grants within a time that is a little shorter than a window.
fn most_within(window: Duration, seen: &[Duration]) -> usize {
    let within = |(first, &at)| seen[first..].partition_point(|&later| later < at + window);
    seen.iter().enumerate().map(within).max().unwrap_or(0)
}

/// Three processes of 50 tasks by the server's clock, and one that gets the time in jumps.
async fn beside_a_process_that_jumps(
    window: Duration,
    jumps: &[Duration],
) -> Fleet<SlidingWindowLog> {
    let mut fleet = Fleet::new(&SlidingWindowLog::new(250, window), ms(0), &[50; 3]);
    fleet.join(Clock::tokio(), 50);
    for &jump in jumps {
        fleet.processes[3].stands_still = jump > ms(1);
        fleet.run(jump);
        tokio::time::advance(jump).await;
        // Its timer fires.
        tokio::task::yield_now().await;
        fleet.processes[3].stands_still = false;
        fleet.settle();
    }
    fleet
}

/// After 5 s all bookings of a stopped process were granted at once, beside those of the others.
#[tokio::test(start_paused = true)]
async fn a_process_that_stood_still_does_not_play_out_its_bookings() {
    let jumps = [vec![ms(1); 1_400], vec![ms(5_000)], vec![ms(1); 1_000]].concat();
    let fleet = beside_a_process_that_jumps(ms(500), &jumps).await;
    let most = most_within(ms(499), &fleet.seen);
    assert!(most <= 250, "{most} in a window");
    let shares: Vec<_> = fleet.processes.iter().map(|process| process.granted).collect();
    println!("{shares:?}");
    assert!(shares[3] >= 150, "it goes on: {shares:?}");
}

/// A process that is late grants bookings late, up to the horizon: a server sees more than the limit in a window. It
/// does not if the window of the limiter is longer by the horizon.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_late_exceeds_a_window_unless_it_is_longer() {
    let late = [vec![ms(1); 700], vec![ms(240)]].concat().repeat(6);
    for (window, what) in [(ms(500), "as it is"), (ms(750), "longer by the horizon")] {
        let fleet = beside_a_process_that_jumps(window, &late).await;
        let most = most_within(ms(499), &fleet.seen);
        println!("a window of 500 ms, {what}: {most} of 250 within 499 ms");
        assert!(window == ms(500) || most <= 250, "{most}");
    }
}

/// It always finds its bookings overdue.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_always_late_is_served() {
    let fleet = beside_a_process_that_jumps(ms(500), &[ms(400); 20]).await;
    let shares: Vec<_> = fleet.processes.iter().map(|process| process.granted).collect();
    println!("{shares:?}");
    assert!(shares[3] >= 50, "{shares:?}");
}

#[test]
fn a_booking_of_the_last_handle_goes_back() {
    let clock = ManualClock::new();
    let (key, connection) = (new_key(), Manual::new(&clock));
    let limiter = || {
        let policy = SlidingWindowLog::new(1, ms(50));
        RedisRateLimiter::builder(policy, connection.clone(), &*key).clock(&clock).build()
    };
    let (one, other) = (limiter(), limiter());
    drop(one.acquire(1).now_or_never().expect("at once"));
    let mut leaves = one.acquire(1);
    assert!((&mut leaves).now_or_never().is_none());
    drop((leaves, one));
    // The first charge has left the log.
    clock.advance(ms(51));
    let quota = other.quota().now_or_never().expect("at once").expect("Redis is there");
    assert_eq!(quota.remaining, 1);
}
