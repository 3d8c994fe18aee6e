//! Replies that were not expected.

use futures::future::FutureExt;
use tollgate::redis::StoreError;
use tollgate::{ManualClock, Rate};

use super::{limiter, silence};
use crate::faults::wires::{several, told};
use crate::faults::{ms, store};

/// The reply of a key with this rate, of this version and generation.
fn other_policy(per_second: f64, (version, generation): (u8, i64)) -> Result<Vec<f64>, StoreError> {
    let [version, generation] = [i64::from(version), generation];
    // The parameters of the rule: the rate, the burst, and two more.
    let numbers = [-2, version, generation].map(|number| number as f64);
    Ok(numbers.into_iter().chain([per_second, 1e6, 0.0, 0.0]).collect())
}

/// A request without a reply may have set it, or not: the key says which policy is in force.
#[test]
fn a_policy_is_in_force_when_redis_says_so() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut set = Box::pin(limiter.set_rate(Rate::per_second(20.0)));
    assert!((&mut set).now_or_never().is_none());
    hand.answer(silence());
    assert!(store(set.now_or_never().expect("answered")).may_have_charged());
    // To a probe.
    hand.answer(Ok(told(&[0])));
    assert_eq!(limiter.rate(), Rate::per_second(10.0));
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(other_policy(20.0, (0, 1)));
    hand.answer(Ok(several(&[1, 1])));
    assert!(caller.now_or_never().expect("granted").is_ok());
    assert_eq!(limiter.rate(), Rate::per_second(20.0));
}

/// The policy set here was confirmed, a fail-over has lost it, and another process has set its own
/// since.
#[test]
fn after_a_confirmed_set_the_next_policy_of_its_generation_is_adopted() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut set = Box::pin(limiter.set_rate(Rate::per_second(20.0)));
    assert!((&mut set).now_or_never().is_none());
    hand.answer(Ok(told(&[1, 0, 1])));
    assert!(set.now_or_never().expect("set").is_ok());
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(other_policy(30.0, (0, 1)));
    hand.answer(Ok(several(&[1, 1])));
    assert!(caller.now_or_never().expect("granted").is_ok());
    assert_eq!((limiter.rate(), hand.sent()), (Rate::per_second(30.0), 3));
}

/// A custom connection returns an invalid reply.
#[test]
fn an_invalid_reply_is_a_failure() {
    let strange = [told(&[]), told(&[0]), told(&[0; 8]), told(&[0, i64::MAX])];
    for reply in strange {
        let clock = ManualClock::new();
        let (limiter, hand) = limiter(10.0, &clock);
        let mut caller = limiter.acquire(1);
        assert!((&mut caller).now_or_never().is_none());
        hand.answer(Ok(reply.clone()));
        let error = store(caller.now_or_never().expect("answered"));
        assert!(error.may_have_charged(), "{reply:?}: {error}");
        let mut quota = Box::pin(limiter.quota());
        assert!((&mut quota).now_or_never().is_none());
        hand.answer(Ok(told(&[2])));
        hand.answer(Ok(reply.clone()));
        let error = store(quota.now_or_never().expect("answered"));
        assert!(error.is_unavailable(), "{error}");
        assert_eq!(limiter.counters().failed, 2, "{reply:?}");
    }
}

/// They would cancel the deadline of the caller, which then waits for ever, and with it all behind it.
#[test]
fn a_reply_beyond_what_was_asked_is_a_failure() {
    const SECOND: i64 = 4_000_000;
    // Booked at no time, in 17 years, and after the timeout.
    for booked in [(1 << 49) * 4, ((1 << 49) - 4) * 4, SECOND / 10] {
        let clock = ManualClock::new();
        let (limiter, hand) = limiter(10.0, &clock);
        let mut caller = limiter.try_acquire_timeout(1, ms(90));
        assert!((&mut caller).now_or_never().is_none());
        hand.answer(Ok(several(&[0, 0, booked])));
        let error = store(caller.now_or_never().expect("it does not hang"));
        assert!(error.may_have_charged(), "{booked}: {error}");
    }
    // Later, though it does not wait.
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.try_acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(several(&[0, 0, SECOND + 1])));
    assert!(store(caller.now_or_never().expect("it does not hang")).may_have_charged());
    assert_eq!((limiter.queue_len(), limiter.counters().failed), (0, 1));
}

/// Again a custom connection with an invalid reply.
#[test]
fn no_caller_is_booked_behind_one_that_is_not() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let mut callers = [1, 1].map(|n| limiter.acquire(n));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.answer(Ok(told(&[1, 0, 1, -1])));
    hand.answer(Ok(several(&[1, 0, 400_001, 0])));
    for caller in callers {
        assert!(store(caller.now_or_never().expect("answered")).may_have_charged());
    }
}
