//! The word and the mutex under loom: every order in which threads can meet there.
//!
//! `./tests/loom`
//!
//! Each model runs a few calls at once and demands that what they answered, and the state that they
//! left, is that of *some* order of the same calls one after another.

mod closing;

use super::testing::{self, ask, ask_now, read_once, sound, stand_at};
use super::{Caller, Change, Charge, Line};
use crate::policy::gcra::Gcra;
use crate::policy::smooth_bursty::SmoothBursty;
use crate::policy::smooth_warming_up::SmoothWarmingUp;
use crate::policy::token_bucket::TokenBucket;
use crate::policy::{Policy, PolicyExt};
use crate::units::{Nanos, Rate};
use crate::wait_queue::End;
use loom::thread;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

const EARLIER: Nanos = Nanos::new(990);
const NOW: Nanos = Nanos::new(1_000);
const LATER: Nanos = Nanos::new(10_000);

trait Modelled: Policy<Cost = u32> {
    /// Prices of 1, 7 and 13 ns a permit: a caller that pays one of them leaves its trace in the state.
    fn at(nanos: u64) -> Self;

    /// What of the state shows which price was paid.
    fn trace(state: Self::State) -> String;
}

/// By the word, with a full store at `NOW`.
impl Modelled for SmoothBursty {
    fn at(nanos: u64) -> Self {
        let rate = Rate::every(Duration::from_nanos(nanos));
        Self::new(rate).max_burst(Duration::from_nanos(100))
    }

    fn trace(ticket: Self::State) -> String {
        { ticket.position }.to_string()
    }
}

/// By the word, where all that is asked for must be there.
impl Modelled for TokenBucket {
    fn at(nanos: u64) -> Self {
        Self::new(Rate::every(Duration::from_nanos(nanos)), 3)
    }

    fn trace(state: Self::State) -> String {
        { state.position }.to_string()
    }
}

/// By the word, and what takes more than a 64th of the store by the mutex: more than 31,250 of two million, which a
/// nanosecond each fill in two milliseconds.
impl Modelled for Gcra {
    fn at(nanos: u64) -> Self {
        Self::new(2_000_000 - 1, 1, Duration::from_nanos(nanos))
    }

    fn trace(state: Self::State) -> String {
        { state.position }.to_string()
    }
}

/// By the mutex alone.
impl Modelled for SmoothWarmingUp {
    fn at(nanos: u64) -> Self {
        Self::new(Rate::every(Duration::from_nanos(nanos)), Duration::from_nanos(100))
    }

    fn trace(state: Self::State) -> String {
        format!("{state:?}")
    }
}

#[derive(Clone, Copy, Debug)]
enum Call {
    /// Take this many permits, or be refused.
    Try(u32),
    /// The same by a thread that read the clock at this time; if it reads it again, it is `NOW`.
    TryAt(Nanos, u32),
    /// Take this many permits and give them back.
    TryAndRefund(u32),
    /// Change to this many nanoseconds a permit.
    SetPolicy(u64),
    /// For this many nanoseconds.
    Pause(u64),
    /// Let no caller in from now on.
    Close,
}

/// What a thread's calls answered, and the state that all of them left.
type Outcome = (Vec<Vec<bool>>, String);

fn line<P: Modelled>(now: Nanos) -> Arc<Line<P>> {
    testing::line(P::at(1), now)
}

fn perform<P: Modelled>(line: &Arc<Line<P>>, call: Call) -> bool {
    let at_once = Some(Duration::ZERO);
    stand_at(NOW);
    match call {
        Call::Try(n) => ask_now(line, n, at_once).is_ok(),
        Call::TryAt(read, n) => {
            read_once(read, NOW);
            ask_now(line, n, at_once).is_ok()
        }
        Call::TryAndRefund(n) => match ask_now(line, n, at_once) {
            Ok(Caller::Granted(Charge { receipt, .. })) => {
                line.change(&Change::back(n, n, receipt)).is_ok()
            }
            _ => false,
        },
        Call::SetPolicy(nanos) => {
            line.with_lock(|inner, now| inner.set_policy(now, P::at(nanos)));
            true
        }
        Call::Pause(nanos) => {
            line.with_lock(|inner, now| inner.pause(now, Duration::from_nanos(nanos)));
            true
        }
        Call::Close => line.end(End::Close),
    }
}

fn trace<P: Modelled>(line: &Arc<Line<P>>) -> String {
    stand_at(LATER);
    P::trace(line.with_lock(|inner, _| inner.state.clone()))
}

/// What the threads' calls meet.
#[derive(Clone)]
struct Serial<P: Policy> {
    policy: P,
    state: P::State,
    paused: Nanos,
    latest: Nanos,
    is_closed: bool,
}

impl<P: Modelled> Serial<P> {
    fn try_at(&mut self, read: Nanos, n: u32) -> Option<P::Receipt> {
        // The mutex does not take a time from before the last one; the word does.
        let is_old = P::ONE_RATE.is_none() && read < self.latest;
        let now = if is_old { NOW } else { read };
        self.latest = self.latest.max(now);
        let ready = self.policy.ready_at(&self.state, now, n).expect("within the horizon");
        let granted = ready.earliest() <= now && self.paused <= now && !self.is_closed;
        granted.then(|| self.policy.charge(&mut self.state, now, n))
    }
}

/// What all orders one after another lead to. A refund is a step of its own.
fn serial_outcomes<P: Modelled>(threads: &'static [&'static [Call]]) -> Vec<Outcome> {
    /// A thread's next call, and whether it has still to give back what it took.
    type Progress<P> = (usize, Option<(u32, <P as Policy>::Receipt)>);

    fn explore<P: Modelled>(
        threads: &[&[Call]],
        progress: &[Progress<P>],
        serial: &Serial<P>,
        answers: &[Vec<bool>],
        found: &mut Vec<Outcome>,
    ) {
        let mut ended = true;
        for (thread, calls) in threads.iter().enumerate() {
            let (next, owed) = progress[thread].clone();
            let mut progress = progress.to_vec();
            let mut answers = answers.to_vec();
            let mut serial = serial.clone();
            if let Some((n, receipt)) = owed {
                serial.policy.refund(&mut serial.state, NOW, n, receipt);
                progress[thread].1 = None;
            } else if let Some(call) = calls.get(next) {
                let answer = match *call {
                    Call::Try(n) => serial.try_at(NOW, n).is_some(),
                    Call::TryAt(read, n) => serial.try_at(read, n).is_some(),
                    Call::TryAndRefund(n) => {
                        let receipt = serial.try_at(NOW, n);
                        progress[thread].1 = receipt.clone().map(|receipt| (n, receipt));
                        receipt.is_some()
                    }
                    Call::SetPolicy(nanos) => {
                        let new = P::at(nanos);
                        new.migrate(&serial.policy, &mut serial.state, NOW);
                        serial.policy = new;
                        true
                    }
                    Call::Pause(nanos) => {
                        serial.paused = NOW.saturating_add(Duration::from_nanos(nanos));
                        serial.policy.pause(&mut serial.state, NOW, serial.paused);
                        true
                    }
                    Call::Close => {
                        serial.is_closed = true;
                        true
                    }
                };
                progress[thread].0 += 1;
                answers[thread].push(answer);
            } else {
                continue;
            }
            ended = false;
            explore(threads, &progress, &serial, &answers, found);
        }
        if ended {
            found.push((answers.to_vec(), P::trace(serial.state.clone())));
        }
    }

    let mut found = Vec::new();
    let policy = P::at(1);
    let state = policy.start(Nanos::ZERO);
    let (paused, latest, is_closed) = (Nanos::ZERO, Nanos::ZERO, false);
    let serial = Serial { policy, state, paused, latest, is_closed };
    let (progress, answers) = (vec![(0, None); threads.len()], vec![vec![]; threads.len()]);
    explore(threads, &progress, &serial, &answers, &mut found);
    found
}

/// The last of the threads is the model's own.
fn check<P: Modelled>(preemptions: usize, threads: &'static [&'static [Call]]) {
    check_by::<P>(preemptions, threads, |found, serial| found == serial);
}

/// Of calls by the word the owner knows only that they were made: a refund behind them may return less.
fn check_with_refunds<P: Modelled>(preemptions: usize, threads: &'static [&'static [Call]]) {
    let position = |outcome: &Outcome| outcome.1.parse::<i128>().expect("a position");
    check_by::<P>(preemptions, threads, move |found, serial| {
        found.0 == serial.0 && position(found) >= position(serial)
    });
}

fn check_by<P: Modelled>(
    preemptions: usize,
    threads: &'static [&'static [Call]],
    is_allowed: impl Fn(&Outcome, &Outcome) -> bool + Send + Sync + 'static,
) {
    let allowed = serial_outcomes::<P>(threads);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(move || {
        let line = line::<P>(Nanos::ZERO);
        let (own, others) = threads.split_last().expect("at least one");
        let run = |line: &Arc<Line<_>>, calls: &[Call]| -> Vec<bool> {
            calls.iter().map(|&call| perform(line, call)).collect()
        };
        let handles: Vec<_> = others
            .iter()
            .map(|calls| {
                let line = Arc::clone(&line);
                thread::spawn(move || run(&line, calls))
            })
            .collect();
        let own = run(&line, own);
        let mut answers: Vec<_> =
            handles.into_iter().map(|handle| handle.join().expect("no panic")).collect();
        answers.push(own);
        let outcome = (answers, trace(&line));
        let is_allowed = allowed.iter().any(|serial| is_allowed(&outcome, serial));
        assert!(is_allowed, "no order gives {outcome:?}, only {allowed:?}");
    });
}

#[test]
fn no_caller_pays_an_old_price() {
    use Call::{SetPolicy, Try};
    check::<SmoothBursty>(3, &[&[Try(1), Try(2)], &[SetPolicy(7)]]);
    check::<SmoothBursty>(1, &[&[Try(1)], &[SetPolicy(7), SetPolicy(13)]]);
}

#[test]
#[ignore = "takes minutes: run it after a change of the word"]
fn no_caller_pays_one_of_two_old_prices() {
    use Call::{SetPolicy, Try};
    check::<SmoothBursty>(2, &[&[Try(1)], &[SetPolicy(7), SetPolicy(13)]]);
}

/// Where all that is asked for must be there.
#[test]
fn no_caller_takes_a_token_twice_or_at_an_old_price() {
    use Call::{SetPolicy, Try};
    check::<TokenBucket>(3, &[&[Try(2), Try(1)], &[Try(2)]]);
    check::<TokenBucket>(2, &[&[Try(2), Try(1)], &[SetPolicy(7), Try(2)]]);
}

#[test]
#[ignore = "takes minutes, and finds nothing that two threads do not: run it after a change of the word"]
fn no_caller_pays_an_old_price_among_three() {
    use Call::{SetPolicy, Try};
    check::<SmoothBursty>(1, &[&[Try(1)], &[Try(2)], &[SetPolicy(7)]]);
}

#[test]
fn a_refusal_is_by_the_parameters_in_force() {
    use Call::{SetPolicy, Try};
    // After 102 there is a debt of a nanosecond, whatever the price.
    check::<SmoothBursty>(3, &[&[Try(102), Try(1)], &[SetPolicy(7), Try(1)]]);
}

/// The position comes back to where it was, under another price: only its jump at each change keeps
/// the other thread from taking the word for the one that it read.
#[test]
fn a_refund_across_a_change_brings_no_old_word_back() {
    use Call::{SetPolicy, Try, TryAndRefund};
    // A refund behind a change publishes its parameters too: two preemptions did not end in a quarter of an hour.
    check_with_refunds::<SmoothBursty>(1, &[&[Try(1)], &[SetPolicy(7), TryAndRefund(3)]]);
    check_with_refunds::<SmoothBursty>(2, &[&[Try(1)], &[TryAndRefund(3), SetPolicy(1)]]);
    check_with_refunds::<SmoothBursty>(1, &[&[Try(1), Try(1)], &[TryAndRefund(3), SetPolicy(7)]]);
}

#[test]
#[ignore = "takes minutes: run it after a change of the word"]
fn a_refund_before_a_change_brings_no_old_word_back_to_two_calls() {
    use Call::{SetPolicy, Try, TryAndRefund};
    check_with_refunds::<SmoothBursty>(2, &[&[Try(1), Try(1)], &[TryAndRefund(3), SetPolicy(7)]]);
}

/// Calls by the mutex beside calls by the word.
#[test]
fn what_is_recorded_is_charged_once_and_comes_back_once() {
    use Call::{Pause, SetPolicy, Try, TryAndRefund};
    check::<Gcra>(3, &[&[Try(900_000), Try(1)], &[Try(900_000), Try(700_000)]]);
    check::<Gcra>(3, &[&[Try(900_000), Try(1)], &[SetPolicy(7), Try(900_000)]]);
    check::<Gcra>(2, &[&[Try(900_000), Try(1)], &[Pause(50), Try(900_000)]]);
    // A full bucket, of which nothing comes back behind another charge.
    check_with_refunds::<Gcra>(3, &[&[Try(900_000), Try(1)], &[TryAndRefund(900_000)]]);
    check_with_refunds::<Gcra>(3, &[&[TryAndRefund(900_000)], &[Try(1), TryAndRefund(700_000)]]);
}

#[test]
fn no_caller_is_granted_in_a_pause() {
    use Call::{Pause, SetPolicy, Try};
    check::<SmoothBursty>(3, &[&[Try(1), Try(1)], &[Pause(50), SetPolicy(7)]]);
}

/// The mutex alone, with refunds and changes under it.
#[test]
fn what_is_held_for_a_short_time_is_held_alone() {
    use Call::{Pause, SetPolicy, Try, TryAndRefund};
    check::<SmoothWarmingUp>(3, &[&[Try(1), Try(1)], &[TryAndRefund(3)]]);
    check::<SmoothWarmingUp>(3, &[&[Try(1)], &[SetPolicy(7), Try(2)]]);
    check::<SmoothWarmingUp>(2, &[&[Try(1), Try(1)], &[Pause(50)]]);
}

/// The clock is read before the mutex is taken, perhaps by the thread that takes it last.
#[test]
fn a_caller_with_an_old_time_counts_from_the_latest() {
    use Call::{SetPolicy, TryAndRefund, TryAt};
    check::<SmoothWarmingUp>(3, &[&[TryAt(EARLIER, 1)], &[TryAt(NOW, 1)]]);
    check::<SmoothWarmingUp>(2, &[&[TryAt(EARLIER, 1)], &[TryAndRefund(2), SetPolicy(7)]]);
    check::<SmoothBursty>(2, &[&[TryAt(EARLIER, 1)], &[TryAt(NOW, 102), SetPolicy(7)]]);
}

/// Waiting, leaving and the alarm: a waiter that stays is granted once, one that leaves is not charged.
#[test]
fn a_caller_that_stays_is_granted_once_and_one_that_leaves_pays_nothing() {
    loom::model(|| {
        let line = line::<SmoothBursty>(NOW);
        assert!(ask(&line, NOW, 5, None).is_ok());
        let other = {
            let line = Arc::clone(&line);
            thread::spawn(move || match ask(&line, NOW, 3, None) {
                Ok(Caller::Waiting(key)) => {
                    line.with_lock(|inner, now| inner.leave(key, now));
                }
                // After the alarm: for the line it is later then.
                Ok(_) => {}
                Err(error) => panic!("{error}"),
            })
        };
        let Ok(Caller::Waiting(key)) = ask(&line, NOW, 1, None) else {
            panic!("it has to wait");
        };
        stand_at(LATER);
        sound(&line);
        other.join().expect("no panic");
        let standing = line.with_lock(|inner, _| inner.poll(key, Waker::noop()));
        assert!(matches!(standing, Ok(Ok(_))));
        assert_eq!(line.with_lock(|inner, _| inner.queue_len()), 0);
    });
}

/// One comes and stays, one comes and leaves, and the alarm.
#[test]
fn each_caller_that_stays_is_granted_once_among_three() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let line = line::<SmoothBursty>(NOW);
        assert!(ask(&line, NOW, 5, None).is_ok());
        let comes = |leaves: bool| {
            let line = Arc::clone(&line);
            thread::spawn(move || match ask(&line, NOW, 1, None) {
                Ok(Caller::Waiting(key)) if leaves => {
                    line.with_lock(|inner, now| inner.leave(key, now));
                    None
                }
                Ok(Caller::Waiting(key)) => Some(key),
                // After the alarm: for the line it is later then.
                Ok(_) => None,
                Err(error) => panic!("{error}"),
            })
        };
        let (stays, leaves) = (comes(false), comes(true));
        stand_at(LATER);
        sound(&line);
        let stays = stays.join().expect("no panic");
        leaves.join().expect("no panic");
        sound(&line);
        if let Some(key) = stays {
            let standing = line.with_lock(|inner, _| inner.poll(key, Waker::noop()));
            assert!(matches!(standing, Ok(Ok(_))));
        }
        assert_eq!(line.with_lock(|inner, _| inner.queue_len()), 0);
        assert!((2..=3).contains(&line.stats().granted));
    });
}
