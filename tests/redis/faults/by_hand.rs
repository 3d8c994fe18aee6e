//! Orders of events to which no real server can be brought for certain: requests are sent and answered
//! when a test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::FutureExt;
use tollgate::redis::{
    Connection, Effect, Failure, RedisAcquire, RedisRateLimiter, Reply, Request, Runtime, Scripted,
    State, Task, Unavailable,
};
use tollgate::{Error, InFlight, ManualClock, Rate, SmoothBursty, TokenBucket};

use super::wires::Hand;
use super::{KEY, Limiter, builder, bursty, ms, store};

type Call = RedisAcquire<SmoothBursty, Hand>;

/// A limiter of so many a second.
fn limiter(per_second: f64, clock: &ManualClock) -> (Limiter<Hand>, Hand) {
    let hand = Hand::default();
    (builder(bursty(per_second), hand.clone()).clock(clock).build(), hand)
}

/// One caller at each of so many other keys, who is asked for as far as that goes.
fn crowd(limiter: &Limiter<Hand>, hand: &Hand, callers: u32) -> Vec<Call> {
    let key = |number: u32| limiter.key(number.to_string()).acquire(1);
    let mut callers: Vec<_> = (0..callers).map(key).collect();
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    hand.send();
    callers
}

fn refused() -> Result<Reply, Failure> {
    Err(Failure::new(Effect::None, "connection refused".into()))
}

fn silence() -> Result<Reply, Failure> {
    Err(Failure::new(Effect::Unknown, "no answer".into()))
}

/// A runtime that is busy for so long that Redis counts as down when the task begins.
#[test]
fn a_try_that_comes_too_late_leaves_it_to_others_to_try() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(refused());
    hand.answer(refused());
    assert_eq!((limiter.state(), hand.sent()), (State::Doubtful, 2));
    // The third is due, and does not begin before all are turned away.
    clock.advance(ms(2));
    clock.advance(ms(600));
    assert_eq!(limiter.state(), State::Down);
    hand.send();
    assert!(caller.now_or_never().expect("it is told").is_err());
    // It asks whether Redis is back instead, and it is.
    hand.answer(Ok(Reply::Numbers(vec![0])));
    assert_eq!((limiter.state(), hand.sent()), (State::Up, 3));
}

/// Whoever reckons from `Counters::lost` how much may be owed for nothing is not to add up probes.
#[test]
fn a_probe_without_an_answer_owes_nothing() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    clock.advance(ms(600));
    hand.answer(silence());
    assert!(caller.now_or_never().expect("it is told").is_err());
    assert_eq!((limiter.state(), limiter.counters().lost), (State::Down, 1));
    for _ in 0..3 {
        clock.advance(ms(300));
        hand.answer(silence());
    }
    assert_eq!((hand.sent(), limiter.counters().lost), (4, 1));
}

/// The first in line cannot use it, and whoever is behind is not to be served before.
#[test]
fn a_ticket_that_is_too_late_for_the_first_goes_back() {
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
    assert_eq!((limiter.queue_len(), hand.sent()), (2, before + 1), "it is given back");
    // And both are asked for again.
    hand.answer(Ok(Reply::Numbers(vec![2])));
    hand.answer(Ok(Reply::Numbers(vec![2, 2])));
    assert!(until_408.now_or_never().expect("granted").is_ok());
    assert!(endless.now_or_never().expect("granted").is_ok());
}

/// While somebody behind them is asked for, and the one with the later ticket goes first.
#[test]
fn tickets_of_those_who_left_are_handed_on_in_their_order() {
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
    let grant = third.now_or_never().expect("the earliest is its").expect("granted");
    assert_eq!(grant.waited(), ms(50));
}

/// Those of a limiter with another rate, as they come from a key.
fn parameters(per_second: f64) -> Vec<u8> {
    let mut parameters = Vec::new();
    bursty(per_second).write(&mut parameters);
    parameters.into_iter().flat_map(f64::to_le_bytes).collect()
}

/// Another process has set one of the same generation meanwhile, and was heard. It is not to be shut out.
#[test]
fn who_was_not_heard_setting_a_policy_sets_it_again() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut set = Box::pin(limiter.set_rate(Rate::per_second(20.0)));
    assert!((&mut set).now_or_never().is_none());
    hand.answer(silence());
    assert!(store(set.now_or_never().expect("it is told")).may_have_charged());
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(Reply::PolicyMismatch("conflict".into(), 1, parameters(30.0))));
    assert!((&mut caller).now_or_never().is_none(), "it is asked for again");
    hand.answer(Ok(Reply::PolicyMismatch("older".into(), 1, Vec::new())));
    hand.answer(Ok(Reply::Numbers(vec![1])));
    hand.answer(Ok(Reply::Numbers(vec![1, 1])));
    assert!(caller.now_or_never().expect("granted").is_ok());
    assert_eq!((limiter.policy(), hand.sent()), (bursty(20.0), 5));
}

/// What was set here was heard, and a fail-over has forgotten it; somebody has set another since.
#[test]
fn who_was_heard_setting_a_policy_adopts_the_next_of_its_generation() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut set = Box::pin(limiter.set_rate(Rate::per_second(20.0)));
    assert!((&mut set).now_or_never().is_none());
    hand.answer(Ok(Reply::Numbers(vec![1])));
    assert!(set.now_or_never().expect("set").is_ok());
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(Ok(Reply::PolicyMismatch("conflict".into(), 1, parameters(30.0))));
    hand.answer(Ok(Reply::Numbers(vec![1, 1])));
    assert!(caller.now_or_never().expect("granted").is_ok());
    assert_eq!((limiter.rate(), hand.sent()), (Rate::per_second(30.0), 3));
}

/// A permit that is given back is worth less as time passes, in line and during an outage, too.
#[test]
fn a_refund_is_as_old_as_when_it_is_sent() {
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
    // Behind `R`, what is given back, and all.
    let (todo, ago) = (&hand.last()[1], 400_000_f64.to_le_bytes());
    assert!(todo[0] == b'R' && todo[9..17] == ago, "{todo:?}");
}

/// A crowd of keys is not an outage: they would wait for each other beyond their deadline.
#[test]
fn only_so_many_requests_are_under_way() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let callers = crowd(&limiter, &hand, 600);
    assert_eq!(hand.sent(), 512);
    // Time on the way to the connection is not time without an answer.
    clock.advance(ms(450));
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

/// There may be thousands of them, of a node that is down.
#[test]
fn a_key_that_nobody_asks_for_is_not_tried_for_ever() {
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

        fn spawn(&self, _: &Runtime, mut task: Task) {
            while (&mut task).now_or_never().is_none() {}
        }
    }

    let (clock, connection) = (ManualClock::new(), OneIsDead::default());
    let limiter = builder(bursty(10.0), connection.clone()).clock(&clock).build();
    let dead = limiter.key("dead");
    let tries = || connection.0.load(Ordering::SeqCst);
    let go_on = |times: u32| {
        for _ in 0..times {
            clock.advance(ms(300));
            // It does not pay for the other.
            let answer = limiter.acquire(1).now_or_never();
            assert!(answer.expect("it is there").is_ok());
        }
    };
    let mut caller = dead.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    go_on(3);
    store(caller.now_or_never().expect("it is told"));
    go_on(10);
    store(dead.acquire(1).now_or_never().expect("it is known"));
    go_on(15);
    store(dead.acquire(1).now_or_never().expect("it is known, because somebody has asked"));
    go_on(50);
    let before = tries();
    go_on(50);
    assert_eq!(tries(), before);
    assert!((&mut dead.acquire(1)).now_or_never().is_none(), "it is tried again");
}

/// It is told so when it would have given up on an answer.
#[test]
fn who_is_crowded_out_does_not_wait_for_ever() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let _crowd = crowd(&limiter, &hand, 512);
    let mut last = limiter.acquire(1);
    let mut leaver = limiter.try_acquire_timeout(1, ms(100));
    assert!((&mut last).now_or_never().is_none() && (&mut leaver).now_or_never().is_none());
    hand.send();
    clock.advance(ms(100));
    assert!(!store(leaver.now_or_never().expect("it is told")).may_have_charged());
    clock.advance(ms(399));
    assert!((&mut last).now_or_never().is_none());
    clock.advance(ms(1));
    let error = store(last.now_or_never().expect("it is told"));
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

/// Nobody else has anything to do with it.
#[test]
fn one_lost_answer_among_others_is_no_outage() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let (mut one, mut other) = (limiter.key("one").acquire(1), limiter.key("other").acquire(1));
    assert!((&mut other).now_or_never().is_none());
    hand.send();
    assert!((&mut one).now_or_never().is_none());
    hand.send();
    clock.advance(ms(400));
    // The one that was sent first is answered first, and late.
    hand.answer(Ok(Reply::Number(0)));
    assert!(other.now_or_never().expect("granted").is_ok());
    clock.advance(ms(100));
    hand.answer(silence());
    assert!(store(one.now_or_never().expect("it is told")).may_have_charged());
    assert_eq!(limiter.state(), State::Doubtful);
    let mut next = limiter.acquire(1);
    assert!((&mut next).now_or_never().is_none());
    // The key that has failed finds out for it.
    hand.answer(Ok(Reply::Numbers(vec![0])));
    clock.advance(ms(10));
    hand.answer(Ok(Reply::Number(0)));
    assert!(next.now_or_never().expect("granted").is_ok());
    assert_eq!(limiter.state(), State::Up);
}

/// Another key was just finding out when this one looked, and nobody waited here then.
#[test]
fn a_key_that_has_failed_looks_again_though_nobody_waits() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let keys = ["one", "other"].map(|key| limiter.key(key));
    let mut callers = keys.each_ref().map(|key| key.acquire(1));
    for caller in &mut callers {
        assert!(caller.now_or_never().is_none());
        hand.send();
    }
    // One fails, and when it looks for the server; then the other.
    (0..3).for_each(|_| hand.answer(silence()));
    assert!(callers.into_iter().all(|caller| caller.now_or_never().expect("told").is_err()));
    // Either looks once more, in time for both.
    clock.advance(ms(2));
    hand.send();
    assert_eq!((limiter.state(), hand.sent()), (State::Doubtful, 4));
    hand.answer(Ok(Reply::Numbers(vec![0])));
    assert_eq!(limiter.state(), State::Up);
    clock.advance(ms(20));
    hand.answer(Ok(Reply::Numbers(vec![0])));
    // Long after that, neither has bad news for anybody.
    clock.advance(ms(600));
    let mut callers = keys.each_ref().map(|key| key.acquire(1));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()), "they are asked for");
}

/// It is no answer of Redis that the limit is reached.
#[test]
fn whose_time_is_up_while_requests_fail_is_not_told_of_a_limit() {
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
    assert!(store(caller.now_or_never().expect("it is told")).is_unavailable());
    assert!(!allowed.now_or_never().expect("it is told").expect("granted").is_shared());
    assert_eq!((limiter.state(), allowing.state()), (State::Doubtful, State::Doubtful));
}

/// As long as nothing has failed, nobody knows that it is not just slow.
#[test]
fn whose_time_is_up_before_the_first_answer_is_refused() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.try_acquire_timeout(1, ms(100));
    assert!((&mut caller).now_or_never().is_none());
    hand.send();
    clock.advance(ms(100));
    let answer = caller.now_or_never().expect("it is told");
    assert!(matches!(answer, Err(Error::Denied { retry_after: None, .. })), "{answer:?}");
}

/// A connection of somebody's own makes up an answer.
#[test]
fn an_answer_that_is_none_is_a_failure() {
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
        let error = store(caller.now_or_never().expect("it is told"));
        assert!(error.may_have_charged(), "{reply:?}: {error}");
        let mut quota = Box::pin(limiter.quota());
        assert!((&mut quota).now_or_never().is_none());
        hand.answer(Ok(Reply::Numbers(vec![2])));
        hand.answer(Ok(reply));
        let error = store(quota.now_or_never().expect("it is told"));
        assert!(error.is_unavailable(), "{error}");
    }
}

/// Before a process ends.
#[test]
fn a_flush_ends_when_all_that_was_given_back_is_told() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter =
        RedisRateLimiter::builder(InFlight::new(5), hand.clone(), KEY).clock(&clock).build();
    assert!(limiter.flush().now_or_never().expect("there is nothing to tell").is_ok());
    let mut caller = limiter.acquire(1);
    let mut leaver = limiter.acquire(2);
    assert!((&mut caller).now_or_never().is_none() && (&mut leaver).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(0)));
    let grant = caller.now_or_never().expect("granted").expect("granted");
    // Who leaves is being asked for, and what it is granted has to go back.
    drop((leaver, grant));
    let mut flush = Box::pin(limiter.flush());
    assert!((&mut flush).now_or_never().is_none());
    hand.answer(Ok(Reply::Number(1 << 20)));
    assert!((&mut flush).now_or_never().is_none());
    let before = hand.sent();
    hand.answer(Ok(Reply::Numbers(vec![2])));
    assert!((&mut flush).now_or_never().expect("told").is_ok());
    assert_eq!(hand.sent(), before, "by the request that was under way");
    assert!(limiter.flush().now_or_never().expect("there is nothing to tell").is_ok());
}

/// Whoever would wait finds itself at the end of the wait.
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
    panic!("nobody has told it");
}

/// Nobody can find out then whether Redis is back, and nobody is to be busy with that.
#[test]
fn what_failed_is_not_tried_again_and_again_without_a_runtime() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    for _ in 0..3 {
        hand.answer(refused());
    }
    hand.end();
    clock.advance(ms(1_000));
    assert!(store(caller.now_or_never().expect("it is told")).is_unavailable());
}

/// Somebody else's runtime goes on, and the crowd has gone.
#[test]
fn who_was_crowded_out_when_the_runtime_ended_leaves_no_trouble_behind() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let callers = crowd(&limiter, &hand, 512);
    let mut last = limiter.acquire(1);
    assert!((&mut last).now_or_never().is_none());
    hand.send();
    drop((callers, last));
    hand.end();
    hand.begin();
    clock.advance(ms(1_000));
    let sent = hand.sent();
    let mut next = limiter.acquire(1);
    assert!((&mut next).now_or_never().is_none(), "it is asked for");
    hand.answer(Ok(Reply::Number(0)));
    assert!(next.now_or_never().expect("granted").is_ok());
    assert_eq!(hand.sent(), sent + 1);
}

/// Nor does a change.
#[test]
fn a_change_that_is_crowded_out_does_not_wait_for_ever() {
    let clock = ManualClock::new();
    let (limiter, hand) = limiter(10.0, &clock);
    let _crowd = crowd(&limiter, &hand, 512);
    let mut quota = Box::pin(limiter.quota());
    assert!((&mut quota).now_or_never().is_none());
    hand.send();
    clock.advance(ms(499));
    assert!((&mut quota).now_or_never().is_none());
    clock.advance(ms(1));
    assert!(!store(quota.now_or_never().expect("it is told")).may_have_charged());
}

/// More than go in one request.
#[test]
fn a_flush_ends_after_the_last_of_many_who_left() {
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
    assert_eq!(hand.sent(), answered, "nothing is under way any more");
}

/// One who asks for more of one thing and less of another, after the price has changed.
#[test]
fn what_was_paid_at_another_price_does_not_come_back_with_a_settlement() {
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
    assert!(set.now_or_never().expect("told").is_ok());
    let mut settle = Box::pin(grant.settle((1, 5)));
    assert!((&mut settle).now_or_never().is_none());
    hand.send();
    let todo = &hand.last()[1];
    // `S` and what more is to be paid.
    assert_eq!((todo[0], todo.len()), (b'S', 9), "{todo:?}");
    hand.answer(Ok(Reply::Numbers(vec![2])));
    assert!(settle.now_or_never().expect("told").is_ok());
}

/// A connection of somebody's own, again.
#[test]
fn nobody_is_booked_behind_one_who_is_not() {
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
        assert!(store(caller.now_or_never().expect("it is told")).may_have_charged());
    }
}

/// As when a node of a cluster is down: Redis as a whole is not.
#[test]
fn who_waits_for_the_share_of_one_key_comes_back() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(Unavailable::Local(bursty(1.0))).build();
    let mut callers = [1, 1, 1].map(|n| limiter.acquire(n));
    assert!(callers.iter_mut().all(|caller| caller.now_or_never().is_none()));
    let others = || limiter.key("other").acquire(1);
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
    // It is tried again, and answered.
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

/// Who came and left, whatever was to become of it.
#[test]
fn who_leaves_before_it_asks_for_a_share_counts() {
    let (clock, hand) = (ManualClock::new(), Hand::default());
    let limiter = builder(bursty(10.0), hand.clone()).clock(&clock);
    let limiter = limiter.unavailable(Unavailable::Local(bursty(1.0))).build();
    let mut caller = limiter.acquire(1);
    assert!((&mut caller).now_or_never().is_none());
    hand.answer(refused());
    clock.advance(ms(600));
    hand.answer(refused());
    assert_eq!((limiter.state(), limiter.queue_len()), (State::Down, 0), "it is told");
    drop(caller);
    assert_eq!(limiter.stats().given_up, 1);
    drop(limiter.reserve(1).now_or_never().expect("it is told").expect("a place"));
    assert_eq!(limiter.stats().given_up, 2);
}

/// Whatever is waited for.
#[test]
fn a_clock_that_advances_by_itself_does_so_for_changes_and_places() {
    let clock = ManualClock::auto_advance();
    let (limiter, hand) = limiter(10.0, &clock);
    let mut quota = Box::pin(limiter.quota());
    let mut place = Box::pin(limiter.reserve(1));
    let (mut quota_told, mut place_told) = (false, false);
    for _ in 0..40 {
        quota_told = quota_told || (&mut quota).now_or_never().is_some();
        place_told = place_told || (&mut place).now_or_never().is_some();
        if quota_told && place_told {
            return;
        }
        hand.answer(refused());
    }
    panic!("nobody has told them: {quota_told} {place_told} at {:?}", clock.elapsed());
}
