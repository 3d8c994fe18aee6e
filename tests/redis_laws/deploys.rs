//! Which policy is in force when processes have different ones in their code.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::{RedisRateLimiter, RedisRateLimiterBuilder, Scripted};
use tollgate::{Event, FixedWindow, ManualClock, Rate, Rated, SmoothBursty, TokenBucket};

use crate::manual::{Manual, new_key};

const SECOND: Duration = Duration::from_secs(1);

/// The processes of one key.
struct Fleet {
    clock: ManualClock,
    connection: Manual,
    key: String,
}

/// A process, and the policies that it has adopted: version and generation.
struct Process<P: Scripted> {
    limiter: RedisRateLimiter<P, Manual>,
    adopted: Arc<Mutex<Vec<(u32, u32)>>>,
}

impl Fleet {
    fn new() -> Self {
        let clock = ManualClock::new();
        clock.advance(Duration::from_secs(100_000));
        Self { connection: Manual::new(&clock), clock, key: new_key() }
    }

    fn with<P: Scripted>(
        &self,
        policy: P,
        choose: impl FnOnce(RedisRateLimiterBuilder<P, Manual>) -> RedisRateLimiterBuilder<P, Manual>,
    ) -> Process<P> {
        let adopted = Arc::<Mutex<Vec<_>>>::default();
        let heard = Arc::clone(&adopted);
        let listener = move |event: &Event| {
            if let Event::PolicyAdopted { version, generation, .. } = *event {
                heard.lock().expect("whole").push((version, generation));
            }
        };
        let connection = self.connection.clone();
        let builder = RedisRateLimiter::builder(policy, connection, &*self.key).clock(&self.clock);
        Process { limiter: choose(builder).on_event(listener).build(), adopted }
    }

    fn start<P: Scripted>(&self, policy: P) -> Process<P> {
        self.with(policy, |builder| builder)
    }

    fn version<P: Scripted>(&self, version: u32, policy: P) -> Process<P> {
        self.with(policy, |builder| builder.version(version))
    }
}

fn bursty(rate: f64) -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(rate))
}

/// The number of permits that are granted at once.
fn burst<P: Scripted<Cost = u32>>(limiter: &RedisRateLimiter<P, Manual>) -> u32 {
    let mut count = 0;
    while limiter.try_acquire(1).now_or_never().expect("an answer").is_ok() {
        count += 1;
    }
    count
}

fn ask<P: Scripted>(limiter: &RedisRateLimiter<P, Manual>) {
    limiter.quota().now_or_never().expect("an answer").expect("a quota");
}

impl<P: Scripted<Cost = u32>> Process<P> {
    /// A call, which may be refused but not fail.
    fn call(&self) {
        if let Err(error) = self.limiter.try_acquire(1).now_or_never().expect("an answer") {
            assert!(error.retry_after().is_some(), "{error}");
        }
    }

    fn set(&self, policy: P) {
        self.limiter.set_policy(policy).now_or_never().expect("an answer").expect("set");
    }

    fn adopted(&self) -> Vec<(u32, u32)> {
        self.adopted.lock().expect("whole").clone()
    }
}

impl<P: Scripted<Cost = u32> + Rated> Process<P> {
    /// The rate in force, after a call, and after a request: refusals are cached.
    fn rate(&self) -> f64 {
        self.call();
        ask(&self.limiter);
        self.limiter.rate().as_per_second()
    }
}

/// The old limit holds as long as an old process calls; ten seconds later the new one does. Without a recipe,
/// and without an error.
#[test]
fn a_rolling_deploy_converges_when_the_last_old_process_has_gone() {
    let fleet = Fleet::new();
    let old = fleet.start(bursty(100.0));
    assert_eq!(old.rate(), 100.0);
    fleet.clock.advance(60 * SECOND);
    let new = fleet.start(bursty(200.0));
    old.call();
    for _ in 0..30 {
        assert_eq!(new.rate(), 100.0);
        fleet.clock.advance(SECOND / 2);
        assert_eq!(old.rate(), 100.0);
        fleet.clock.advance(SECOND / 2);
    }
    drop(old);
    for _ in 0..9 {
        assert_eq!(new.rate(), 100.0);
        fleet.clock.advance(SECOND);
    }
    fleet.clock.advance(2 * SECOND);
    assert_eq!(new.rate(), 200.0);
    // An old process that starts again, and does so again, adopts it.
    for _ in 0..3 {
        let restarted = fleet.start(bursty(100.0));
        for _ in 0..20 {
            assert_eq!((restarted.rate(), new.rate()), (200.0, 200.0));
            fleet.clock.advance(SECOND);
        }
        assert_eq!(restarted.adopted(), [(0, 0)]);
    }
    assert_eq!(new.adopted(), [(0, 0)]);
}

/// A window of a day that is used up: the old mark is in the key for as long as that, which is no matter.
#[test]
fn a_new_limit_does_not_wait_for_the_end_of_the_window() {
    let fleet = Fleet::new();
    let day = Duration::from_secs(86_400);
    let old = fleet.start(FixedWindow::new(10, day));
    assert_eq!(burst(&old.limiter), 10);
    fleet.clock.advance(20 * SECOND);
    let new = fleet.start(FixedWindow::new(15, day));
    assert_eq!(burst(&new.limiter), 5);
}

/// Its callers are all refused, so that it writes nothing but this.
#[test]
fn a_fleet_that_is_refused_keeps_its_policy() {
    let fleet = Fleet::new();
    let old = fleet.start(FixedWindow::new(10, 1_000 * SECOND));
    assert_eq!(burst(&old.limiter), 10);
    let new = fleet.start(FixedWindow::new(15, 1_000 * SECOND));
    for _ in 0..100 {
        // The refusals of a process are cached, those of processes that start anew are not.
        assert_eq!(burst(&fleet.start(FixedWindow::new(10, 1_000 * SECOND)).limiter), 0);
        assert_eq!(burst(&new.limiter), 0);
        fleet.clock.advance(2 * SECOND);
    }
}

#[test]
fn two_fleets_side_by_side_follow_the_one_that_was_there_first() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.start(bursty(100.0)), fleet.start(bursty(200.0)));
    for _ in 0..100 {
        assert_eq!((one.rate(), other.rate()), (100.0, 100.0));
        fleet.clock.advance(4 * SECOND);
    }
    assert_eq!((one.adopted().len(), other.adopted().len()), (0, 1));
}

/// The one that started later has it in the end, and nothing goes back and forth.
#[test]
fn two_fleets_that_call_rarely_do_not_take_turns() {
    let fleet = Fleet::new();
    let one = fleet.start(bursty(100.0));
    fleet.clock.advance(SECOND);
    let other = fleet.start(bursty(200.0));
    for _ in 0..20 {
        one.call();
        fleet.clock.advance(20 * SECOND);
        other.call();
        fleet.clock.advance(20 * SECOND);
    }
    assert_eq!((one.rate(), other.rate()), (200.0, 200.0));
    assert!(one.adopted().len() + other.adopted().len() <= 2);
    // What has not been used for ten minutes belongs to the next that calls.
    fleet.clock.advance(601 * SECOND);
    assert_eq!(one.rate(), 100.0);
}

#[test]
fn the_higher_version_wins_at_once_and_an_old_process_does_not_turn_it_back() {
    let fleet = Fleet::new();
    let old = fleet.start(bursty(100.0));
    assert_eq!(old.rate(), 100.0);
    let new = fleet.version(1, bursty(200.0));
    assert_eq!((new.rate(), old.rate()), (200.0, 200.0));
    assert_eq!((new.adopted(), old.adopted()), (vec![], vec![(1, 0)]));
    // However long it has been quiet.
    for pause in [SECOND, 20 * SECOND, 1_000 * SECOND] {
        fleet.clock.advance(pause);
        assert_eq!((fleet.start(bursty(100.0)).rate(), old.rate()), (200.0, 200.0));
    }
    // Lost with the key, it comes back with the first that knows it.
    fleet.connection.lose(&fleet.key);
    assert_eq!(fleet.start(bursty(100.0)).rate(), 100.0);
    assert_eq!((old.rate(), fleet.start(bursty(100.0)).rate()), (200.0, 200.0));
    // It is a new version, so it replaces what was set under an earlier one, and not the other way round.
    old.set(bursty(300.0));
    assert_eq!(new.rate(), 300.0);
    let newest = fleet.version(2, bursty(400.0));
    assert_eq!((newest.rate(), new.rate(), old.rate()), (400.0, 400.0, 400.0));
}

/// One after the other, without a call of `set_policy` for each.
#[test]
fn a_version_holds_for_all_keys() {
    let fleet = Fleet::new();
    let old = fleet.start(TokenBucket::new(Rate::per_second(1.0), 10));
    let new = fleet.version(1, TokenBucket::new(Rate::per_second(1.0), 15));
    for user in 0..100 {
        let key = format!("{}:{user}", fleet.key);
        assert_eq!(burst(&old.limiter.at(&*key)), 10);
        assert!(burst(&new.limiter.at(&*key)) <= 5);
        ask(&old.limiter.at(&*key));
        assert_eq!(old.limiter.at(&*key).policy(), new.limiter.policy());
    }
}

#[test]
fn to_set_what_is_in_force_is_agreement() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.start(bursty(100.0)), fleet.start(bursty(100.0)));
    one.call();
    one.set(bursty(100.0));
    one.set(bursty(200.0));
    assert_eq!(other.rate(), 200.0);
    fleet.clock.advance(100 * SECOND);
    // The recipe of a deployment, in each of its processes.
    for _ in 0..3 {
        let new = fleet.start(bursty(100.0));
        new.set(bursty(200.0));
        assert_eq!(new.rate(), 200.0);
    }
    assert_eq!((one.rate(), other.rate()), (200.0, 200.0));
    assert_eq!((one.adopted().len(), other.adopted(),), (0, vec![(0, 100_000)]));
}

/// Else a process of a version between them would take the key over.
#[test]
fn to_set_the_policy_of_a_later_version_leaves_that_version_in_force() {
    let fleet = Fleet::new();
    let newest = fleet.version(2, bursty(200.0));
    newest.call();
    let oldest = fleet.start(bursty(100.0));
    oldest.set(bursty(200.0));
    assert_eq!(fleet.version(1, bursty(300.0)).rate(), 200.0);
    assert_eq!((oldest.rate(), newest.rate()), (200.0, 200.0));
    assert_eq!(newest.adopted(), []);
}

/// The key is lost, and a tool that knows nothing of the earlier policy sets another.
#[test]
fn a_later_set_is_not_reverted_by_a_process_that_remembers_an_earlier_one() {
    let fleet = Fleet::new();
    let (one, other) = (fleet.start(bursty(100.0)), fleet.start(bursty(100.0)));
    for rate in [200.0, 300.0, 400.0] {
        one.set(bursty(rate));
        assert_eq!(other.rate(), rate);
    }
    fleet.connection.lose(&fleet.key);
    fleet.clock.advance(10 * SECOND);
    let tool = fleet.start(bursty(100.0));
    tool.set(bursty(500.0));
    drop(tool);
    assert_eq!((one.rate(), other.rate()), (500.0, 500.0));
}

/// A tool with another policy looks, and so does a process of a later version before its first caller.
#[test]
fn a_quota_takes_no_key_over() {
    let fleet = Fleet::new();
    let (tool, later) = (fleet.start(bursty(300.0)), fleet.version(1, bursty(300.0)));
    let look = || {
        ask(&tool.limiter);
        ask(&later.limiter);
    };
    look();
    let process = fleet.start(bursty(100.0));
    assert_eq!(process.rate(), 100.0);
    for pause in [0, 11, 601] {
        fleet.clock.advance(pause * SECOND);
        look();
        for looks in [&tool.limiter, &later.limiter] {
            let state = looks.inspect().now_or_never().expect("an answer").expect("a state");
            assert_eq!(state.policy, bursty(100.0));
        }
        assert_eq!((process.rate(), fleet.start(bursty(100.0)).rate()), (100.0, 100.0));
    }
    assert_eq!(process.adopted(), []);
    later.call();
    assert_eq!(process.rate(), 300.0);
}

/// Such as a pause: it holds under the policy of the process that asks for it.
#[test]
fn a_change_takes_a_key_over_as_a_call_does() {
    let fleet = Fleet::new();
    let process = fleet.start(bursty(100.0));
    assert_eq!(process.rate(), 100.0);
    let later = fleet.version(1, bursty(300.0));
    later.limiter.resume().now_or_never().expect("an answer").expect("done");
    assert_eq!(process.rate(), 300.0);
}

/// A process that started after the one that brought the policy does so after more than ten seconds, any other after
/// more than ten minutes.
#[test]
fn a_policy_is_in_force_for_as_long_as_its_fleet_may_be_quiet() {
    let rate = |process: &Process<SmoothBursty>| {
        process.call();
        process.limiter.rate().as_per_second()
    };
    for (quiet, taken_over) in [(10, 50.0), (11, 100.0)] {
        let fleet = Fleet::new();
        fleet.start(bursty(50.0)).call();
        fleet.clock.advance(quiet * SECOND);
        let later = fleet.start(bursty(100.0));
        assert_eq!(rate(&later), taken_over, "after {quiet} seconds");
    }
    for (quiet, taken_over) in [(600, 100.0), (601, 300.0)] {
        let fleet = Fleet::new();
        fleet.start(bursty(50.0)).call();
        fleet.clock.advance(11 * SECOND);
        // They start at the same time.
        let (brings, other) = (fleet.start(bursty(100.0)), fleet.start(bursty(300.0)));
        assert_eq!(rate(&brings), 100.0);
        drop(brings);
        fleet.clock.advance(quiet * SECOND);
        assert_eq!(rate(&other), taken_over, "after {quiet} seconds");
    }
}

/// A monitor that has the policy of a fleet that has gone does not keep it alive.
#[test]
fn a_quota_does_not_keep_a_policy() {
    let fleet = Fleet::new();
    let old = fleet.start(bursty(100.0));
    old.call();
    fleet.clock.advance(SECOND);
    let new = fleet.start(bursty(200.0));
    for _ in 0..11 {
        fleet.clock.advance(SECOND);
        ask(&old.limiter);
    }
    assert_eq!(new.rate(), 200.0);
}

/// One of them treats an absent key as an idle one, and the other does not.
#[test]
fn what_an_absent_key_is_belongs_to_the_policy() {
    let fleet = Fleet::new();
    let one = fleet.start(bursty(100.0));
    let other = fleet.with(bursty(100.0), |builder| builder.absent_is_new(false).version(1));
    assert_eq!((burst(&one.limiter), burst(&other.limiter)), (1, 0));
    assert_eq!(one.adopted(), []);
    ask(&one.limiter);
    assert_eq!(one.adopted(), [(1, 0)]);
    fleet.connection.lose(&fleet.key);
    assert_eq!(burst(&one.limiter), 101);
}
