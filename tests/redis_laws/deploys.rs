//! Which policy is in force when processes have different ones in their code.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::FutureExt;
use tollgate::redis::{RedisRateLimiter, Scripted};
use tollgate::{
    Event, FixedWindow, ManualClock, Rate, RateLimiterBuilder, Rated, SmoothBursty, TokenBucket,
};

use crate::manual::{Manual, new_key};

const SECOND: Duration = Duration::from_secs(1);

type Builder<P> = RateLimiterBuilder<RedisRateLimiter<P, Manual>>;

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
        choose: impl FnOnce(Builder<P>) -> Builder<P>,
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

/// Each process decides by its own limit, on one state: with the last old process the old limit has gone.
#[test]
fn processes_with_different_limits_share_the_state_and_keep_their_limits() {
    let fleet = Fleet::new();
    let (old, new) = (fleet.start(bursty(100.0)), fleet.start(bursty(200.0)));
    for _ in 0..10 {
        assert_eq!((old.rate(), new.rate()), (100.0, 200.0));
        fleet.clock.advance(SECOND / 4);
    }
    assert_eq!((old.adopted(), new.adopted()), (vec![], vec![]));
    // What one has taken, the other does not get.
    fleet.clock.advance(10 * SECOND);
    assert!(burst(&new.limiter) >= 200);
    assert_eq!(burst(&old.limiter), 0);
}

/// A window of a day that is used up: what was granted counts.
#[test]
fn a_new_limit_does_not_wait_for_the_end_of_the_window() {
    let fleet = Fleet::new();
    let day = Duration::from_secs(86_400);
    let old = fleet.start(FixedWindow::new(10, day));
    assert_eq!(burst(&old.limiter), 10);
    let new = fleet.start(FixedWindow::new(15, day));
    assert_eq!((burst(&new.limiter), burst(&old.limiter)), (5, 0));
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
    assert_eq!((one.adopted().len(), other.adopted(),), (0, vec![(0, 100_001)]));
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

/// A process of a later version looks before its first caller.
#[test]
fn a_quota_takes_no_key_over() {
    let fleet = Fleet::new();
    let (process, later) = (fleet.start(bursty(100.0)), fleet.version(1, bursty(300.0)));
    process.call();
    let before = fleet.connection.bytes(&fleet.key);
    ask(&later.limiter);
    assert_eq!(fleet.connection.bytes(&fleet.key), before);
    assert_eq!(process.rate(), 100.0);
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
