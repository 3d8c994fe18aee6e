//! Orders of events that cannot be forced on a real server: requests are sent and answered when a
//! test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::FutureExt;
use tollgate::redis::{
    Connection, Effect, Failure, RedisRateLimiter, Reply, Request, Scripted, State, Task,
    Unavailable,
};
use tollgate::{Acquire, Error, InFlight, ManualClock, Rate, SmoothBursty, TokenBucket};

use super::wires::Hand;
use super::{KEY, Limiter, builder, bursty, ms, store};

type Call = Acquire<RedisRateLimiter<SmoothBursty, Hand>>;

/// A limiter at this rate, which books up to three quarters of a second ahead.
fn limiter(per_second: f64, clock: &ManualClock) -> (Limiter<Hand>, Hand) {
    let hand = Hand::default();
    let builder = builder(bursty(per_second), hand.clone()).horizon(ms(1_000));
    (builder.clock(clock).build(), hand)
}

/// One caller at each of `callers` other keys. Requests are sent until the limit is reached.
fn crowd(limiter: &Limiter<Hand>, hand: &Hand, callers: u32) -> Vec<Call> {
    let key = |number: u32| limiter.at(number.to_string()).acquire(1);
    let mut callers: Vec<_> = (0..callers).map(key).collect();
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.send();
    callers
}

pub(super) fn refused() -> Result<Reply, Failure> {
    Err(Failure::new(Effect::None, "connection refused".into()))
}

/// A limiter whose Redis has refused for `millis`, and the caller that has waited for it.
pub(super) fn refused_for(
    millis: u64,
    unavailable: Unavailable<SmoothBursty>,
) -> (Limiter<Hand>, Call) {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(unavailable).build();
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(refused());
    clock.advance(ms(millis));
    hand.answer(refused());
    (limiter, caller)
}

pub(super) fn silence() -> Result<Reply, Failure> {
    Err(Failure::new(Effect::Unknown, "no answer".into()))
}

/// The runtime is busy for so long that Redis counts as down when the task begins.
#[test]
fn a_retry_that_starts_too_late_becomes_a_probe() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(refused());
    hand.answer(refused());
    assert_eq!((limiter.state(), hand.sent()), (State::Doubtful, 2));
    // The third request is due, but does not start before all callers are refused.
    clock.advance(ms(2));
    clock.advance(ms(600));
    assert_eq!(limiter.state(), State::Down);
    hand.send();
    assert!(caller.now_or_never().expect("answered").is_err());
    // It probes Redis instead, which is back.
    hand.answer(Ok(Reply::Numbers(vec![0])));
    assert_eq!((limiter.state(), hand.sent()), (State::Up, 3));
}

/// `Counters::lost` bounds the permits charged for nothing, so probes must not count.
#[test]
fn a_probe_without_an_answer_owes_nothing() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    clock.advance(ms(500));
    hand.answer(silence());
    assert!(caller.now_or_never().expect("answered").is_err());
    assert_eq!((limiter.state(), limiter.counters().lost), (State::Down, 1));
    for _ in 0..3 {
        clock.advance(ms(400));
        hand.answer(silence());
    }
    assert_eq!((hand.sent(), limiter.counters().lost), (4, 1));
}

/// The first waiter cannot use the ticket, and waiters behind it must not be served before it.
#[test]
fn a_ticket_that_is_too_late_for_the_first_waiter_is_refunded() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(1_000.0, &clock);
    let later = |millis: i64| millis * 4_000 + 1;
    let mut leaver = Box::new(limiter.acquire(5));
    assert!((&mut leaver).now_or_never().is_none());
    hand.send();
    // The answer is 10 ms on its way: due at 400 there, at 410 here.
    clock.advance(ms(10));
    hand.answer(Ok(Reply::Numbers(vec![0, 0, 400 * 4_000])));
    // The next two are in one request, because another is under way when they come.
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let mut until_408 = limiter.try_acquire_timeout(5, ms(398));
    let mut endless = limiter.acquire(5);
    assert!((&mut until_408).now_or_never().is_none() && (&mut endless).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![1, 0, 1, -1])));
    assert!(quota.now_or_never().is_some());
    drop(leaver);
    let before = hand.sent();
    hand.answer(Ok(Reply::Numbers(vec![1, 0, later(395), later(400)])));
    assert_eq!((limiter.queue_len(), hand.sent()), (2, before + 1), "the ticket is given back");
    // Both are requested again.
    hand.answer(Ok(Reply::Numbers(vec![2])));
    hand.answer(Ok(Reply::Numbers(vec![2, 2])));
    assert!(until_408.now_or_never().expect("granted").is_ok());
    assert!(endless.now_or_never().expect("granted").is_ok());
}

/// The cached refusal is from before the caller with the booking left.
#[test]
fn a_spare_booking_is_for_the_next_caller_though_a_later_time_was_refused() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(5.0, &clock);
    let mut leaver = limiter.acquire(1);
    assert!((&mut leaver).now_or_never().is_none());
    hand.answer(Ok(Reply::Number((1 << 20) + (200_000 << 2))));
    let mut refused = limiter.try_acquire(1);
    assert!((&mut refused).now_or_never().is_none());
    hand.answer(Ok(Reply::Number((400_000 << 2) + 2)));
    assert!(matches!(refused.now_or_never(), Some(Err(Error::Denied { .. }))));
    drop(leaver);
    let mut next = limiter.try_acquire_timeout(1, ms(300));
    assert!((&mut next).now_or_never().is_none(), "a booking is in time");
    clock.advance(ms(200));
    assert!(next.now_or_never().expect("granted").is_ok());
    assert_eq!((hand.sent(), limiter.counters().denied_locally), (2, 0));
}

/// While a waiter behind them is requested, and the one with the later ticket leaves first.
#[test]
fn tickets_of_callers_that_left_are_handed_on_in_order() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(100.0, &clock);
    let ticket = |millis: i64| millis * 4_000;
    let mut quota = Box::pin(limiter.quota());
    let [mut first, mut second] = [1, 1].map(|n| Box::new(limiter.acquire(n)));
    let mut third = limiter.acquire(1);
    // The first two are in one request, because another is under way when they come.
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![1, 0, 1, -1])));
    assert!((&mut third).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![1, 0, ticket(50), ticket(60)])));
    drop(second);
    drop(first);
    hand.answer(Ok(Reply::Numbers(vec![3, 0, ticket(70)])));
    clock.advance(ms(50));
    let grant = third.now_or_never().expect("it gets the earliest ticket").expect("granted");
    assert_eq!(grant.waited(), ms(50));
}

/// The reply of a key with this rate, of this version and generation.
pub(super) fn other_policy(
    per_second: f64,
    (version, generation): (u8, i64),
) -> Result<Reply, Failure> {
    let mut parameters = Vec::new();
    bursty(per_second).write(&mut parameters);
    // The stamp, the version, and two ages.
    let mut bytes = vec![0; 16];
    bytes[4] = version;
    bytes.extend(parameters.into_iter().flat_map(f64::to_le_bytes));
    Ok(Reply::PolicyMismatch("other".into(), generation, bytes))
}

/// Meanwhile another process has set a policy. This process has set its own later.
#[test]
fn a_policy_set_without_a_reply_is_set_again() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut set = Box::pin(limiter.set_rate(Rate::per_second(20.0)));
    assert!((&mut set).now_or_never().is_none());
    hand.answer(silence());
    assert!(store(set.now_or_never().expect("answered")).may_have_charged());
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(other_policy(30.0, (0, 1)));
    assert!((&mut caller).now_or_never().is_none(), "the call is requested again");
    hand.answer(Ok(Reply::Numbers(vec![2])));
    hand.answer(Ok(Reply::Numbers(vec![1, 1])));
    assert!(caller.now_or_never().expect("granted").is_ok());
    assert_eq!((limiter.policy(), hand.sent()), (bursty(20.0), 4));
}

/// The policy set here was confirmed, a fail-over has lost it, and another process has set its own
/// since.
#[test]
fn after_a_confirmed_set_the_next_policy_of_its_generation_is_adopted() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut set = Box::pin(limiter.set_rate(Rate::per_second(20.0)));
    assert!((&mut set).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![1])));
    assert!(set.now_or_never().expect("set").is_ok());
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(other_policy(30.0, (0, 1)));
    hand.answer(Ok(Reply::Numbers(vec![1, 1])));
    assert!(caller.now_or_never().expect("granted").is_ok());
    assert_eq!((limiter.rate(), hand.sent()), (Rate::per_second(30.0), 3));
}

/// A permit that is given back is worth less as time passes, also while its refund is queued or
/// during an outage.
#[test]
fn a_refund_has_its_age_when_it_is_sent() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![0, 1])));
    let grant = caller.now_or_never().expect("it is there").expect("granted");
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    grant.refund();
    clock.advance(ms(400));
    hand.answer(Ok(Reply::Numbers(vec![1, 0, 1, -1])));
    // After `R`, the permits given back, and the total.
    let (todo, ago) = (&hand.last()[1], 400_000_f64.to_le_bytes());
    assert!(todo[0] == b'R' && todo[9..17] == ago, "{todo:?}");
}

/// A crowd of keys is not an outage: they would wait for each other beyond their deadline.
#[test]
fn the_number_of_requests_in_flight_is_bounded() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let callers = crowd(&limiter, &hand, 600);
    assert_eq!(hand.sent(), 512);
    clock.advance(ms(20));
    for _ in 0..512 {
        hand.answer(Ok(Reply::Number(0)));
    }
    assert_eq!(hand.sent(), 600);
    clock.advance(ms(450));
    for _ in 0..88 {
        hand.answer(Ok(Reply::Number(0)));
    }
    assert!(callers.into_iter().all(|caller| caller.now_or_never().expect("granted").is_ok()));
    assert_eq!((limiter.state(), limiter.counters().lost), (State::Up, 0));
}

/// There may be thousands of such keys on a node that is down.
#[test]
fn an_unused_key_is_not_retried_for_ever() {
    /// Answers at once, but for one key.
    #[derive(Clone, Default)]
    struct OneIsDead(Arc<AtomicUsize>);

    impl Connection for OneIsDead {
        async fn run(&self, request: &Request) -> Result<Reply, Failure> {
            if &*request.key != "dead" {
                return Ok(Reply::Number(0));
            }
            self.0.fetch_add(1, Ordering::SeqCst);
            refused()
        }

        fn spawn(&self, mut task: Task) {
            while (&mut task).now_or_never().is_none() {}
        }
    }

    let (clock, connection) = (ManualClock::new(), OneIsDead::default());
    let limiter = builder(bursty(10.0), connection.clone()).clock(&clock).build();
    let dead = limiter.at("dead");
    let tries = || connection.0.load(Ordering::SeqCst);
    let go_on = |times: u32| {
        for _ in 0..times {
            clock.advance(ms(300));
            // This key does not pay for the other.
            let answer = limiter.acquire(1).now_or_never();
            assert!(answer.expect("it is there").is_ok());
        }
    };
    let mut caller = dead.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    go_on(3);
    store(caller.now_or_never().expect("answered"));
    go_on(10);
    store(dead.acquire(1).now_or_never().expect("it is known"));
    go_on(12);
    store(dead.acquire(1).now_or_never().expect("it is known, because it was used"));
    go_on(50);
    let before = tries();
    go_on(50);
    assert_eq!(tries(), before);
    assert!((&mut dead.acquire(1)).now_or_never().is_none(), "the key is tried again");
}

/// Answers at once, but for keys that begin with `dead`.
#[derive(Clone)]
struct SomeAreDead {
    tries: Arc<AtomicUsize>,
    effect: Effect,
}

impl Connection for SomeAreDead {
    async fn run(&self, request: &Request) -> Result<Reply, Failure> {
        if request.key.starts_with("dead") {
            self.tries.fetch_add(1, Ordering::SeqCst);
            return Err(Failure::new(self.effect, "not permitted, or no reply".into()));
        }
        let is_change = request.arguments.len() > 3;
        Ok(Reply::Numbers(if is_change { vec![0] } else { vec![0, 1] }))
    }

    fn spawn(&self, mut task: Task) {
        while (&mut task).now_or_never().is_none() {}
    }
}

/// Each key is used once, and its handle is dropped.
fn dead_keys_are_forgotten<P: Scripted>(policy: P, cost: P::Cost, effect: Effect) {
    let (clock, tries) = (ManualClock::new(), Arc::default());
    let connection = SomeAreDead { tries: Arc::clone(&tries), effect };
    let limiter =
        RedisRateLimiter::builder(policy, connection, KEY).lease(ms(3_000)).clock(&clock).build();
    let go_on = |times: u32| {
        for _ in 0..times {
            clock.advance(ms(300));
            assert!(limiter.at("well").acquire(cost).now_or_never().expect("there").is_ok());
        }
    };
    go_on(1);
    for key in 0..20 {
        let dead = limiter.at(format!("dead{key}"));
        let mut caller = dead.acquire(cost);
        let at_once = (&mut caller).now_or_never();
        go_on(3);
        store(at_once.or_else(|| caller.now_or_never()).expect("answered"));
    }
    go_on(100);
    let before = tries.load(Ordering::SeqCst);
    go_on(100);
    let more = tries.load(Ordering::SeqCst) - before;
    assert_eq!((more, limiter.len()), (0, 2), "requests, and known keys: {effect:?}");
}

#[test]
fn dead_keys_of_each_policy_are_forgotten() {
    let bucket = || TokenBucket::new(Rate::per_second(1_000.0), 1_000);
    for effect in [Effect::None, Effect::Unknown] {
        dead_keys_are_forgotten(bucket(), 1, effect);
        dead_keys_are_forgotten(InFlight::new(5), 1, effect);
        dead_keys_are_forgotten((bucket(), InFlight::new(5)), (1, 1), effect);
    }
}

/// It gets its error when it would have given up on a reply.
#[test]
fn a_caller_without_a_request_slot_does_not_wait_for_ever() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let _crowd = crowd(&limiter, &hand, 512);
    let mut last = limiter.acquire(1);
    let mut leaver = limiter.try_acquire_timeout(1, ms(100));
    assert!((&mut last).now_or_never().is_none() && (&mut leaver).now_or_never().is_none());
    hand.send();
    clock.advance(ms(100));
    assert!(!store(leaver.now_or_never().expect("answered")).may_have_charged());
    clock.advance(ms(399));
    assert!((&mut last).now_or_never().is_none());
    clock.advance(ms(1));
    let error = store(last.now_or_never().expect("answered"));
    assert!(error.is_unavailable() && !error.may_have_charged(), "{error}");
    assert_eq!((limiter.state(), limiter.queue_len(), hand.sent()), (State::Up, 0, 512));
    for _ in 0..512 {
        hand.answer(Ok(Reply::Number(0)));
    }
    let mut next = limiter.acquire(1);
    assert!((&mut next).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(0)));
    assert!(next.now_or_never().expect("granted").is_ok());
    assert_eq!(hand.sent(), 513);
}

/// No other caller is affected.
#[test]
fn one_lost_reply_among_others_is_no_outage() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let (mut one, mut other) = (limiter.at("one").acquire(1), limiter.at("other").acquire(1));
    assert!((&mut other).now_or_never().is_none());
    hand.send();
    assert!((&mut one).now_or_never().is_none());
    hand.send();
    clock.advance(ms(400));
    // The request sent first is answered first, and late.
    hand.answer(Ok(Reply::Number(0)));
    assert!(other.now_or_never().expect("granted").is_ok());
    clock.advance(ms(100));
    hand.answer(silence());
    assert!(store(one.now_or_never().expect("answered")).may_have_charged());
    assert_eq!(limiter.state(), State::Up);
    let mut next = limiter.acquire(1);
    assert!((&mut next).now_or_never().is_none());
    // The failed key probes first, and no other key waits for that.
    hand.answer(Ok(Reply::Numbers(vec![0])));
    hand.answer(Ok(Reply::Number(0)));
    assert!(next.now_or_never().expect("granted").is_ok());
    assert_eq!(limiter.state(), State::Up);
}

/// Another key was just probing when this one failed, and no caller waited here then.
#[test]
fn a_failed_key_probes_again_without_waiters() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let keys = ["one", "other"].map(|key| limiter.at(key));
    let mut callers = keys.each_ref().map(|key| key.acquire(1));
    for caller in &mut callers {
        assert!(caller.now_or_never().is_none());
        hand.send();
    }
    // The first key fails, and its probe too; then the other.
    (0..3).for_each(|_| hand.answer(silence()));
    assert!(callers.into_iter().all(|caller| caller.now_or_never().expect("answered").is_err()));
    // One of them probes once more, in time for both.
    clock.advance(ms(4));
    hand.send();
    assert_eq!((limiter.state(), hand.sent()), (State::Doubtful, 4));
    hand.answer(Ok(Reply::Numbers(vec![0])));
    assert_eq!(limiter.state(), State::Up);
    clock.advance(ms(20));
    hand.answer(Ok(Reply::Numbers(vec![0])));
    // Long after that, neither key fails a caller.
    clock.advance(ms(600));
    let mut callers = keys.each_ref().map(|key| key.acquire(1));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()), "they are requested");
}

/// Redis has not replied that the limit is reached.
#[test]
fn a_timeout_while_requests_fail_is_not_reported_as_a_denial() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let allowing = builder(bursty(10.0), hand.clone()).clock(&clock);
    let allowing = allowing.unavailable(Unavailable::Allow).build();
    let mut caller = limiter.try_acquire_timeout(1, ms(100));
    let mut allowed = allowing.try_acquire_timeout(1, ms(100));
    assert!((&mut caller).now_or_never().is_none() && (&mut allowed).now_or_never().is_none());
    for _ in 0..4 {
        hand.answer(refused());
    }
    clock.advance(ms(99));
    assert!((&mut caller).now_or_never().is_none() && (&mut allowed).now_or_never().is_none());
    clock.advance(ms(1));
    assert!(store(caller.now_or_never().expect("answered")).is_unavailable());
    assert!(!allowed.now_or_never().expect("answered").expect("granted").is_shared());
    assert_eq!((limiter.state(), allowing.state()), (State::Doubtful, State::Doubtful));
}

/// As long as nothing has failed, Redis may just be slow.
#[test]
fn a_timeout_before_the_first_reply_is_a_denial() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.try_acquire_timeout(1, ms(100));
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    clock.advance(ms(100));
    let answer = caller.now_or_never().expect("answered");
    assert!(matches!(answer, Err(Error::Denied { retry_after: None, .. })), "{answer:?}");
}

/// A custom connection returns an invalid reply.
#[test]
fn an_invalid_reply_is_a_failure() {
    let strange = [
        Reply::Numbers(Vec::new()),
        Reply::Numbers(vec![0]),
        Reply::Numbers(vec![0; 8]),
        Reply::Numbers(vec![0, i64::MAX]),
    ];
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
        hand.answer(Ok(Reply::Numbers(vec![2])));
        hand.answer(Ok(reply.clone()));
        let error = store(quota.now_or_never().expect("answered"));
        assert!(error.is_unavailable(), "{error}");
        // The probe after the first was answered, and nothing else.
        let counters = limiter.counters();
        assert_eq!((counters.answered, counters.failed), (1, 2), "{reply:?}");
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
        hand.answer(Ok(Reply::Numbers(vec![0, 0, booked])));
        let error = store(caller.now_or_never().expect("it does not hang"));
        assert!(error.may_have_charged(), "{booked}: {error}");
    }
    // Later, though it does not wait.
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.try_acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![0, 0, SECOND + 1])));
    assert!(store(caller.now_or_never().expect("it does not hang")).may_have_charged());
    assert_eq!((limiter.queue_len(), limiter.counters().failed), (0, 1));
}

/// As before the exit of a process.
#[test]
fn a_flush_ends_when_all_refunds_are_confirmed() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter =
        RedisRateLimiter::builder(InFlight::new(5), hand.clone(), KEY).clock(&clock).build();
    assert!(limiter.flush().now_or_never().expect("there is nothing to send").is_ok());
    let mut caller = limiter.acquire(1);
    let mut leaver = limiter.acquire(2);
    assert!((&mut caller).now_or_never().is_none() && (&mut leaver).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(0)));
    let grant = caller.now_or_never().expect("granted").expect("granted");
    // The leaver has a request in flight, and its grant must be given back.
    drop((leaver, grant));
    let mut flush = Box::pin(limiter.flush());
    assert!((&mut flush).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(1 << 20)));
    assert!((&mut flush).now_or_never().is_none());
    let before = hand.sent();
    hand.answer(Ok(Reply::Numbers(vec![2])));
    assert!((&mut flush).now_or_never().expect("answered").is_ok());
    assert_eq!(hand.sent(), before, "by the request that was in flight");
    assert!(limiter.flush().now_or_never().expect("there is nothing to send").is_ok());
}

/// A caller that would wait is at the end of its wait at once.
#[test]
fn a_clock_that_advances_by_itself() {
    let clock = ManualClock::auto_advance();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    // Later, in 300 ms.
    hand.answer(Ok(Reply::Numbers(vec![0, 0, 300_000 * 4 + 1])));
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(200_000 * 4)));
    assert!(caller.now_or_never().expect("granted").is_ok());
    assert!(clock.elapsed() >= ms(200), "{:?}", clock.elapsed());
    // And while Redis cannot be reached.
    let mut caller = limiter.acquire(1);
    for _ in 0..20 {
        match (&mut caller).now_or_never() {
            Some(answer) => return drop(store(answer)),
            None => hand.answer(refused()),
        }
    }
    panic!("the call has got no error");
}

/// Without a thread no probe can be sent, and none may spin on retries.
#[test]
fn a_failed_request_is_not_retried_without_a_thread() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    for _ in 0..3 {
        hand.answer(refused());
    }
    hand.end();
    clock.advance(ms(1_000));
    assert!(store(caller.now_or_never().expect("answered")).is_unavailable());
}

/// The same for a change.
#[test]
fn a_change_without_a_request_slot_does_not_wait_for_ever() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let _crowd = crowd(&limiter, &hand, 512);
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    clock.advance(ms(499));
    assert!((&mut quota).now_or_never().is_none());
    clock.advance(ms(1));
    assert!(!store(quota.now_or_never().expect("answered")).may_have_charged());
}

/// More refunds than fit in one request.
#[test]
fn a_flush_ends_after_the_last_of_many_refunds() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    let mut leavers: Vec<_> = (0..1024).map(|_| limiter.acquire(1)).collect();
    assert!(leavers.iter_mut().all(|leaver| leaver.now_or_never().is_none()));
    hand.answer(Ok(Reply::Numbers(vec![0, 0, 1, -1])));
    drop(leavers);
    let mut flush = Box::pin(limiter.flush());
    assert!((&mut flush).now_or_never().is_none());
    // All are charged, and more than half of them at once.
    let mut booked = vec![0, 16];
    booked.resize(2 + 1_024 - 16, 40_000);
    hand.answer(Ok(Reply::Numbers(booked)));
    let mut answered = 2;
    while (&mut flush).now_or_never().is_none() {
        hand.answer(Ok(Reply::Numbers(vec![0])));
        answered += 1;
    }
    assert_eq!(hand.sent(), answered, "no request is in flight any more");
}

/// A settlement for more of one part and less of another, after the price has changed.
#[test]
fn a_settlement_refunds_nothing_paid_at_another_price() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let bucket = |rate| TokenBucket::new(Rate::per_second(rate), 100);
    let limiter = RedisRateLimiter::builder((bucket(1.0), bucket(1.0)), hand.clone(), KEY);
    let limiter = limiter.clock(&clock).build();
    let mut caller = limiter.acquire((5, 1));
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(0)));
    let mut grant = caller.now_or_never().expect("granted").expect("granted");
    let mut set = Box::pin(limiter.set_policy((bucket(2.0), bucket(2.0))));
    assert!((&mut set).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![1])));
    assert!(set.now_or_never().expect("answered").is_ok());
    let mut settle = Box::pin(grant.settle((1, 5)));
    assert!((&mut settle).now_or_never().is_none());
    hand.send();
    let todo = &hand.last()[1];
    // `S` and the additional permits.
    assert_eq!((todo[0], todo.len()), (b'S', 9), "{todo:?}");
    hand.answer(Ok(Reply::Numbers(vec![2])));
    assert!(settle.now_or_never().expect("answered").is_ok());
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
    hand.answer(Ok(Reply::Numbers(vec![1, 0, 1, -1])));
    hand.answer(Ok(Reply::Numbers(vec![1, 0, 400_001, 0])));
    for caller in callers {
        assert!(store(caller.now_or_never().expect("answered")).may_have_charged());
    }
}

/// As when one node of a cluster is down, but Redis as a whole is not.
#[test]
fn waiters_for_the_share_of_one_key_return_to_redis() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(Unavailable::Local(bursty(1.0))).build();
    let mut callers = [1, 1, 1].map(|n| limiter.acquire(n));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    let others = || limiter.at("other").acquire(1);
    let mut other = others();
    assert!((&mut other).now_or_never().is_none());
    hand.send();
    // The first is refused twice, and then the other is answered.
    hand.answer(refused());
    hand.answer(refused());
    hand.answer(Ok(Reply::Number(0)));
    assert!(other.now_or_never().expect("granted").is_ok());
    clock.advance(ms(500));
    hand.answer(refused());
    let mut other = others();
    assert!((&mut other).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(0)));
    assert!(other.now_or_never().expect("granted").is_ok());
    assert_eq!(limiter.state(), State::Up);
    let [first, mut second, mut third] = callers;
    let grant = first.now_or_never().expect("the first is prepaid").expect("granted");
    assert!(!grant.is_shared());
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    // The key is tried again, and answered.
    clock.advance(ms(10));
    hand.answer(Ok(Reply::Numbers(vec![0])));
    clock.advance(ms(1_000));
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(0)));
    hand.answer(Ok(Reply::Number(0)));
    for caller in [second, third] {
        assert!(caller.now_or_never().expect("granted").expect("granted").is_shared());
    }
}

/// With the time that they have left.
#[test]
fn timed_waiters_for_a_share_return_to_redis() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(Unavailable::Local(bursty(1.0))).build();
    let mut callers = [1, 1, 1].map(|n| limiter.try_acquire_timeout(n, ms(5_000)));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.answer(refused());
    clock.advance(ms(500));
    hand.answer(refused());
    assert_eq!(limiter.state(), State::Down);
    let [first, mut second, mut third] = callers;
    let grant = first.now_or_never().expect("the first is prepaid").expect("granted");
    assert!(!grant.is_shared());
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    clock.advance(ms(300));
    hand.answer(Ok(Reply::Numbers(vec![0])));
    assert_eq!(limiter.state(), State::Up);
    // The local turn of the second brings both back. By then they have waited for 1.8 seconds.
    clock.advance(ms(1_000));
    assert!((&mut second).now_or_never().is_none() && (&mut third).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(100_000 * 4)));
    let patience = &hand.last()[0][hand.last()[0].len() - 9..][..8];
    assert_eq!(patience, 3_200_000_f64.to_le_bytes());
    hand.answer(Ok(Reply::Number((3_300_000 << 2) + 2)));
    clock.advance(ms(100));
    assert!(second.now_or_never().expect("granted").expect("granted").is_shared());
    assert!(matches!(third.now_or_never(), Some(Err(Error::Denied { .. }))));
}

/// Also if it has waited at another limiter meanwhile.
#[test]
fn a_wait_counts_from_the_arrival_of_the_caller() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(Unavailable::Local(bursty(1.0))).build();
    let mut callers = [1, 1, 1].map(|n| limiter.acquire(n));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.answer(refused());
    clock.advance(ms(500));
    hand.answer(refused());
    let mut granted = |index: usize| (&mut callers[index]).now_or_never();
    let first = granted(0).expect("it is prepaid").expect("granted");
    assert_eq!((first.is_shared(), first.waited()), (false, ms(500)));
    assert!(granted(1).is_none() && granted(2).is_none());
    clock.advance(ms(1_000));
    let second = granted(1).expect("its turn").expect("granted");
    assert_eq!((second.is_shared(), second.waited()), (false, ms(1_500)));
    // Redis is back.
    hand.answer(Ok(Reply::Numbers(vec![0])));
    clock.advance(ms(1_000));
    assert!(granted(2).is_none());
    hand.answer(Ok(Reply::Number(100_000 * 4)));
    clock.advance(ms(100));
    let third = granted(2).expect("its turn").expect("granted");
    assert_eq!((third.is_shared(), third.waited()), (true, ms(2_600)));
    let total = ms(500) + ms(1_500) + ms(2_600);
    assert_eq!((limiter.stats().granted, limiter.stats().waited), (3, total));
}

/// With `Allow`, too: the caller may have waited for the deadline.
#[test]
fn a_caller_that_is_allowed_has_waited_for_redis() {
    let (_limiter, caller) = refused_for(500, Unavailable::Allow);
    let grant = caller.now_or_never().expect("answered").expect("allowed");
    assert_eq!((grant.is_shared(), grant.waited()), (false, ms(500)));
}

/// A caller that left counts as given up, also without a request.
#[test]
fn a_caller_that_leaves_before_its_share_is_counted() {
    let (limiter, caller) = refused_for(600, Unavailable::Local(bursty(1.0)));
    assert_eq!((limiter.state(), limiter.queue_len()), (State::Down, 0), "answered");
    drop(caller);
    assert_eq!(limiter.stats().given_up, 1);
    drop(limiter.reserve(1).now_or_never().expect("answered").expect("a place"));
    assert_eq!(limiter.stats().given_up, 2);
}

/// For any kind of wait.
#[test]
fn a_clock_that_advances_by_itself_does_so_for_changes_and_places() {
    let clock = ManualClock::auto_advance();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut quota = Box::pin(limiter.quota());
    let mut place = Box::pin(limiter.reserve(1));
    let (mut quota_done, mut place_done) = (false, false);
    for _ in 0..40 {
        quota_done = quota_done || (&mut quota).now_or_never().is_some();
        place_done = place_done || (&mut place).now_or_never().is_some();
        if quota_done && place_done {
            return;
        }
        hand.answer(refused());
    }
    panic!("unanswered: {quota_done} {place_done} at {:?}", clock.elapsed());
}
