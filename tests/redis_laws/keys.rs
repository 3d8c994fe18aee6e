//! What stands at a key, how long it lives, and keys of other programs.

use std::fmt::Debug;
use std::time::Duration;

use tollgate::redis::{RedisGrant, RedisRateLimiter, Scripted};
use tollgate::{
    Error, FixedWindow, Gcra, InFlight, LeakyBucket, ManualClock, Rate, Same, SlidingWindowCounter,
    SlidingWindowLog, SmoothBursty, SmoothWarmingUp, TokenBucket,
};

use crate::manual::{Manual, new_key};
use crate::random::Random;
use crate::subject::at_once;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn limiter<P: Scripted>(policy: P) -> (ManualClock, Manual, RedisRateLimiter<P, Manual>) {
    let clock = ManualClock::new();
    // Of the time that a server has, the last digits are kept too.
    clock.advance(Duration::from_micros(1_790_000_000_123_457));
    let server = Manual::new(&clock);
    let builder = RedisRateLimiter::builder(policy, server.clone(), new_key()).clock(&clock);
    let limiter = builder.refresh(Duration::ZERO).build();
    (clock, server, limiter)
}

fn ask<P: Scripted>(
    limiter: &RedisRateLimiter<P, Manual>,
    n: P::Cost,
) -> Result<RedisGrant<P, Manual>, Error> {
    at_once(limiter.try_acquire(n))
}

fn left<P: Scripted>(limiter: &RedisRateLimiter<P, Manual>) -> P::Cost {
    at_once(limiter.quota()).expect("a server").remaining
}

fn bursty(per_second: f64) -> SmoothBursty {
    SmoothBursty::new(Rate::per_second(per_second))
}

/// A limiter of the smallest kind is 36 bytes.
#[test]
fn a_refusal_writes_nothing() {
    let (clock, server, limiter) = limiter(bursty(5.0));
    ask(&limiter, 10).expect("on credit");
    let at_key = || (server.bytes(limiter.key()), server.dies(limiter.key()));
    let before = at_key();
    assert_eq!(before.0.as_ref().map(Vec::len), Some(36));
    for micros in 0..100 {
        let wait = ask(&limiter, 1).expect_err("ten are owed").retry_after();
        assert_eq!(wait, Some(2 * SECOND - Duration::from_micros(micros)));
        assert_eq!(at_key(), before);
        clock.advance(Duration::from_micros(1));
    }
    clock.advance(2 * SECOND);
    ask(&limiter, 1).expect("it is paid");
    assert_ne!(at_key().0, before.0);
}

/// However many grants there were in it.
#[test]
fn a_window_of_parts_has_an_entry_for_each_of_them() {
    let (clock, server, counter) = limiter(SlidingWindowCounter::new(1_000, SECOND, 4));
    ask(&counter, 1).expect("an empty window");
    let one = server.bytes(counter.key()).expect("a key").len();
    for _ in 0..100 {
        clock.advance(Duration::from_millis(10));
        ask(&counter, 1).expect("there is room");
    }
    assert_eq!(server.bytes(counter.key()).expect("a key").len(), one + 3 * 16);
}

fn lives_long_enough<P: Scripted<Cost = u32> + Debug>(policy: P, scale: Duration) {
    let (clock, server, limiter) = limiter(policy);
    let mut random = Random(7);
    let micros = u64::try_from(scale.as_micros()).expect("a span");
    for _ in 0..100 {
        if ask(&limiter, random.cost(4)).is_ok() {
            let needs = at_once(limiter.quota()).expect("a server").reset_after;
            let lives = server.dies(limiter.key()).expect("it expires") - server.server_time();
            assert!(lives >= needs.expect("a time"), "{lives:?} of {needs:?}: {limiter:?}");
        }
        clock.advance(Duration::from_micros(random.span(micros)));
    }
}

#[test]
fn a_key_lives_as_long_as_its_debt() {
    let rate = Rate::per_minute(1.0);
    lives_long_enough(SmoothBursty::new(rate), MINUTE);
    lives_long_enough(SmoothWarmingUp::new(rate, 5 * MINUTE), MINUTE);
    lives_long_enough(TokenBucket::new(rate, 4).refill_every(MINUTE), MINUTE);
    lives_long_enough(Gcra::new(3, 1, MINUTE), MINUTE);
    lives_long_enough(LeakyBucket::new(rate, 5), MINUTE);
    lives_long_enough(FixedWindow::new(4, MINUTE), MINUTE / 3);
    lives_long_enough(SlidingWindowLog::new(4, MINUTE), MINUTE / 3);
    let both = Same((TokenBucket::new(rate, 6), SlidingWindowLog::new(7, MINUTE)));
    lives_long_enough(both, MINUTE / 3);
    lives_long_enough(bursty(1e6), Duration::from_micros(10));
    lives_long_enough(bursty(1.0 / 86_400.0), 1_440 * MINUTE);
}

/// A lease lasts longer than anything else in the key, and another process that only looks does not shorten it.
#[test]
fn a_key_lives_as_long_as_its_leases() {
    let (clock, server, other) = limiter(InFlight::new(3));
    let builder = RedisRateLimiter::builder(InFlight::new(3), server.clone(), other.key());
    let places = builder.clock(&clock).lease(60 * MINUTE).build();
    let _held = ask(&places, 2).expect("free");
    ask(&other, 2).expect_err("one is left");
    let _one = ask(&other, 1).expect("the last");
    let lives = server.dies(other.key()).expect("it expires") - server.server_time();
    assert!(lives >= 60 * MINUTE, "{lives:?}");
}

#[test]
fn a_key_that_expires_changes_no_decision() {
    for seconds in [4, 3_600, 1_000_000] {
        let (clock, _, limiter) = limiter(bursty(10.0));
        assert_eq!((0..20).filter(|_| ask(&limiter, 1).is_ok()).count(), 1);
        clock.advance(seconds * SECOND);
        assert_eq!((0..20).filter(|_| ask(&limiter, 1).is_ok()).count(), 11, "{seconds} s later");
    }
    // What is refused counts as time that has passed for a new bucket.
    let (clock, _, bucket) = limiter(TokenBucket::new(Rate::per_minute(1.0), 10).initial(0));
    ask(&bucket, 1).expect_err("it is empty at first");
    for _ in 1..48 {
        clock.advance(30 * MINUTE);
        ask(&bucket, 1).expect("half an hour");
    }
}

/// Each call gets an error, and nothing is overwritten.
fn is_refused_and_kept<P: Scripted<Cost = u32>>(
    (clock, server, limiter): &(ManualClock, Manual, RedisRateLimiter<P, Manual>),
    bytes: &[u8],
) {
    // A refusal is known for a second.
    clock.advance(SECOND);
    server.set_bytes(limiter.key(), bytes);
    for outcome in [
        ask(limiter, 1).map(drop),
        at_once(limiter.pause_for(SECOND)),
        at_once(limiter.quota()).map(drop),
    ] {
        let Err(Error::Store(error)) = outcome else { panic!("{outcome:?} over {bytes:?}") };
        assert!(!error.is_unavailable() && !error.may_have_charged(), "{error}");
        assert_eq!(server.bytes(limiter.key()).as_deref(), Some(bytes));
    }
}

/// Junk, what another version has written, and what was cut short: not as if the rest were zero.
#[test]
fn a_key_that_is_none_of_ours_is_refused_and_kept() {
    fn check<P: Scripted<Cost = u32>>(policy: &P, other: &P) {
        let all = limiter(policy.clone());
        let mut random = Random(2);
        for round in 0..100 {
            let length = random.below(if round % 3 == 0 { 28 } else { 150 });
            let byte = |_| u8::try_from(random.below(256)).expect("a byte");
            let junk: Vec<u8> = (0..length).map(byte).collect();
            is_refused_and_kept(&all, &junk);
            let set = at_once(all.2.set_policy(policy.clone()));
            assert!(set.is_err() && all.1.bytes(all.2.key()) == Some(junk));
        }
        for version in [0, 1] {
            // To a process with the same parameters they say nothing new.
            let (clock, server, limiter) = limiter(policy.clone());
            let process = |policy: &P| {
                let builder =
                    RedisRateLimiter::builder(policy.clone(), server.clone(), limiter.key());
                builder.clock(&clock).version(version).build()
            };
            ask(&process(policy), 1).expect("a new key");
            let all = (clock.clone(), server.clone(), process(other));
            let whole = all.1.bytes(all.2.key()).expect("a key");
            for length in 0..whole.len() {
                is_refused_and_kept(&all, &whole[..length]);
            }
            // Another kind.
            is_refused_and_kept(&all, &[&whole[..6], &[whole[6] + 1], &whole[7..]].concat());
            all.1.set_bytes(all.2.key(), &whole);
            assert!(at_once(all.2.quota()).is_ok());
        }
    }
    let rate = Rate::per_second(5.0);
    let bursty = SmoothBursty::new(rate);
    check(&bursty, &bursty.clone().max_burst(2 * SECOND));
    check(&bursty.clone().max_burst(Duration::from_nanos(1_500)), &bursty);
    check(&TokenBucket::new(rate, 5), &TokenBucket::new(rate, 6));
    check(&LeakyBucket::new(rate, 5), &LeakyBucket::new(rate, 6));
    check(&FixedWindow::new(5, SECOND), &FixedWindow::new(6, SECOND));
}

/// An entry of a log has 32 bits for what was granted.
#[test]
fn what_is_settled_in_a_window_does_not_wrap_around() {
    fn check<P: Scripted<Cost = u32>>(policy: P) {
        let (clock, _, limiter) = limiter(policy);
        // 300 x 2^32 is more than 2^40.
        for _ in 0..300 {
            let mut grant = ask(&limiter, 0).expect("nothing");
            at_once(Box::pin(grant.settle(u32::MAX))).expect("owed in a window");
            ask(&limiter, 1).expect_err("far more than there is");
        }
        clock.advance(2 * SECOND);
        ask(&limiter, 4).expect("a new window");
    }
    check(FixedWindow::new(4, SECOND));
    check(SlidingWindowLog::new(4, SECOND));
    check(SlidingWindowCounter::new(4, SECOND, 2));
}

/// Half the range of 32 bits is 35.8 minutes, and all of it 71.6: where sequences begin at the clock, charges of that age
/// looked like later ones.
#[test]
fn an_old_refund_does_not_open_the_current_window() {
    fn check<P: Scripted<Cost = u32> + Clone>(policy: &P) {
        let around = |span: u64| [span - 1, span, span + 1];
        let ages = [(1 << 31) + 1_000_000, 50 * 60_000_000, 1 << 32, 3 << 31, 1 << 33];
        for age in ages.into_iter().flat_map(around) {
            let (clock, _, limiter) = limiter(policy.clone());
            let old = ask(&limiter, 8).expect("an empty window");
            clock.advance(Duration::from_micros(age));
            drop([1, 9].map(|n| ask(&limiter, n).expect("another window")));
            old.refund();
            assert_eq!(left(&limiter), 0, "{age}");
        }
    }
    check(&FixedWindow::new(10, MINUTE));
    check(&FixedWindow::new(10, MINUTE).aligned(Duration::ZERO));
    check(&SlidingWindowLog::new(10, MINUTE));
    check(&SlidingWindowCounter::new(10, MINUTE, 6));
    // However long the window is.
    let (clock, _, daily) = limiter(FixedWindow::new(10, 1_440 * MINUTE));
    let old = ask(&daily, 8).expect("an empty window");
    clock.advance(20 * 60 * MINUTE);
    ask(&daily, 2).expect("the rest");
    old.refund();
    assert_eq!(left(&daily), 8);
}

/// To the microsecond, where a millionth of it is a millisecond.
#[test]
fn a_pause_of_a_quarter_of_an_hour_ends_when_it_should() {
    fn check<P: Scripted<Cost = u32>>(policy: P, owes: u64) {
        let (clock, _, limiter) = limiter(policy);
        clock.advance(MINUTE);
        let wait = |limiter: &_| ask(limiter, 5).expect_err("paused").retry_after();
        at_once(limiter.pause_for(15 * MINUTE)).expect("a server");
        assert_eq!(wait(&limiter), Some(15 * MINUTE + SECOND * u32::try_from(owes).expect("few")));
    }
    let rate = Rate::per_second(1.0);
    check(TokenBucket::new(rate, 10), 5);
    check(LeakyBucket::meter(rate, 10), 5);
    check(LeakyBucket::new(rate, 10), 0);
    check(SmoothBursty::new(rate), 0);
    check(SmoothWarmingUp::new(rate, 3 * SECOND), 0);
    check(FixedWindow::new(10, MINUTE), 0);
    check(SlidingWindowLog::new(10, MINUTE), 0);
}

/// What was owed for a quarter of an hour is owed as long after a pause that was ended.
#[test]
fn a_long_debt_is_the_same_after_a_pause_that_was_ended() {
    fn check<P: Scripted<Cost = u32>>(policy: P) {
        let (_, _, limiter) = limiter(policy);
        let mut grant = ask(&limiter, 0).expect("nothing");
        at_once(Box::pin(grant.settle(1_000))).expect("owed");
        let wait = || ask(&limiter, 1).expect_err("owed").retry_after().expect("a time");
        let before = wait();
        assert!(before > 15 * MINUTE, "{before:?}");
        at_once(limiter.pause_for(50 * MINUTE)).expect("a server");
        at_once(limiter.resume()).expect("a server");
        assert!(wait().abs_diff(before) <= Duration::from_micros(1));
    }
    let rate = Rate::per_second(1.0);
    check(SmoothBursty::new(rate));
    check(SmoothWarmingUp::new(rate, 2 * SECOND));
    check(TokenBucket::new(rate, 10));
    check(LeakyBucket::new(rate, 10));
    check(LeakyBucket::meter(rate, 10));
}

/// Six nested parts are still one script.
#[test]
fn many_parts() {
    let bucket = TokenBucket::new(Rate::per_second(1.0), 9);
    let four = Same((bucket.clone(), bucket.clone(), bucket.clone(), bucket.clone()));
    let flight = InFlight::new(3);
    let same = Same((bucket.clone(), four, bucket.clone(), flight.clone(), bucket.clone()));
    let policy = (same.clone(), flight, (same.clone(), bucket), same.clone(), same.clone(), same);
    let (_, _, limiter) = limiter(policy);
    let _held = ask(&limiter, (1, 2, (3, 4), 1, 1, 2)).expect("all are there");
    let quota = at_once(limiter.quota()).expect("a server");
    assert_eq!(quota.limit, (3, 3, (3, 9), 3, 3, 3));
    assert_eq!(quota.remaining, (2, 1, (0, 5), 2, 2, 1));
    let error = ask(&limiter, (1, 2, (0, 0), 1, 1, 1)).expect_err("one place is left of three");
    assert_eq!((error.part().map(tollgate::Part::index), error.retry_after()), (Some(1), None));
}
