use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use super::{CachedGrant, CachedRateLimiter, slots, thread};
use crate::limiter::{Granted, Limiter, Reservation};
use crate::park::block_on;
use crate::policy::{Policy, Rated};
use crate::{Error, Gcra, ManualClock, Part, Rate, RateLimiter, Same, SmoothBursty, TokenBucket};
use proptest::prelude::*;

/// One step: of which thread, and a number.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// As often as the number says.
    Take(usize, u32),
    TakeMany(usize, u32),
    /// As many grants of a number of permits, to be corrected later.
    TakeGrants(usize, usize, u32),
    /// So many of the last grants, to how many eighths of their cost, and all is used that came back; zero is a refund.
    Correct(usize, usize, u32),
    /// A queue of one, which takes this many.
    Wait(u32),
    /// In eighths of an interval.
    Advance(u32),
    SetPolicy(usize),
    Pause(u32),
    /// The thread ends, and its number is given to another.
    Look,
}

const THREADS: usize = 3;

fn steps(pauses: u32) -> impl Strategy<Value = Vec<Step>> {
    let thread = 0..THREADS + 1;
    let step = prop_oneof![
        8 => (thread.clone(), 1u32..200).prop_map(|(thread, times)| Step::Take(thread, times)),
        4 => (thread, 1u32..60).prop_map(|(thread, n)| Step::TakeMany(thread, n)),
        1 => (1u32..20).prop_map(Step::Wait),
        6 => prop_oneof![0u32..40, 0u32..4000].prop_map(Step::Advance),
        1 => (0usize..3).prop_map(Step::SetPolicy),
        pauses => (1u32..400).prop_map(Step::Pause),
        1 => Just(Step::Look),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Grants over some time, and then corrections of many at once, on one of two threads.
fn corrections() -> impl Strategy<Value = Vec<Step>> {
    let grants = (0usize..2, 1usize..60, 1u32..20)
        .prop_map(|(thread, times, n)| Step::TakeGrants(thread, times, n));
    let advance = (0u32..1600).prop_map(Step::Advance);
    let correct = (0usize..2, 1usize..600, 0u32..8)
        .prop_map(|(thread, times, eighths)| Step::Correct(thread, times, eighths));
    let other = prop_oneof![
        (0usize..3).prop_map(Step::SetPolicy),
        (1u32..400).prop_map(Step::Pause),
        (1u32..20).prop_map(Step::Wait),
        (0usize..2, 1u32..200).prop_map(|(thread, times)| Step::Take(thread, times)),
        Just(Step::Look),
    ];
    let step = prop_oneof![20 => grants, 20 => advance, 3 => correct, 2 => other];
    proptest::collection::vec(step, 1..80)
}

/// A rate with a burst of a number of permits.
trait Bucket: Policy<Cost = u32> + Rated + std::fmt::Debug {
    /// Whether one request may take more than the burst.
    const PREPAID: bool;

    fn of(interval: u64, burst: u32) -> Self;
}

impl Bucket for TokenBucket {
    const PREPAID: bool = false;

    fn of(interval: u64, burst: u32) -> Self {
        let policy = Self::new(Rate::every(Duration::from_nanos(interval)), burst);
        policy.with_catch_up(Duration::ZERO)
    }
}

impl Bucket for Gcra {
    const PREPAID: bool = false;

    fn of(interval: u64, burst: u32) -> Self {
        let policy = Self::new(burst - 1, 1, Duration::from_nanos(interval));
        policy.with_catch_up(Duration::ZERO)
    }
}

impl Bucket for SmoothBursty {
    const PREPAID: bool = true;

    fn of(interval: u64, burst: u32) -> Self {
        let policy = Self::new(Rate::every(Duration::from_nanos(interval)));
        let burst = Duration::from_nanos(interval * u64::from(burst));
        policy.max_burst(burst).with_catch_up(Duration::ZERO)
    }
}

/// Permits that were used, in the order of their calls.
#[derive(Clone, Copy, Debug)]
struct Used {
    at: u64,
    n: u64,
    /// The intervals and bursts that were in force by then, counted.
    version: usize,
}

struct Run<P: Bucket> {
    limiter: CachedRateLimiter<P>,
    clock: ManualClock,
    used: Vec<Used>,
    /// Grants, with the indices of what was used.
    grants: Vec<(CachedGrant<P>, usize)>,
    versions: Vec<(u64, u32)>,
    /// The ends of pauses, how many permits had been used by their begin, and the version in force then.
    pauses: Vec<(u64, usize, usize)>,
}

impl<P: Bucket> Run<P> {
    fn new(each: u32, (interval, burst): (u64, u32)) -> Self {
        let clock = ManualClock::new();
        let builder = RateLimiter::builder(P::of(interval, burst)).clock(&clock);
        let limiter = builder.build_cached(THREADS, each);
        let versions = vec![(interval, burst)];
        Self { limiter, clock, used: vec![], grants: vec![], versions, pauses: vec![] }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).expect("fits")
    }

    fn interval(&self) -> u64 {
        self.versions.last().expect("the first").0
    }

    /// As a call of this thread.
    fn try_by(&mut self, thread: usize, n: u32) -> Result<(), Error> {
        let shared = &self.limiter.shared;
        let answer =
            if shared.slots.take(thread, n) { Ok(()) } else { shared.try_otherwise(|| thread, n) };
        if answer.is_ok() {
            self.use_up(n);
        }
        answer
    }

    fn use_up(&mut self, n: u32) {
        let version = self.versions.len() - 1;
        self.used.push(Used { at: self.now(), n: n.into(), version });
    }

    fn take(&mut self, step: Step, versions: &[(u64, u32)]) {
        match step {
            Step::Take(thread, times) => {
                for _ in 0..times {
                    if self.try_by(thread, 1).is_err() {
                        break;
                    }
                }
            }
            Step::TakeMany(thread, n) => _ = self.try_by(thread, n),
            Step::TakeGrants(thread, times, n) => {
                for _ in 0..times {
                    let granted = self.limiter.take_by(thread, || thread, n);
                    let Ok(grant) = granted else { break };
                    assert_eq!(grant.cost(), n);
                    self.grants.push((grant, self.used.len()));
                    self.use_up(n);
                }
            }
            Step::Correct(thread, times, eighths) => {
                for _ in 0..times {
                    let Some((mut grant, used)) = self.grants.pop() else { break };
                    let actual = grant.cost() * eighths / 8;
                    let corrected: Result<(), Error> = if eighths == 0 {
                        grant.correct(thread, 0, |grant, _| {
                            grant.give_back();
                            Ok(())
                        })
                    } else {
                        grant.correct(thread, actual, crate::Grant::settle)
                    };
                    corrected.expect("nothing is owed");
                    assert_eq!(grant.cost(), actual);
                    self.used[used].n = actual.into();
                    self.take(Step::Take(thread, 100), versions);
                }
            }
            Step::Wait(n) => {
                let clock = self.clock.clone();
                let limiter = self.limiter.shared.limiter.clone();
                let mut waiter = pin!(Limiter::acquire(&limiter, n));
                let mut context = Context::from_waker(Waker::noop());
                if waiter.as_mut().poll(&mut context).is_pending() {
                    // While it waits the threads get nothing more.
                    let held = self.limiter.shared.slots.held();
                    let took = (0..100).filter(|_| self.try_by(0, 1).is_ok()).count();
                    assert!(took <= held as usize, "{took} of {held} ahead of a waiter");
                    clock.advance(Duration::from_nanos(self.interval()));
                    if waiter.as_mut().poll(&mut context).is_pending() {
                        return;
                    }
                }
                if limiter.policy().ready_at_all(n) {
                    self.use_up(n);
                }
            }
            Step::Advance(eighths) => {
                let span = self.interval() * u64::from(eighths) / 8;
                self.clock.advance(Duration::from_nanos(span));
            }
            Step::SetPolicy(index) => {
                let (interval, burst) = versions[index];
                self.limiter.set_policy(P::of(interval, burst));
                self.versions.push((interval, burst));
            }
            Step::Pause(eighths) => {
                let span = (self.interval() * u64::from(eighths) / 8).max(1);
                self.limiter.pause_for(Duration::from_nanos(span));
                self.pauses.push((self.now() + span, self.used.len(), self.versions.len() - 1));
                for thread in 0..=THREADS {
                    assert!(self.try_by(thread, 1).is_err(), "granted in a pause");
                }
            }
            Step::Look => {
                let held = self.limiter.shared.slots.held();
                assert!(held <= self.limiter.held_at_most(), "{held} are held");
                // What is held counts as remaining.
                let snapshot = block_on(self.limiter.snapshot()).expect("in process");
                let quota = block_on(Limiter::quota(&self.limiter)).expect("in process");
                let inner = self.limiter.shared.limiter.quota().remaining;
                assert_eq!((snapshot.quota, quota.remaining), (quota, inner + held));
            }
        }
    }

    /// Law 1: of each span, and of each span from the end of a pause.
    fn judge(&self) -> Result<(), TestCaseError> {
        let uses = self.used.iter().enumerate();
        let starts = uses.map(|(first, used)| (used.at, first, used.version, true));
        let pauses = self.pauses.iter().map(|&(end, first, since)| (end, first, since, false));
        for (start, first, since, is_stored) in starts.chain(pauses) {
            let (mut sum, mut prepaid) = (0, 0);
            for last in first..self.used.len() {
                let Used { at, n, version } = self.used[last];
                if at < start {
                    continue;
                }
                sum += n;
                prepaid = n.max(prepaid);
                let in_force = &self.versions[since..=version];
                let fastest = in_force.iter().map(|&(interval, _)| interval).min().expect("one");
                let most = |of: fn(&(u64, u32)) -> u64| in_force.iter().map(of).max().expect("one");
                // One prepaid request does not count, and a burst is a time.
                let (permits, burst) = if P::PREPAID {
                    (sum - prepaid, most(|&(interval, burst)| interval * u64::from(burst)))
                } else {
                    (sum, fastest * most(|&(_, burst)| burst.into()))
                };
                let burst = if is_stored { burst } else { 0 };
                let share = burst + (at - start) + 2;
                prop_assert!(
                    permits * fastest <= share,
                    "{permits} permits of {fastest} ns in {start}..={at}, share {share}"
                );
            }
        }
        Ok(())
    }
}

trait ReadyAtAll {
    fn ready_at_all(&self, n: u32) -> bool;
}

impl<P: Policy<Cost = u32>> ReadyAtAll for P {
    /// Whether a request is not for more than the capacity.
    fn ready_at_all(&self, n: u32) -> bool {
        let now = crate::Nanos::ZERO;
        self.ready_at(&self.idle(now), now, n).is_ok()
    }
}

fn holds<P: Bucket>(steps: impl Strategy<Value = Vec<Step>>) {
    let version = || (1u64..40, 1u32..300).prop_map(|(interval, burst)| (interval * 8, burst));
    let versions = [version(), version(), version()];
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) };
    proptest!(config, |(versions in versions, each in 0u32..70, steps in steps)| {
        let mut run = Run::<P>::new(each, versions[0]);
        for step in steps {
            run.take(step, &versions);
        }
        run.judge()?;
    });
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn law_1_holds_for_what_threads_use_of_a_token_bucket() {
    holds::<TokenBucket>(steps(1));
    holds::<TokenBucket>(corrections());
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn law_1_holds_for_what_threads_use_of_gcra() {
    holds::<Gcra>(steps(1));
    holds::<Gcra>(corrections());
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn law_1_holds_for_what_threads_use_of_smooth_bursty() {
    holds::<SmoothBursty>(steps(1));
    holds::<SmoothBursty>(corrections());
}

/// Nothing is lost: threads that take all that there is use the whole rate.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn threads_use_the_whole_rate() {
    let mut run = Run::<TokenBucket>::new(32, (1_000, 1_000));
    for round in 0..1_000 {
        run.take(Step::Take(round % (THREADS + 1), 200), &[]);
        run.take(Step::Advance(8 * 50), &[]);
    }
    let used: u64 = run.used.iter().map(|used| used.n).sum();
    let held = u64::from(run.limiter.held_at_most());
    assert_eq!(held, 96);
    assert_eq!(used, 1_000 - held + 50 * 999);
}

#[test]
fn a_refused_thread_takes_what_others_hold() {
    let mut run = Run::<TokenBucket>::new(32, (1_000, 1_000));
    run.try_by(0, 1).expect("a full bucket");
    run.try_by(1, 1).expect("a full bucket");
    assert_eq!(run.limiter.shared.slots.held(), 64);
    // Without a slot of its own.
    let rest = (0..2_000).filter(|_| run.try_by(THREADS, 1).is_ok()).count();
    // Two threads keep a handful, unless no thread has their numbers.
    let left = run.limiter.shared.slots.held();
    assert!(left <= 2 * slots::HANDFUL, "{left}");
    assert_eq!(rest + 2 + left as usize, 1_000 - 96);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn what_a_thread_held_at_its_end_is_taken_by_others() {
    let policy = TokenBucket::new(Rate::per_second(1e6), 10_000);
    let limiter = RateLimiter::builder(policy).clock(ManualClock::new()).build_cached(1024, 4);
    for _ in 0..4 {
        let limiter = limiter.clone();
        std::thread::spawn(move || limiter.try_acquire(1))
            .join()
            .expect("no panic")
            .expect("there");
    }
    let taken = (0..20_000).filter(|_| limiter.try_acquire(1).is_ok()).count();
    assert_eq!(taken + 4, 10_000 - limiter.held_at_most() as usize);
    assert_eq!(limiter.available(), 0);
}

/// All threads at once, in real time: what they use is what the bucket gives.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn many_threads_use_no_more_than_there_is() {
    let policy = TokenBucket::new(Rate::per_second(1e6), 100_000);
    let clock = ManualClock::new();
    let limiter = RateLimiter::builder(policy).clock(&clock).build_cached(8, 64);
    let count = |n: u32| {
        move |limiter: &CachedRateLimiter<_>| {
            let calls = (0..60_000).filter(|_| limiter.try_acquire(n).is_ok()).count();
            u32::try_from(calls).expect("few") * n
        }
    };
    let used: u32 = std::thread::scope(|scope| {
        let threads = [1, 1, 3, 1, 7, 1].map(|n| {
            let limiter = &limiter;
            scope.spawn(move || count(n)(limiter))
        });
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    let left = limiter.available();
    assert_eq!(used + left, 100_000 - limiter.held_at_most());
    assert!(left <= 6 * (slots::HANDFUL + 7) + 64, "{left} are left");
}

#[test]
fn what_is_held_counts_in_all_that_a_limiter_is_asked() {
    let clock = ManualClock::auto_advance();
    let policy = TokenBucket::new(Rate::per_second(1e6), 100_000);
    // Other threads of this process may have numbers.
    let limiter = RateLimiter::builder(policy).clock(clock).build_cached(1024, 64);
    assert_eq!(block_on(limiter.acquire(1)), Ok(Duration::ZERO));
    let held = limiter.shared.slots.held();
    let all = limiter.shared.limiter.available() + held;
    assert!(held > 1, "some are in hand");
    let limits = block_on(limiter.limits(1)).expect("in process");
    assert_eq!((limits[0].remaining, limiter.available()), (all, all));
    // What is held, and the rest from the limiter.
    let grant = block_on(Limiter::try_acquire_up_to(&limiter, held + 9)).expect("all are there");
    assert_eq!((grant.cost(), limiter.available()), (held + 9, all - held - 9));
    assert!(!grant.holds_places() && format!("{grant:?}").contains("cost"));
    // No more than what is held, so that it stays; then less, so that it goes.
    limiter.try_acquire(1).expect("there");
    let held = limiter.shared.slots.held();
    drop(block_on(Limiter::shrink_to(&limiter, held)));
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (held, held));
    drop(block_on(Limiter::shrink_to(&limiter, held - 1)));
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (0, 0));
    // Nothing is held, and all is there.
    block_on(Limiter::reset(&limiter)).expect("in process");
    let all = limiter.available();
    let grant = block_on(Limiter::try_acquire_up_to(&limiter, all + 9)).expect("what is there");
    assert_eq!((grant.cost(), limiter.available()), (all, 0));
    let wait = block_on(limiter.acquire(2)).expect("it waits");
    assert_eq!(wait, Duration::from_micros(2));
    let timed = |micros| limiter.try_acquire_timeout(2, Duration::from_micros(micros));
    assert!(block_on(timed(1)).is_err());
    assert_eq!(block_on(timed(2)), Ok(Duration::from_micros(2)));
    assert!(format!("{limiter:?}").contains("held_at_most"));
}

#[test]
fn a_limiter_without_a_burst_asks_each_time() {
    let policy = SmoothBursty::evenly_spaced(Rate::per_second(1e6));
    let limiter = RateLimiter::builder(policy).clock(ManualClock::new()).build_cached(4, 64);
    assert_eq!(limiter.held_at_most(), 0);
    assert!(limiter.try_acquire(1).is_ok());
    assert_eq!(
        limiter.try_acquire(1).expect_err("owed").retry_after(),
        Some(Duration::from_micros(1))
    );
    assert_eq!(limiter.try_acquire(0), Ok(()));
    let _ = thread::known();
}

/// A smooth policy lends one permit: that must not put off those that the refusal has spoken of.
#[test]
fn a_refused_call_is_granted_after_its_retry_time() {
    let clock = ManualClock::new();
    let policy = SmoothBursty::new(Rate::per_second(100_000.0));
    let limiter = RateLimiter::builder(policy).clock(&clock).build_cached(1, 64);
    assert!(limiter.held_at_most() > 5, "threads hold permits");
    let small = TokenBucket::new(Rate::per_second(100_000.0), 10);
    let small = RateLimiter::builder(small).clock(&clock).build_cached(1, 64);
    assert_eq!(small.held_at_most(), 5, "half of the burst");
    // Nothing is stored: it is granted on credit, as by the limiter itself.
    limiter.try_acquire(5).expect("ready");
    let error = limiter.try_acquire(5).expect_err("owed");
    clock.advance(error.retry_after().expect("known"));
    limiter.try_acquire(5).expect("it is ready when the refusal said");
}

/// A full bucket, of which this thread draws 100 permits at a time, and what there is.
fn full_bucket(clock: &ManualClock) -> (CachedRateLimiter<TokenBucket>, u32) {
    let policy = TokenBucket::new(Rate::per_second(1e8), 1_000_000);
    let limiter = RateLimiter::builder(policy).clock(clock).build_cached(1024, 100);
    let all = limiter.available();
    (limiter, all)
}

#[test]
fn a_correction_goes_where_the_permits_came_from() -> Result<(), Error> {
    let (limiter, all) = full_bucket(&ManualClock::new());
    let drew = Limiter::blocking_acquire(&limiter, 10)?;
    let mut kept = Limiter::blocking_acquire(&limiter, 30)?;
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (70, all - 40));
    kept.settle(10)?;
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (90, all - 20));
    kept.settle(25)?;
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (90, all - 35));
    assert_eq!(kept.cost(), 25);
    // What was added by a correction does not come back, as at the limiter.
    kept.refund();
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (100, all - 25));
    drew.refund();
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (100, all - 15));
    let mut many = Limiter::blocking_acquire(&limiter, 500)?.metered();
    many.add(200);
    drop(many);
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (100, all - 215));
    Ok(())
}

#[test]
fn permits_of_another_time_or_thread_do_not_come_back() -> Result<(), Error> {
    let (limiter, all) = full_bucket(&ManualClock::new());
    let kept = || {
        Limiter::blocking_acquire(&limiter, 1)?;
        Limiter::blocking_acquire(&limiter, 1)
    };
    let (grant, limiter_of_other) = (kept()?, limiter.clone());
    let other = std::thread::spawn(move || {
        // It has a slot, and draws.
        Limiter::blocking_acquire(&limiter_of_other, 1).expect("there");
        grant.refund();
    });
    other.join().expect("no panic");
    assert_eq!(limiter.available(), all - 3);

    let grant = kept()?;
    Limiter::blocking_acquire(&limiter, 100)?;
    grant.refund();
    assert_eq!(limiter.available(), all - 105);

    let grant = kept()?;
    limiter.set_policy(limiter.policy());
    let left = limiter.available();
    grant.refund();
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (0, left));

    let grant = kept()?;
    limiter.pause_for(Duration::from_secs(1));
    limiter.resume();
    let left = limiter.available();
    grant.refund();
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (0, left));
    Ok(())
}

#[test]
fn it_does_what_every_limiter_does() -> Result<(), Error> {
    let clock = ManualClock::auto_advance();
    let (limiter, all) = full_bucket(&clock);
    Limiter::blocking_acquire(&limiter, 1)?;

    // A reservation of permits that are held is granted at once, and gives them back.
    let place: Reservation<CachedRateLimiter<_>> = Limiter::acquire(&limiter, 3).reserve()?;
    assert_eq!((place.delay(), limiter.available()), (Duration::ZERO, all - 4));
    drop(place);
    assert_eq!(limiter.available(), all - 1);
    assert_eq!(Limiter::acquire(&limiter, 3).reserve()?.blocking_wait()?.cost(), 3);

    let taken = block_on(Limiter::shrink_to(&limiter, 500))?;
    assert_eq!((taken.cost(), limiter.available()), (all - 504, 500));
    block_on(Limiter::shrink_to(&limiter, 50))?;
    assert_eq!((limiter.shared.slots.held(), limiter.available()), (0, 50));
    taken.refund();
    assert_eq!(block_on(Limiter::quota(&limiter))?.remaining, all - 454);

    // This thread has what it holds, and what is left.
    Limiter::blocking_acquire(&limiter, 1)?;
    let rest = limiter.blocking_try_acquire_up_to(u32::MAX)?;
    assert_eq!((rest.cost(), limiter.available()), (all - 455, 0));
    assert!(limiter.blocking_try_acquire_up_to(5).is_err());
    assert!(limiter.blocking_try_acquire(1).is_err());

    // Waiters queue at the limiter, in the turns of their tenants.
    let nanos = |place: &Reservation<CachedRateLimiter<_>>| place.delay().as_nanos();
    let ann = [limiter.acquire_for("ann", 1), limiter.acquire_for("ann", 1)].map(|a| a.reserve());
    let bob = limiter.acquire_for("bob", 1).reserve()?;
    let ann = [&ann[0], &ann[1]].map(|place| place.as_ref().map(nanos));
    assert_eq!((ann, nanos(&bob), limiter.queue_len()), ([Ok(10), Ok(30)], 20, 3));
    drop(bob);
    let grant = block_on(Limiter::acquire(&limiter, 1))?;
    assert_eq!(Limiter::stats(&limiter).given_up, 1);
    grant.refund();
    Ok(())
}

#[test]
fn it_tells_what_it_was_built_with_and_which_rule_a_caller_waited_for() -> Result<(), Error> {
    let clock = ManualClock::auto_advance();
    let policy = TokenBucket::new(Rate::per_second(1000.0), 100);
    let builder = RateLimiter::builder(policy.clone()).name("api").clock(&clock);
    let limiter = builder.build_cached(4, 10);
    clock.advance(Duration::from_secs(3));
    assert_eq!((limiter.name(), limiter.clock().now().get()), (Some("api"), 3_000_000_000));
    limiter.set_rate(Rate::per_second(2000.0));
    assert_eq!(limiter.rate(), Rate::per_second(2000.0));

    let rules = Same((policy, TokenBucket::new(Rate::per_second(1.0), 1)));
    let limiter = RateLimiter::builder(rules).clock(clock).build_cached(4, 10);
    for waits_for in [None, Some(1)] {
        let grant = Limiter::blocking_acquire(&limiter, 1)?;
        let waited = if waits_for.is_some() { Duration::from_secs(1) } else { Duration::ZERO };
        assert_eq!((grant.waited(), grant.limited_by().map(Part::index)), (waited, waits_for));
    }
    Ok(())
}

#[test]
#[should_panic(expected = "polled after it was ready")]
fn a_future_that_was_ready_is_not_polled_again() {
    let (limiter, _) = full_bucket(&ManualClock::new());
    let mut acquire = pin!(Limiter::acquire(&limiter, 1));
    let mut context = Context::from_waker(Waker::noop());
    assert!(acquire.as_mut().poll(&mut context).is_ready());
    let _ = acquire.poll(&mut context);
}
